"""Today's recording beside a baseline: which kind of comparison, what becomes evidence, and what is said of it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import SAMPLE, launch, recording, time_baseline

from kerntune.base.case_result import IDENTITY, Share
from kerntune.base.numerics import NumericsReport
from kerntune.base.policy import Metrics, Policy, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate import comparison as module
from kerntune.gate.baselines import Calibration, SinceAnchor, TimeBaseline, work_id
from kerntune.gate.comparison import (
    Comparer,
    Comparison,
    Judgement,
    comparable,
    floor_of,
    judge,
    state_range_of,
    written_by,
)
from kerntune.gate.decision import Evidence
from kerntune.gate.replay import RECOMPILED, REMEMBERED, REPLAY, STORED, VERSION, ComparisonMethod
from kerntune.timing.paired_processes import PROCESS_BIAS
from kerntune.timing.timers import Sample, TimingProtocol
from kerntune.tuning.tune_options import DEFAULTS

replace = msgspec.structs.replace
OTHER_GRID = recording(launches=(launch(grid=(9, 1, 1)),))
CHANGE = Estimate(0.2, 0.19, 0.21, 0.999)


def calibration(**changes: Any) -> Calibration:
    made = Calibration(4, 24, 0.01, 0.005, 0.002, state_range=0.08, version=VERSION)
    return replace(made, **changes)


def baseline(**changes: Any) -> TimeBaseline:
    return replace(time_baseline(), **changes)


def replayed(change: Estimate = CHANGE, a_ns: tuple[float, ...] = (10_000.0,), disturbs: bool = False) -> Any:
    foreign = SimpleNamespace(disturbs=disturbs)
    return SimpleNamespace(change=change, shown=change, a_ns=a_ns, b_ns=a_ns, foreign=foreign, results=None)


class Replayer:
    """Answers with one replay, and notes how it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.answer, self.asked, self.compared = answer or replayed(), list[Any](), 0

    def replay(self, before: Any, artifacts: Any, level: float, bias: float, settled: Any, results: bool) -> Any:
        self.asked.append((level, bias, settled, results))
        return self.answer

    def results(self, before: Any, artifacts: Any) -> None:
        self.compared += 1


def comparer(mine: Any = None, replayer: Any = None, policy: Policy | None = None, scope: str = "kernels") -> Any:
    """Of a case that did ``mine`` today; ``lines`` is its progress."""
    lines: list[str] = []
    case: Any = SimpleNamespace(
        id="t.py::a", recording=mine or recording(),
        call=SimpleNamespace(policy=policy or Policy(), scope=scope, options=DEFAULTS),
        capture=SimpleNamespace(compiler=SimpleNamespace(farm=None)),
    )  # fmt: skip
    gpu: Any = SimpleNamespace(environment=lambda: baseline().environment)
    decisions = iter(range(1, 100))
    return SimpleNamespace(
        it=Comparer(gpu, case, replayer or Replayer(), lambda: next(decisions), lines.append), lines=lines
    )


