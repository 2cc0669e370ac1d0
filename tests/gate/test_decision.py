"""The decision table, enumerated against one written down apart from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from of_each import of_each

from kerntune.base.policy import Missing, Policy, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.decision import Evidence, decide, drift_limit, limit_of, settled, with_anchor

DRIFT = 0.05


TOLERANCE = 0.02


def estimate(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 0.999)


# the borders of ±2 % and ±10 % (100 ns of 1000 ns), both sides and exactly on them
EDGES = (-math.inf, -0.2, -0.1, -0.05, -0.02, -0.01, 0.0, 0.01, 0.02, 0.05, 0.1, 0.2, math.inf)
REPLAYS = [
    None,
    *(estimate(a, b) for a, b in itertools.combinations_with_replacement(EDGES, 2) if not a == b == -math.inf),
]
DRIFTS = (None, 0.0, 0.04, DRIFT, 0.051, -DRIFT, -0.051, 3.0)
POLICIES = [
    Policy(tolerance=TOLERANCE, floor_ns=floor, missing=missing, strict=strict)
    for floor, missing, strict in itertools.product([0.0, 100.0], [Missing.RECORD, Missing.FAIL], [False, True])
]

Row = tuple[str, Callable[[Evidence, float], bool], Verdict]


def drifted(e: Evidence) -> bool:
    """Beyond 5 %, and beyond what the calibration saw of equal code."""
    return e.drift is not None and not -DRIFT <= e.drift <= DRIFT and not -e.state_range <= e.drift <= e.state_range


def counted(e: Evidence) -> bool:
    """Launched, and not fewer than the baseline has."""
    return e.launched > 0 and (e.expected is None or e.launched >= e.expected)


def failed(e: Evidence) -> bool:
    """Something that no time is needed for."""
    return counted(e) and (e.static_failure or e.outside_writes or e.results_changed)


def stopped(e: Evidence) -> bool:
    """Failed, or cut off."""
    return failed(e) or (counted(e) and e.cut_off)


def compared(e: Evidence) -> bool:
    """There is a baseline, nothing else failed, and there are times."""
    return counted(e) and e.expected is not None and not stopped(e) and e.timed


def untimed(e: Evidence) -> bool:
    """There is a baseline, nothing else failed, and there are no times."""
    return counted(e) and e.expected is not None and not stopped(e) and not e.timed


def replayed(e: Evidence) -> bool:
    return compared(e) and not e.identical and e.replay is not None


def unreplayed(e: Evidence) -> bool:
    return compared(e) and not e.identical and e.replay is None


def ends(e: Evidence) -> tuple[float, float]:
    assert e.replay is not None
    return e.replay.low, e.replay.high


TABLE: list[Row] = [
    ("nothing launched", lambda e, t: e.launched == 0, Verdict.INCOMPLETE),
    (
        "too few launched",
        lambda e, t: e.launched > 0 and e.expected is not None and e.launched < e.expected,
        Verdict.INCOMPLETE,
    ),
    ("static failure", lambda e, t: counted(e) and e.static_failure and not e.outside_writes, Verdict.REGRESSED),
    ("writes outside of tensors", lambda e, t: counted(e) and e.outside_writes, Verdict.REGRESSED),
    (
        "gated results changed",
        lambda e, t: counted(e) and e.results_changed and not e.static_failure and not e.outside_writes,
        Verdict.REGRESSED,
    ),
    ("cut off", lambda e, t: counted(e) and e.cut_off and not failed(e), Verdict.INCOMPLETE),
    ("no baseline", lambda e, t: counted(e) and e.expected is None and not stopped(e), Verdict.NEW),
    ("static only", lambda e, t: untimed(e) and not e.other_settings, Verdict.PASS),
    ("static only, under other settings", lambda e, t: untimed(e) and e.other_settings, Verdict.INCONCLUSIVE),
    ("identical", lambda e, t: compared(e) and e.identical and not drifted(e), Verdict.PASS),
    ("identical, drifted", lambda e, t: compared(e) and e.identical and drifted(e), Verdict.DRIFTED),
    (
        "no replay, stored sample not slower",
        lambda e, t: unreplayed(e) and e.stored is not None and e.stored.high <= t,
        Verdict.PASS,
    ),
    ("no replay", lambda e, t: unreplayed(e) and (e.stored is None or not e.stored.high <= t), Verdict.INCONCLUSIVE),
    ("slower", lambda e, t: replayed(e) and ends(e)[0] > t and not e.foreign_work, Verdict.REGRESSED),
    ("faster", lambda e, t: replayed(e) and ends(e)[1] < -t and not e.foreign_work, Verdict.IMPROVED),
    (
        "slower or faster while others used the device",
        lambda e, t: replayed(e) and (ends(e)[0] > t or ends(e)[1] < -t) and e.foreign_work,
        Verdict.INCONCLUSIVE,
    ),
    ("not slower", lambda e, t: replayed(e) and -t <= ends(e)[1] <= t and not drifted(e), Verdict.PASS),
    (
        "not slower, baseline drifted",
        lambda e, t: replayed(e) and -t <= ends(e)[1] <= t and drifted(e),
        Verdict.DRIFTED,
    ),
    ("open", lambda e, t: replayed(e) and ends(e)[0] <= t < ends(e)[1], Verdict.INCONCLUSIVE),
]
"""Predicates of evidence and limit that exclude each other: unlike the code's, their order means nothing."""


