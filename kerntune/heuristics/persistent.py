"""Persistent reductions: a block holds whole rows of r, so the kernel takes no reduction block."""

from __future__ import annotations

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.matmul import native_persistent_matmul
from kerntune.heuristics.measured import applies, row_tiles
from kerntune.heuristics.minimums import raise_to_tma_minimums
from kerntune.heuristics.mix_order import mix_order
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.reduction import (
    REDUCTION_AXES_SETS,
    SIMPLE_AXES,
    finish,
    measured_configs,
    without_x,
)
from kerntune.heuristics.rows import MAX_TILE, X_BLOCKS, X_BLOCKS_HIP, all_rows, rows_by_hint, tiny_rows
from kerntune.heuristics.sizing import Bounds, bounds, rebuilt, require_axes
from kerntune.heuristics.tiling import scores_of, share_out, tiled_config

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
        hints = _without_tma(hints)
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
        hinted = rows_by_hint(hints, limits) if limits.by_size and not fixed else ()
        return (*hinted, *all_rows(hints, limits), *((tiny_rows(hints, limits),) if limits.hip else ()))
    found = rows_by_hint(hints, limits)
    off = not hints.modes.autotune_pointwise or hints.modes.deterministic
    return found[:1] if limits.preset.deterministic_pointwise and off else found


def _tiled(hints: KernelHints, limits: Bounds) -> tuple[Config, ...]:
    r, scores = hints.reduction_numel, scores_of(hints, ("x", "y"))
    configs = []
    for tile in X_BLOCKS_HIP if limits.hip else X_BLOCKS:
        if tile * r <= MAX_TILE:
            blocks = share_out(tile, scores, hints.sizes, limits)
            configs.append(tiled_config(hints, blocks["x"], blocks["y"], r, limits))
    return tuple(configs)


def _without_r_blocks(config: Config) -> Config:
    return rebuilt(config, {name: value for name, value in config.kwargs.items() if name[0] != "R"})


def _without_tma(hints: KernelHints) -> KernelHints:
    """For after the minimums were applied: a mix-order reduction sets X itself, and honours them there."""
    return msgspec.structs.replace(hints, tma_minimums={})
