"""Matrix products written as a reduction with ``tl.dot``: y by r0 times r0 by x, perhaps batched over z."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from math import prod

from kerntune.base.config import Config, unique_configs
from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import MAX_TENSOR_NUMEL, MIN_DOT_BLOCK, KernelHints
from kerntune.heuristics.sizing import as_config, block_of, by_name, rebuilt, require_axes

TILES = (
    # x, y, r0, warps, stages
    (32, 32, 16, 2, 1),
    (32, 32, 128, 4, 2),
    (32, 64, 32, 8, 5),
    (64, 32, 32, 8, 5),
    (64, 32, 128, 4, 5),
    (64, 64, 16, 4, 2),
    (64, 64, 32, 4, 2),
    (64, 64, 64, 8, 3),
    (64, 64, 128, 4, 5),
    (64, 128, 32, 4, 3),
    (64, 128, 32, 8, 4),
    (64, 128, 64, 4, 3),
    (64, 128, 128, 4, 4),
    (128, 64, 32, 4, 3),
    (128, 64, 32, 8, 4),
    (128, 128, 32, 8, 2),
    (128, 128, 32, 4, 3),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 8, 5),
)
"""torch 2.13's ``_base_mm_configs``."""

NEWER_TILES = ((128, 128, 128, 8, 4), (256, 128, 64, 8, 4))
"""What torch 2.13's templates have in addition (``_inductor/template_heuristics/triton.py``, ``mm_configs``)."""

ELEMENTS_PER_WARP = 256
"""A warp's least share of the outputs, a 16 x 16 tile (the same file, ``_finalize_mm_configs``)."""

LEAST_R0_ONE_BYTE = 32
"""``tl.dot``'s least r0 for operands of one byte (the same file, ``_scale_mm_configs``)."""

MOST_REGISTERS = 255
"""Registers that a thread may have; a tile whose sums alone take more spills (the same file,
``_prune_reg_spill_configs``)."""

WGMMA_ARCH = 90
WGMMA_ROWS = 64
"""sm_90 multiplies tiles of at least 64 rows from shared memory (wgmma)."""

Tiles = tuple[tuple[int, int, int, int, int], ...]


def looped_matmul(hints: KernelHints, tiles: Tiles) -> tuple[Config, ...]:
    """The tiles with a loop over r0; batched ones have Z blocks of 1."""
    return _looped(tiles, _batched(hints))


@functools.lru_cache(maxsize=64)
def _looped(tiles: Tiles, batched: bool) -> tuple[Config, ...]:
    batch = {"z": 1} if batched else {}
    return tuple(as_config({"x": x, "y": y, **batch, "r0": r0}, warps, stages) for x, y, r0, warps, stages in tiles)


def products_by_size(configs: Iterable[Config], hints: KernelHints, device: DeviceSpec) -> tuple[Config, ...]:
    """Tiles as torch's templates take them: no block is longer than its axis (16 at least), no warp has less than 256
    outputs, and tiles whose operands can't fit shared memory or whose sums can't fit registers are left out, unless all
    are. Each once.
    """
    fitted = unique_configs(_within_sizes(config, hints) for config in configs)
    return tuple(c for c in fitted if _may_run(c, hints, device)) or fitted


def _within_sizes(config: Config, hints: KernelHints) -> Config:
    least = {"x": MIN_DOT_BLOCK, "y": MIN_DOT_BLOCK, "r0": MIN_DOT_BLOCK}
    if hints.operand_bytes == 1:
        least["r0"] = LEAST_R0_ONE_BYTE
    blocks = {axis: max(min(block_of(config, axis), hints.sizes[axis]), least[axis]) for axis in least}
    warps = min(config.num_warps, blocks["x"] * blocks["y"] // ELEMENTS_PER_WARP)
    return rebuilt(config, {**config.kwargs, **by_name(blocks)}, warps)


def _may_run(config: Config, hints: KernelHints, device: DeviceSpec) -> bool:
    sums = block_of(config, "x") * block_of(config, "y") / (config.num_warps * device.warp_size)
    return sums <= MOST_REGISTERS and least_shared_bytes(config, hints, device) <= device.shared_memory_per_block


def least_shared_bytes(config: Config, hints: KernelHints, device: DeviceSpec) -> int:
    """Bytes of shared memory that a tile's operands take at least; 0 if their type isn't known.

    All stages are in shared memory where the multiplication reads it itself. Elsewhere one of them is in registers,
    which torch's estimate, an upper bound, doesn't count.
    """
    x, y, r0 = (block_of(config, axis) for axis in ("x", "y", "r0"))
    wgmma = device.target.backend == "cuda" and int(device.target.arch) == WGMMA_ARCH and y >= WGMMA_ROWS
    stages = config.num_stages if wgmma else max(config.num_stages - 1, 1)
    return (x + y) * r0 * hints.operand_bytes * stages


def native_persistent_matmul(hints: KernelHints) -> tuple[Config, ...]:
    """The tiles without the loop: all of r0 at once, X and Y halved until the product fits one Triton tensor.

    The longer of X and Y is halved, X where they are equal, never below 16. 16 tiles differ without their r0.
    """
    r0 = hints.native_matmul_rblock or max(hints.reduction_numel, MIN_DOT_BLOCK)
    return _fitted(_batched(hints), r0)


@functools.lru_cache(maxsize=64)
def _fitted(batched: bool, r0: int) -> tuple[Config, ...]:
    batch = {"z": 1} if batched else {}
    tiles = unique_configs(as_config({"x": x, "y": y, **batch}, warps, stages) for x, y, _, warps, stages in TILES)
    found = (_within_limit(tile, r0) for tile in tiles)
    return unique_configs(tile for tile in found if tile is not None)


def _within_limit(config: Config, r0: int) -> Config | None:
    blocks = {axis: block_of(config, axis) for axis in ("x", "y")}
    while prod(blocks.values()) * r0 > MAX_TENSOR_NUMEL:
        longest = max(blocks, key=blocks.__getitem__)
        if blocks[longest] <= MIN_DOT_BLOCK:
            return None
        blocks[longest] //= 2
    return config.replace(**by_name(blocks))


def _batched(hints: KernelHints) -> bool:
    require_axes(hints, "native matmul", ("x", "y", "r0"), ("x", "y", "z", "r0"))
    return "z" in hints.sizes
