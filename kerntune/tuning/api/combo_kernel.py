"""Has ``kerntune.combo`` and ``kerntune.foreach``: many small pieces of work as one launch, where that pays.

A combo joins several small kernels. A foreach applies one function over lists of tensors, many tensors a launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from kerntune import heuristics
from kerntune.errors import ConfigError, UsageError
from kerntune.grids import (
    Grid,
    Grid1D,
    Grid2D,
    Name,
    RoundRobinComboKernelGrid,
    SequentialComboKernelGrid,
    SequentialFlattenComboKernelGrid,
    SubKernel,
    mul,
)
from kerntune.heuristics.hints import HeuristicType, Modes
from kerntune.heuristics.proposer import Proposer
from kerntune.kernels.combined import (
    PartCode,
    alone_kernel,
    block_names,
    round_robin_kernel,
    sequential_kernel,
)
from kerntune.kernels.compat import tuners
from kerntune.kernels.dispatch.native import MAX_PARAMETERS
from kerntune.kernels.source import function_of
from kerntune.tuning.api import decorators
from kerntune.tuning.api.autotuner import Autotuner
from kerntune.tuning.api.combo_tuner import ComboChoice, ComboProposer, ComboTuner, choose, remembered

KINDS = {
    "pointwise": (heuristics.pointwise, decorators.pointwise),
    "reduction": (heuristics.reduction, decorators.reduction),
    "persistent_reduction": (heuristics.persistent_reduction, decorators.persistent_reduction),
}

ORDERS = ("sequential", "round robin")

OF_PARTS = ("cache_results", "tune")
"""Options of a combo that hold for its parts launched one by one, too."""


@dataclass(frozen=True)
class ComboPart:
    """A part of a combo: a ``@triton.jit`` function whose first parameters are the indices of its block, one for each
    of the axes x and y in ``sizes``, in that order.

    ``sizes``, ``blocks`` and ``reduced`` are as in :func:`kerntune.pointwise` and :func:`kerntune.reduction`; ``kind``
    is ``pointwise``, ``reduction`` or ``persistent_reduction``; ``hints`` are fields of
    :class:`~kerntune.heuristics.hints.KernelHints` that you know better. :class:`ConfigError` and
    :class:`~kerntune.errors.HintError` for names that the function or the hints don't have.
    """

    fn: Any
    sizes: Mapping[str, Any]
    blocks: Mapping[str, str]
    kind: str = "pointwise"
    reduced: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not hasattr(self.fn, "arg_names"):
            raise ConfigError(f"{self.fn!r} is no Triton function: put @triton.jit on it")
        if hasattr(self.fn, "configs"):
            raise ConfigError(f"kernel {self.name}: a part has no tuner of its own; give the function under it")
        if self.kind not in KINDS:
            raise ConfigError(f"kernel {self.name}: kind is {self.kind!r}; it can be {', '.join(KINDS)}")
        if unknown := sorted(set(self.sizes) - {"x", "y", "r0", "r1"}):
            raise ConfigError(f"kernel {self.name}: a part can't have the axis {unknown[0]}: x, y, r0 and r1")
        if unknown := sorted({*self.reduced, *self.blocks.values()} - set(self.fn.arg_names)):
            raise ConfigError(f"kernel {self.name}: it has no argument {unknown[0]}")
        _ = self.proposer  # its errors are wanted where the part is written, not at its first call

    @property
    def name(self) -> str:
        """The function's."""
        return str(function_of(self.fn).__name__)

    @cached_property
    def code(self) -> PartCode:
        """What launches are made from."""
        return self.code_with(frozenset())

    def code_with(self, shared: frozenset[str]) -> PartCode:
        """The same, with arguments that all parts share."""
        sizes = {axis: (n,) if isinstance(n, str) else tuple(n) for axis, n in self.sizes.items()}
        skipped = sum(axis in sizes for axis in ("x", "y"))
        names = tuple(self.fn.arg_names)[skipped:]
        constexprs = decorators.constexprs_of(function_of(self.fn))
        return PartCode(self.fn, self.name, names, constexprs, sizes, dict(self.blocks), shared)

    @cached_property
    def proposer(self) -> Proposer:
        """What its candidates follow from. Errors are those of the decorators."""
        code, reduces = self.code, self.kind != "pointwise"
        reduced = {n: (d,) if isinstance(d, int) else tuple(d) for n, d in self.reduced.items()}
        return Proposer(
            family=KINDS[self.kind][0],
            kernel=self.name,
            parameters=code.parameters,
            constexprs=code.constexprs,
            sizes=code.sizes,
            blocks=self.blocks,
            reduced=reduced,
            known=self.hints,
            reduces=reduces,
            whole_rows=self.kind == "persistent_reduction",
            kind=HeuristicType(self.kind),
        )

    def alone(self, options: Mapping[str, Any]) -> tuple[Any, Grid]:
        """The part as a tuned kernel of its own, and its grid. Of a combo's ``options`` those count that say whether
        it is tuned (:data:`OF_PARTS`)."""
        words: dict[str, Any] = {**self.hints, **{name: options[name] for name in OF_PARTS if name in options}}
        if self.reduced:
            words["reduced"] = self.reduced
        kernel = KINDS[self.kind][1](sizes=self.sizes, blocks=self.blocks, **words)(alone_kernel(self.code))
        terms = [mul(*map(Name, self.code.sizes[axis])) for axis in self.code.axes]
        blocks = [self.blocks.get(axis) for axis in self.code.axes]
        if len(terms) == 2:
            return kernel, Grid2D(*terms, *blocks)
        return kernel, Grid1D(terms[0] if terms else 1, blocks[0] if blocks else None)


