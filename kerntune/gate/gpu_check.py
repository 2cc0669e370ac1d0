"""Judges a captured call on a GPU: tune, time, compare with the baseline in turn, and with the anchor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kerntune.base.case_result import Attribution, CaseResult, Since
from kerntune.base.policy import Outcome, Update, Verdict
from kerntune.base.recording import Recording, same_work
from kerntune.base.stats import modes, outliers
from kerntune.capture import Capture
from kerntune.capture.recorder import record
from kerntune.gate.baseline_builder import Keeper
from kerntune.gate.baselines import Argument, BaselineStore, TimeBaseline, fingerprint_of
from kerntune.gate.call import Call, Checked, PendingBaseline, Settings
from kerntune.gate.call_tuning import Tuning
from kerntune.gate.comparison import Comparer, Comparison
from kerntune.gate.fallback import Standing
from kerntune.gate.gated_metrics import exceeded
from kerntune.gate.inputs import case_inputs
from kerntune.gate.judgement import Judgement, judged
from kerntune.gate.messages import modes_text, shares_text, since_text, timed_message
from kerntune.gate.renamed import Renamed, Renames
from kerntune.gate.replayer import Replayer
from kerntune.gate.reporting import launch_reports, outcome_of, readable, reasons_of, times, unsure, warnings_of
from kerntune.gate.rerun import Rerun
from kerntune.gate.static_figures import LaunchStatic, launch_statics
from kerntune.gate.throughput import bytes_moved, device_bandwidth, launch_shares
from kerntune.gate.untimed import LAUNCHES_NOTHING, obsolete, untimed
from kerntune.gpu.base import Backend
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.timing.callables import CallSlot
from kerntune.timing.launch_shares import launch_times
from kerntune.timing.sample import Sample, Slot
from kerntune.timing.sampling import estimate_ns, slot_for, take_sample
from kerntune.timing.worker.pool import Pairs
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.stored_winners import Winners

RESTS_S = (0.5, 0.5, 0.5)
"""Rests before further samples for a baseline, while the device holds its clocks back: what ran before may have driven
it into its power limit, which it leaves within a second or two."""

SHORT_RESTS_S = (0.0, 0.05, 0.15, 0.4, 0.9)
"""Rests before the same work at another speed than stored is called drift: as long in all, but what lasted for
milliseconds only (clocks that change, another's work) doesn't cost a rest for power limits."""


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
        anchor: BaselineStore | None = None,
        next_decision: Callable[[], int] = lambda: 1,
        renames: Renames | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        assert backend.gpu is not None
        self.backend = backend
        self.gpu, self.store, self.yard, self.anchor = backend.gpu, store, yard or store, anchor
        self.pairs, self.call, self.capture, self.settings, self.progress = pairs, call, capture, settings, progress
        self.loader, self.cache = Loader(self.gpu), winners.cache.folder
        self.alone: tuple[float, ...] = ()
        self.renames, self.renamed = renames or Renames(()), Renamed()
        self.recorded = record(capture, backend.targets[0])
        arguments = arguments or case_inputs(self.yard, self.gpu.spec.target, call.case, self.recorded.recording)
        self.fingerprint = fingerprint_of(arguments)
        replayer = Replayer(backend, pairs, self.loader, self.recorded, call.policy.timer)
        self.tuning = Tuning(capture, self.recorded, self.loader, winners, call.policy, progress, isolation)
        self.comparer = Comparer(self.gpu, call, capture, self.recorded, replayer, next_decision, progress)
        self.keeper = Keeper(backend, pairs, settings, call, self.recorded, arguments, replayer, progress)

    def run(self, value: object) -> Checked:
        """Tune, judge, and prepare the baseline that may be written."""
        try:
            path = self.yard.time_path(self.gpu.spec, self.call.case, self.fingerprint)
            self.renamed = self.renames.settle(self.call.case, self.fingerprint, self.recorded.recording, path)
            baseline = self._read(self.yard, self.settings.update)
            recorded = self.recorded
            found = untimed(recorded.recording, recorded.unsaved, baseline, self.call.policy, self.settings)
            if found is not None:
                self.tuning.leave()
                return self._untimed(value, *found)
            if baseline is not None and not baseline.recording.working:
                baseline = None  # made when the case launched nothing
            self.pairs.settle()
            again = Rerun(self.backend, self.capture, self.call, value) if self.call.reference is not None else None
            with self.capture.plan.homes_preserved():
                self.tuning.run(baseline, again)
                return self._judge(value, baseline)
        finally:
            self.loader.close()

    def _read(self, store: BaselineStore, update: Update = Update.NONE) -> TimeBaseline | None:
        return readable(lambda: store.time(self.gpu.spec, self.call.case, self.fingerprint), update)

    # timing

    def _sample(self, baseline: TimeBaseline | None) -> Sample:
        self.progress(f"{self.call.case}: timing")
        quick = self._roughly(baseline)
        slot = self._op_slot() if self.call.scope == "op" else self._kernel_slot(self.recorded.recording)
        if self.tuning.trials:
            self.gpu.rest()
        sample = take_sample(slot, quick)
        for seconds in SHORT_RESTS_S if quick else RESTS_S:
            if not (self._limited() if baseline is None else self.comparer.moved(baseline, sample)):
                break
            self.gpu.rest(seconds)
            sample = take_sample(slot, quick)
        return sample

    def _roughly(self, baseline: TimeBaseline | None) -> bool:
        """Whether the time need only tell near from far: the same work, and its stored time will stay."""
        if baseline is None or self.call.scope == "op" or self.settings.update is Update.ALL:
            return False
        return same_work(baseline.recording, self.recorded.recording)

    def _kernel_slot(self, recording: Recording) -> Slot:
        memory = Memory(self.gpu, recording.storages, self.recorded.sources)
        program = Program(self.loader, recording, memory, self.recorded.artifacts)
        self.alone = launch_times(self.loader, recording, self.recorded.sources, self.recorded.artifacts)
        return slot_for(program, estimate_ns(program), self.call.policy.timer)

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

    # judging

    def _judge(self, value: object, baseline: TimeBaseline | None) -> Checked:
        policy, sample = self.call.policy, self._sample(baseline)
        stored, found = self.yard.readable(self.gpu.spec.target), None
        if baseline is not None:
            found = self.comparer.against(baseline, stored, sample, policy)
        since = self._since(found, sample)
        stays = baseline is not None and self.settings.update is not Update.ALL
        known = {x.code: x.metrics for x in baseline.static} if baseline is not None and stays else {}
        static = launch_statics(self.recorded, self.gpu.spec, known)
        grown = exceeded(baseline.static, static, policy.metrics.static) if baseline is not None else ()
        judgement = judged(policy, len(self.recorded.recording.working), found, since, grown)
        parts = self.comparer.attribution(judgement.decisive) if judgement.decisive is not None else None
        pending = self.keeper.pending(judgement, sample, static, baseline)
        result = self._result(judgement, sample, static, parts, pending)
        return Checked(value, (result,), (pending,), self.store)

    def _since(self, found: Comparison | None, sample: Sample) -> Comparison | None:
        """The comparison with the anchor. Where both did the same work, that with the baseline serves; where nothing is
        new, that of when the baseline was recorded."""
        policy = self.call.policy.since_anchor()
        anchor = self._read(self.anchor) if self.anchor is not None and policy.metrics.time else None
        if anchor is None or self.anchor is None:
            return None
        if found is not None and same_work(anchor.recording, found.baseline.recording):
            return self.comparer.shared(found, anchor, sample, policy)
        if found is not None and (known := found.remembered(anchor, policy)) is not None:
            return known
        since = self.comparer.against(anchor, self.anchor.readable(self.gpu.spec.target), sample, policy)
        # another number of launches was accepted when the baseline was recorded
        return replace(since, evidence=replace(since.evidence, expected=since.evidence.launched))

    # results

    def _result(
        self,
        judgement: Judgement,
        sample: Sample,
        static: tuple[LaunchStatic, ...],
        parts: Attribution | None,
        pending: PendingBaseline,
    ) -> CaseResult:
        call, found, verdict = self.call, judgement.found, judgement.verdict
        baseline = found.baseline if found is not None else None
        standing = found.standing if found is not None else Standing("")
        before, after = times(baseline, sample, standing.replay)
        since = reported(judgement.since)
        of_anchor = judgement.decisive is not None and judgement.decisive is judgement.since
        shares = [shares_text(parts)] if parts and not of_anchor else []
        said = [*judgement.grown, *shares, *filter(None, [since_text(since, parts if of_anchor else None)])]
        reasons = reasons_of(baseline, self.recorded.recording, self.gpu.environment(), standing, call.scope, sample)
        reasons = (*reasons, *unsure(judgement), *([self.renamed.said] if self.renamed.said else []))
        told = (f"since the baseline: {reasons[0]}", *reasons[1:]) if of_anchor else reasons
        remark = self.yard.remark(self.gpu.spec, call.case, self.fingerprint)
        warnings = (*filter(None, [remark]), *warnings_of(judgement, pending, call.policy))
        warnings = (*warnings, *modes_text(modes(sample.times_ns)), *self.tuning.notes)
        shown = found.shown if found is not None else None
        return CaseResult(
            case=call.case,
            fingerprint=self.fingerprint,
            verdict=verdict,
            outcome=outcome_of(verdict, call.policy, pending, self.settings.update),
            message=timed_message(verdict, call.case, before, after, shown, [*said, *told, *warnings]),
            target=str(self.gpu.spec.target),
            device=self.gpu.spec.name,
            launches=launch_reports(static),
            baseline_ns=before,
            current_ns=after,
            change=found.change if found is not None else None,
            shown=shown,
            tolerance=call.policy.tolerance,
            rung=standing.rung,
            causes=reasons,
            attribution=parts,
            warnings=warnings,
            findings=judgement.grown,
            trials=tuple(self.tuning.trials),
            failed_trials=tuple(self.tuning.failures),
            left_out=tuple(self.tuning.left_out),
            times_ns=sample.times_ns,
            outliers=outliers(sample.times_ns),
            modes=modes(sample.times_ns),
            timer=sample.protocol.timer,
            recorded=self.renamed.taken,
            tuning_seconds=self.tuning.seconds,
            baseline_path=self.store.shown(self.store.time_path(self.gpu.spec, call.case, self.fingerprint)),
            since=since,
            flops=call.flops,
            bytes_moved=call.bytes if call.bytes is not None else bytes_moved(self.recorded.recording),
            bandwidth=device_bandwidth(self.gpu, self.cache),
            shares=launch_shares(self.recorded.recording, self.alone),
        )

    def _untimed(self, value: object, verdict: Verdict, why: str) -> Checked:
        """The answer for a case without a time; its launches are shown all the same."""
        path = self.store.time_path(self.gpu.spec, self.call.case, self.fingerprint)
        removed = obsolete(self.recorded.recording, path, self.settings)
        warnings = () if removed is None else (f"{LAUNCHES_NOTHING}, so {self.store.shown(path)} is removed",)
        result = CaseResult(
            case=self.call.case,
            fingerprint=self.fingerprint,
            verdict=verdict,
            outcome=self.call.policy.outcome(verdict) if removed is None else Outcome.PASS,
            message=", ".join([f"{verdict.value} {self.call.case}: {why}", *warnings]),
            target=str(self.gpu.spec.target),
            device=self.gpu.spec.name,
            launches=launch_reports(launch_statics(self.recorded, self.gpu.spec, {})),
            tolerance=self.call.policy.tolerance,
            causes=(why,),
            warnings=warnings,
        )
        return Checked(value, (result,), store=self.store, obsolete=removed)


def reported(found: Comparison | None) -> Since | None:
    """The comparison with the anchor, for reports."""
    if found is None:
        return None
    rung, tolerance = found.standing.rung, found.policy.tolerance
    return Since(found.baseline.recorded, found.verdict, tolerance, found.change, rung, found.shown)
