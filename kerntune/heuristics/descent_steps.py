"""Coordinate descent's neighbourhoods: one step along one integer field of a config, or along all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from math import prod

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.hints import BLOCK_NAMES, MAX_TENSOR_NUMEL, MIN_DOT_BLOCK, HeuristicType, KernelHints
from kerntune.heuristics.persistent import is_whole
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.sizing import bounds

IMPROVEMENT = 0.001
"""A step is taken if it saves more than a thousandth (torch 2.13, ``coordinate_descent_tuner.py``)."""

DERIVED_FIELDS = (*BLOCK_NAMES.values(), "BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")
"""The fields that Inductor tunes in its own kernels, in its order."""

MAX_WAVES_PER_EU = 8
LOOP_STAGES_RADIUS = 2
"""``NUM_STAGES`` 1 may be faster than 2 where 3 is faster than both, so a step may be two wide."""

GIVEN = frozenset({HeuristicType.USER_AUTOTUNE, HeuristicType.TEMPLATE, HeuristicType.FIXED})
REDUCTIONS = frozenset(
    HeuristicType(name) for name in ("reduction", "persistent_reduction", "cooperative_reduction", "split_scan")
)
DOT_AXES = ("x", "y", "r0")


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An integer field and its legal values: doubled and halved, or counted up and down (``by_one``)."""

    name: str
    least: int = 1
    most: int = MAX_TENSOR_NUMEL
    by_one: bool = False
    radius: int = 1

    def values(self, value: int, radius: int = 1, *, include_self: bool = False) -> tuple[int, ...]:
        """Legal values up to ``radius`` steps above, then below; 1 is the step above 0."""
        above, below = [value], [value]
        for _ in range(max(radius, self.radius)):
            up, down = above[-1], below[-1]
            above.append(up + 1 if self.by_one or up == 0 else up * 2)
            below.append(down - 1 if self.by_one else down // 2)
        legal = [v for v in above[1:] if v <= self.most] + [v for v in below[1:] if v >= self.least]
        return (*legal, value) if include_self else tuple(legal)


class Neighbourhood(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields worth stepping along, and which configs are legal.

    ``mix_order`` keeps ``XBLOCK`` within ``RSPLIT_SIZE``, ``whole_splits`` a divisor of it; a config without an
    ``XBLOCK`` has no legal step there. ``dot_rblock`` keeps a native matmul's blocks, times that many reduced elements
    if the config has no R0 block, within one Triton tensor. ``elements_per_warp`` are the fewest that a block may have.
    ``names`` are a kernel's own names of Inductor's blocks, ``constraints`` what the user demands of every config.
    """

    fields: tuple[Field, ...]
    mix_order: bool = False
    whole_splits: tuple[KernelHints, Preset] | None = None
    native_matmul: bool = False
    dot_rblock: int = 1
    elements_per_warp: int = 0
    names: dict[str, str] = {}
    constraints: tuple[Callable[[Config], bool], ...] = ()

    def neighbours(self, config: Config, field: Field) -> tuple[Config, ...]:
        """Legal configs one step away along a field; none if the config doesn't set it."""
        value = get_field(config, field.name)
        if value is None:
            return ()
        steps = (set_field(config, field.name, v) for v in field.values(value))
        return tuple(step for step in steps if self.is_legal(step))

    def all_directions(self, config: Config, radius: int) -> tuple[Config, ...]:
        """Legal configs up to ``radius`` steps away along every field at once, the config itself among them."""
        present = self._present(config)
        choices = [f.values(value, radius, include_self=True) for f, value in present]
        found = []
        for values in itertools.product(*choices):
            step = config
            for (field, _), value in zip(present, values, strict=True):
                step = set_field(step, field.name, value)
            found.append(step)
        return tuple(filter(self.is_legal, found))

    def _present(self, config: Config) -> list[tuple[Field, int]]:
        return [(f, v) for f in self.fields if (v := get_field(config, f.name)) is not None]

    def two_fields(self, config: Config) -> tuple[Config, ...]:
        """Legal configs one step away along each of two fields, those first that leave the elements of a warp as they
        are, and of these those that leave the tile."""
        steps = (
            set_field(set_field(config, a.name, one), b.name, other)
            for (a, x), (b, y) in itertools.combinations(self._present(config), 2)
            for one, other in itertools.product(a.values(x), b.values(y))
        )
        return tuple(sorted(filter(self.is_legal, steps), key=lambda step: _apart(config, step)))

    def is_legal(self, config: Config) -> bool:
        """Whether a kernel of this kind can be compiled for the config, and the constraints allow it."""
        if not all(holds(config) for holds in self.constraints):
            return False
        if self.mix_order:
            x, split, stages = (self._block(config, n) for n in ("XBLOCK", "RSPLIT_SIZE", "NUM_STAGES"))
            if x is None or split is None:
                return False
            if self.whole_splits is None:
                return x <= split
            return stages is not None and is_whole(x, split, stages, *self.whole_splits)
        if self.native_matmul:
            blocks = prod(self._block(config, name) or 1 for name in ("XBLOCK", "YBLOCK", "ZBLOCK"))
            return blocks * (self._block(config, "R0_BLOCK") or self.dot_rblock) <= MAX_TENSOR_NUMEL
        elements = prod(get_field(config, name) or 1 for name in self.names.values())
        return elements >= self.elements_per_warp * config.num_warps

    def _block(self, config: Config, name: str) -> int | None:
        return get_field(config, self.names.get(name, name))


def _apart(config: Config, step: Config) -> tuple[float, float]:
    """How far a step changes the elements of a warp, and the tile: logarithms of both ratios."""
    before, after = tile_of(config), tile_of(step)
    by_warp = math.log2(after / step.num_warps) - math.log2(before / config.num_warps)
    return abs(by_warp), abs(math.log2(after) - math.log2(before))


def tile_of(config: Config) -> int:
    """The product of a config's positive integers: elements of a block, if all of them are blocks."""
    return prod(v for v in config.kwargs.values() if isinstance(v, int) and v > 0)


def improves(best: float, trial: float) -> bool:
    """Whether a trial's time is worth a step: less than 0.999 of the best."""
    return trial < best * (1 - IMPROVEMENT)


def may_descend(family: HeuristicType, hints: KernelHints) -> bool:
    """Whether steps are allowed: not for a deterministic reduction, where block sizes determine the order of
    additions."""
    return not (hints.modes.deterministic and family in REDUCTIONS)


def neighbourhood(
    config: Config,
    device: DeviceSpec,
    hints: KernelHints | None = None,
    family: HeuristicType = HeuristicType.USER_AUTOTUNE,
    *,
    limits: Mapping[str, int] | None = None,
    frozen: Collection[str] = (),
    preset: Preset = INDUCTOR_2_13,
    blocks: Mapping[str, str] | None = None,
) -> Neighbourhood:
    """The neighbourhood of configs like ``config``.

    A proposed kernel (one with ``hints``) is stepped along Inductor's fields, within its sizes and block minimums. A
    user's kernel is stepped along every integer field: constexprs, warps, stages, compile options. With ``blocks``, its
    own names of blocks by axis, these are bounded by the ``hints``: the sizes, block minimums and those of descriptors,
    what ``tl.dot`` and a scan need. ``limits`` gives upper bounds by field name, and adds those fields; ``frozen``
    takes fields away. Raises :class:`~kerntune.errors.HintError` for a limit of a field that the config doesn't have.
    """
    if hints is not None and blocks is not None:
        found = neighbourhood(config, device, limits=limits, frozen=frozen)
        axes, bounded = {name: axis for axis, name in blocks.items()}, []
        for field in found.fields:
            axis = axes.get(field.name)
            if axis is not None:
                least = least_block(axis, hints, family, preset)
                most = min(field.most, hints.sizes.get(axis, field.most))
                field = msgspec.structs.replace(field, least=least, most=most)
            bounded.append(field)
        names = {BLOCK_NAMES[axis]: name for axis, name in blocks.items()}
        per_warp = hints.min_elements_per_thread * device.warp_size
        return _legal_for(Neighbourhood(tuple(bounded), elements_per_warp=per_warp, names=names), hints, preset)
    limits = dict(limits or {})
    for name in limits:
        if get_field(config, name) is None:
            raise HintError(f"a limit for {name}, but {config} has no integer field of that name")
    own = hints if family not in GIVEN else None
    own_names = _all_names(config) if own is None else _derived_names(config, own, device)
    fields = [_field(n, own, device, family, preset) for n in dict.fromkeys([*limits, *own_names])]
    kept = (field for field in fields if field.name not in frozen)
    steps = Neighbourhood(tuple(msgspec.structs.replace(f, most=limits.get(f.name, f.most)) for f in kept))
    return steps if own is None else _legal_for(steps, own, preset)


def _legal_for(steps: Neighbourhood, hints: KernelHints, preset: Preset) -> Neighbourhood:
    mix_order = hints.rsplit_size is not None
    rblock = hints.native_matmul_rblock or max(hints.sizes.get("r0", 1), MIN_DOT_BLOCK)
    return msgspec.structs.replace(
        steps,
        mix_order=mix_order,
        whole_splits=(hints, preset) if mix_order and preset.whole_mix_order else None,
        native_matmul=hints.native_matmul,
        dot_rblock=rblock if hints.native_matmul else 1,
    )


def least_block(axis: str, hints: KernelHints, family: HeuristicType, preset: Preset) -> int:
    """The shortest block of an axis that a user's kernel can take: what Inductor's descent keeps, and the minimums of
    descriptors under every preset."""
    return max(_least(axis, hints, family, preset), hints.tma_minimums.get(axis, 1))


def _all_names(config: Config) -> list[str]:
    names = [*config.kwargs, "num_warps", "num_stages", *config.options]
    return [name for name in names if get_field(config, name) is not None]


def _derived_names(config: Config, hints: KernelHints, device: DeviceSpec) -> list[str]:
    names = [name for name in DERIVED_FIELDS if not (hints.native_matmul and name == "ZBLOCK")]
    if device.target.backend == "hip":
        names.append("waves_per_eu")
    if hints.native_matmul:
        names.append("num_stages")
    if hints.rsplit_size is not None:
        names.append("NUM_STAGES")
    return [name for name in names if get_field(config, name) is not None or name == "waves_per_eu"]


def _field(name: str, hints: KernelHints | None, device: DeviceSpec, family: HeuristicType, preset: Preset) -> Field:
    if name == "num_warps":
        return Field(name, most=max(device.max_threads_per_block // device.warp_size, 1))
    if name == "waves_per_eu":
        return Field(name, most=MAX_WAVES_PER_EU)
    if "stages" in name.lower():
        return Field(name, by_one=True, radius=LOOP_STAGES_RADIUS if name == "NUM_STAGES" else 1)
    axis = next((axis for axis, block in BLOCK_NAMES.items() if block == name), None)
    if hints is None or axis is None:
        return Field(name)
    most = bounds(hints, device, preset).max_block[axis]
    return Field(name, least=_least(axis, hints, family, preset), most=min(most, hints.sizes.get(axis, most)))


def _least(axis: str, hints: KernelHints, family: HeuristicType, preset: Preset) -> int:
    floors = [{"x": hints.min_x_block, "r0": hints.min_r_block}.get(axis) or 1]
    if preset.whole_mix_order:
        floors.append(hints.tma_minimums.get(axis, 1))
    if hints.native_matmul and axis in DOT_AXES:
        floors.append(MIN_DOT_BLOCK)
    if family is HeuristicType.SPLIT_SCAN and axis == "r0":
        floors.append(hints.min_scan_rblock)
    return max(floors)


def get_field(config: Config, name: str) -> int | None:
    """An integer field's value; None if the config doesn't set it or it is no integer.

    ``waves_per_eu`` counts as set on any config that steps along it: 8 waves shared by the warps.
    """
    if name in ("num_warps", "num_stages", "num_ctas"):
        value: object = getattr(config, name)
    elif name == "waves_per_eu" and name not in config.kwargs:
        value = config.options.get(name, MAX_WAVES_PER_EU // config.num_warps)
    else:
        value = config.kwargs.get(name, config.options.get(name))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def set_field(config: Config, name: str, value: int) -> Config:
    """A copy with the field changed where it stands: among the options if it is one, else as :meth:`Config.replace`."""
    if name in config.options or (name == "waves_per_eu" and name not in config.kwargs):
        return config.replace(options={**config.options, name: value})
    return config.replace(**{name: value})