class ComboKernel:
    """Several parts as one launch. Call it with a tuple of arguments for each part, without block indices and blocks.

    ``tuner`` is the one kernel's; ``apart`` are the parts' own tuners and grids; ``choices`` says, by kind of call,
    whether one launch paid.
    """

    def __init__(self, parts: Sequence[ComboPart], name: str, order: str, words: Mapping[str, Any]) -> None:
        self.parts, self.name = tuple(parts), name
        codes = [part.code for part in parts]
        self._one_block = order == ORDERS[1]
        fn = round_robin_kernel(name, codes) if self._one_block else sequential_kernel(name, codes)
        blocks = block_names(codes, one_block=self._one_block)
        proposer = ComboProposer(name, tuple(p.proposer for p in parts), blocks)
        self.tuner = ComboTuner(fn, proposer, **words)
        self.grid = combo_grid(codes, one_block=self._one_block, turns=self._one_block)
        self.apart = apart(parts, words)
        self.choices: dict[Any, ComboChoice] = {}
        self._counts = [len(code.arguments) for code in codes]
        at, places = 0, []
        for code in codes:
            sized = {n for names in code.sizes.values() for n in names}
            places += [at + i for i, n in enumerate(code.arguments) if n in sized]
            at += len(code.arguments)
        self._sized = tuple(places)

    def __call__(self, *groups: Sequence[Any]) -> None:
        """Launch all parts, as one or one by one. What the parts do to each other's tensors must not depend on their
        order. :class:`UsageError` for a wrong number of parts or arguments."""
        flat = [value for group in groups for value in group]
        if list(map(len, groups)) != self._counts:
            wanted = "; ".join(f"{p.name}: {', '.join(p.code.arguments)}" for p in self.parts)
            got = ", ".join(str(len(group)) for group in groups)
            what = f"a tuple of arguments for each part ({wanted})"
            raise UsageError(f"combo {self.name}: give {what}; got {got} arguments")
        chosen = self.choices.get(key := self._key(flat))
        if chosen is None:
            chosen = remembered(self.choices, key, choose(self._together, self._apart, flat))
        if chosen.together:
            self._together(flat)
        else:
            self._apart(flat)

    def _together(self, flat: Sequence[Any]) -> None:
        self.tuner[self.grid](*flat)

    def _apart(self, flat: Sequence[Any]) -> None:
        at = 0
        for (kernel, grid), count in zip(self.apart, self._counts, strict=True):
            kernel[grid](*flat[at : at + count])
            at += count

    def _key(self, flat: Sequence[Any]) -> Any:
        sizes = tuple([flat[i] for i in self._sized])
        return sizes, tuple([getattr(value, "dtype", None) for value in flat]), tuners.kind_of_gpu()


def apart(parts: Sequence[ComboPart], options: Mapping[str, Any]) -> list[tuple[Any, Grid]]:
    """Tuners and grids of parts launched one by one; the same part, given several times, is tuned once."""
    made: list[tuple[ComboPart, tuple[Any, Grid]]] = []
    for part in parts:
        found = next((kernel for other, kernel in made if other == part), None)
        made.append((part, found or part.alone(options)))
    return [kernel for _, kernel in made]


