"""Mix-order reductions: a persistent row reduction that also adds up columns over ``RSPLIT_SIZE`` rows a program."""

from __future__ import annotations

from collections.abc import Iterable

from kerntune.config import Config, Scalar
from kerntune.errors import HintError
from kerntune.heuristics.sizing import Bounds, in_order, rebuilt
from kerntune.hints import KernelHints

ROWS_PER_X = 32
SHORT_ROW = 512
MIN_X_SHORT = 4
MAX_X = 16

ITERATIONS_PER_STAGE = 4
MAX_STAGES = 3
MAX_STAGES_LONG = 2
LONG_ROW = 8192
"""A longer row runs out of shared memory with 3 stages."""

FEW_WARPS_ROW = 1024
FEW_WARPS = 2
MAX_WARPS = 32
MAX_WARPS_HIP = 16


def mix_order(configs: Iterable[Config], hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """Persistent configs with X, ``RSPLIT_SIZE`` and ``NUM_STAGES`` of a mix-order reduction.

    Rows of up to 1024 elements get half the warps; max-autotune adds a copy with 2 warps, and for longer rows a copy
    with twice the warps.
    """
    split, r = hints.rsplit_size or 0, hints.sizes["r0"]
    if split < 1:
        raise HintError(f"{hints.where}rsplit_size={hints.rsplit_size} must be at least 1")
    x = x_block(hints)
    values: dict[str, Scalar] = {"XBLOCK": x, "RSPLIT_SIZE": split, "NUM_STAGES": _stages(hints, split // x)}
    return in_order(
        rebuilt(config, {**config.kwargs, **values}, warps)
        for config in configs
        for warps in _warps(config.num_warps, r, hints.modes.max_autotune, limits)
    )


def x_block(hints: KernelHints) -> int:
    """Rows a step: a 32nd of the split, at least 4 for short rows and what descriptors need, at most 16."""
    least = MIN_X_SHORT if hints.sizes["r0"] <= SHORT_ROW else 1
    return min(max((hints.rsplit_size or 0) // ROWS_PER_X, least, hints.tma_minimums.get("x", 1)), MAX_X)


def _stages(hints: KernelHints, iterations: int) -> int:
    most = MAX_STAGES_LONG if hints.sizes["r0"] > LONG_ROW else MAX_STAGES
    if not hints.modes.multi_stage_mix_order:
        most = 1
    return min(max(iterations // ITERATIONS_PER_STAGE, 1), most)


def _warps(warps: int, r: int, tuned: bool, limits: Bounds) -> tuple[int, ...]:
    if r <= FEW_WARPS_ROW:
        half = max(warps // 2, 1)
        return (half, FEW_WARPS) if tuned else (half,)
    if tuned and warps < (MAX_WARPS_HIP if limits.hip else MAX_WARPS):
        return warps, warps * 2
    return (warps,)
