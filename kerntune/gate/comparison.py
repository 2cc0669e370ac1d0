"""Today's recording compared with one baseline, and what a case's comparisons come to together."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import NamedTuple

from kerntune.base.case_result import IDENTITY, MAX_STORED_TIMES, Attribution, CaseResult, ReplayedTimes, Share
from kerntune.base.numerics import NumericsReport, report_of, without_ignored
from kerntune.base.policy import Policy, Verdict
from kerntune.base.recording import Artifacts, Recording, same_work
from kerntune.base.stats import Estimate, median, modes, outliers
from kerntune.compiling.compiler import recompiled, under_todays_flags
from kerntune.errors import ReplayError
from kerntune.gate.baselines import TimeBaseline, operators_of, work_id
from kerntune.gate.call_capture import RecordedCase
from kerntune.gate.call_operators import NO_CHANGE, OperatorChange, compare_operators, with_unwritten
from kerntune.gate.causes import at_configs, attribute, steps_between
from kerntune.gate.decision import Evidence, decide, drift_limit, settled, with_anchor
from kerntune.gate.replay import (
    RECOMPILED,
    REMEMBERED,
    REPLAY,
    STORED,
    ComparisonMethod,
    Replayer,
    replay_baseline,
    stored_change,
)
from kerntune.gpu.base import Gpu
from kerntune.timing.paired_processes import PROCESS_BIAS, Replay
from kerntune.timing.timers import Sample


class Comparison(NamedTuple):
    """The comparison of a case with ``baseline``, whose time is judged by ``policy``."""

    baseline: TimeBaseline
    used: ComparisonMethod
    evidence: Evidence
    policy: Policy
    numerics: NumericsReport | None = None
    """How results differ from the baseline's, where that was asked and the work isn't the same."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the time, whatever else is gated."""
        return decide(self.evidence, self.policy)

    @property
    def change(self) -> Estimate | None:
        """The replay's estimate, if there was one, today or when the baseline was recorded."""
        return self.evidence.replay

    @property
    def shown(self) -> Estimate | None:
        """The change with the interval that reports show; None where nothing was replayed today."""
        return self.used.replay.shown if self.used.replay is not None else None

    def remembered(self, anchor: TimeBaseline, policy: Policy) -> Comparison | None:
        """The comparison with ``anchor`` from when the baseline was recorded, if both are still the same work.

        Only if it clears the case by today's policy: what fails the case is measured anew.
        """
        known = self.baseline.since
        if self.used.rung != IDENTITY or known is None or known.anchor != work_id(anchor.recording):
            return None
        evidence = self.evidence._replace(
            identical=False,
            replay=known.change,
            drift=None,
            baseline_ns=median(anchor.sample.times_ns),
            effect_floor=floor_of(anchor),
        )
        found = Comparison(anchor, ComparisonMethod(REMEMBERED), evidence, policy)
        return found if found.verdict in (Verdict.PASS, Verdict.IMPROVED) else None