def combo_grid(codes: Sequence[PartCode], *, one_block: bool, turns: bool = False) -> Grid:
    """The grid of a combined kernel with its arguments' names: parts of their own blocks, or of ``one_block`` one after
    the other or in ``turns``."""

    def numel(code: PartCode, i: int, axis: str) -> Any:
        names = code.sizes.get(axis, ())
        return mul(*(Name(code.own(n, i)) for n in names)) if names else 1

    def subkernel(code: PartCode, i: int) -> SubKernel:
        y = numel(code, i, "y") if "y" in code.sizes else None
        return SubKernel(numel(code, i, "x"), y, no_x_dim="x" not in code.blocks)

    kernels = tuple(subkernel(code, i) for i, code in enumerate(codes))
    if turns:
        return RoundRobinComboKernelGrid(kernels)
    return SequentialComboKernelGrid(kernels) if one_block else SequentialFlattenComboKernelGrid(kernels)


def combo(parts: Sequence[ComboPart], *, name: str = "", order: str = "sequential", **words: Any) -> ComboKernel:
    """Several small kernels that don't depend on each other as one launch, where that is faster than one by one.

    The first call of a kind (sizes and dtypes) tunes both ways, each part's blocks by its own family, and times them on
    copies of its tensors, as a user sees them: calls after one another, the host's time included. One launch is taken
    if it saves at least 2 %. The result has the ``choices``; a call gives a tuple of arguments for each part::

        both = kerntune.combo([ComboPart(scale, {"x": "n"}, {"x": "BLOCK"}), ComboPart(sums, ..., kind="reduction")])
        both((x, y, n), (z, out, rows, cols))

    ``order``: ``sequential`` lays the parts one after the other, with blocks of their own; ``round robin`` takes a
    block of each in turn, with one block of x for all. Other options are ``cache_results=``, ``tune=``, ``descend=``
    and ``key=`` as in :func:`kerntune.pointwise`; the first two hold for parts one by one, too. In a pytest case, in
    Triton's interpreter, and without a GPU it is always one launch.

    :class:`~kerntune.errors.ConfigError` for no parts, a part that can't be one, and names that clash.
    """
    if not parts:
        raise ConfigError("kerntune.combo: there are no parts")
    for index, part in enumerate(parts):
        if not isinstance(part, ComboPart):
            raise ConfigError(f"kerntune.combo: part {index} is {part!r}; write ComboPart(kernel, sizes, blocks)")
    if order not in ORDERS:
        raise ConfigError(f"kerntune.combo: order is {order!r}; it can be {' or '.join(ORDERS)}")
    names = dict.fromkeys(part.name for part in parts)
    return ComboKernel(parts, name or f"combo_{'_'.join(names)}"[:MOST_NAME], order, words)


MOST_NAME = 80
"""Characters of a combo's own name."""

ELEMENTS = 1024
"""Elements of a block: what Inductor's foreach kernels have (torch 2.13, ``codegen/triton_combo_kernel.py``)."""


