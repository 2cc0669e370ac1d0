"""``kerntune.foreach``: one function over lists of tensors, many tensors a launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerntune import heuristics
from kerntune.errors import ConfigError, UsageError
from kerntune.grids import Grid
from kerntune.heuristics.hints import Modes
from kerntune.kernels import compat
from kerntune.kernels.combined import block_names, sequential_kernel
from kerntune.kernels.dispatch.native import MAX_PARAMETERS
from kerntune.tuning.api.autotuner import Autotuner
from kerntune.tuning.api.combo_choice import ComboChoice, choose, remembered
from kerntune.tuning.api.combo_kernel import ComboPart, combo_grid

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
        key = (count, tuple(_kind(value) for value in arguments), compat.kind_of_gpu())
        chosen = self.choices.get(key)
        if chosen is None:
            chosen = self._choose(key, count, listed, arguments)
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
            configs = [compat.triton_config(c.replace(kwargs={block: self._elements})) for c in found]
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

    def _choose(self, key: Any, count: int, listed: list[bool], arguments: Sequence[Any]) -> ComboChoice:
        flat = [v for value, many in zip(arguments, listed, strict=True) for v in (value if many else [value])]

        def of(run: Callable[[int, list[bool], Sequence[Any]], None]) -> Callable[[Sequence[Any]], None]:
            return lambda given: run(count, listed, _gathered(given, listed, count))

        return remembered(self.choices, key, choose(of(self._together), of(self._one_by_one), flat))

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


def _gathered(flat: Sequence[Any], listed: Sequence[bool], count: int) -> list[Any]:
    """The arguments again of which all values lie in one list."""
    found: list[Any] = []
    at = 0
    for many in listed:
        found.append(list(flat[at : at + count]) if many else flat[at])
        at += count if many else 1
    return found