class Comparer(NamedTuple):
    """Compares one case with baselines."""

    gpu: Gpu
    case: RecordedCase
    replayer: Replayer
    next_decision: Callable[[], int]
    progress: Callable[[str], None]

    def against(
        self, baseline: TimeBaseline, stored: Artifacts, sample: Sample, policy: Policy, results: bool = False
    ) -> Comparison:
        """Compare with ``baseline``, whose artifacts are among ``stored``; ``sample`` is today's. With ``results``,
        what both write is compared as well, unless ``policy`` says that it isn't."""
        results = results and policy.numerics.kind != "off"
        used = self._method(baseline, stored, policy, results)
        numerics = self._numerics(used, policy) if results else None
        return Comparison(baseline, used, self._evidence(baseline, sample, used), policy, numerics)

    def _numerics(self, used: ComparisonMethod, policy: Policy) -> NumericsReport | None:
        """Of equal work, nothing is compared. Made-up content shows what the call's own may hide (all zeros, say), and
        the other way round; where addresses are followed, the replay had the call's own memory."""
        if used.rung == IDENTITY:
            return None
        if used.replay is None or used.before is None or used.artifacts is None:
            why = ", ".join(("results not compared", *used.why_not))
            return NumericsReport(str(policy.numerics), not_compared=(why,))
        self.progress(f"{self.case.id}: comparing results with those of the baseline's code")
        own, made_up = self.replayer.results(used.before, used.artifacts), used.replay.results
        writers = written_by(used.before, self.case.recording)
        ignored = self.case.call.options.verification.ignore
        found = [without_ignored(x, ignored, writers) for x in (made_up, own) if x is not None]
        return report_of(policy.numerics, found)

    def shared(self, found: Comparison, anchor: TimeBaseline, sample: Sample, policy: Policy) -> Comparison:
        """``found`` for an ``anchor`` that is of the same work as its baseline, with the anchor's times and floor."""
        return Comparison(anchor, found.used, self._evidence(anchor, sample, found.used), policy)

    def moved(self, baseline: TimeBaseline, sample: Sample) -> bool:
        """Whether the time of the same work is off the stored one: it is taken again before it is called drift."""
        stored = median(baseline.sample.times_ns)
        same = comparable(baseline, sample) and same_work(baseline.recording, self.case.recording)
        return same and stored > 0 and abs(median(sample.times_ns) / stored - 1) > drift_limit(state_range_of(baseline))

    def _method(self, baseline: TimeBaseline, stored: Artifacts, policy: Policy, results: bool) -> ComparisonMethod:
        if same_work(baseline.recording, self.case.recording):
            return ComparisonMethod(IDENTITY, before=baseline.recording)
        self.progress(f"{self.case.id}: replaying the baseline beside today's code")
        level, floor = self.case.call.policy.level_of(self.next_decision()), floor_of(baseline)
        bias = max(PROCESS_BIAS, baseline.calibration.bias) if baseline.calibration else None

        def done(change: Estimate, a_ns: float) -> bool:
            return settled(change, policy, a_ns, floor)

        def replay(before: Recording, artifacts: Artifacts) -> Replay:
            return self.replayer.replay(before, artifacts, level, bias, done, results)

        return replay_baseline(baseline, stored, self.case.capture.compiler.farm, replay, self.case.recording)

    def _evidence(self, baseline: TimeBaseline, sample: Sample, used: ComparisonMethod) -> Evidence:
        stored = median(baseline.sample.times_ns)
        fair = comparable(baseline, sample)
        last = fair and used.rung == STORED and self.case.call.scope != "op"
        return Evidence(
            launched=len(self.case.recording.working),
            expected=len(baseline.recording.working),
            identical=used.rung == IDENTITY,
            replay=used.replay.change if used.replay else None,
            drift=self._drift(stored, sample, used) if fair and stored > 0 else None,
            baseline_ns=stored,
            state_range=state_range_of(baseline),
            effect_floor=floor_of(baseline),
            stored=stored_change(baseline, sample, self.case.call.policy.level) if last else None,
            foreign_work=used.replay is not None and used.replay.foreign.disturbs,
        )

    def _drift(self, stored: float, sample: Sample, used: ComparisonMethod) -> float | None:
        """How far the time of unchanged code is off the stored one: of the baseline's own binary, or of the same
        work. Of a whole operation only the kernels can be replayed, so its own time is compared with the stored one
        in any case."""
        if self.case.call.scope == "op" or used.rung == IDENTITY:
            return median(sample.times_ns) / stored - 1
        if used.rung == REPLAY and used.replay is not None:
            return median(used.replay.a_ns) / stored - 1
        return None

    def attribution(self, found: Comparison) -> Attribution | None:
        """Each cause's share of the change."""
        used, baseline = found.used, found.baseline
        if used.before is None:
            return None
        environment = self._environment(found)
        before, now = used.before, self.case.recording
        if used.rung == IDENTITY:
            same = Share(0.0, "the same machine code")
            return Attribution(environment, same, same, same, same)
        self.progress(f"{self.case.id}: looking for the cause")
        made: dict[str, bytes] = {}
        artifacts = ChainMap(made, used.artifacts or {})  # type: ignore[arg-type]  # only made is written

        def again() -> Recording:
            if used.rung == RECOMPILED:
                raise ReplayError("the baseline's binary can't be run: " + "; ".join(used.why_not))
            then = under_todays_flags(baseline.recording, now)
            recording, binaries = recompiled(self.case.capture.compiler.farm, then, artifacts, now)
            made.update(binaries)
            return recording

        chain = steps_between(before, again, now, lambda: at_configs(self.case.capture, self.case.recorded, before))
        total = found.change.point if found.change else None
        return attribute(chain, total, environment, lambda a, b: self.replayer.change(a, b, artifacts))

    def _environment(self, found: Comparison) -> Share:
        moved = "; ".join(found.baseline.environment.differences(self.gpu.environment()))
        if self.case.call.scope != "op":
            return Share(found.evidence.drift, moved)
        if found.used.rung != IDENTITY:
            return Share(None, "the whole call was timed then, its kernels were replayed now")
        why = filter(None, ["all of the call but its kernels' code", moved])
        return Share(found.evidence.drift, "; ".join(why))


def comparable(baseline: TimeBaseline, sample: Sample) -> bool:
    """Whether the stored times were taken as today's are."""
    return not baseline.sample.protocol.differences(sample.protocol)


def floor_of(baseline: TimeBaseline) -> float:
    """The smallest change that the baseline's calibration can tell from none."""
    return baseline.calibration.floor if baseline.calibration else 0.0


