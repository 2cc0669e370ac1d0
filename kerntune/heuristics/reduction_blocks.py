"""Decisions that reductions share: which kind pays for a size, and the shapes of their blocks.

A reduction is looped, persistent, or cooperative. A block holds whole rows, or is a tile: neighbouring threads of an
outer reduction take neighbouring outputs, and axes share a tile by how much traffic each one coalesces. A reduction
whose order of additions may not depend on a race has one config.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from kerntune.base.config import Config, unique_configs
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints, ReductionHint
from kerntune.heuristics.sizing import (
    MAX_REDUCTION_WARPS,
    Bounds,
    as_config,
    block_of,
    ceil_pow2,
    check_blocks,
    check_coverable,
    choose_warps,
    reduction_config,
    spread_reduction,
)

LONGEST_INNER_ROW = 1024
LONGEST_ROW = 64
"""Longest reduction that one block holds: read along contiguous elements, or otherwise."""

FEW_OUTPUTS, LENGTH_PER_OUTPUT = 8, 32768
SOME_OUTPUTS, LENGTH_FOR_SOME = 16, 2097152
"""Programs share the rows of up to 8 outputs from 32768 elements an output on, of up to 16 from two million."""


def pays_cooperative(hints: KernelHints) -> bool:
    """Whether programs should share each row; Inductor asks only where ``cooperative_reductions`` is switched on."""
    r = hints.reduction_numel
    outputs = prod(hints.sizes.values()) // r
    if outputs <= FEW_OUTPUTS:
        return r >= LENGTH_PER_OUTPUT * outputs
    return outputs <= SOME_OUTPUTS and r >= LENGTH_FOR_SOME


def pays_persistent(hints: KernelHints) -> bool:
    """Whether a block should hold whole rows.

    A reduction whose length is only known at launch (``dynamic_sizes``) isn't.
    """
    if hints.dynamic_sizes:
        return False
    longest = LONGEST_INNER_ROW if hints.reduction is ReductionHint.INNER else LONGEST_ROW
    return hints.reduction_numel <= longest


MAX_TILE = 4096
"""Most elements of a block that holds more than one row."""

X_BLOCKS = (1, 8, 32, 128)
X_BLOCKS_HIP = (1, 4, 8, 16, 32, 64, 128, 256)

INNER_FROM = 256
INNER_TO = 1024
INNER_TILE = 1024
"""An inner row of 256 to 1024 elements shares one warp with others, 1024 elements in all."""

MAX_INNER_ROWS = 8
BLOCKS_WANTED = 128
XPU_MANY_ACCESSES = 5


def rows_by_hint(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """What the hint alone proposes."""
    if hints.reduction is ReductionHint.OUTER:
        return all_rows(hints, limits)[-1:]
    if hints.reduction is ReductionHint.OUTER_TINY:
        return (tiny_rows(hints, limits),)
    if hints.reduction is ReductionHint.INNER and hints.reduction_numel >= INNER_FROM:
        return (_inner(hints, limits),)
    return all_rows(hints, limits)


def _inner(hints: KernelHints, limits: Bounds) -> Config:
    x, r = hints.sizes["x"], hints.reduction_numel
    few = x // MAX_INNER_ROWS < BLOCKS_WANTED
    if r > INNER_TO or few or hints.rsplit_size is not None or not limits.preset.small_persistent_inner:
        return _row(hints, 1, limits)
    if limits.backend == "xpu":  # there the warps follow the tile (pytorch pull 168335)
        rows = 1 if hints.loads + hints.stores >= XPU_MANY_ACCESSES else MAX_INNER_ROWS
        return reduction_config(hints, rows, r, limits, None, intensive=True)
    rows = min(INNER_TILE // r, MAX_INNER_ROWS)
    return reduction_config(hints, rows, r, limits, hints.reduction, warps=1, least_warps=1, intensive=True)


def all_rows(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """Blocks of one row and of several, as far as they fit."""
    r, blocks = hints.reduction_numel, X_BLOCKS_HIP if limits.hip and limits.preset.backend_extras else X_BLOCKS
    return tuple(_row(hints, x, limits) for x in blocks if x == 1 or (r * x <= MAX_TILE and x <= hints.sizes["x"]))


def _row(hints: KernelHints, x: int, limits: Bounds) -> Config:
    return reduction_config(hints, x, hints.reduction_numel, limits, hints.reduction, intensive=True)


def tiny_rows(hints: KernelHints, limits: Bounds) -> Config:
    """A block of 512 elements, or one row."""
    r = hints.reduction_numel
    return reduction_config(hints, tiny_x(r), r, limits, None)


def tiny_x(r: int) -> int:
    """Rows of a block that has 512 elements, or one row beyond r = 256."""
    return 2 * (256 // r) if r <= 256 else 1


FEW_OUTER_OUTPUTS = 1024
SOME_OUTER_OUTPUTS = 8 * 4096
"""Up to 1024 outputs small X blocks keep all SMs busy; below 9 times 4096 blocks of 16 do."""

VECTOR_X = 64
MAX_X = 256
TILE = 512
HEAVY_LOADS = 4
HEAVY_DYNAMIC_LOADS = 3
SHORT_R = 128
LONG_R = 2048


def outer_tile(hints: KernelHints, r: int, dynamic: int) -> tuple[int, int, int | None]:
    """Wanted blocks of x and r, and warps if they are fixed, for ``dynamic`` sizes that are only known at launch.

    Index arithmetic with dynamic sizes needs registers: with one dynamic size steps along r are short, with several
    they are long, because each step then computes much.
    """
    x = hints.sizes["x"]
    if x <= FEW_OUTER_OUTPUTS:
        return max(min(x // 128, 8), 2), min(r, 64), None
    if x // 4096 <= SOME_OUTER_OUTPUTS // 4096:
        return 16, TILE // 16, None
    if dynamic > 1:
        return VECTOR_X, max(min(r // 64, 64), 8), None
    if dynamic == 1:
        step = 1 if hints.loads >= HEAVY_DYNAMIC_LOADS else min(ceil_pow2(max(r, 128) // 128), 8)
        return VECTOR_X, step, None
    wide = max(min(MAX_X, ceil_pow2(x // 4096)), VECTOR_X)
    if hints.loads < HEAVY_LOADS or r <= SHORT_R:
        return wide, TILE // wide, None
    return min(wide, 32), 64 if r >= LONG_R else 32, 4


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


TOO_SMALL_R_BLOCK = 4
"""A reduction block this short is never fast."""


def one_config(configs: Iterable[Config], hints: KernelHints) -> tuple[Config, ...]:
    """The configs, each once; in deterministic and batch-invariant modes only the one with medium blocks.

    Left out first are R0 blocks up to 4, then X blocks of 1 in kernels without contiguous access along r (each only if
    something remains). Then the second-largest R0, warps and X decide, in that order: extreme configs are most often
    slow. Raises :class:`HintError` if there is no config to begin with.
    """
    found = unique_configs(configs)
    if not found:
        raise HintError(f"{hints.where}no config fits these sizes: {hints.sizes}")
    if not hints.modes.one_reduction or len(found) == 1:
        return found
    found = tuple(c for c in found if block_of(c, "r0", TOO_SMALL_R_BLOCK + 1) > TOO_SMALL_R_BLOCK) or found
    if not hints.contiguous_reduction_access:
        found = tuple(c for c in found if c.kwargs["XBLOCK"] != 1) or found
    for value in (lambda c: block_of(c, "r0", -1), lambda c: c.num_warps, lambda c: block_of(c, "x", -1)):
        values = sorted({value(c) for c in found})
        if len(values) > 1:
            found = tuple(c for c in found if value(c) == values[-2])
    return found[:1]