class ForeachKernel:
    """A part launched for each of several tensors. Call it with the part's arguments, without block indices and
    blocks: a list where each tensor has a value of its own, anything else for all of them.

    ``choices`` says, by kind of call, whether launching many at once paid.
    """

    def __init__(self, part: ComboPart, elements: int, words: Mapping[str, Any]) -> None:
        if set(part.sizes) != {"x"} or set(part.blocks) != {"x"}:
            raise ConfigError(f"kernel {part.name}: foreach takes parts of one axis x with a block")
        self.part, self.name = part, f"foreach_{part.name}"
        self._elements, self._words = elements, dict(words)
        self.apart = part.alone(words)
        self.choices: dict[Any, ComboChoice] = {}
        self._kernels: dict[tuple[int, frozenset[str]], tuple[Autotuner, Grid]] = {}
        self._names = part.code.arguments

    def __call__(self, *arguments: Any) -> None:
        """Launch for all tensors; nothing for empty lists. :class:`UsageError` for a wrong number of arguments, lists
        of different lengths, and a call without a list."""
        count, listed = self._lists(arguments)
        if not count:
            return
        key = (count, tuple(_kind(value) for value in arguments), tuners.kind_of_gpu())
        chosen = self.choices.get(key)
        if chosen is None:
            together, apart = (partial(run, count, listed) for run in (self._together, self._one_by_one))
            chosen = remembered(self.choices, key, choose(together, apart, arguments))
        run = self._together if chosen.together else self._one_by_one
        run(count, listed, arguments)

    def tuner_of(self, count: int, listed: Sequence[bool]) -> tuple[Autotuner, Grid]:
        """The kernel for so many tensors at once, and its grid; ``listed`` are the arguments that are lists."""
        shared = frozenset(n for n, many in zip(self._names, listed, strict=True) if not many)
        if (count, shared) not in self._kernels:
            codes = [self.part.code_with(shared)] * count
            fn = sequential_kernel(self.name, codes, one_block=True)
            (block,) = block_names(codes, one_block=True)
            found = heuristics.foreach(Modes(max_autotune=True))
            configs = [tuners.triton_config(c.replace(kwargs={block: self._elements})) for c in found]
            tuner = Autotuner(fn, fn.arg_names, configs, [], None, None, **self._words)
            self._kernels[count, shared] = tuner, combo_grid(codes, one_block=True)
        return self._kernels[count, shared]

    def at_once(self, listed: Sequence[bool]) -> int:
        """Tensors of one launch: as many as its parameters allow for."""
        many = sum(listed)
        return max((MAX_PARAMETERS - (len(listed) - many) - 1) // many, 1)

    def _lists(self, arguments: Sequence[Any]) -> tuple[int, list[bool]]:
        listed = [isinstance(value, (list, tuple)) for value in arguments]
        lengths = {len(value) for value, many in zip(arguments, listed, strict=True) if many}
        if len(arguments) != len(self._names) or len(lengths) != 1:
            raise UsageError(
                f"{self.name}: give {', '.join(self._names)}, those that differ from tensor to tensor as lists of one "
                f"length; got {len(arguments)} arguments with lists of {', '.join(map(str, sorted(lengths))) or 'none'}"
            )
        return lengths.pop(), listed

    def _together(self, count: int, listed: list[bool], arguments: Sequence[Any]) -> None:
        launches = math.ceil(count / self.at_once(listed))
        each = math.ceil(count / launches)
        for begin in range(0, count, each):
            size = min(each, count - begin)
            kernel, grid = self.tuner_of(size, listed)
            given = []
            for i in range(begin, begin + size):
                for value, many in zip(arguments, listed, strict=True):
                    if many:
                        given.append(value[i])
                    elif i == begin:
                        given.append(value)
            kernel[grid](*given)

    def _one_by_one(self, count: int, listed: list[bool], arguments: Sequence[Any]) -> None:
        kernel, grid = self.apart
        launch = kernel[grid]
        for i in range(count):
            launch(*[value[i] if many else value for value, many in zip(arguments, listed, strict=True)])


def foreach(
    *, sizes: Mapping[str, Any], blocks: Mapping[str, str], elements: int = ELEMENTS, cache_results: bool = True
) -> Callable[[Any], ForeachKernel]:
    """An elementwise function over lists of tensors, as optimizers have them, many tensors a launch where that pays.

    The ``@triton.jit`` function below takes the index of its block first, as a :class:`kerntune.ComboPart` does::

        @kerntune.foreach(sizes={"x": "n"}, blocks={"x": "BLOCK"})
        @triton.jit
        def scale(block, x_ptr, n, factor, BLOCK: tl.constexpr): ...

        scale(tensors, [t.numel() for t in tensors], 0.5)

    Lists are by tensor, everything else is for all. A launch takes as many tensors as 64 parameters allow for, in
    blocks of ``elements``; 1, 2, 4 and 8 warps are tried. Whether that is faster than tensor by tensor is measured at
    the first call of a kind, as :func:`kerntune.combo` does it. ``cache_results``: winners are kept on disk.
    """

    def decorate(fn: Any) -> ForeachKernel:
        return ForeachKernel(ComboPart(fn, sizes, blocks), elements, {"cache_results": cache_results})

    return decorate


def _kind(value: Any) -> Any:
    """What a choice depends on: sizes and dtypes."""
    if isinstance(value, (list, tuple)):
        return tuple([v if isinstance(v, int) else getattr(v, "dtype", None) for v in value])
    return getattr(value, "dtype", None)
