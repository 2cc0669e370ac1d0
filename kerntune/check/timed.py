"""Judges a captured call on a GPU: tune, time, compare with the baseline in turn."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable

import msgspec

from kerntune.backend.base import Backend
from kerntune.baseline import (
    TIME_SCHEMA,
    Argument,
    BaselineStore,
    Calibration,
    TimeBaseline,
    fingerprint_of,
    inputs_of,
    now,
)
from kerntune.calibration import calibrate
from kerntune.capture import Capture, Site
from kerntune.check.attribute import at_configs, attribute, steps_between
from kerntune.check.call import Call, Checked, Pending, Settings
from kerntune.check.replayer import Artifacts, Replayer
from kerntune.check.results import launch_reports, readable, reasons_of, should_write, times, warnings_of
from kerntune.check.rungs import IDENTITY, RECOMPILED, REPLAY, STORED, Standing, stand, stored_change
from kerntune.check.words import shares_text, timed_message
from kerntune.errors import KerntuneError, ReplayError
from kerntune.judge import DRIFT, Evidence, decide, settled
from kerntune.launch import Loader, Program
from kerntune.measure.base import Sample, Slot
from kerntune.measure.calls import CallSlot
from kerntune.measure.timing import estimate_ns, slot_for, take_sample
from kerntune.memory import Memory
from kerntune.plan import describe
from kerntune.policy import Outcome, Update, Verdict
from kerntune.processes import PROCESS_BIAS, Replay
from kerntune.recompile import recompiled
from kerntune.recorder import record
from kerntune.recording import Recording, same_work
from kerntune.result import Attribution, CaseResult, FailedTrial, Share, TrialReport
from kerntune.static.launches import LaunchStatic, launch_statics
from kerntune.stats import Estimate, median
from kerntune.trials import Trials
from kerntune.tuner import tune
from kerntune.winners import Winners
from kerntune.worker.pool import Pairs

SECOND_LOOKS = 3
"""Rests and further samples before the same work at another speed is called drift: what ran before may have driven the
device into its power limit, which it leaves within a second or two."""


class TimedCheck:
    """The check of one captured call. Lives inside the device's lock."""

    def __init__(
        self,
        backend: Backend,
        store: BaselineStore,
        winners: Winners,
        pairs: Pairs,
        call: Call,
        capture: Capture,
        arguments: tuple[Argument, ...],
        settings: Settings,
        progress: Callable[[str], None],
        yard: BaselineStore | None = None,
        next_decision: Callable[[], int] = lambda: 1,
    ) -> None:
        assert backend.gpu is not None
        self.backend, self.gpu, self.store, self.yard = backend, backend.gpu, store, yard or store
        self.winners, self.pairs, self.next_decision = winners, pairs, next_decision
        self.may_write, self.calibrating, update = not settings.read_only, settings.calibrate, settings.update
        self.call, self.capture, self.update, self.progress = call, capture, update, progress
        self.loader = Loader(self.gpu)
        self.recorded = record(capture, backend.targets[0])
        self.arguments = arguments or inputs_of(self.recorded.recording)
        self.fingerprint = fingerprint_of(self.arguments)
        self.replayer = Replayer(backend, pairs, self.loader, self.recorded)
        self.failures: list[FailedTrial] = []
        self.trials: list[TrialReport] = []
        self.tuning_seconds = 0.0

    def run(self, value: object) -> Checked:
        """Tune, judge, and prepare the baseline that may be written."""
        try:
            baseline = readable(lambda: self.yard.time(self.gpu.spec, self.call.case, self.fingerprint), self.update)
            self._tune(baseline)
            return self._judge(value, baseline)
        finally:
            self.loader.close()

    # tuning

    def _tune(self, baseline: TimeBaseline | None) -> None:
        start = time.perf_counter()
        self.pairs.settle()
        for index, pending in enumerate(self.capture.launches):
            if pending.site is not None:
                self._tune_site(index, pending.site, baseline)
        self.tuning_seconds = time.perf_counter() - start

    def _tune_site(self, index: int, site: Site, baseline: TimeBaseline | None) -> None:
        stored = self.winners.find(site)
        if stored is not None and stored == site.chosen:
            site.settle(stored)
            return
        with self.capture.active():
            incumbent = stored if stored is not None else self._incumbent(index, site, baseline)
            tuned = tune(
                self.capture,
                self.recorded,
                index,
                self.loader,
                incumbent=incumbent,
                trials=Trials(self.winners),
                progress=self.progress,
            )
        self.recorded.recording = tuned.recording
        self.failures += tuned.failures
        self.trials += [
            TrialReport(site.kernel, site.candidates[i].config, round(ns, 1)) for i, ns in tuned.times_ns.items()
        ]
        site.chosen = tuned.winner
        site.settle(tuned.winner)
        self.winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])

    @staticmethod
    def _incumbent(index: int, site: Site, baseline: TimeBaseline | None) -> int | None:
        launches = baseline.recording.launches if baseline else ()
        configs = [c.config for c in site.candidates]
        if index < len(launches) and launches[index].kernel == site.kernel and launches[index].config in configs:
            return configs.index(launches[index].config)  # type: ignore[arg-type]  # None is never in configs
        return None

    # judging

    def _judge(self, value: object, baseline: TimeBaseline | None) -> Checked:
        recording = self.recorded.recording
        self.progress(f"{self.call.case}: timing")
        slot = self._op_slot() if self.call.scope == "op" else self._kernel_slot(recording)
        if self.trials:
            self.gpu.rest()
        # The same work only asks whether its time is near the stored one, unless that is to be replaced.
        quick = baseline is not None and self.update is not Update.ALL and same_work(baseline.recording, recording)
        sample = take_sample(slot, quick)
        for _ in range(SECOND_LOOKS):
            if self._limited() if baseline is None else self._moved(baseline, sample):
                self.gpu.rest()
                sample = take_sample(slot, quick)
        standing = self._standing(baseline)
        evidence = self._evidence(baseline, sample, standing)
        verdict = decide(evidence, self.call.policy)
        parts = self._attribution(verdict, baseline, standing, evidence)
        pending = self._pending(verdict, sample, baseline)
        result = self._result(verdict, baseline, sample, standing, parts, pending)
        return Checked(value, (result,), (pending,), self.store)

    def _kernel_slot(self, recording: Recording) -> Slot:
        memory = Memory(self.gpu, recording.storages, self.recorded.sources)
        program = Program(self.loader, recording, memory, self.recorded.artifacts)
        return slot_for(program, estimate_ns(program))

    def _op_slot(self) -> Slot:
        call, plan = self.call, self.capture.plan
        tensors = plan.tensors()

        def run() -> object:
            with self.capture.pinned():
                return call.fn(*call.args, **call.kwargs)

        return CallSlot(self.gpu, run, lambda: plan.preserving(tensors))

    def _limited(self) -> bool:
        """Whether the device holds its clocks back just now: a baseline should not remember that."""
        return bool(self.gpu.environment().throttle)

    def _moved(self, baseline: TimeBaseline, sample: Sample) -> bool:
        """Whether the same work took another time than stored: worth a second look before it is called drift."""
        stored = median(baseline.sample.times_ns)
        same = same_work(baseline.recording, self.recorded.recording)
        return same and stored > 0 and abs(median(sample.times_ns) / stored - 1) > DRIFT

    def _standing(self, baseline: TimeBaseline | None) -> Standing:
        """What today's time is held against."""
        if baseline is None:
            return Standing("")
        if same_work(baseline.recording, self.recorded.recording):
            return Standing(IDENTITY, before=baseline.recording)
        self.progress(f"{self.call.case}: replaying the baseline beside today's code")
        level, floor = self.call.policy.level_of(self.next_decision()), self._floor(baseline)
        bias = max(PROCESS_BIAS, baseline.calibration.bias if baseline.calibration else 0.0)

        def done(change: Estimate, a_ns: float) -> bool:
            return settled(change, self.call.policy, a_ns, floor)

        def judged(before: Recording, artifacts: Artifacts) -> Replay:
            return self.replayer.judged(before, artifacts, level, bias, done)

        stored = self.yard.readable(self.gpu.spec.target)
        return stand(baseline, stored, self.capture.compiler.farm, judged)

    @staticmethod
    def _floor(baseline: TimeBaseline | None) -> float:
        """The smallest change that can be told, as the baseline's calibration says."""
        return baseline.calibration.floor if baseline and baseline.calibration else 0.0

    def _evidence(self, baseline: TimeBaseline | None, sample: Sample, standing: Standing) -> Evidence:
        if baseline is None:
            return Evidence(launched=len(self.recorded.recording.launches))
        replayed, stored = standing.replay, median(baseline.sample.times_ns)
        own = replayed is not None and standing.rung == REPLAY
        today = median(replayed.a_ns) if replayed else median(sample.times_ns)
        then, this = baseline.sample.protocol, sample.protocol
        comparable = (then.timer, then.version) == (this.timer, this.version)
        identical = standing.rung == IDENTITY
        if self.call.scope == "op":
            # The kernels' replay says nothing of torch's operations between them, and their time is not the op's.
            identical = identical and stored > 0 and abs(today / stored - 1) <= self.call.policy.tolerance
            comparable = False
        return Evidence(
            launched=len(self.recorded.recording.launches),
            expected=len(baseline.recording.launches),
            identical=identical,
            replay=replayed.change if replayed else None,
            drift=today / stored - 1 if stored > 0 and comparable and (identical or own) else None,
            baseline_ns=stored,
            effect_floor=self._floor(baseline),
            stored=stored_change(baseline, sample, self.call.policy.level)
            if comparable and standing.rung == STORED
            else None,
        )

    def _attribution(
        self, verdict: Verdict, baseline: TimeBaseline | None, standing: Standing, evidence: Evidence
    ) -> Attribution | None:
        """Which cause did what; only where somebody will ask."""
        if baseline is None or verdict not in (Verdict.REGRESSED, Verdict.DRIFTED) or standing.before is None:
            return None
        moved = "; ".join(baseline.environment.differences(self.gpu.environment()))
        environment = Share(evidence.drift, moved)
        before, now = standing.before, self.recorded.recording
        if standing.rung == IDENTITY:
            same = Share(0.0, "the same machine code")
            return Attribution(environment, same, same, same)
        self.progress(f"{self.call.case}: looking for the cause")
        made: dict[str, bytes] = {}
        artifacts = ChainMap(made, standing.artifacts or {})  # type: ignore[arg-type]  # only made is written

        def again() -> Recording:
            if standing.rung == RECOMPILED:
                raise ReplayError("the baseline's binary can't be run: " + "; ".join(standing.why_not))
            found, binaries = recompiled(self.capture.compiler.farm, baseline.recording, artifacts)
            made.update(binaries)
            return found

        steps = steps_between(before, again, now, lambda: at_configs(self.capture, self.recorded, before))
        total = standing.replay.change.point if standing.replay else None
        return attribute(steps, total, environment, lambda a, b: self.replayer.change(a, b, artifacts))

    # results

    def _pending(self, verdict: Verdict, sample: Sample, before: TimeBaseline | None) -> Pending:
        """The baseline as it would be stored; complete even if this run doesn't, for a run's JSON to carry."""
        outcome, missing = self.call.policy.outcome(verdict), self.call.policy.missing.value
        write = should_write(verdict, self.update, outcome, missing) and self.may_write
        recording = self.recorded.recording
        storages, contents = describe(recording.storages, self.recorded.sources, self.backend)
        recording = msgspec.structs.replace(recording, storages=storages)
        known = {x.code: x.metrics for x in before.static} if before and not write else {}
        static = launch_statics(self.recorded, self.gpu.spec, known)
        found = self._baseline(recording, sample, static, self._calibration(before, write))
        return Pending(found, {**self.recorded.artifacts, **contents}, write)

    def _calibration(self, before: TimeBaseline | None, write: bool) -> Calibration | None:
        """What is known of the same work, else a new one for a baseline that is written; None where it can't be had."""
        now = self.recorded.recording
        if before is not None and before.calibration is not None and same_work(before.recording, now):
            return before.calibration
        idle = all(0 in x.grid for x in now.launches)
        if not write or idle or now.hidden_pointers or not self.calibrating:
            return None
        self.progress(f"{self.call.case}: calibrating")
        try:
            return calibrate(self.pairs, self.replayer.work(now, now, {}))
        except KerntuneError:  # a baseline without a calibration is as good as those of earlier versions
            return None

    def _baseline(
        self, recording: Recording, sample: Sample, static: tuple[LaunchStatic, ...], calibration: Calibration | None
    ) -> TimeBaseline:
        return TimeBaseline(
            schema=TIME_SCHEMA,
            case=self.call.case,
            fingerprint=self.fingerprint,
            arguments=self.arguments,
            device=msgspec.structs.replace(self.gpu.spec, uuid=""),
            environment=self.gpu.environment(),
            recorded=now(),
            recording=recording,
            sample=sample,
            static=static,
            calibration=calibration,
        )

    def _result(
        self,
        verdict: Verdict,
        baseline: TimeBaseline | None,
        sample: Sample,
        standing: Standing,
        parts: Attribution | None,
        pending: Pending,
    ) -> CaseResult:
        replayed = standing.replay
        before, after = times(baseline, sample, standing.replay)
        reasons = reasons_of(baseline, self.recorded.recording, self.gpu.environment(), standing)
        remark = self.yard.remark(self.gpu.spec, self.call.case, self.fingerprint)
        warnings = (*filter(None, [remark]), *warnings_of(baseline, pending, self.call.policy.tolerance))
        shares = [shares_text(parts)] if parts else []
        static = pending.baseline.static if isinstance(pending.baseline, TimeBaseline) else ()
        outcome = self.call.policy.outcome(verdict)
        if pending.write and self.update in (Update.ALL, Update.NEW):
            outcome = Outcome.PASS
        return CaseResult(
            case=self.call.case,
            fingerprint=self.fingerprint,
            verdict=verdict,
            outcome=outcome,
            message=timed_message(
                verdict,
                self.call.case,
                before,
                after,
                replayed.change if replayed else None,
                [*shares, *reasons, *warnings],
            ),
            target=str(self.gpu.spec.target),
            device=self.gpu.spec.name,
            launches=launch_reports(static),
            baseline_ns=before,
            current_ns=after,
            change=replayed.change if replayed else None,
            tolerance=self.call.policy.tolerance,
            rung=standing.rung,
            causes=reasons,
            attribution=parts,
            warnings=warnings,
            trials=tuple(self.trials),
            failed_trials=tuple(self.failures),
            times_ns=sample.times_ns,
            timer=sample.protocol.timer,
            tuning_seconds=self.tuning_seconds,
            baseline_path=self.store.shown(self.store.time_path(self.gpu.spec, self.call.case, self.fingerprint)),
            flops=self.call.flops,
            bytes_moved=self.call.bytes,
        )