def operators_since(case: RecordedCase, found: Comparison | None) -> OperatorChange:
    """How what runs beside the kernels changed. The time of a whole operation has it: then nothing follows from it."""
    if found is None:
        return NO_CHANGE
    rule, before = case.call.policy.static.rule("other_operators"), found.baseline
    same = same_work(before.recording, case.recording)
    change = compare_operators(operators_of(before), case.operators, rule, timed=True, same_kernels=same)
    if found.numerics is not None:
        change = with_unwritten(change, found.numerics.changed, case.result_arguments, rule)
    return change._replace(unsure=(), told=(*change.unsure, *change.told)) if case.call.scope == "op" else change


def written_by(*sides: Recording) -> dict[str, set[str]]:
    """By the name of an argument, the kernels that write what such an argument points to."""
    found: dict[str, set[str]] = {}
    for side in sides:
        for launch in side.working:
            for p in launch.params:
                if p.view is not None and side.views[p.view].storage in launch.writes:
                    found.setdefault(p.name, set()).add(launch.kernel)
    return found


def state_range_of(baseline: TimeBaseline) -> float:
    """How far apart the times of equal code lay in the device's states, as the baseline's calibration says."""
    return baseline.calibration.state_range if baseline.calibration else 0.0


class Judgement(NamedTuple):
    """The verdict on a case. ``found`` is the comparison with the baseline, ``since`` that with the anchor.

    ``grown`` has a sentence for each gated metric that grew too much, ``outside`` for each write outside of tensors,
    and ``changed`` for each output whose numbers changed, gated or not; ``reported`` is what the time alone says where
    it isn't gated.
    """

    verdict: Verdict
    found: Comparison | None = None
    since: Comparison | None = None
    grown: tuple[str, ...] = ()
    reported: Verdict | None = None
    outside: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    beside: OperatorChange = NO_CHANGE
    """How what runs beside the kernels changed."""

    @property
    def baseline(self) -> TimeBaseline | None:
        """The baseline that the case was compared with."""
        return self.found.baseline if self.found is not None else None

    @property
    def used(self) -> ComparisonMethod:
        """How it was compared with the baseline; an empty way without one."""
        return self.found.used if self.found is not None else ComparisonMethod("")

    @property
    def numerics(self) -> NumericsReport | None:
        """How results differ from the baseline's, where that was asked."""
        return self.found.numerics if self.found is not None else None

    @property
    def findings(self) -> tuple[str, ...]:
        """What isn't about time, the most severe first."""
        return (*self.beside.failures, *self.outside, *self.grown, *self.changed)

    def change_in(self, result: CaseResult, sample: Sample) -> CaseResult:
        """A result with the change, the findings, and the single times of today's ``sample`` and of both sides."""
        found, baseline, replay = self.found, self.baseline, self.used.replay
        return result.but(
            change=found.change if found is not None else None,
            shown=found.shown if found is not None else None,
            rung=self.used.rung,
            findings=self.findings,
            numerics=self.numerics,
            times_ns=sample.times_ns,
            outliers=outliers(sample.times_ns),
            modes=modes(sample.times_ns),
            timer=sample.protocol.timer,
            baseline_times_ns=baseline.sample.times_ns[:MAX_STORED_TIMES] if baseline is not None else (),
            replayed=ReplayedTimes(replay.a_ns, replay.b_ns) if replay is not None else None,
        )

    @property
    def decisive(self) -> Comparison | None:
        """The comparison whose causes are reported: the one that is slower, or that drifted."""
        if self.reported is not None or self.verdict not in (Verdict.REGRESSED, Verdict.DRIFTED):
            return None
        return next((c for c in (self.found, self.since) if c is not None and c.verdict is self.verdict), None)


def judge(
    policy: Policy,
    launched: int,
    found: Comparison | None,
    since: Comparison | None,
    grown: tuple[str, ...],
    outside: tuple[str, ...] = (),
    beside: OperatorChange = NO_CHANGE,
) -> Judgement:
    """The verdict of ``policy`` on a case that launched something; without ``found`` it has no baseline."""
    evidence = found.evidence if found is not None else Evidence(launched)
    numerics, rule = found.numerics if found is not None else None, policy.numerics
    changed = numerics.texts(rule) if numerics is not None else ()
    evidence = evidence._replace(
        static_failure=bool(grown),
        outside_writes=bool(outside),
        timed=policy.metrics.time,
        results_changed=bool(rule.failing(numerics)),
        results_unknown=rule.unknown(numerics),
        work_moved=bool(beside.failures),
        work_unsure=bool(beside.unsure),
        work_taken_over=beside.taken_over,
    )
    verdict = decide(evidence, policy)
    if not policy.metrics.time:
        reported = found.verdict if found is not None else None
        return Judgement(verdict, found, None, grown, reported, outside, changed, beside)
    verdict = with_anchor(verdict, since.verdict if since is not None else None)
    return Judgement(verdict, found, since, grown, outside=outside, changed=changed, beside=beside)