def each(counts: Iterable[tuple[int, int | None]], **values: Iterable[Any]) -> list[Evidence]:
    """Evidence of so many launches, and of so many that are expected, with each of these values."""
    names = tuple(values)
    products = itertools.product(counts, *values.values())
    return [Evidence(*count, **dict(zip(names, found, strict=True))) for count, *found in products]


def intervals_of(*edges: float) -> list[Estimate]:
    return [estimate(a, b) for a, b in itertools.combinations_with_replacement(edges, 2)]


YES_NO = (False, True)
COUNTS = ((0, 1), (1, 1), (1, 2), (1, None))
FEW = (None, estimate(0.0, 0.01), estimate(0.03, 0.04), estimate(-0.04, -0.03))


@pytest.fixture(scope="module")
def evidence() -> list[Evidence]:
    found = each(
        [(0, None), (0, 2), (1, None), (1, 0), (1, 1), (1, 2), (2, 1), (3, 3)], identical=YES_NO, replay=REPLAYS,
        drift=DRIFTS, baseline_ns=[None, 1000.0], static_failure=YES_NO, timed=YES_NO,
    )  # fmt: skip
    # stored samples and effect floors, on and beside the borders that these make
    some = intervals_of(-0.2, -0.05, -0.02, 0.0, 0.02, 0.021, 0.05, 0.051, 0.1, 0.2, math.inf)
    for replay, stored in (([None], [None, *some]), ([None, *some], [estimate(-0.1, 0.0)])):
        found += each(
            [(1, 1), (2, 1), (1, 2), (1, None)], identical=YES_NO, replay=replay, stored=stored,
            drift=(None, 0.0, 0.2), baseline_ns=[1000.0], effect_floor=(0.0, 0.01, 0.05, 0.15),
        )  # fmt: skip
    # medians that lay apart when the case was calibrated
    found += each(
        [(1, 1), (1, 2), (1, None)], identical=YES_NO, replay=[None, *intervals_of(-0.05, 0.0, 0.02, 0.05)],
        drift=(None, 0.0, 0.05, 0.051, 0.08, -0.08, 0.081, -0.081, 0.2), baseline_ns=[1000.0], static_failure=YES_NO,
        timed=YES_NO, state_range=(0.0, 0.01, 0.05, 0.08),
    )  # fmt: skip
    # other settings than the baseline's, launches that wrote outside of their tensors, changed results, calls
    # that stopped where a GPU would have gone on; and other processes that used the device during the replay
    for words in ({"other_settings": [True]}, {"outside_writes": [True]}, {"results_changed": [True]},
                  {"other_settings": [True], "cut_off": [True]}):  # fmt: skip
        found += each(COUNTS, identical=YES_NO, replay=FEW, static_failure=YES_NO, timed=YES_NO, **words)
    return found + each(
        COUNTS, identical=YES_NO, replay=REPLAYS, drift=(None, 0.0, 0.2), baseline_ns=[1000.0], timed=YES_NO,
        foreign_work=[True],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("floor_ns", [0.0, 100.0])
def test_table_is_total_and_exclusive_and_decides(evidence: list[Evidence], floor_ns: float) -> None:
    policy = Policy(tolerance=TOLERANCE, floor_ns=floor_ns)
    used = set()
    for e in evidence:
        limit = max(0.1 if floor_ns and e.baseline_ns else TOLERANCE, e.effect_floor)
        rows = [(name, verdict) for name, holds, verdict in TABLE if holds(e, limit)]
        assert len(rows) == 1, (e, rows)
        assert decide(e, policy) is rows[0][1], (e, rows)
        used.add(rows[0][0])
    assert used == {name for name, _, _ in TABLE}


@pytest.mark.slow
def test_where_gated_results_are_unknown_nothing_is_cleared(evidence: list[Evidence]) -> None:
    """And what is worse stays so."""
    cleared = (Verdict.PASS, Verdict.IMPROVED, Verdict.DRIFTED)
    policy = Policy(tolerance=TOLERANCE)
    seen = set()
    for e in evidence[::3]:
        known = decide(e, policy)
        unknown = decide(e._replace(results_unknown=True), policy)
        assert unknown is (Verdict.INCONCLUSIVE if known in cleared else known)
        seen.add(known)
    assert seen == set(Verdict) - {Verdict.STALE}


def test_only_tolerance_and_floor_of_a_policy_decide(evidence: list[Evidence]) -> None:
    """``strict``, ``missing`` and ``ci`` change what a verdict does, never the verdict."""
    plain = Policy(tolerance=TOLERANCE)
    others = [
        Policy(tolerance=TOLERANCE, missing=m, strict=s, ci=c, level=0.9)
        for m in Missing
        for s, c in [(True, False), (False, True)]
    ]
    for e in evidence[::7]:
        assert {decide(e, p) for p in others} == {decide(e, plain)}


def test_stale_is_not_decided_here(evidence: list[Evidence]) -> None:
    """A baseline without a case has no evidence; the session finds those."""
    found = {decide(e, policy) for e in evidence for policy in POLICIES[:1]}
    assert found == set(Verdict) - {Verdict.STALE}


@pytest.mark.parametrize(
    ("tolerance", "floor_ns", "baseline_ns", "limit"),
    [
        (0.02, 0.0, None, 0.02),
        (0.02, 0.0, 5000.0, 0.02),
        (0.02, 100.0, None, 0.02),
        (0.02, 100.0, 1000.0, 0.1),
        (0.02, 100.0, 5000.0, 0.02),
        (0.02, 100.0, 50_000.0, 0.02),
        (0.0, 100.0, 50_000.0, 0.002),
        (0.02, 100.0, 0.0, 0.02),
    ],
)
def test_limit(tolerance: float, floor_ns: float, baseline_ns: float | None, limit: float) -> None:
    assert limit_of(Policy(tolerance=tolerance, floor_ns=floor_ns), baseline_ns, 0.0) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.021, 0.03, Verdict.REGRESSED),
        (0.02, 0.03, Verdict.INCONCLUSIVE),
        (-0.03, -0.021, Verdict.IMPROVED),
        (-0.03, -0.02, Verdict.PASS),
        (-0.01, 0.02, Verdict.PASS),
        (-0.01, 0.0201, Verdict.INCONCLUSIVE),
        (-0.5, 0.0, Verdict.PASS),
        (-math.inf, math.inf, Verdict.INCONCLUSIVE),
        (math.nan, math.nan, Verdict.INCONCLUSIVE),
    ],
)
def test_the_border_itself_is_within_tolerance(low: float, high: float, verdict: Verdict) -> None:
    assert decide(Evidence(1, 1, replay=estimate(low, high)), Policy()) is verdict


