"""Judges a captured call on a GPU: tune, time, compare with the baseline in turn, and with the anchor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kerntune.base.case_result import Attribution, CaseResult, CodeChange
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.base.recording import Recording, same_work
from kerntune.base.stats import modes
from kerntune.gate import messages
from kerntune.gate.baseline_builder import BaselineBuilder
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.call import Checked, PendingBaseline, Rerun, Settings, outcome_of
from kerntune.gate.call_capture import CapturedCall
from kerntune.gate.call_operators import with_anchors
from kerntune.gate.call_tuning import Tuning
from kerntune.gate.comparison import Comparer, Comparison, Judgement, judge, operators_since
from kerntune.gate.decision import Evidence, decide
from kerntune.gate.device_faults import NOT_LOOKED, OutsideWrites, has_fixed, look_for
from kerntune.gate.gpu_capture import GpuRun
from kerntune.gate.history.points import provenance_of
from kerntune.gate.launch_changes import changed_most, exceeded, replaced_kernels
from kerntune.gate.replay import Replayer
from kerntune.gate.static_figures import LaunchStatic, launch_reports, launch_statics, with_launches
from kerntune.gate.stores import Unreviewed, known_figures, readable
from kerntune.gpu.foreign_work import NONE_SEEN, ClockWatch, ForeignWork
from kerntune.gpu.host_gpus import gpu_id, gpu_name
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.timing.sampling import estimate_ns, launch_times, slot_for, take_sample
from kerntune.timing.timers import CallSlot, Sample, Slot
from kerntune.tuning.stored_winners import Winners

RESTS_S = (0.5, 0.5, 0.5)
"""Rests before further samples for a baseline, while the device throttles its clocks: earlier work may have driven it
into its power limit, which it leaves within a second or two."""

SHORT_RESTS_S = (0.0, 0.05, 0.15, 0.4, 0.9)
"""Rests before the same work at another speed than stored is called drift: as long in all, but what lasted for
milliseconds only (clocks that change, another process's work) doesn't cost a rest for power limits."""


class CaseTime(NamedTuple):
    """A case's time today, and that of each launch alone in nanoseconds; none of a whole operation's launches."""

    sample: Sample
    launches_ns: tuple[float, ...]
    foreign: ForeignWork


class CaseFindings(NamedTuple):
    """What the check of a case came to. ``parts`` is the decisive change taken apart."""

    time: CaseTime
    static: tuple[LaunchStatic, ...]
    judgement: Judgement
    parts: Attribution | None
    pending: PendingBaseline
    unreviewed: Unreviewed
    outside: OutsideWrites


class TimedCheck:
    """The check of one captured call, inside the device's lock. ``tuned`` is called when its keys have winners."""

    def __init__(
        self,
        run: GpuRun,
        captured: CapturedCall,
        winners: Winners,
        progress: Callable[[str], None],
        tuned: Callable[[], None],
    ) -> None:
        backend, call = captured.capture.backend, captured.call
        assert backend.gpu is not None
        self.gpu, self.stores, self.settings = backend.gpu, run.stores, run.settings
        self.pairs = run.gpus.of(backend).pairs
        self.value, self.call, self.progress = captured.value, call, progress
        self.case = case = captured.recorded(run.stores.reference)
        self.path = run.stores.own.time_path(self.gpu.spec, case.id, case.fingerprint)
        self.loader, self.cache = Loader(self.gpu), winners.cache.folder
        replayer = Replayer(backend, self.pairs, self.loader, case.recorded, call.policy.timer)
        self.isolation, self._tuned = run.isolation(call, backend), tuned
        self.tuning = Tuning(case.capture, case.recorded, self.loader, winners, call.options, progress, self.isolation)
        self.comparer = Comparer(self.gpu, case, replayer, run.next_decision, progress)
        path = run.stores.reference.time_path(self.gpu.spec, case.id, case.fingerprint)
        self.renamed = run.stores.renames.settle(case.id, case.fingerprint, case.recording, path, case.arguments)
        known = self.renamed.edited
        self.builder = BaselineBuilder(backend, self.pairs, run.settings, case, replayer, progress, known)
        asks_again = call.reference is not None
        self.rerun = Rerun(backend, case.capture, call, captured.value) if asks_again else None

    def run(self) -> Checked:
        """Tune, judge, and prepare the baseline that may be written."""
        with closing(self.loader):
            return self._checked()

    def _checked(self) -> Checked:
        case, reference = self.case, self.stores.reference
        baseline = self._read(reference, self.settings.update)
        found = untimed(case.recording, case.recorded.unsaved, baseline, self.call.policy, self.settings)
        if found is not None:
            self.tuning.leave()
            return self._untimed(*found)
        if baseline is not None and not baseline.recording.working:
            baseline = None  # made when the case launched nothing
        self.pairs.settle()
        with case.capture.plan.homes_preserved():
            outside = self._outside_writes(baseline)
            case.recorded.writes_outside = bool(outside.found)
            self.tuning.run(baseline, self.rerun)
            self._tuned()
            findings = self._judge(baseline, self._time(baseline), outside)
        return Checked(self.value, self._result(findings), findings.pending, self.stores.own)

    def _read(self, store: BaselineStore, update: Update = Update.NONE) -> TimeBaseline | None:
        return readable(lambda: store.time(self.gpu.spec, self.case.id, self.case.fingerprint), update)

    def _outside_writes(self, baseline: TimeBaseline | None) -> OutsideWrites:
        """Of what isn't a candidate, where the case's work is new, or becomes its baseline: equal code has been looked
        at when that was recorded."""
        new = baseline is None or self.settings.update is Update.ALL
        new = new or not same_work(baseline.recording, self.case.recording)  # type: ignore[union-attr]
        if not new or not self.isolation.wanted or not has_fixed(self.case.capture):
            return NOT_LOOKED
        self.progress(f"{self.case.id}: looking for writes outside of tensors")
        return look_for(self.isolation, self.case.recorded)

    # timing

    def _time(self, baseline: TimeBaseline | None) -> CaseTime:
        self.progress(f"{self.case.id}: timing")
        slot, launches_ns = (self._op_slot(), ()) if self.call.scope == "op" else self._kernel_slot()
        sample = self._sample(slot, baseline)
        return CaseTime(sample, launches_ns, self._foreign_work(baseline, sample))

    def _foreign_work(self, baseline: TimeBaseline | None, sample: Sample) -> ForeignWork:
        """What other processes do on the device, where a time becomes a baseline or is drift; there is no need to know
        it of one that is as stored."""
        if baseline is not None and not self.comparer.moved(baseline, sample):
            return NONE_SEEN
        with closing(ClockWatch(self.gpu)) as clock:
            return clock.watch()

    def _sample(self, slot: Slot, baseline: TimeBaseline | None) -> Sample:
        quick = self._roughly(baseline)
        # a case without a baseline whose time becomes none is only shown: half a second for each key takes too long
        if self.tuning.trials and (baseline is not None or self.builder.writes(Verdict.NEW)):
            self.gpu.rest()
        sample = take_sample(slot, quick)
        for seconds in SHORT_RESTS_S if quick else RESTS_S:
            limited = self.gpu.environment().throttle if baseline is None else self.comparer.moved(baseline, sample)
            if not limited:
                break
            self.gpu.rest(seconds)
            sample = take_sample(slot, quick)
        return sample

    def _roughly(self, baseline: TimeBaseline | None) -> bool:
        """Whether a rough time is enough: the work is the same, and its stored time stays."""
        if baseline is None or self.call.scope == "op" or self.settings.update is Update.ALL:
            return False
        return same_work(baseline.recording, self.case.recording)

    def _kernel_slot(self) -> tuple[Slot, tuple[float, ...]]:
        recording, recorded = self.case.recording, self.case.recorded
        spaced = self.case.recorded.writes_outside
        memory = Memory(self.gpu, recording.storages, recorded.sources, spaced=spaced)
        program = Program(self.loader, recording, memory, recorded.artifacts)
        launches_ns = launch_times(self.loader, recording, recorded.sources, recorded.artifacts, spaced)
        return slot_for(program, estimate_ns(program), self.call.policy.timer), launches_ns

    def _op_slot(self) -> Slot:
        call, plan = self.call, self.case.capture.plan
        tensors = plan.tensors()

        def run() -> object:
            with self.case.capture.pinned():
                return call.fn(*call.args, **call.kwargs)

        return CallSlot(self.gpu, run, lambda: plan.preserving(tensors))

    # judging

    def _judge(self, baseline: TimeBaseline | None, time: CaseTime, outside: OutsideWrites) -> CaseFindings:
        policy, case, reference = self.call.policy, self.case, self.stores.reference
        found = None
        if baseline is not None:
            stored = reference.artifacts(self.gpu.spec.target)
            found = self.comparer.against(baseline, stored, time.sample, policy, results=True)
        since = self._since(found, time.sample)
        before = baseline.static if baseline is not None else ()
        static = launch_statics(case.recorded, self.gpu.spec, known_figures(before, self.settings.update))
        grown = exceeded(before, static, policy.metrics.static)
        beside = operators_since(case, found)
        if since is not None:
            moved = operators_since(case, since)
            since = since._replace(evidence=since.evidence._replace(work_taken_over=moved.taken_over))
            beside = with_anchors(beside, moved, since.baseline.recorded.partition("T")[0])
        judgement = judge(policy, len(case.recording.working), found, since, grown, outside.failures, beside)
        parts = self.comparer.attribution(judgement.decisive) if judgement.decisive is not None else None
        pending = self.builder.pending(judgement, time.sample, static, baseline)
        unreviewed = self.stores.unreviewed(judgement.verdict, self.path)
        write = unreviewed.writes(pending.write, self.settings.update)
        pending = pending._replace(write=write and outside.may_be_baseline(self.settings.update))
        return CaseFindings(time, static, judgement, parts, pending, unreviewed, outside)

    def _since(self, found: Comparison | None, sample: Sample) -> Comparison | None:
        """The comparison with the anchor. Where both did the same work, that with the baseline serves; where nothing is
        new, that of when the baseline was recorded."""
        policy, store = self.call.policy.since_anchor(), self.stores.anchor
        if store is None or not policy.metrics.time:
            return None
        anchor = self._read(store)
        if anchor is None:
            return None
        if found is not None and same_work(anchor.recording, found.baseline.recording):
            return self.comparer.shared(found, anchor, sample, policy)
        if found is not None and (known := found.remembered(anchor, policy)) is not None:
            return known
        since = self.comparer.against(anchor, store.artifacts(self.gpu.spec.target), sample, policy)
        # another number of launches was accepted when the baseline was recorded
        return since._replace(evidence=since.evidence._replace(expected=since.evidence.launched))

    # results

    def _result(self, findings: CaseFindings) -> CaseResult:
        judgement, before = findings.judgement, findings.judgement.baseline
        result = judgement.change_in(self._verdict(findings), findings.time.sample)
        stored = before.static if before is not None else ()
        result = with_launches(result, self.case.recording, findings.static, stored, findings.time.launches_ns)
        result = self.tuning.with_trials(result)
        result = self.case.rates_in(result, self.gpu, self.cache)
        code: tuple[CodeChange, ...] = ()
        if before is not None and self.settings.code_changes:
            code = self.case.code_changes(self.stores.reference, stored, findings.static, before.recording)
        return result.but(
            operators=self.case.operators,
            outside_writes=findings.outside.found,
            provenance=provenance_of(self.case.recording, before, self.gpu.environment()),
            code=code,
        )

    def _verdict(self, findings: CaseFindings) -> CaseResult:
        judgement, parts = findings.judgement, findings.parts
        found, verdict = judgement.found, judgement.verdict
        before, after = messages.times(judgement.baseline, findings.time.sample, judgement.used.replay)
        since = messages.reported(judgement.since)
        of_anchor = judgement.decisive is not None and judgement.decisive is judgement.since
        shares = [messages.shares_text(parts)] if parts and not of_anchor else []
        said = [*judgement.findings, *shares, *filter(None, [messages.since_text(since, parts if of_anchor else None)])]
        reasons, warnings = self._reasons(findings), self._warnings(findings)
        told = reasons
        if of_anchor:
            first, *others = reasons
            told = (f"since the baseline: {first}", *others)
        shown = found.shown if found is not None else None
        held = judgement.baseline is not None or judgement.since is not None
        message = messages.timed_message(
            verdict, self.case.id, before, after, shown, [*said, *told, *warnings], held=held
        )
        outcome = outcome_of(verdict, self.call.policy, findings.pending, self.settings.update)
        return self._result_of(verdict, findings.unreviewed.outcome(outcome), message).but(
            baseline_ns=before,
            current_ns=after,
            causes=reasons,
            attribution=parts,
            warnings=warnings,
            remarks=(*self.renamed.remarks, *judgement.beside.told),
            recorded=self.renamed.taken,
            baseline_path=self.stores.own.shown(self.path),
            since=since,
        )

    def _result_of(self, verdict: Verdict, outcome: Outcome, message: str) -> CaseResult:
        spec = self.gpu.spec
        return CaseResult(
            case=self.case.id,
            fingerprint=self.case.fingerprint,
            verdict=verdict,
            outcome=outcome,
            message=message,
            target=str(spec.target),
            device=spec.name,
            gpu=gpu_id(spec),
            gpu_name=gpu_name(spec),
            tolerance=self.call.policy.tolerance,
        )

    def _reasons(self, findings: CaseFindings) -> tuple[str, ...]:
        judgement, recording, time = findings.judgement, self.case.recording, findings.time
        baseline = judgement.baseline
        reasons = messages.reasons_of(
            baseline, recording, self.gpu.environment(), judgement.used, self.call.scope, time.sample
        )
        if baseline is not None:
            reasons = (*reasons, *replaced_kernels(baseline.recording.launches, recording.launches))
        if baseline is not None and judgement.verdict is Verdict.REGRESSED:
            most = changed_most(baseline.recording, recording, time.launches_ns)
            reasons = (*reasons, *filter(None, [most]))
        reasons = (*judgement.beside.unsure, *judgement.beside.qualified(reasons), *messages.unsure(judgement))
        return (*reasons, *self.renamed.remarks)

    def _warnings(self, findings: CaseFindings) -> tuple[str, ...]:
        judgement, numerics = findings.judgement, findings.judgement.numerics
        return (
            *filter(None, [findings.unreviewed.said]),
            *messages.warnings_of(judgement, findings.pending, self.call.policy),
            *messages.foreign_text(judgement, findings.time.foreign),
            *messages.modes_text(modes(findings.time.sample.times_ns)),
            *findings.outside.warnings,
            *self.tuning.notes,
            *((*numerics.not_compared, *numerics.unsure) if numerics is not None else ()),
        )

    def _untimed(self, verdict: Verdict, why: str) -> Checked:
        case, policy = self.case, self.call.policy
        removed = obsolete(case.recording, self.path, self.settings)
        warnings = () if removed is None else (f"{LAUNCHES_NOTHING}, so {self.stores.own.shown(self.path)} is removed",)
        outcome = policy.outcome(verdict) if removed is None else Outcome.PASS
        message = ", ".join([f"{verdict.value} {case.id}: {why}", *warnings])
        result = self._result_of(verdict, outcome, message).but(
            launches=launch_reports(launch_statics(case.recorded, self.gpu.spec, {})),
            causes=(why,),
            warnings=warnings,
        )
        return Checked(self.value, result, store=self.stores.own, obsolete=removed)


# cases that have no time: their launches run nothing, or can't be run again

LAUNCHES_NOTHING = "launches nothing: every grid is empty"


def untimed(
    recording: Recording, unsaved: str, baseline: TimeBaseline | None, policy: Policy, settings: Settings
) -> tuple[Verdict, str] | None:
    """Verdict and reason of a case that can't have a time; None for all others.

    ``unsaved`` says why its launches can't be run again, if they can't. A case without work passes, unless its
    ``baseline`` had some.
    """
    before = len(baseline.recording.working) if baseline is not None else 0
    if not recording.working and before:
        advice = "" if settings.read_only else "; --kerntune-update=all removes that"
        return Verdict.INCOMPLETE, f"{LAUNCHES_NOTHING}, its baseline has work{advice}"
    if not recording.working:
        return Verdict.PASS, LAUNCHES_NOTHING
    if unsaved:
        return decide(Evidence(len(recording.working), before), policy), f"it can't be timed: {unsaved}"
    return None


def obsolete(recording: Recording, path: Path, settings: Settings) -> Path | None:
    """``path``, a case's baseline, if this run accepts that the case has no work any more: it passes without one."""
    accepts = settings.update is Update.ALL and not settings.read_only
    return path if accepts and not recording.working and path.exists() else None
