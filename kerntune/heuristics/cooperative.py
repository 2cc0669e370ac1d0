"""Cooperative reductions: ``RSPLIT`` programs share the rows of one x block and meet at a barrier."""

from __future__ import annotations

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.errors import HintError
from kerntune.heuristics.choices import pays_cooperative, pays_persistent
from kerntune.heuristics.hints import MAX_RSPLIT, KernelHints
from kerntune.heuristics.persistent import persistent_candidates
from kerntune.heuristics.presets import INDUCTOR_2_13, Preset
from kerntune.heuristics.reduction import finish, reduction_candidates, without_x
from kerntune.heuristics.sizing import bounds, floor_pow2, rebuilt, require_axes


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
