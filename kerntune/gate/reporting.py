"""What a case's result says beside its verdict: times, reasons, warnings, and whether its baseline is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kerntune.base.case_result import LaunchReport
from kerntune.base.device import Environment
from kerntune.base.formatting import format_size, format_time
from kerntune.base.policy import ACCEPTING, Outcome, Policy, Update, Verdict
from kerntune.base.recording import Recording
from kerntune.base.stats import median
from kerntune.errors import BaselineError
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.call import PendingBaseline
from kerntune.gate.causes import causes
from kerntune.gate.decision import limit_of
from kerntune.gate.fallback import RECOMPILED, REPLAY, STORED, Standing
from kerntune.gate.judgement import Judgement
from kerntune.gate.messages import unsure_text
from kerntune.gate.static_figures import LaunchStatic
from kerntune.timing.paired_processes import Replay
from kerntune.timing.sample import Sample


def launch_reports(static: Sequence[LaunchStatic]) -> tuple[LaunchReport, ...]:
    """Rows for people from static figures."""
    return tuple(
        LaunchReport(
            kernel=s.kernel,
            config=s.config,
            grid=s.grid,
            registers=s.metrics.registers,
            spill_bytes=s.metrics.spill_store_bytes + s.metrics.spill_load_bytes,
            shared_bytes=s.metrics.shared_bytes,
        )
        for s in static
    )


FromDisk = TypeVar("FromDisk")


def readable(read: Callable[[], FromDisk | None], update: Update) -> FromDisk | None:
    """The baseline; a damaged one counts as none where the run replaces it, as the error's text advises."""
    try:
        return read()
    except BaselineError:
        if update is not Update.ALL:
            raise
        return None


def should_write(verdict: Verdict, update: Update, outcome: Outcome, missing: str) -> bool:
    """Whether a case's baseline is written anew, given its verdict and the run's update mode."""
    if update is Update.ALL:
        return True  # fewer launches than before too: that is how a fusion is accepted
    if verdict is Verdict.NEW:
        return update is Update.NEW or missing == "record"
    return (update, verdict) in ((Update.IMPROVED, Verdict.IMPROVED), (Update.REGRESSED, Verdict.REGRESSED))


def times(baseline: TimeBaseline | None, sample: Sample, replayed: Replay | None) -> tuple[float | None, float]:
    """The baseline's time and today's: both of today's replay if there was one."""
    if replayed is not None:
        return median(replayed.a_ns), median(replayed.b_ns)
    return (median(baseline.sample.times_ns) if baseline else None), median(sample.times_ns)


def reasons_of(
    baseline: TimeBaseline | None,
    recording: Recording,
    today: Environment,
    standing: Standing,
    scope: str,
    sample: Sample,
) -> tuple[str, ...]:
    """What differs from the baseline, and which rung the comparison stood on if it was not the best."""
    if baseline is None:
        return ("no baseline on this device",)
    reasons = causes(baseline.recording, recording, baseline.environment, today)
    moved, why = baseline.environment.differences(today), "; ".join(standing.why_not)
    if moved:
        reasons = (*reasons, "environment " + "; ".join(moved))
    retimed = baseline.sample.protocol.differences(sample.protocol)
    if retimed:
        reasons = (*reasons, f"not held against the stored time, which was taken otherwise: {', '.join(retimed)}")
    if scope == "op" and standing.replay is not None:
        reasons = (*reasons, _whole_call(baseline, sample))
    if standing.rung in (REPLAY, RECOMPILED) and standing.replay is None:
        return (*reasons, f"the replay could not be measured: {why}")
    if standing.rung == RECOMPILED:
        return (*reasons, f"held against the baseline's TTIR compiled today, for its binary can't run: {why}")
    if standing.rung == STORED:
        return (*reasons, f"the baseline can't be replayed: {why}")
    return reasons


def _whole_call(baseline: TimeBaseline, sample: Sample) -> str:
    stored, now = median(baseline.sample.times_ns), median(sample.times_ns)
    return f"these are its kernels; the whole call: {format_time(stored)} -> {format_time(now)}"


def unsure(judgement: Judgement) -> tuple[str, ...]:
    """Why a replay settled nothing, by the interval at the run's level, which is wider than the one that is shown."""
    open_ones = [c for c in (judgement.found, judgement.since) if c is not None and c.verdict is Verdict.INCONCLUSIVE]
    if judgement.verdict is not Verdict.INCONCLUSIVE or not open_ones or open_ones[0].change is None:
        return ()
    found = open_ones[0]
    limit = limit_of(found.policy, found.evidence.baseline_ns, found.evidence.effect_floor)
    return (unsure_text(open_ones[0].change, limit),)


def outcome_of(verdict: Verdict, policy: Policy, pending: PendingBaseline, update: Update) -> Outcome:
    """What the verdict does to the test; one whose baseline is rewritten on purpose passes."""
    return Outcome.PASS if pending.write and update in ACCEPTING else policy.outcome(verdict)


def warnings_of(judgement: Judgement, pending: PendingBaseline, policy: Policy) -> tuple[str, ...]:
    """What a reader must know to trust the verdict: a tolerance that it is too noisy for, time that isn't gated."""
    mine = pending.baseline.calibration if isinstance(pending.baseline, TimeBaseline) else None
    known = judgement.found.baseline.calibration if judgement.found is not None else mine
    out = []
    if known is not None and known.floor > policy.tolerance:
        asked, told = format_size(policy.tolerance), format_size(known.floor)
        out.append(
            f"can't be gated at {asked}: on this device a change under {told} can't be told from none, so {told} is "
            "what was gated"
        )
    if not policy.metrics.time:
        would = f", by which it would be {judgement.reported.value}" if judgement.reported is not None else ""
        out.append(f"its time is not gated{would}")
    return tuple(out)
