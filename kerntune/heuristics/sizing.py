"""Building blocks of all heuristics: blocks fitted to sizes and limits, warps, names of parameters.

A kernel may require minimums of its blocks: those of tensor descriptors, and minimums of X and R0. Proposed configs get
the kernel's own parameter names, without blocks that it doesn't have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import msgspec

from kerntune.base.config import Config, Scalar, unique_configs
from kerntune.base.device import MAX_GRID_X, MAX_GRID_YZ, DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.hints import (
    BLOCK_NAMES,
    MAX_BLOCK,
    MAX_BLOCK_X_HIP,
    REDUCTION_AXES,
    KernelHints,
    ReductionHint,
    named_kernel,
    require_known_axes,
)
from kerntune.heuristics.presets import Preset, measured_on

GRID_LIMITS = {"x": MAX_GRID_X, "y": MAX_GRID_YZ, "z": MAX_GRID_YZ}

MAX_POINTWISE_WARPS = 8
MAX_REDUCTION_WARPS = 16
MAX_LONG_REDUCTION_WARPS = 32
LONG_REDUCTION = 8192
"""A reduction longer than this may use 32 warps."""

MIN_WARPS = 2

ELEMENTS_PER_REDUCTION_WARP = 128
"""Four elements a lane of a 32-lane warp."""

PTXAS_WORKAROUND_ELEMENTS = 128
PTXAS_WORKAROUND_WARPS = 4
"""From this many elements on a CUDA block gets 4 warps at least: a workaround for ptxas bugs (pytorch pull 97950)."""


class Bounds(NamedTuple):
    """What limits a proposal on one device under one preset, for one kernel."""

    where: str
    backend: str
    arch: int
    major: int
    warp_size: int
    wave64: bool
    grid_by_threads: bool
    max_block: Mapping[str, int]
    preset: Preset
    by_size: bool

    @property
    def hip(self) -> bool:
        """Whether it is an AMD GPU."""
        return self.backend == "hip"


_MAX_BLOCK_HIP = {**MAX_BLOCK, "x": MAX_BLOCK_X_HIP}


def bounds(hints: KernelHints, device: DeviceSpec, preset: Preset) -> Bounds:
    """The limits of ``device`` under ``preset``."""
    hip = device.target.backend == "hip"
    return Bounds(
        where=hints.where,
        backend=device.target.backend,
        arch=int(device.target.arch) if device.target.backend == "cuda" else 0,
        major=device_major(device) or 0,
        warp_size=(64 if hip else 32) if preset.hip_is_wave64 else device.warp_size,
        wave64=hip if preset.hip_is_wave64 else device.warp_size == 64,
        grid_by_threads=hip or preset.grid_by_threads,
        max_block=_MAX_BLOCK_HIP if hip and preset.hip_wide_x else MAX_BLOCK,
        preset=preset,
        by_size=measured_on(device, preset),
    )


def device_major(device: DeviceSpec) -> int | None:
    """The first part of a GPU's version: 9 for ``cuda:90`` and ``hip:gfx942``, 11 for ``hip:gfx1100``; None for xpu.

    A gfx name is major, one digit of minor version, one hex digit of stepping (LLVM's AMDGPU usage guide).
    """
    backend, arch = device.target.backend, device.target.arch
    if backend == "cuda":
        return int(arch) // 10
    return int(arch[3:-2]) if backend == "hip" else None


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(a // -b)


def ceil_pow2(n: int) -> int:
    """The least power of two that is not below ``n``; 1 for ``n`` below 1."""
    return 1 << (n - 1).bit_length() if n > 1 else 1


def floor_pow2(n: int) -> int:
    """The largest power of two that is not above ``n``, which is at least 1."""
    return 1 << (n.bit_length() - 1)


def grow(block: int, goal: int, cap: int) -> int:
    """``block`` doubled until it reaches ``goal`` or ``cap`` (powers of two)."""
    return max(block, min(ceil_pow2(goal), cap))


def choose_warps(
    wanted: int, bounds: Bounds, *, least: int = MIN_WARPS, most: int = MAX_POINTWISE_WARPS, intensive: bool = False
) -> int:
    """``wanted`` between ``least`` and ``most``, rounded up to a power of two.

    A wave64 GPU has twice the lanes in a warp, so both bounds are halved there, rounding up. For a kernel that needs
    many registers (``intensive``) ``most`` is halved.
    """
    if bounds.wave64:
        least, most = (least + 1) // 2, (most + 1) // 2
    if intensive:
        most //= 2
    return ceil_pow2(min(max(wanted, least), most))


def widen_for_grid(x: int, size: int, warps: int, bounds: Bounds) -> int:
    """``x`` doubled until the x grid of ``size`` elements is legal.

    CUDA and XPU bound the blocks by 2^31-1; HIP bounds the threads by the same number, but only as long as X may
    grow. Raises :class:`HintError` if the largest block is not enough.
    """
    threads = warps * bounds.warp_size if bounds.grid_by_threads else 1
    cap = size if bounds.preset.grid_by_threads else min(size, bounds.max_block["x"])
    blocks = ceil_div(size, x)
    while blocks * threads > MAX_GRID_X and x < cap:
        x *= 2
        blocks //= 2
    if blocks > MAX_GRID_X:
        raise HintError(
            f"{bounds.where}x={size} needs {blocks} blocks of XBLOCK={x}, more than the launch grid's {MAX_GRID_X}; "
            "split the work over several launches"
        )
    return x


def fit_pointwise(sizes: Mapping[str, int], wanted: Sequence[int], bounds: Bounds) -> dict[str, int]:
    """Blocks of x, y, z: clipped to the sizes, then doubled in that order while the tile is too small or the grid too
    large.

    ``wanted`` gives one block an axis. The target is their product, or an eighth where the whole problem is smaller.
    """
    target = prod(wanted)
    if prod(sizes.values()) < target:
        target //= 8
    blocks = {axis: min(block, sizes[axis]) for axis, block in zip("xyz", wanted, strict=False)}
    tile = prod(blocks.values())
    for axis, block in blocks.items():
        size, limit = sizes[axis], GRID_LIMITS[axis]
        if block < size and (tile < target or block * limit < size):
            goal = max(ceil_div(size, limit), ceil_div(target * block, tile))
            blocks[axis] = grow(block, goal, min(size, bounds.max_block[axis]))
            tile = tile // block * blocks[axis]
    return blocks


def spread_reduction(r: int, sizes: Mapping[str, int], bounds: Bounds) -> dict[str, int]:
    """A linear reduction block as one per axis, the last (contiguous) axis filled first; in the order last to first.

    Raises :class:`HintError` if the axes' limits can't hold ``r`` elements.
    """
    if "r1" not in sizes and min(r, sizes["r0"]) <= bounds.max_block["r0"]:
        return {"r0": min(r, sizes["r0"])}
    axes = [axis for axis in ("r1", "r0") if axis in sizes]
    r = min(r, prod(sizes[axis] for axis in axes))
    remaining, blocks = r, {}
    for axis in axes:
        blocks[axis] = min(sizes[axis], bounds.max_block[axis], remaining)
        remaining //= blocks[axis]
    if remaining != 1:
        raise HintError(
            f"{bounds.where}a reduction block of {r} elements is over the limits "
            + ", ".join(f"{BLOCK_NAMES[a]} {bounds.max_block[a]}" for a in axes)
        )
    return blocks


def check_blocks(blocks: Mapping[str, int], sizes: Mapping[str, int], bounds: Bounds) -> None:
    """Raise :class:`HintError` if a block is over its limit, doesn't divide it, or is above 1 on an axis of size 1."""
    for axis, block in blocks.items():
        limit = bounds.max_block[axis]
        if block > limit:
            raise HintError(f"{bounds.where}{BLOCK_NAMES[axis]}={block} is over the limit of {limit}")
        if axis in REDUCTION_AXES:
            continue
        if limit % block:
            raise HintError(f"{bounds.where}{BLOCK_NAMES[axis]}={block} doesn't divide the limit of {limit}")
        if block != 1 and sizes.get(axis) == 1:
            raise HintError(f"{bounds.where}{BLOCK_NAMES[axis]}={block}, but the axis {axis} has one element")


def check_coverable(x: int, bounds: Bounds) -> None:
    """Raise :class:`HintError` if the largest X block needs more blocks than a grid has."""
    if ceil_div(x, bounds.max_block["x"]) > MAX_GRID_X:
        raise HintError(f"{bounds.where}x={x} is too long for one launch; split the work over several launches")


def as_config(
    blocks: Mapping[str, int], warps: int, stages: int = 1, options: Mapping[str, Scalar] | None = None
) -> Config:
    """A config of blocks by axis; ``options`` are backend compile options."""
    return Config(kwargs=by_name(blocks), num_warps=warps, num_stages=stages, options=dict(options or {}))


def by_name(blocks: Mapping[str, int]) -> dict[str, Scalar]:
    """Blocks by axis as constexprs."""
    return {BLOCK_NAMES[axis]: block for axis, block in blocks.items()}


def rebuilt(config: Config, kwargs: dict[str, Scalar], warps: int | None = None) -> Config:
    """A copy with other constexprs (and warps): :meth:`Config.replace` without its checks of names."""
    return msgspec.structs.replace(config, kwargs=kwargs, num_warps=config.num_warps if warps is None else warps)


def block_of(config: Config, axis: str, default: int = 1) -> int:
    """A config's block of an axis, or ``default`` if it sets none."""
    value = config.kwargs.get(BLOCK_NAMES[axis], default)
    assert isinstance(value, int)
    return value


def require_axes(hints: KernelHints, family: str, *allowed: tuple[str, ...]) -> None:
    """Raise :class:`HintError` unless the sizes are of exactly one of the ``allowed`` sets of axes."""
    if set(hints.sizes) not in [set(axes) for axes in allowed]:
        choices = " or ".join(" ".join(axes) for axes in allowed)
        raise HintError(f"{hints.where}{family} takes size hints for {choices}, got {' '.join(hints.sizes)}")


def reduction_config(
    hints: KernelHints,
    x: int,
    r: int,
    limits: Bounds,
    hint: ReductionHint | None,
    *,
    warps: int | None = None,
    least_warps: int = MIN_WARPS,
    intensive: bool = False,
    options: dict[str, Scalar] | None = None,
) -> Config:
    """One config of a reduction: the tile clipped to the sizes, warps for it, X widened for the grid, r shortened in
    return.

    Warps follow the wanted ``r`` alone for an inner reduction (128 contiguous elements a warp), else the whole tile.
    """
    blocks = fit_reduction(hints, x, r, limits)
    tile = prod(blocks.values())
    if warps is None:
        inner = hint is ReductionHint.INNER and limits.preset.inner_by_r
        warps = (r if inner else tile) // ELEMENTS_PER_REDUCTION_WARP
    long = limits.preset.inner_by_r and r > LONG_REDUCTION
    most = MAX_LONG_REDUCTION_WARPS if long else MAX_REDUCTION_WARPS
    warps = choose_warps(warps, limits, least=least_warps, most=most, intensive=intensive)
    budget = _wanted_size(hints, x, r) if limits.preset.grow_reductions else tile
    blocks["x"] = widen_for_grid(blocks["x"], hints.sizes["x"], warps, limits)
    for axis in (axis for axis in ("r0", "r1") if axis in blocks):
        while prod(blocks.values()) > budget and blocks[axis] > 1:
            blocks[axis] //= 2
    check_blocks(blocks, hints.sizes, limits)
    return as_config(blocks, warps, options=options)


def fit_reduction(hints: KernelHints, x: int, r: int, limits: Bounds) -> dict[str, int]:
    """Blocks of x and the reduced axes, within the sizes."""
    first = min(x, hints.sizes["x"])
    if not limits.preset.grow_reductions:
        return {"x": first, **spread_reduction(r, hints.sizes, limits)}
    blocks = {"x": first, "r0": min(r, hints.sizes["r0"])}
    target = _wanted_size(hints, x, r)
    for axis in ("x", "r0"):
        others = prod(blocks.values()) // blocks[axis]
        blocks[axis] = grow(blocks[axis], target // others, hints.sizes[axis])
    return blocks


def _wanted_size(hints: KernelHints, x: int, r: int) -> int:
    """torch 2.6's size of a tile: the wanted size, or an eighth of it where the whole problem is smaller."""
    return x * r // 8 if prod(hints.sizes.values()) < x * r else x * r


def raise_to_tma_minimums(
    configs: Sequence[Config], hints: KernelHints, *, persistent: bool = False
) -> tuple[Config, ...]:
    """The first config raised to the minimums, then the configs that already meet them.

    A persistent kernel takes no reduction blocks, so minimums of reduced axes don't concern it. The raised one is
    sure to compile, and first, because later steps start from the first. Raises :class:`HintError` for a minimum of a
    block that the kernel doesn't have.
    """
    minimums = {a: m for a, m in hints.tma_minimums.items() if not (persistent and a[0] == "r")}
    if not minimums or not configs:
        return tuple(configs)
    for axis in minimums:
        if BLOCK_NAMES[axis] not in configs[0].kwargs:
            raise HintError(f"{hints.where}a TMA minimum for {axis}, but the kernel has no {BLOCK_NAMES[axis]}")
    first = configs[0].replace(**by_name({a: max(block_of(configs[0], a), m) for a, m in minimums.items()}))
    return (first, *(c for c in configs if all(block_of(c, a) >= m for a, m in minimums.items())))


def raise_to_floors(configs: Iterable[Config], hints: KernelHints, bounds: Bounds) -> tuple[Config, ...]:
    """Configs with X and R0 raised to ``min_x_block`` and ``min_r_block``, and the other block reduced in return.

    When one block is doubled the other is halved, R0 first, but not below its own minimum. Raises :class:`HintError`
    for kernels with other blocks, and for a minimum that is no legal block.
    """
    floors = {"x": hints.min_x_block or 1, "r0": hints.min_r_block or 1}
    return tuple(_raised(config, floors, hints, bounds) for config in configs)


def _raised(config: Config, floors: dict[str, int], hints: KernelHints, bounds: Bounds) -> Config:
    if {"YBLOCK", "ZBLOCK", "R1_BLOCK"} & config.kwargs.keys():
        raise HintError(f"{hints.where}block minimums serve kernels with X and R0 blocks only, not {config}")
    axes = [axis for axis in ("r0", "x") if BLOCK_NAMES[axis] in config.kwargs]
    blocks = {axis: max(block_of(config, axis), floors[axis]) for axis in axes}
    budget = prod(block_of(config, axis) for axis in axes)
    for axis in axes:
        while prod(blocks.values()) > budget and blocks[axis] > floors[axis]:
            blocks[axis] //= 2
    check_blocks(blocks, hints.sizes, bounds)
    return config.replace(**by_name(blocks))


def named_blocks(configs: Iterable[Config], names: Mapping[str, str], *, kernel: str = "") -> tuple[Config, ...]:
    """Configs for a kernel whose blocks have other names, by axis: ``{"x": "BLOCK_M", "r0": "BLOCK_N"}``.

    An axis without a name has no block in the kernel, so it must be 1 in every config. Raises :class:`HintError` that
    shows a config where it isn't, because the kernel would skip elements; and for an unknown axis, a config that has
    no block of a named axis, and two axes with one name.
    """
    where = named_kernel(kernel)
    require_known_axes(names, where)
    if len(set(names.values())) != len(names):
        raise HintError(f"{where}two axes with one block parameter: {dict(names)}")
    wanted = {BLOCK_NAMES[axis]: name for axis, name in names.items()}
    return unique_configs(_renamed(config, wanted, where) for config in configs)


def _renamed(config: Config, wanted: Mapping[str, str], where: str) -> Config:
    for block, name in wanted.items():
        if block not in config.kwargs:
            raise HintError(f"{where}{name} is to be {block}, but this family proposes no {block}: {config}")
    kwargs: dict[str, Scalar] = {}
    for block, value in config.kwargs.items():
        if block in wanted:
            kwargs[wanted[block]] = value
        elif block not in BLOCK_NAMES.values():
            kwargs[block] = value
        elif value != 1:
            raise HintError(f"{where}no parameter for {block}, but the config {config} needs it to be other than 1")
    return rebuilt(config, kwargs)
