"""What a case's baseline has of the choices that Inductor makes by timing."""

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


def known_choices(
    store: BaselineStore,
    device: DeviceSpec,
    case: CaseId,
    arguments: tuple[Argument, ...],
    update: Update,
    renames: Renames | None = None,
) -> KnownChoices:
    """Those of the case's baseline on ``device``, or of what may be its baseline under an old name; none where there is
    no baseline, where it can't be read (the case's check says so), and where everything is recorded anew."""
    layouts = {arguments} if arguments else store.known_arguments(device.target, case)
    if update is Update.ALL or len(layouts) != 1:
        return KnownChoices()
    fingerprint = fingerprint_of(layouts.pop())
    try:
        baseline = store.time(device, case, fingerprint)
    except StoreError:
        return KnownChoices()
    if baseline is None and renames is not None:
        baseline = renames.timed_before(case, fingerprint, device)
    return KnownChoices() if baseline is None else choices_of(baseline)


def choices_of(baseline: TimeBaseline) -> KnownChoices:
    """The configs of a baseline's launches, and the times by which its kernels were made."""
    configs: dict[tuple[str, str], list[Config]] = {}
    for launch in baseline.recording.launches:
        if launch.config is not None:
            configs.setdefault((launch.kernel, launch.source), []).append(launch.config)
    times = baseline.inductor_times
    return KnownChoices(configs, {} if times is msgspec.UNSET else times)
