"""What comparisons and gated metrics come to together; every combination of what each can say."""

from __future__ import annotations

import itertools
from typing import Any

from of_each import of_each

from kerntune.base.policy import Metrics, Policy, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.comparison import Comparison, judge
from kerntune.gate.decision import Evidence, decide, with_anchor
from kerntune.gate.replay import ComparisonMethod

BASELINE: Any = None
"""A judgement depends on evidence only."""


def change(low: float, high: float) -> Evidence:
    return Evidence(2, 2, replay=Estimate((low + high) / 2, low, high, 0.999))


EVIDENCE = {
    Verdict.PASS: change(-0.01, 0.01),
    Verdict.IMPROVED: change(-0.2, -0.1),
    Verdict.REGRESSED: change(0.1, 0.2),
    Verdict.INCONCLUSIVE: change(-0.1, 0.1),
    Verdict.DRIFTED: Evidence(2, 2, identical=True, drift=0.5),
    Verdict.INCOMPLETE: Evidence(1, 2),
}


def comparison(verdict: Verdict | None) -> Comparison | None:
    if verdict is None:
        return None
    found = Comparison(BASELINE, ComparisonMethod(""), EVIDENCE[verdict], Policy())
    assert found.verdict is verdict
    return found


COMBINATIONS = list(itertools.product([None, *EVIDENCE], [None, *EVIDENCE], [(), ("registers grew",)], [True, False]))


@of_each("found since grown time", COMBINATIONS)
def test_every_combination(found: Verdict | None, since: Verdict | None, grown: tuple[str, ...], time: bool) -> None:
    policy = Policy(metrics=Metrics(time=time))
    by_baseline, by_anchor = comparison(found), comparison(since)
    judgement = judge(policy, 2, by_baseline, by_anchor, grown)
    expected = found or Verdict.NEW
    if expected is not Verdict.INCOMPLETE:
        expected = Verdict.REGRESSED if grown else expected if time or found is None else Verdict.PASS
    assert judgement.verdict is (with_anchor(expected, since) if time else expected)
    assert judgement.reported is (None if time else found)
    assert judgement.since is (by_anchor if time else None)
    decisive = judgement.decisive
    if decisive is not None:
        assert time
        assert decisive.verdict is judgement.verdict
        assert decisive.verdict in (Verdict.REGRESSED, Verdict.DRIFTED)
        assert decisive is by_baseline or (by_baseline is None or by_baseline.verdict is not judgement.verdict)
    elif time and judgement.verdict is Verdict.REGRESSED:
        assert grown, "only a metric fails a case of which nothing took longer"
        assert Verdict.REGRESSED not in (found, since)


def test_nothing_launched_stays_incomplete_whatever_else_is_said() -> None:
    judgement = judge(Policy(), 0, None, comparison(Verdict.REGRESSED), ("grew",))
    assert judgement.verdict is decide(Evidence(0), Policy()) is Verdict.INCOMPLETE