edge = st.floats(-0.2, 0.2) | st.sampled_from([0.02, -0.02, math.inf, -math.inf])
intervals = st.tuples(edge, edge).map(sorted).map(lambda ends: estimate(*ends))
limits = st.sampled_from([0.0, 0.001, 0.02, 0.1])


def verdict_of(change: Estimate, limit: float) -> Verdict:
    return decide(Evidence(1, 1, replay=change), Policy(tolerance=limit))


@given(intervals, limits, st.data())
def test_settled_means_that_no_narrower_interval_decides_otherwise(
    change: Estimate, limit: float, data: st.DataObject
) -> None:
    if not settled(change, Policy(tolerance=limit), None, 0.0):
        return
    inside = st.floats(change.low + 0.0, change.high + 0.0)  # 0.0 and -0.0 are one end, and no range for hypothesis
    low, high = sorted([data.draw(inside), data.draw(inside)])
    assert verdict_of(change, limit) is not Verdict.INCONCLUSIVE
    assert verdict_of(estimate(low, high), limit) is verdict_of(change, limit)


@given(intervals, limits)
def test_not_settled_means_that_a_narrower_interval_could(change: Estimate, limit: float) -> None:
    if settled(change, Policy(tolerance=limit), None, 0.0):
        return
    ends = {verdict_of(estimate(x, x), limit) for x in (change.low, change.high)}
    assert len(ends) > 1


