"""What a case's result says beside its verdict: times, reasons, warnings, and whether its baseline is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kerntune.baseline import TimeBaseline
from kerntune.check.call import Pending
from kerntune.check.causes import causes
from kerntune.check.rungs import RECOMPILED, STORED, Standing
from kerntune.check.words import percent
from kerntune.device import Environment
from kerntune.errors import BaselineError
from kerntune.measure.base import Sample
from kerntune.policy import Outcome, Update, Verdict
from kerntune.processes import Replay
from kerntune.recording import Recording
from kerntune.result import LaunchReport
from kerntune.static.launches import LaunchStatic
from kerntune.stats import median


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


Kept = TypeVar("Kept")


def readable(read: Callable[[], Kept | None], update: Update) -> Kept | None:
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
    return update is Update.IMPROVED and verdict is Verdict.IMPROVED


def times(baseline: TimeBaseline | None, sample: Sample, replayed: Replay | None) -> tuple[float | None, float]:
    """The baseline's time and today's: both of today's replay if there was one."""
    if replayed is not None:
        return median(replayed.a_ns), median(replayed.b_ns)
    return (median(baseline.sample.times_ns) if baseline else None), median(sample.times_ns)


def reasons_of(
    baseline: TimeBaseline | None, recording: Recording, today: Environment, standing: Standing
) -> tuple[str, ...]:
    """What differs from the baseline, and which rung the comparison stood on if it was not the best."""
    if baseline is None:
        return ("no baseline on this device",)
    reasons = causes(baseline.recording, recording, baseline.environment, today)
    moved, why = baseline.environment.differences(today), "; ".join(standing.why_not)
    if moved:
        reasons = (*reasons, "environment " + "; ".join(moved))
    if standing.rung == RECOMPILED:
        return (*reasons, f"held against the baseline's TTIR compiled today, for its binary can't run: {why}")
    if standing.rung == STORED:
        return (*reasons, f"the baseline can't be replayed: {why}")
    return reasons


def warnings_of(baseline: TimeBaseline | None, pending: Pending, tolerance: float) -> tuple[str, ...]:
    """What a reader must know to trust the verdict: a tolerance that this case is too noisy for."""
    mine = pending.baseline.calibration if isinstance(pending.baseline, TimeBaseline) else None
    known = baseline.calibration if baseline else mine
    if known is None or known.floor <= tolerance:
        return ()
    return (
        f"can't be gated at {share(tolerance)}: on this device a change under {share(known.floor)} can't be told from "
        f"none, so {share(known.floor)} is what was gated",
    )


def share(value: float) -> str:
    """``2.0 %``."""
    return percent(value).removeprefix("+")
