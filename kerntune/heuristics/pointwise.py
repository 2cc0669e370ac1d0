"""Pointwise kernels: one to three output axes, no reduction."""

from __future__ import annotations

from contextlib import suppress
from math import ceil, prod
from typing import NamedTuple

from kerntune.base.config import Config, Scalar, unique_configs
from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.hints import MAX_BLOCK_X_HIP, AutotuneHint, KernelHints, TileHint
from kerntune.heuristics.measured import MOST_WARPS, pointwise_tiles
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.sizing import (
    MAX_POINTWISE_WARPS,
    PTXAS_WORKAROUND_ELEMENTS,
    PTXAS_WORKAROUND_WARPS,
    Bounds,
    as_config,
    bounds,
    check_blocks,
    choose_warps,
    fit_pointwise,
    raise_to_tma_minimums,
    require_axes,
    widen_for_grid,
)

MIN_BLOCK_ELEMENTS = 256
MAX_BLOCK_ELEMENTS = 1024
BLOCKS_WANTED = 128
"""A block has 1/128 of the elements, 256 to 1024: about one block for each SM of an A100."""


class Recipe(NamedTuple):
    """A tile to be fitted to the sizes. It has one warp per ``per_warp`` elements, up to ``most_warps``, unless
    ``warps`` sets the number."""

    blocks: tuple[int, ...]
    per_warp: int = 256
    warps: int | None = None
    stages: int = 1
    options: dict[str, Scalar] = {}
    least_per_thread: bool = True
    most_warps: int = MAX_POINTWISE_WARPS


TILES_2D = (Recipe((32, 32)), Recipe((64, 64)), Recipe((256, 16)), Recipe((16, 256)))
TILES_3D = (Recipe((16, 16, 16)), Recipe((64, 8, 8)), Recipe((8, 64, 8)), Recipe((8, 8, 64)))

HIP_1D = (
    Recipe((MAX_BLOCK_X_HIP,), options={"waves_per_eu": 2}),
    Recipe((4096,)),
    Recipe((2048,), warps=8, stages=2, options={"waves_per_eu": 1}),
)
HIP_1D_ATOMIC = (Recipe((64,), warps=1),)
HIP_2D = (Recipe((64, 32)), Recipe((128, 16)), Recipe((128, 32)), Recipe((32, 512)))
XPU_1D = (Recipe((32,)),)
XPU_2D = (Recipe((32, 32), warps=8), Recipe((4, 256)))
"""Further tiles on Intel GPUs (intel-xpu-backend-for-triton issues 5133, 5198 and 5199)."""


def pointwise(hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:
    """Candidates of an elementwise kernel with blocks ``XBLOCK``, ``YBLOCK``, ``ZBLOCK``; the safest comes first.

    Raises :class:`~kerntune.errors.HintError` for axes other than x, x y, x y z; for a kernel without ``XBLOCK``; for
    sizes that no legal grid covers; and where ``min_elements_per_thread`` needs a block over the limit.
    """
    require_axes(hints, "pointwise", ("x",), ("x", "y"), ("x", "y", "z"))
    if hints.no_x_block:
        raise HintError(f"{hints.where}a pointwise kernel needs an XBLOCK parameter")
    limits = bounds(hints, device, preset)
    configs = tuple(pointwise_config(hints, recipe, limits) for recipe in recipes(hints, device, preset))
    configs += _measured(hints, device, limits)
    return unique_configs(raise_to_tma_minimums(configs, hints) if preset.filters else configs)


def _measured(hints: KernelHints, device: DeviceSpec, limits: Bounds) -> tuple[Config, ...]:
    """The preset's further candidates; one that ``min_elements_per_thread`` makes illegal is left out."""
    found = []
    for tile in pointwise_tiles(hints, device, limits.preset):
        recipe = Recipe(tile.blocks, per_warp=tile.per_thread * device.warp_size, most_warps=MOST_WARPS)
        with suppress(HintError):
            found.append(pointwise_config(hints, recipe, limits))
    return tuple(found)


def pointwise_config(hints: KernelHints, recipe: Recipe, limits: Bounds) -> Config:
    """A recipe fitted to the sizes: blocks, warps, elements per thread, grid, in that order."""
    blocks = fit_pointwise(hints.sizes, recipe.blocks, limits)
    tile = prod(blocks.values())
    warps = recipe.warps
    if warps is None:
        warps = choose_warps(tile // recipe.per_warp, limits, least=1, most=recipe.most_warps)
    if tile >= PTXAS_WORKAROUND_ELEMENTS and not limits.hip:
        warps = max(warps, PTXAS_WORKAROUND_WARPS)
    x, size = blocks["x"], hints.sizes["x"]
    if hints.min_elements_per_thread and recipe.least_per_thread:
        threads = warps * (32 if limits.preset.hip_is_wave64 else limits.warp_size)  # torch 2.6: 32 a warp anywhere
        x *= ceil(max(tile, hints.min_elements_per_thread * threads) / tile)
    blocks["x"] = min(widen_for_grid(x, size, warps, limits), size)
    check_blocks({"x": blocks["x"]}, hints.sizes, limits)  # y and z were only clipped
    return as_config(blocks, warps, recipe.stages, recipe.options)


def recipes(hints: KernelHints, device: DeviceSpec, preset: Preset) -> tuple[Recipe, ...]:
    """What to try, before it is fitted to the sizes."""
    block = max(MIN_BLOCK_ELEMENTS, min(prod(hints.sizes.values()) // BLOCKS_WANTED, MAX_BLOCK_ELEMENTS))
    rank, most = len(hints.sizes), hints.modes.max_autotune
    untold = preset.lanes_must_be_told and device.target.backend == "xpu"
    hinted = () if untold else _hinted(hints, rank, block, device.warp_size)
    backend = device.target.backend if preset.backend_extras else "cuda"
    off = not hints.modes.autotune_pointwise or (preset.deterministic_pointwise and hints.modes.deterministic)
    if rank == 1:
        extras = {"hip": HIP_1D + (HIP_1D_ATOMIC if hints.atomic_add else ()), "xpu": XPU_1D}.get(backend, ())
        plain = (Recipe((block,)), Recipe((block // 2,), per_warp=64))
        return plain[:1] if off and not most else (*plain, *hinted, *extras)
    if rank == 2:
        square = hints.tile is TileHint.SQUARE and backend == "cuda"
        extras = {"hip": HIP_2D, "xpu": XPU_2D}.get(backend, ())
        return TILES_2D[:1] if (off or square) and not most else (*TILES_2D, *_lines(2, block), *hinted, *extras)
    one = off if preset.tune_3d else not most and backend != "xpu"
    return TILES_3D[:1] if one else (*TILES_3D, *_lines(rank, block), *hinted)


def _lines(rank: int, block: int) -> tuple[Recipe, ...]:
    return tuple(Recipe(tuple(block if i == a else 1 for i in range(rank))) for a in range(rank))


def _hinted(hints: KernelHints, rank: int, block: int, warp_size: int) -> tuple[Recipe, ...]:
    """For ONE_ELEMENT_PER_THREAD: quarter lines with as many warps as they have warpfuls of elements."""
    wishes = hints.autotune.count(AutotuneHint.ONE_ELEMENT_PER_THREAD)
    return tuple(x._replace(per_warp=warp_size, least_per_thread=False) for x in _lines(rank, block // 4)) * wishes