def test_a_stored_sample_never_fails_a_case() -> None:
    """For every anchor: two sessions differ by more than their code."""
    for low, high in itertools.combinations_with_replacement(EDGES, 2):
        found = decide(Evidence(1, 1, stored=estimate(low, high)), Policy())
        assert found in (Verdict.PASS, Verdict.INCONCLUSIVE)


@given(intervals, limits, limits)
def test_a_higher_effect_floor_never_turns_a_pass_into_a_failure(change: Estimate, floor: float, more: float) -> None:
    first, second = (
        decide(Evidence(1, 1, replay=change, effect_floor=f), Policy(tolerance=0.001)) for f in (floor, floor + more)
    )
    assert not (first is Verdict.PASS and second is Verdict.REGRESSED)
    assert not (first is Verdict.INCONCLUSIVE and second is Verdict.REGRESSED)


WORSE = {
    Verdict.REGRESSED: {v: Verdict.REGRESSED for v in Verdict if v is not Verdict.INCOMPLETE},
    Verdict.INCONCLUSIVE: dict.fromkeys((Verdict.PASS, Verdict.IMPROVED, Verdict.DRIFTED), Verdict.INCONCLUSIVE),
}
"""What the anchor's verdict makes of the baseline's; all else stays as it is."""


@of_each("since", [None, *Verdict])
@of_each("verdict", Verdict)
def test_the_anchor_can_only_make_it_worse(verdict: Verdict, since: Verdict | None) -> None:
    expected = WORSE.get(since, {}).get(verdict, verdict) if since is not None else verdict
    assert with_anchor(verdict, since) is expected


def test_a_passing_baseline_passes_its_anchor_unless_they_differ() -> None:
    """The same estimate under both policies: the anchor's tolerance is never the smaller one."""
    for low, high in itertools.combinations_with_replacement(EDGES, 2):
        for tolerance, anchor in itertools.product((0.01, 0.02, 0.1), (0.02, 0.05)):
            policy = Policy(tolerance=tolerance, anchor_tolerance=anchor)
            seen = Evidence(1, 1, replay=estimate(low, high))
            by_baseline, by_anchor = decide(seen, policy), decide(seen, policy.since_anchor())
            assert with_anchor(by_baseline, by_anchor) is by_baseline


def test_drift_limit() -> None:
    assert [drift_limit(s) for s in (0.0, 0.05, 0.07)] == [DRIFT, DRIFT, 0.07]


def test_settled_takes_the_floor_into_account() -> None:
    assert settled(estimate(0.01, 0.04), Policy(), None, effect_floor=0.05)
    assert not settled(estimate(0.01, 0.06), Policy(), None, effect_floor=0.05)
    policy = Policy(tolerance=0.02, floor_ns=100.0)
    assert settled(estimate(0.03, 0.04), policy, None, 0.0)
    assert settled(estimate(-0.09, 0.09), policy, 1000.0, 0.0)
    assert not settled(estimate(0.09, 0.11), policy, 1000.0, 0.0)


@pytest.mark.parametrize(
    ("drift", "verdict"), [(0.051, Verdict.DRIFTED), (-0.051, Verdict.DRIFTED), (0.049, Verdict.PASS)]
)
def test_a_case_without_a_calibration_drifts_from_five_hundredths_on(drift: float, verdict: Verdict) -> None:
    assert decide(Evidence(1, 1, identical=True, drift=drift), Policy()) is verdict


def test_kernels_that_took_over_work_of_operators_are_not_slower_for_it() -> None:
    """The baseline's kernels didn't do that work. What is found without a time still fails."""
    slower = Evidence(launched=1, expected=1, replay=estimate(0.5, 0.6), baseline_ns=1000.0)
    policy = Policy(tolerance=TOLERANCE)
    assert decide(slower, policy) is Verdict.REGRESSED
    assert decide(slower._replace(work_taken_over=True), policy) is Verdict.INCONCLUSIVE
    assert decide(slower._replace(work_taken_over=True, static_failure=True), policy) is Verdict.REGRESSED
