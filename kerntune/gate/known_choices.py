"""What a case's baseline has of choices that are made by timing: Inductor's, and those among implementations."""

from __future__ import annotations

import msgspec

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import Update
from kerntune.capture.inductor.baseline_choices import KnownChoices
from kerntune.errors import StoreError
from kerntune.gate.baselines import Argument, BaselineStore, TimeBaseline, fingerprint_of
from kerntune.gate.case_identity import Renames


def known_baseline(
    store: BaselineStore,
    device: DeviceSpec,
    case: CaseId,
    arguments: tuple[Argument, ...],
    update: Update,
    renames: Renames | None = None,
) -> TimeBaseline | None:
    """The case's baseline on ``device``, or what may be its baseline under an old name, before the call is captured;
    None where there is none, where it can't be read (the case's check says so), and where everything is recorded
    anew."""
    layouts = {arguments} if arguments else store.known_arguments(device.target, case)
    if update is Update.ALL or len(layouts) != 1:
        return None
    fingerprint = fingerprint_of(layouts.pop())
    try:
        baseline = store.time(device, case, fingerprint)
    except StoreError:
        return None
    if baseline is None and renames is not None:
        return renames.timed_before(case, fingerprint, device)
    return baseline


def choices_of(baseline: TimeBaseline | None) -> KnownChoices:
    """The configs of a baseline's launches, and the times by which its kernels were made."""
    if baseline is None:
        return KnownChoices()
    configs: dict[tuple[str, str], list[Config]] = {}
    for launch in baseline.recording.launches:
        if launch.config is not None:
            configs.setdefault((launch.kernel, launch.source), []).append(launch.config)
    times = baseline.inductor_times
    return KnownChoices(configs, {} if times is msgspec.UNSET else times)
