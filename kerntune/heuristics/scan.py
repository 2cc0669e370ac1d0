"""Split scans: one row at a time, its blocks scanned by programs that pass their sums on."""

from __future__ import annotations

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.measured import applies, scan_steps
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.reduction import finish, measured_configs, reduction_candidates, without_x
from kerntune.heuristics.sizing import block_of, bounds, rebuilt, require_axes


def split_scan(hints: KernelHints, device: DeviceSpec, preset: Preset = INDUCTOR_2_13) -> tuple[Config, ...]:
    """Candidates of a split scan: a reduction's, with ``R0_BLOCK`` raised to ``hints.min_scan_rblock``.

    Warps are those of the block before it was raised. A launch needs ``XBLOCK`` 1, so the kernel has none as a rule
    (``hints.no_x_block``). Raises :class:`~kerntune.errors.HintError` for other axes than x and r0.
    """
    require_axes(hints, "a split scan", ("x", "r0"))
    further = scan_steps(hints, device) if applies(hints, device, preset) else ()
    hints = without_x(hints)
    limits = bounds(hints, device, preset)
    raised = (
        rebuilt(config, {**config.kwargs, "R0_BLOCK": max(block_of(config, "r0"), hints.min_scan_rblock)})
        for config in (*reduction_candidates(hints, limits), *measured_configs(further, hints, limits))
    )
    return finish(tuple(raised), hints, limits, floors=False)
