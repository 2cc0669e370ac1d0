"""Tiled reductions: a tile of x, y and the reduced axes, shared out by how much traffic each axis coalesces."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kerntune.base.config import Config
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.sizing import (
    MAX_REDUCTION_WARPS,
    Bounds,
    as_config,
    check_blocks,
    check_coverable,
    choose_warps,
    spread_reduction,
)

MIN_REDUCTION_BLOCK = 4
"""A reduced axis starts with at least this block, so that a thread has something to add up."""

ELEMENTS_PER_TILED_WARP = 256


def scores_of(hints: KernelHints, axes: tuple[str, ...]) -> dict[str, float]:
    """The hints' tiling scores of ``axes``, in that order, or equal ones; :class:`HintError` if an axis was forgotten.

    The order matters to a tie. Scores of other axes than the kernel's play no part.
    """
    if not hints.tiling_scores:
        return dict.fromkeys(axes, 1)
    missing = [axis for axis in axes if axis not in hints.tiling_scores]
    if missing:
        raise HintError(f"{hints.where}no tiling score for {', '.join(missing)}: score all axes of the tile or none")
    return {axis: hints.tiling_scores[axis] for axis in axes}


def scored_axes(hints: KernelHints) -> tuple[str, ...]:
    """The kernel's axes in the order in which a looped reduction breaks ties: the scores' own, or the sizes'."""
    order = hints.tiling_scores or hints.sizes
    return (*(axis for axis in order if axis in hints.sizes), *(axis for axis in hints.sizes if axis not in order))


def share_out(target: int, scores: Mapping[str, float], sizes: Mapping[str, int], bounds: Bounds) -> dict[str, int]:
    """Blocks by axis whose product reaches ``target`` where sizes and limits allow it.

    The axis with the highest remaining score is doubled and its score halved, again and again; a tie goes to the
    axis that stands first in ``scores``. An output axis without a score grows last. If no axis has one, all count
    the same.
    """
    weights: dict[str, float] = dict(scores) if any(scores.values()) else dict.fromkeys(scores, 1.0)
    blocks = {axis: MIN_REDUCTION_BLOCK if axis[0] == "r" else 1 for axis in weights}
    caps = {axis: min(bounds.max_block[axis], sizes[axis]) for axis in weights}
    tile = prod(blocks.values())
    while tile < target and weights:
        axis = max(weights, key=weights.__getitem__)
        if blocks[axis] >= caps[axis]:
            del weights[axis]
            continue
        blocks[axis] *= 2
        weights[axis] /= 2
        tile *= 2
    return blocks


def tiled_config(hints: KernelHints, x: int, y: int, r: int, bounds: Bounds, *, intensive: bool = False) -> Config:
    """One tiled config: blocks clipped to the sizes, then warps for the whole tile, bounded twice (1 to 8, 2 to 16)."""
    sizes = hints.sizes
    check_coverable(sizes["x"], bounds)
    reduced = spread_reduction(r, sizes, bounds)
    blocks = {"x": min(x, sizes["x"]), "y": min(y, sizes["y"]), **reduced}
    warps = choose_warps(prod(blocks.values()) // ELEMENTS_PER_TILED_WARP, bounds, least=1)
    warps = choose_warps(warps, bounds, most=MAX_REDUCTION_WARPS, intensive=intensive)
    check_blocks(blocks, sizes, bounds)
    return as_config(blocks, warps)
