"""Reductions whose blocks hold whole rows: persistent, mix-order and cooperative ones.

A persistent kernel takes no reduction block. A mix-order reduction also adds up columns over ``RSPLIT_SIZE`` rows a
program. In a cooperative reduction ``RSPLIT`` programs share the rows of one x block and meet at a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kerntune.base.config import Config, Scalar, unique_configs
from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.hints import MAX_RSPLIT, KernelHints, is_power_of_two
from kerntune.heuristics.matmul import native_persistent_matmul
from kerntune.heuristics.measured import applies, row_tiles
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.reduction import (
    REDUCTION_AXES_SETS,
    SIMPLE_AXES,
    finish,
    measured_configs,
    reduction_candidates,
    without_x,
)
from kerntune.heuristics.reduction_blocks import (
    MAX_TILE,
    X_BLOCKS,
    X_BLOCKS_HIP,
    all_rows,
    pays_cooperative,
    pays_persistent,
    rows_by_hint,
    scores_of,
    share_out,
    tiled_config,
    tiny_rows,
)
from kerntune.heuristics.sizing import (
    Bounds,
    bounds,
    floor_pow2,
    raise_to_tma_minimums,
    rebuilt,
    require_axes,
)

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
    return unique_configs(
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


BATCH_INVARIANT_ROWS = 4096
"""Batch-invariant mode chooses as if there were at least this many rows."""


def persistent_reduction(hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:
    """Candidates of a reduction whose rows fit one block: ``XBLOCK``, perhaps ``YBLOCK``.

    With ``hints.rsplit_size`` they are those of a mix-order reduction, with ``RSPLIT_SIZE`` and ``NUM_STAGES``.
    Raises :class:`~kerntune.errors.HintError` for rows over 65536 elements (32768 in the second reduced axis), tiled
    ones over 4096, other axes, and sizes that no legal grid covers.
    """
    hints = without_x(hints)
    limits = bounds(hints, device, preset)
    configs = persistent_candidates(hints, limits)
    if applies(hints, device, preset) and not hints.native_matmul and "y" not in hints.sizes:
        configs += tuple(map(_without_r_blocks, measured_configs(row_tiles(hints, device), hints, limits)))
    if hints.rsplit_size is not None and preset.filters:
        configs = mix_order(raise_to_tma_minimums(configs, hints, persistent=True), hints, limits)
        hints = msgspec.structs.replace(hints, tma_minimums={})  # it sets X itself, and honours them there
    return finish(configs, hints, limits, persistent=True)


def persistent_candidates(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    """The configs before any filter."""
    if hints.native_matmul:
        return native_persistent_matmul(hints)
    allowed = SIMPLE_AXES if limits.preset.grow_reductions else REDUCTION_AXES_SETS
    require_axes(hints, "a persistent reduction", *allowed)
    if hints.modes.batch_invariant and limits.preset.filters and not hints.no_x_block:
        hints = hints.with_sizes({**hints.sizes, "x": max(hints.sizes["x"], BATCH_INVARIANT_ROWS)})
    found = _tiled(hints, limits) if "y" in hints.sizes else _chosen(hints, limits)
    return tuple(_without_r_blocks(config) for config in found)


def _chosen(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    if hints.modes.max_autotune and limits.preset.tune_persistent:
        fixed = hints.modes.one_reduction or hints.modes.batch_invariant
        rows = (*all_rows(hints, limits), *((tiny_rows(hints, limits),) if limits.hip else ()))
        if not limits.by_size or fixed:
            return rows
        # Only the first of a list is raised to what descriptors need: Inductor's first is no longer that.
        return (*rows_by_hint(hints, limits), *raise_to_tma_minimums(rows, hints, persistent=True))
    found = rows_by_hint(hints, limits)
    off = not hints.modes.autotune_pointwise or hints.modes.deterministic
    return found[:1] if limits.preset.deterministic_pointwise and off else found


def _tiled(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    r, scores = hints.reduction_numel, scores_of(hints, ("x", "y"))
    fitting = [tile for tile in (X_BLOCKS_HIP if limits.hip else X_BLOCKS) if tile * r <= MAX_TILE]
    shares = (share_out(tile, scores, hints.sizes, limits) for tile in fitting)
    return tuple(tiled_config(hints, blocks["x"], blocks["y"], r, limits) for blocks in shares)


def _without_r_blocks(config: Config) -> Config:
    return rebuilt(config, {name: value for name, value in config.kwargs.items() if name[0] != "R"})


def cooperative_reduction(
    hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13, *, persistent: bool = False
) -> tuple[Config, ...]:
    """Candidates of a cooperative reduction, each with ``RSPLIT``; ``persistent`` if a program holds its whole share.

    The kernel must be launched cooperatively: its programs wait for each other, and one that never starts hangs the
    rest. Under a preset that goes by size there are candidates with ``RSPLIT`` 1, too, where Inductor would write no
    cooperative kernel. Raises :class:`~kerntune.errors.HintError` for other axes than x and r0.
    """
    require_axes(hints, "a cooperative reduction", ("x", "r0"))
    hints = without_x(hints)
    limits = bounds(hints, device, preset)
    split = rsplit(hints, device, preset)
    share = hints.with_sizes({"x": hints.sizes["x"], "r0": hints.sizes["r0"] // split})
    candidates = persistent_candidates if persistent else reduction_candidates
    configs = tuple(rebuilt(config, {**config.kwargs, "RSPLIT": split}) for config in candidates(share, limits))
    if limits.by_size and not hints.modes.one_reduction and not pays_cooperative(hints):
        alone = candidates(hints, limits) if not persistent or pays_persistent(hints) else ()
        configs += tuple(rebuilt(config, {**config.kwargs, "RSPLIT": 1}) for config in alone)
    return finish(configs, hints, limits, persistent=persistent)


def rsplit(hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> int:
    """Programs that share a row: as many as keep all programs resident at once, in powers of two, at most 64.

    The target is the largest power of two that is not above the SM count (torch 2.6: 64). Raises :class:`HintError`
    for a device without SMs, and where a row has fewer elements than programs that would share it.
    """
    x, r = hints.sizes["x"], hints.sizes["r0"]
    if device.sm_count < 1:
        raise HintError(f"{hints.where}device {device.name} has sm_count={device.sm_count}")
    split = max(1, min((preset.cooperative_target or floor_pow2(device.sm_count)) // x, MAX_RSPLIT))
    if preset.cooperative_target is None:
        return min(split, r)
    if split > r:
        raise HintError(f"{hints.where}r0={r} is shorter than the {split} programs that should share it")
    return split
