"""A family fitted to a person's own kernel: sizes and hints from a call's arguments, blocks by their own names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from operator import index
from typing import Any, NamedTuple

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec
from kerntune.errors import ConfigError, HintError
from kerntune.heuristics.call_hints import (
    Read,
    TtirCounts,
    inferred_read,
    read_of,
    reduction_split,
    second_stage_hint,
    sizes_from_arguments,
    tile_hint,
)
from kerntune.heuristics.hints import (
    BLOCK_NAMES,
    REDUCTION_AXES,
    HeuristicType,
    KernelHints,
    ReductionHint,
    require_known_axes,
)
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.sizing import named_blocks, rebuilt

Family = Callable[[KernelHints, DeviceSpec, Preset], tuple[Config, ...]]

NO_COUNTS = TtirCounts()

GROUP_M = 8
"""Tiles of a group, in all of torch's templates for NVIDIA GPUs (``template_heuristics/triton.py``, ``group_m``)."""

LONG_STRIDE = 2
"""The value for every stride above 1: only 0, 1 and "longer" matter, and sizes of one bucket must have equal keys."""


class ProposalInputs(NamedTuple):
    """What a proposal depends on in one call: equal values give equal candidates on one device.

    ``sizes`` are rounded up to powers of two. ``reads`` have strides of 0, 1, and 2 for anything longer. ``empty``
    means that a size is 0: any config that launches without an error will do. ``walk`` is how a reduction walks memory
    by its exact sizes, where the rounded ones say otherwise.
    """

    sizes: tuple[tuple[str, int], ...]
    reads: tuple[Read, ...] = ()
    empty: bool = False
    walk: ReductionHint | None = None

    def __str__(self) -> str:
        """The text in keys of stored winners, which begins with the class's first name."""
        walk = "" if self.walk is None else f", walk={self.walk.value}"
        return f"Look(sizes={self.sizes}, reads={self.reads}, empty={self.empty}{walk})"


