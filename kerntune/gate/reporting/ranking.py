"""The order of results in every report: the worst first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.report import RunReport

OUTCOMES = (Outcome.FAIL, Outcome.WARN, Outcome.PASS)

VERDICTS = (
    Verdict.REGRESSED,
    Verdict.INCOMPLETE,
    Verdict.STALE,
    Verdict.INCONCLUSIVE,
    Verdict.DRIFTED,
    Verdict.NEW,
    Verdict.IMPROVED,
    Verdict.PASS,
)
"""The worst first."""


@dataclass(frozen=True)
class RankedResult:
    """A result with its run and the run's place among those that are reported."""

    result: CaseResult
    run: RunReport
    run_index: int = 0


def worst_first(runs: Iterable[RunReport]) -> list[RankedResult]:
    """All results of ``runs``: failing ones, then warnings; of one verdict the largest slowdown first."""
    found = [RankedResult(result, run, i) for i, run in enumerate(runs) for result in run.results]
    return sorted(found, key=_badness)


def shown_change(result: CaseResult) -> Estimate | None:
    """The change that reports show: with a 99 % interval where there is one, since the anchor where that decided."""
    since = result.since
    if since is not None and since.change is not None and result.verdict is since.verdict is not Verdict.PASS:
        own = result.shown or result.change
        of_anchor = since.shown or since.change
        return of_anchor if own is None or of_anchor.point > own.point else own
    return result.shown or result.change


def other_failures(run: RunReport) -> dict[str, str]:
    """Tests that failed for another reason than a verdict, with a line of it."""
    judged = {r.case.nodeid for r in run.results if r.outcome is Outcome.FAIL}
    return {nodeid: text for nodeid, text in run.failed.items() if nodeid not in judged}


def _badness(found: RankedResult) -> tuple[int, int, float]:
    result = found.result
    change = shown_change(result)
    known = change is not None and math.isfinite(change.point)
    return (
        OUTCOMES.index(result.outcome),
        VERDICTS.index(result.verdict),
        -change.point if change is not None and known else math.inf,
    )
