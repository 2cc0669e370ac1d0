"""Builds the baseline of a checked case: its recording, its sample, its calibration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kerntune.base.policy import Verdict
from kerntune.base.recording import same_work
from kerntune.capture.memory_plan import describe
from kerntune.errors import KerntuneError
from kerntune.gate.baselines import TIME_SCHEMA, Calibration, SinceAnchor, TimeBaseline, now, work_id
from kerntune.gate.call import PendingBaseline, Settings, should_write
from kerntune.gate.call_capture import RecordedCase
from kerntune.gate.comparison import Judgement
from kerntune.gate.replay import Replayer, calibrate, is_current
from kerntune.gate.static_figures import LaunchStatics
from kerntune.gpu.base import Backend
from kerntune.timing.timers import Sample
from kerntune.timing.worker.pool import Pairs


class BaselineBuilder(NamedTuple):
    """Builds the baseline of one case."""

    backend: Backend
    pairs: Pairs
    settings: Settings
    case: RecordedCase
    replayer: Replayer
    progress: Callable[[str], None]
    known_otherwise: bool = False
    """Whether the case may have a baseline under another name (:func:`kerntune.gate.call.should_write`)."""

    def writes(self, verdict: Verdict) -> bool:
        """Whether this run stores a baseline of a case with this verdict."""
        if self.settings.read_only:
            return False
        policy, update = self.case.call.policy, self.settings.update
        return should_write(verdict, update, policy, known_otherwise=self.known_otherwise)

    def pending(
        self, judgement: Judgement, sample: Sample, static: LaunchStatics, before: TimeBaseline | None
    ) -> PendingBaseline:
        """The baseline as it would be stored; complete even if this run stores none, since the run's JSON carries
        it."""
        verdict = judgement.verdict
        write = self.writes(verdict)
        recording = self.case.recording
        contents: dict[str, bytes] = {}
        if not recording.hidden_pointers:  # those behind addresses are of use to this process alone
            storages, contents = describe(recording.storages, self.case.recorded.sources, self.backend)
            recording = recording.but(storages=storages)
        gpu, case = self.backend.gpu, self.case
        assert gpu is not None
        found = TimeBaseline(
            schema=TIME_SCHEMA,
            case=case.id,
            fingerprint=case.fingerprint,
            arguments=case.arguments,
            device=gpu.spec.but(uuid=""),
            environment=gpu.environment(),
            recorded=now(),
            recording=recording,
            sample=sample,
            static=tuple(x.without_lines() for x in static),
            calibration=self._calibration(before, sample, write),
            since=since_of(judgement),
            inductor_times=dict(case.capture.compiled.choices.times) or msgspec.UNSET,
            operators=case.operators.without_places() if case.operators else msgspec.UNSET,
        )
        return PendingBaseline(found, {**case.recorded.artifacts, **contents}, write)

    def _calibration(self, before: TimeBaseline | None, sample: Sample, write: bool) -> Calibration | None:
        """The baseline's of the same work, else a new one if the baseline is written; None where none can be made.
        One of an earlier rule is made anew with its baseline."""
        now = self.case.recording
        known = before.calibration if before and same_work(before.recording, now) else None
        if known is not None and is_current(known):
            return known
        gpu = self.backend.gpu
        assert gpu is not None
        if not write or now.hidden_pointers or not self.settings.calibrate:
            return known
        self.progress(f"{self.case.id}: calibrating")
        try:
            work = self.replayer.work(now, now, {})
            seen = () if self.case.call.scope == "op" else sample.times_ns
            return calibrate(self.pairs, work, seen_ns=seen, throttle=lambda: gpu.environment().throttle)
        except KerntuneError:  # a baseline without a calibration is as good as those of earlier versions
            return known


def since_of(judgement: Judgement) -> SinceAnchor | None:
    """The comparison with the anchor, so that the next run needn't repeat it."""
    since = judgement.since
    if since is None or since.change is None:
        return None
    return SinceAnchor(work_id(since.baseline.recording), since.change)
