"""Block minimums that a kernel requires: those of tensor descriptors, and minimums of X and R0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kerntune.base.config import Config
from kerntune.errors import HintError
from kerntune.heuristics.hints import BLOCK_NAMES, KernelHints
from kerntune.heuristics.sizing import Bounds, block_of, check_blocks


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
    first = configs[0].replace(**{BLOCK_NAMES[a]: max(block_of(configs[0], a), m) for a, m in minimums.items()})
    return (first, *(c for c in configs if all(block_of(c, a) >= m for a, m in minimums.items())))


def raise_to_floors(configs: Iterable[Config], hints: KernelHints, bounds: Bounds) -> tuple[Config, ...]:
    """Configs with X and R0 raised to ``min_x_block`` and ``min_r_block``, and the other block reduced in return.

    When one block is doubled the other is halved, R0 first, but not below its own minimum. Raises :class:`HintError`
    for kernels with other blocks, and for a minimum that is no legal block.
    """
    if hints.min_x_block is None and hints.min_r_block is None:
        return tuple(configs)
    floors = {"x": hints.min_x_block or 1, "r0": hints.min_r_block or 1}
    return tuple(_raised(config, floors, hints, bounds) for config in configs)


def _raised(config: Config, floors: dict[str, int], hints: KernelHints, bounds: Bounds) -> Config:
    if {"YBLOCK", "ZBLOCK", "R1_BLOCK"} & config.kwargs.keys():
        raise HintError(f"{hints.where}block minimums serve kernels with X and R0 blocks only, not {config}")
    axes = [axis for axis in ("r0", "x") if BLOCK_NAMES[axis] in config.kwargs]
    blocks = {axis: max(block_of(config, axis), floors[axis]) for axis in axes}
    budget = _tile({axis: block_of(config, axis) for axis in axes})
    for axis in axes:
        while _tile(blocks) > budget and blocks[axis] > floors[axis]:
            blocks[axis] //= 2
    check_blocks(blocks, hints.sizes, bounds)
    return config.replace(**{BLOCK_NAMES[axis]: block for axis, block in blocks.items()})


def _tile(blocks: dict[str, int]) -> int:
    return blocks.get("x", 1) * blocks.get("r0", 1)
