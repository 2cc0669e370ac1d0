"""Mix-order reductions: a persistent row reduction that also adds up columns over ``RSPLIT_SIZE`` rows a program."""

from __future__ import annotations

from collections.abc import Iterable

from kerntune.base.config import Config, Scalar
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints, is_power_of_two
from kerntune.heuristics.presets import Preset
from kerntune.heuristics.sizing import Bounds, floor_pow2, in_order, rebuilt

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
    with twice the warps. Raises :class:`HintError` for a split below 1.
    """
    split, r = hints.rsplit_size or 0, hints.sizes["r0"]
    if split < 1:
        raise HintError(f"{hints.where}rsplit_size={hints.rsplit_size} must be at least 1")
    x = dividing_x_block(hints, split) if limits.preset.whole_mix_order else x_block(hints)
    stages = min(max(split // x // ITERATIONS_PER_STAGE, 1), most_stages(hints, limits.preset))
    values: dict[str, Scalar] = {"XBLOCK": x, "RSPLIT_SIZE": split, "NUM_STAGES": stages}
    return in_order(
        rebuilt(config, {**config.kwargs, **values}, warps)
        for config in configs
        for warps in _warps(config.num_warps, r, hints.modes.max_autotune, limits)
    )


def x_block(hints: KernelHints) -> int:
    """Rows a step: a 32nd of the split, at least 4 for short rows and what descriptors need, at most 16."""
    least = MIN_X_SHORT if hints.sizes["r0"] <= SHORT_ROW else 1
    return min(max((hints.rsplit_size or 0) // ROWS_PER_X, least, hints.tma_minimums.get("x", 1)), MAX_X)


def dividing_x_block(hints: KernelHints, split: int) -> int:
    """The same as a power of two that divides the split: else the last step would reach into the next split.

    Raises :class:`HintError` if that is shorter than what descriptors need.
    """
    x = floor_pow2(x_block(hints))
    while split % x:
        x //= 2
    least = hints.tma_minimums.get("x", 1)
    if x < least:
        raise HintError(
            f"{hints.where}rsplit_size={split} has no divisor from {least} to {MAX_X} that is a power of two; a tensor "
            f"descriptor of the kernel needs an X block of {least}"
        )
    return x


def is_whole(x: int, split: int, stages: int, hints: KernelHints, preset: Preset) -> bool:
    """Whether X and ``NUM_STAGES`` are such as torch 2.15 takes: X divides the split, both are within their limits."""
    divides = is_power_of_two(x) and x <= MAX_X and split % x == 0
    return divides and x >= hints.tma_minimums.get("x", 1) and 1 <= stages <= most_stages(hints, preset)


def most_stages(hints: KernelHints, preset: Preset) -> int:
    """The number of stages that fit into shared memory; 1 where stages are switched off or impossible."""
    unpipelined = preset.whole_mix_order and hints.makes_descriptors
    if unpipelined or not hints.modes.multi_stage_mix_order:
        return 1
    return MAX_STAGES_LONG if hints.sizes["r0"] > LONG_ROW else MAX_STAGES


def _warps(warps: int, r: int, tuned: bool, limits: Bounds) -> tuple[int, ...]:
    if r <= FEW_WARPS_ROW:
        half = max(warps // 2, 1)
        return (half, FEW_WARPS) if tuned else (half,)
    if tuned and warps < (MAX_WARPS_HIP if limits.hip else MAX_WARPS):
        return warps, warps * 2
    return (warps,)