@dataclass(frozen=True)
class Proposer:
    """Candidates of one kernel from a family.

    ``sizes`` maps axes to the arguments whose product is their number of elements, ``blocks`` axes to the kernel's own
    constexprs, ``reduced`` tensor arguments to the dimensions that the kernel reduces. ``known`` are fields of
    :class:`~kerntune.heuristics.hints.KernelHints` that take precedence over those from the call and the TTIR.
    ``reduces``: one of the reduction families, so that a kernel without a block of x has one row a program.
    ``whole_rows``: a persistent one, whose reduced blocks (if the kernel takes them) hold the whole axis.

    Errors that don't depend on a call are raised here: :class:`ConfigError` for blocks, :class:`HintError` for the
    rest.
    """

    family: Family
    kernel: str
    parameters: tuple[str, ...]
    constexprs: frozenset[str]
    sizes: Mapping[str, tuple[str, ...]]
    blocks: Mapping[str, str]
    reduced: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)
    preset: Preset = INDUCTOR_2_13
    reduces: bool = False
    whole_rows: bool = False
    second_pass: bool = False
    """Whether the kernel adds up the parts that another one left: a small outer one is OUTER_TINY then."""
    group: str = ""
    """A product's constexpr of how many tiles along y a group of programs takes, so that they share operands in L2."""
    kind: HeuristicType = HeuristicType.USER_AUTOTUNE
    """The family by name: what register counts may change of its configs."""

    def __post_init__(self) -> None:
        require_known_axes(self.sizes, self._where)
        of_sizes = [(f"axis {axis}", name) for axis, names in self.sizes.items() for name in names]
        for what, name in (*of_sizes, *(("reduced", name) for name in self.reduced)):
            if name not in self.parameters:
                known = ", ".join(self.parameters)
                raise HintError(f"{self._where}{what} is to be argument {name!r}, but the kernel has {known}")
        if not self.sizes:
            raise HintError(f"{self._where}no sizes: name the argument that holds the size of x")
        self._check_blocks()
        ones = dict.fromkeys(self.sizes, 1)
        self._known(ones)
        fields = ("native_matmul", "rsplit_size")  # they decide which parameters configs have
        shape = {**{name: self.known[name] for name in fields if name in self.known}, **self._no_x()}
        plain = msgspec.structs.replace(KernelHints(sizes=self._with_x(ones), kernel=self.kernel), **shape)
        self._named(self.family(plain, TYPICAL_DEVICES["cuda:90"], self.preset), plain.sizes)

    @property
    def _where(self) -> str:
        return f"kernel {self.kernel}: "

    @property
    def chosen(self) -> tuple[str, ...]:
        """The constexprs that candidates set: a call gives none of them."""
        return (*self.blocks.values(), *((self.group,) if self.group else ()))

    def inputs(self, arguments: Mapping[str, Any], device: DeviceSpec) -> ProposalInputs:
        """What matters of a call; :class:`HintError` names kernel, axis and argument of a size that can't be one."""
        names = dict.fromkeys(name for several in self.sizes.values() for name in several)
        given = {name: _whole(arguments[name]) for name in names if name in arguments}
        empty = any(value == 0 for value in given.values())
        floored = {**arguments, **{name: value or 1 if value == 0 else value for name, value in given.items()}}
        rounded = sizes_from_arguments(self.sizes, floored, kernel=self.kernel)
        sizes = self._with_x(rounded)
        if empty or not self.reduces:
            return ProposalInputs(tuple(sizes.items()), (), empty, None)
        exact = {axis: prod(given[name] for name in names) for axis, names in self.sizes.items()}
        found = self._given_reads(arguments) if self.reduced else self._inferred(arguments, exact)
        reads = tuple(Read(*(tuple(min(s, LONG_STRIDE) for s in one) for one in read)) for read in found)
        # How the reduction walks memory, by Inductor's rules; where rounded sizes agree, that isn't said.
        splits = (reduction_split(reads, *_outputs_and_r(s), device, may_split=False) for s in (exact, sizes))
        walk, usual = (split.hint for split in splits)
        return ProposalInputs(tuple(sizes.items()), reads, empty, None if walk is usual else walk)

    def propose(self, inputs: ProposalInputs, device: DeviceSpec, counts: TtirCounts = NO_COUNTS) -> tuple[Config, ...]:
        """The candidates, the likeliest best one first, with the kernel's own parameter names; for an empty launch only
        one.

        Raises :class:`HintError` where the family can't decide, :class:`ConfigError` where a block that the kernel
        doesn't take would have to be other than 1.
        """
        hints = self.hints_of(inputs, device, counts)
        configs = self._named(self.family(hints, device, self.preset), dict(inputs.sizes))
        return configs[:1] if inputs.empty else configs

    def hints_of(self, inputs: ProposalInputs, device: DeviceSpec, counts: TtirCounts = NO_COUNTS) -> KernelHints:
        """All that is known of a call: counted, observed, and said by the author, who has the last word."""
        sizes = dict(inputs.sizes)
        hints = counts.apply(KernelHints(sizes=sizes, kernel=self.kernel))
        return msgspec.structs.replace(
            hints, **{**self._observed(inputs, device), **self._known(sizes), **self._no_x()}
        )

    def _observed(self, inputs: ProposalInputs, device: DeviceSpec) -> dict[str, Any]:
        sizes = dict(inputs.sizes)
        if not self.reduces:
            return {"tile": tile_hint(sizes, len(self.parameters) - len(self.constexprs))}
        outputs, r = _outputs_and_r(sizes)
        hint = inputs.walk or reduction_split(inputs.reads, outputs, r, device, may_split=False).hint
        hint = second_stage_hint(hint, outputs, r) if self.second_pass else hint
        contiguous = not inputs.reads or any(1 in read.reduced for read in inputs.reads)
        return {"reduction": hint, "contiguous_reduction_access": contiguous}

    def _given_reads(self, arguments: Mapping[str, Any]) -> list[Read]:
        found = []
        for name, dims in self.reduced.items():
            tensor = arguments.get(name)
            if tensor is None:
                continue
            if not callable(getattr(tensor, "stride", None)):
                raise HintError(f"{self._where}reduced names argument {name}={tensor!r}, which is no tensor")
            try:
                found.append(read_of(tuple(tensor.shape), tuple(tensor.stride()), dims))
            except HintError as exc:
                raise HintError(f"{self._where}argument {name}: {exc}") from exc
        return found

    def _inferred(self, arguments: Mapping[str, Any], numels: Mapping[str, int]) -> list[Read]:
        outputs, r = _outputs_and_r(numels)
        tensors = [value for value in arguments.values() if callable(getattr(value, "stride", None))]
        reads = (inferred_read(tuple(t.shape), tuple(t.stride()), outputs, r) for t in tensors)
        return [read for read in reads if read is not None]

    def _known(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The author's hints as values of their types; text does for an enumeration."""
        try:
            whole = msgspec.convert({"kernel": self.kernel, **self.known, "sizes": self._with_x(sizes)}, KernelHints)
        except msgspec.ValidationError as exc:
            raise HintError(f"{self._where}a hint is wrong: {exc}") from exc
        return {name: getattr(whole, name) for name in self.known}

    def _named(self, configs: tuple[Config, ...], sizes: Mapping[str, int]) -> tuple[Config, ...]:
        if self.whole_rows:
            whole = {BLOCK_NAMES[axis]: sizes[axis] for axis in self.blocks if axis in REDUCTION_AXES}
            configs = tuple(config.replace(kwargs={**config.kwargs, **whole}) for config in configs)
        if self.group:
            configs = tuple(rebuilt(config, {**config.kwargs, self.group: GROUP_M}) for config in configs)
        try:
            found = named_blocks(configs, self.blocks, kernel=self.kernel)
        except HintError as exc:
            raise ConfigError(
                f"{exc}. Only a block that is 1 everywhere may be missing: give the kernel a constexpr and name it in "
                "blocks="
            ) from exc
        unknown = sorted({name for config in found for name in config.kwargs} - set(self.parameters))
        if unknown:
            raise ConfigError(
                f"{self._where}its configs set {', '.join(unknown)}, which it has no parameter for; give it "
                f"such a constexpr"
            )
        return found

    def _with_x(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """A reduction that names no x has one row."""
        return {"x": 1, **sizes} if self.reduces and "x" not in sizes else dict(sizes)

    def _no_x(self) -> dict[str, bool]:
        return {"no_x_block": True} if self.reduces and "x" not in self.blocks else {}

    def _check_blocks(self) -> None:
        for axis, name in self.blocks.items():
            if axis not in self._with_x(dict.fromkeys(self.sizes, 1)):
                raise ConfigError(
                    f"{self._where}block {name} is of axis {axis!r}, but sizes= has {', '.join(self.sizes)}"
                )
        for name in self.chosen:
            if name not in self.constexprs:
                known = ", ".join(p for p in self.parameters if p in self.constexprs) or "none"
                raise ConfigError(f"{self._where}block {name} is no constexpr of it; it has {known}")


def _outputs_and_r(sizes: Mapping[str, int]) -> tuple[int, int]:
    r = prod(size for axis, size in sizes.items() if axis in REDUCTION_AXES)
    return prod(sizes.values()) // r, r


def _whole(value: Any) -> Any:
    """An integer of any type as Python's own; everything else as it is, for the error to show."""
    try:
        return value if isinstance(value, bool) else index(value)
    except TypeError:
        return value
