"""Blocks that hold whole rows: how many rows, and how many warps for them."""

from __future__ import annotations

from kerntune.base.config import Config
from kerntune.heuristics.hints import KernelHints, ReductionHint
from kerntune.heuristics.sizing import MIN_WARPS, Bounds, reduction_config

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
    if limits.backend == "xpu":
        return _inner_xpu(hints, limits)
    rows = min(INNER_TILE // r, MAX_INNER_ROWS)
    return reduction_config(hints, rows, r, limits, hints.reduction, warps=1, least_warps=1, intensive=True)


def _inner_xpu(hints: KernelHints, limits: Bounds) -> Config:
    """On Intel GPUs the warps follow the tile (pytorch pull 168335)."""
    rows = 1 if hints.loads + hints.stores >= XPU_MANY_ACCESSES else MAX_INNER_ROWS
    return reduction_config(hints, rows, hints.reduction_numel, limits, None, intensive=True)


def all_rows(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """Blocks of one row and of several, as far as they fit."""
    r, extras = hints.reduction_numel, limits.hip and limits.preset.backend_extras
    blocks = X_BLOCKS_HIP if extras else X_BLOCKS
    fitting = [x for x in blocks if x == 1 or (r * x <= MAX_TILE and x <= hints.sizes["x"])]
    return tuple(_row(hints, x, limits) for x in fitting)


def _row(hints: KernelHints, x: int, limits: Bounds) -> Config:
    return reduction_config(
        hints, x, hints.reduction_numel, limits, hints.reduction, least_warps=MIN_WARPS, intensive=True
    )


def tiny_rows(hints: KernelHints, limits: Bounds) -> Config:
    """A block of 512 elements, or one row."""
    r = hints.reduction_numel
    return reduction_config(hints, tiny_x(r), r, limits, None)


def tiny_x(r: int) -> int:
    """Rows of a block that has 512 elements, or one row beyond r = 256."""
    return 2 * (256 // r) if r <= 256 else 1