def sample(*times: float, timer: str = "graph") -> Sample:
    return Sample(TimingProtocol(timer, 200, 3), times or SAMPLE.times_ns)


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kind of comparison that is possible; replays where it is one."""
    kind = [REPLAY]

    def replay_baseline(baseline: TimeBaseline, stored: Any, farm: Any, replay: Any, now: Any) -> ComparisonMethod:
        found = replay(baseline.recording, stored) if kind[0] in (REPLAY, RECOMPILED) else None
        return ComparisonMethod(kind[0], found, baseline.recording, stored)

    monkeypatch.setattr(module, "replay_baseline", replay_baseline)
    return kind


# which comparison


def test_the_same_work_is_not_replayed() -> None:
    one = comparer()
    found = one.it.against(baseline(), {}, sample(), Policy())
    assert (found.used.rung, found.used.before, found.evidence.identical) == (IDENTITY, baseline().recording, True)
    assert (one.lines, one.it.replayer.asked) == ([], [])
    assert (found.change, found.shown) == (None, None)


def test_other_work_is_replayed_and_the_user_is_told() -> None:
    one = comparer(OTHER_GRID)
    found = one.it.against(baseline(), {}, sample(), Policy())
    assert one.lines == ["t.py::a: replaying the baseline beside today's code"]
    assert (found.used.rung, found.evidence.identical, found.change, found.shown) == (REPLAY, False, CHANGE, CHANGE)
    assert found.verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("known", "bias"), [(None, None), (calibration(bias=0.05), 0.05), (calibration(bias=0.0), PROCESS_BIAS)]
)
def test_the_bias_of_processes_is_the_cases_own_where_that_is_larger(known: Any, bias: float) -> None:
    one = comparer(OTHER_GRID, policy=Policy())
    one.it.against(baseline(calibration=known), {}, sample(), Policy())
    ((level, asked, _, results),) = one.it.replayer.asked
    assert (asked, level, results) == (bias, Policy().level_of(1), False)
    assert 0.0 < PROCESS_BIAS < 0.05


def test_a_replay_ends_when_policy_and_floor_are_settled() -> None:
    policy = Policy(tolerance=0.02)
    one = comparer(OTHER_GRID, policy=policy)
    one.it.against(baseline(calibration=calibration(floor=0.1)), {}, sample(), policy)
    settled = one.it.replayer.asked[0][2]
    assert settled(Estimate(0.05, 0.04, 0.06, 0.999), 1e6), "within the floor"
    assert not settled(Estimate(0.1, 0.04, 0.16, 0.999), 1e6)


# results


@pytest.mark.parametrize(("asked", "kind", "compared"), [(True, "any", 1), (False, "any", 0), (True, "off", 0)])
def test_results_are_compared_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: bool, kind: str, compared: int
) -> None:
    policy = Policy()
    monkeypatch.setattr(module, "report_of", lambda rule, found: NumericsReport(str(rule)))
    if kind == "off":
        policy = msgspec.structs.replace(policy, numerics=msgspec.structs.replace(policy.numerics, kind="off"))
    one = comparer(OTHER_GRID)
    found = one.it.against(baseline(), {}, sample(), policy, results=asked)
    assert one.it.replayer.compared == compared
    assert (found.numerics is not None) is bool(compared)
    told = "t.py::a: comparing results with those of the baseline's code"
    assert (told in one.lines) is bool(compared)
    assert one.it.replayer.asked[0][3] is bool(compared)


def test_results_are_not_compared_unless_that_is_said() -> None:
    one = comparer(OTHER_GRID)
    assert one.it.against(baseline(), {}, sample(), Policy()).numerics is None


def test_the_same_work_has_the_same_results() -> None:
    one = comparer()
    assert one.it.against(baseline(), {}, sample(), Policy(), results=True).numerics is None
    assert one.it.replayer.compared == 0


@pytest.mark.parametrize("lacking", ["replay", "before", "artifacts"])
def test_what_was_not_replayed_has_results_that_are_not_known(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    whole = {"replay": replayed(), "before": recording(), "artifacts": {}, lacking: None}
    monkeypatch.setattr(module, "replay_baseline", lambda *a: ComparisonMethod(REPLAY, why_not=("it hangs",), **whole))
    one = comparer(OTHER_GRID)
    found = one.it.against(baseline(), {}, sample(), Policy(), results=True).numerics
    assert found.not_compared == ("results not compared, it hangs",)
    assert one.it.replayer.compared == 0


# evidence


@pytest.mark.parametrize("off", [0.0, 0.04, -0.04])
def test_equal_work_drifts_by_its_time_against_the_stored_one(off: float) -> None:
    found = comparer().it.against(baseline(), {}, sample(12_400.0 * (1 + off)), Policy()).evidence
    assert found.drift == pytest.approx(off)
    assert found.baseline_ns == 12_400.0
    assert (found.launched, found.expected) == (1, 1)


def test_the_calibration_says_what_drift_and_effect_can_be_told() -> None:
    known = comparer().it.against(baseline(calibration=calibration()), {}, sample(), Policy()).evidence
    assert (known.state_range, known.effect_floor) == (0.08, 0.01)
    none = comparer().it.against(baseline(), {}, sample(), Policy()).evidence
    assert (none.state_range, none.effect_floor) == (0.0, 0.0)
    assert (state_range_of(baseline()), floor_of(baseline())) == (0.0, 0.0)


@pytest.mark.parametrize("why", ["another timer", "no stored time"])
def test_times_that_cant_be_held_against_each_other_are_no_drift(why: str) -> None:
    stored = baseline(sample=sample(0.0)) if why == "no stored time" else baseline()
    today = sample(timer="events") if why == "another timer" else sample()
    assert comparable(stored, today) is (why == "no stored time")
    assert comparer().it.against(stored, {}, today, Policy()).evidence.drift is None


def test_the_replayed_binary_drifts_by_its_own_time(rung: list[str]) -> None:
    one = comparer(OTHER_GRID, Replayer(replayed(a_ns=(13_640.0,))))
    assert one.it.against(baseline(), {}, sample(1.0), Policy()).evidence.drift == pytest.approx(0.1)
    rung[0] = RECOMPILED
    assert one.it.against(baseline(), {}, sample(1.0), Policy()).evidence.drift is None


def test_a_whole_operation_drifts_by_the_whole_call() -> None:
    one = comparer(OTHER_GRID, Replayer(replayed(a_ns=(1.0,))), scope="op")
    assert one.it.against(baseline(), {}, sample(13_640.0), Policy()).evidence.drift == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("kind", "timer", "scope", "known"),
    [
        (STORED, "graph", "kernels", True),
        (STORED, "events", "kernels", False),
        (STORED, "graph", "op", False),
        (REPLAY, "graph", "kernels", False),
    ],
)
def test_the_stored_sample_is_the_last_resort(rung: list[str], kind: str, timer: str, scope: str, known: bool) -> None:
    rung[0] = kind
    one = comparer(OTHER_GRID, scope=scope)
    stored = one.it.against(baseline(calibration=calibration()), {}, sample(timer=timer), Policy()).evidence.stored
    assert (stored is not None) is known
    if stored is not None:
        assert stored.level == Policy().level


@pytest.mark.parametrize("disturbs", [True, False])
def test_other_processes_during_the_replay_are_evidence(disturbs: bool) -> None:
    one = comparer(OTHER_GRID, Replayer(replayed(disturbs=disturbs)))
    assert one.it.against(baseline(), {}, sample(), Policy()).evidence.foreign_work is disturbs
    assert comparer().it.against(baseline(), {}, sample(), Policy()).evidence.foreign_work is False


# whether a time is taken again


@pytest.mark.parametrize(
    ("mine", "times", "timer", "known", "moved"),
    [
        (None, 12_400.0 * 1.051, "graph", None, True),
        (None, 12_400.0 * 1.049, "graph", None, False),
        (None, 12_400.0 * 0.949, "graph", None, True),
        (None, 12_400.0 * 1.07, "graph", calibration(state_range=0.08), False),
        (None, 12_400.0 * 1.09, "graph", calibration(state_range=0.08), True),
        (OTHER_GRID, 99_000.0, "graph", None, False),
        (None, 99_000.0, "events", None, False),
    ],
)
def test_only_the_same_work_beyond_its_drift_is_timed_again(
    mine: Any, times: float, timer: str, known: Any, moved: bool
) -> None:
    assert comparer(mine).it.moved(baseline(calibration=known), sample(times, timer=timer)) is moved


def test_without_a_stored_time_nothing_has_moved() -> None:
    assert not comparer().it.moved(baseline(sample=sample(0.0)), sample(5.0))


# an anchor's comparison from when the baseline was recorded


def remembered(change: Estimate = Estimate(0.0, -0.01, 0.01, 0.999), **changes: Any) -> Comparison | None:  # noqa: B008
    anchor = baseline(sample=sample(10_000.0), calibration=changes.pop("calibration", None))
    mine = baseline(since=SinceAnchor(changes.pop("anchor", work_id(anchor.recording)), change))
    if changes.pop("without", False):
        mine = baseline()
    used = ComparisonMethod(changes.pop("rung", IDENTITY))
    found = Comparison(mine, used, Evidence(1, 1, identical=True, drift=0.9), Policy(tolerance=0.02))
    return found.remembered(anchor, Policy(tolerance=changes.pop("tolerance", 0.02)))


def test_two_works_that_stayed_the_same_need_no_other_comparison() -> None:
    found = remembered()
    assert found is not None
    assert (found.used.rung, found.verdict, found.shown) == (REMEMBERED, Verdict.PASS, None)
    assert (found.evidence.baseline_ns, found.evidence.drift, found.evidence.identical) == (10_000.0, None, False)
    assert remembered(Estimate(-0.2, -0.21, -0.19, 0.999)) is not None, "IMPROVED clears it as well"


@pytest.mark.parametrize(
    "changes",
    [
        {"rung": REPLAY},
        {"without": True},
        {"anchor": "0" * 16},
        {"change": CHANGE},
        {"change": Estimate(0, -1, 1, 0.9)},
    ],
    ids=["other work today", "never compared", "another anchor", "slower", "not sure"],
)
def test_else_it_is_measured_anew(changes: dict[str, Any]) -> None:
    assert remembered(**changes) is None


def test_today_s_policy_and_the_anchor_s_floor_decide() -> None:
    slower = Estimate(0.04, 0.03, 0.05, 0.999)
    assert remembered(slower) is None
    assert remembered(slower, tolerance=0.06) is not None
    assert remembered(slower, calibration=calibration(floor=0.06)) is not None


# what is written where


def test_the_kernels_that_write_an_argument_are_told_by_its_name() -> None:
    other = recording(launches=(launch(kernel="mul_kernel"),))
    assert written_by(recording(), other) == {"y": {"add_kernel", "mul_kernel"}}
    assert written_by() == {}


# a cause is looked for


def test_the_environment_of_the_same_work_is_all_that_can_have_a_share() -> None:
    one = comparer()
    found = one.it.against(baseline(), {}, sample(12_400.0 * 1.1), Policy())
    parts = one.it.attribution(found)
    assert parts.environment == Share(found.evidence.drift, "")
    same = Share(0.0, "the same machine code")
    assert (parts.compiler, parts.code, parts.config, parts.launch) == (same, same, same, same)
    assert one.lines == []


@pytest.mark.parametrize("kind", [IDENTITY, REPLAY])
def test_of_a_whole_call_the_environment_is_more_than_its_kernels(kind: str) -> None:
    one = comparer(None if kind == IDENTITY else OTHER_GRID, scope="op")
    found = one.it.against(baseline(), {}, sample(), Policy())
    share = one.it._environment(found)
    if kind == IDENTITY:
        assert share == Share(found.evidence.drift, "all of the call but its kernels' code")
    else:
        assert share == Share(None, "the whole call was timed then, its kernels were replayed now")


def test_without_a_recording_that_ran_nothing_is_attributed() -> None:
    one = comparer(OTHER_GRID)
    found = Comparison(baseline(), ComparisonMethod(STORED), Evidence(1, 1), Policy())
    assert one.it.attribution(found) is None
    assert one.lines == []


@pytest.mark.parametrize("kind", [REPLAY, RECOMPILED])
def test_the_baseline_is_compiled_again_once_its_binary_has_run(
    monkeypatch: pytest.MonkeyPatch, rung: list[str], kind: str
) -> None:
    rung[0] = kind
    one = comparer(OTHER_GRID)
    found = one.it.against(baseline(), {"a": b"stored"}, sample(), Policy())
    seen: dict[str, Any] = {}

    def steps_between(before: Any, again: Any, now: Any, then: Any) -> str:
        seen["again"] = again
        return "chain"

    def attribute(chain: Any, total: Any, environment: Any, measure: Any) -> str:
        seen["total"], seen["chain"], seen["measure"] = total, chain, measure
        return "parts"

    monkeypatch.setattr(module, "steps_between", steps_between)
    monkeypatch.setattr(module, "attribute", attribute)
    monkeypatch.setattr(module, "under_todays_flags", lambda then, now: "flags")
    monkeypatch.setattr(module, "recompiled", lambda farm, then, artifacts, now: (f"{then} again", {"b": b"made"}))
    assert one.it.attribution(found) == "parts"
    assert (seen["total"], seen["chain"]) == (CHANGE.point, "chain")
    assert one.lines[-1] == "t.py::a: looking for the cause"
    if kind == REPLAY:
        assert seen["again"]() == "flags again"
        one.it.replayer.change = lambda a, b, artifacts: (a, b, dict(artifacts))
        assert seen["measure"](1, 2) == (1, 2, {"a": b"stored", "b": b"made"})
    else:
        with pytest.raises(module.ReplayError, match="the baseline's binary can't be run: "):
            seen["again"]()


# a case's comparisons together


def test_findings_come_in_the_order_of_their_weight() -> None:
    judgement = Judgement(Verdict.REGRESSED, grown=("grew",), outside=("wrote",), changed=("changed",))
    assert judgement.findings == ("wrote", "grew", "changed")


def compared(change: Estimate) -> Comparison:
    return Comparison(baseline(), ComparisonMethod(REPLAY), Evidence(1, 1, replay=change), Policy())


@pytest.mark.parametrize(
    ("found", "since", "decisive"),
    [(CHANGE, None, 0), (CHANGE, CHANGE, 0), (Estimate(0, 0, 0, 0.9), CHANGE, 1), (Estimate(0, 0, 0, 0.9), None, None)],
)
def test_the_comparison_that_is_slower_is_decisive(found: Any, since: Any, decisive: int | None) -> None:
    both = [compared(x) if x is not None else None for x in (found, since)]
    judgement = judge(Policy(), 1, *both, ())
    assert judgement.decisive is (None if decisive is None else both[decisive])


def test_outside_writes_and_static_growth_fail_a_case_by_themselves() -> None:
    for grown, outside in ((("grew",), ()), ((), ("wrote",))):
        assert judge(Policy(), 1, None, None, grown, outside).verdict is Verdict.REGRESSED
    assert judge(Policy(), 1, None, None, ()).verdict is Verdict.NEW


def test_an_ungated_time_is_reported_only() -> None:
    judgement = judge(Policy(metrics=Metrics(time=False)), 1, compared(CHANGE), compared(CHANGE), ())
    assert (judgement.verdict, judgement.reported, judgement.since) == (Verdict.PASS, Verdict.REGRESSED, None)
    assert judgement.decisive is None


def test_an_interval_without_an_end_is_not_settled() -> None:
    assert compared(Estimate(0.1, -math.inf, math.inf, 0.99)).verdict is Verdict.INCONCLUSIVE
