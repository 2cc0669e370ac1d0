"""A case's verdict without a GPU: what fails it, what is said for it, and what leaves it open, by values alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import static_baseline, time_baseline

from kerntune.base.case_result import UNJUDGED, End, LaunchCause
from kerntune.base.config import Config
from kerntune.base.numerics import NumericsRule
from kerntune.base.operator_list import OperatorList, OperatorRow
from kerntune.base.policy import Policy, StaticPolicy, StaticRule, Verdict
from kerntune.gate import static_verdict
from kerntune.gate.call_operators import NO_CHANGE, OperatorChange
from kerntune.gate.static_figures import LaunchStatic
from kerntune.gate.static_verdict import RunOfCase, StaticFindings, StaticJudgement, judge_launches, unjudged_remarks
from kerntune.gate.stores import KnownCase, Unreviewed
from kerntune.kernels.compat import versions
from kerntune.static.code_rules import Finding, RuleMessage
from kerntune.static.occupancy import Violation

replace = msgspec.structs.replace
BEFORE = static_baseline()
(LAUNCH,) = BEFORE.launches
TARGET = BEFORE.target
KNOWN = KnownCase(BEFORE, BEFORE)
STRICT = Policy(static=StaticPolicy({"registers": StaticRule("fail", 0.1)}))
END = End("m.py", "f", "x.item()", "reads values")


@pytest.fixture(autouse=True)
def series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "triton_series", lambda: "3.9")


def other(code: str = "other", **changes: Any) -> LaunchStatic:
    """The launch with other code; figures among the changes are its metrics'."""
    figures = {name: changes.pop(name) for name in ("registers", "over_limit", "stack_bytes") if name in changes}
    return replace(LAUNCH, code=code, metrics=replace(LAUNCH.metrics, **figures), **changes)


def judged(
    *launches: LaunchStatic, known: KnownCase = KNOWN, policy: Policy | None = None, **run: Any
) -> StaticJudgement:
    given = {"launched": len(launches), "end": None, "accepted": None, "operators": None} | run
    return judge_launches(known, launches, RunOfCase(**given), TARGET, policy or Policy())


def test_equal_code_passes() -> None:
    found = judged(LAUNCH)
    assert (found.verdict, found.found, found.launch_causes) == (Verdict.PASS, StaticFindings((), ()), ())
    assert found.reasons == ("code unchanged", "config unchanged")
    assert found.beside == NO_CHANGE


def test_a_rule_that_fails_regresses_with_its_cause() -> None:
    found = judged(other(source="s2", registers=64), policy=STRICT)
    assert found.verdict is Verdict.REGRESSED
    assert [text.partition(":")[0] for text in found.found.failures] == ["add_kernel"]
    assert found.reasons[:2] == ("code changed", "config unchanged")
    assert [cause.kinds for cause in found.launch_causes] == [("code",)]


LIMIT = Violation("shared memory", 300_000, 232_448, "bytes")


@pytest.mark.parametrize(
    ("severity", "verdict"), [("fail", Verdict.REGRESSED), ("warn", Verdict.PASS), ("off", Verdict.PASS)]
)
def test_what_the_device_has_not_is_said_once(severity: Any, verdict: Verdict) -> None:
    policy = Policy(static=StaticPolicy({"limits": StaticRule(severity)}))
    found = judged(other(over_limit=(LIMIT,)), policy=policy)
    told = f"add_kernel can't be launched on cuda:90: {LIMIT}"
    assert found.verdict is verdict
    assert (found.found.failures, found.found.notes) == (
        (told,) if severity == "fail" else (), (told,) if severity == "warn" else (),
    )  # fmt: skip


def test_a_limit_that_a_launch_breaks_by_itself_is_no_finding_of_its_change() -> None:
    after = replace(other(over_limit=(LIMIT,)), lines=("m.py:3",))
    said = [Finding("fail", metric, 0, 1, metric, rule) for metric, rule in
            (("shared memory", "limits"), ("registers", "limits"), ("shared memory", "shared_memory"))]  # fmt: skip
    pair = static_verdict.LaunchFindings(LAUNCH, after, tuple(said))
    assert list(static_verdict._findings(pair)) == [
        RuleMessage("fail", "limits", "add_kernel at m.py:3: registers"),
        RuleMessage("fail", "shared_memory", "add_kernel at m.py:3: shared memory"),
    ]


@pytest.mark.parametrize(
    ("known", "launched", "verdict", "reason"),
    [
        (KNOWN, 1, Verdict.PASS, ""),
        (KnownCase(BEFORE, replace(BEFORE, launches=(LAUNCH, LAUNCH))), 1, Verdict.INCOMPLETE,
         "1 of the 2 launches that the static baseline under Triton 3.9 has; if that is meant, a refresh"),
        (KnownCase(None, replace(BEFORE, launches=(LAUNCH, LAUNCH))), 1, Verdict.INCOMPLETE, "1 of the 2 launches"),
        (KnownCase(None, BEFORE), 1, Verdict.NEW, ""),
        (KnownCase(None, None), 1, Verdict.NEW, ""), (KnownCase(None, None), 0, Verdict.INCOMPLETE, ""),
    ],
)  # fmt: skip
def test_fewer_launches_than_a_baseline_has_are_incomplete(
    known: KnownCase, launched: int, verdict: Verdict, reason: str
) -> None:
    found = judged(LAUNCH, known=known, launched=launched)
    assert found.verdict is verdict
    assert [r for r in found.reasons if " launches that " in r] == ([found.reasons[0]] if reason else [])
    assert found.reasons[0].startswith(reason)


def test_a_later_time_baseline_with_more_launches_counts() -> None:
    timed = time_baseline()
    more = replace(timed.recording, launches=timed.recording.launches * 3)
    times = [replace(timed, recording=more, recorded=day) for day in ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")]
    assert judged(LAUNCH, known=KnownCase(BEFORE, BEFORE, (times[0],))).verdict is Verdict.PASS, "it was accepted since"
    found = judged(LAUNCH, known=KnownCase(BEFORE, BEFORE, tuple(times)))
    assert (found.verdict, found.reasons[0].partition(";")[0]) == (
        Verdict.INCOMPLETE, "1 of the 3 launches that the baseline of NVIDIA H100 has",
    )  # fmt: skip


def test_a_case_without_a_baseline_says_so_unless_none_would_help() -> None:
    nothing = KnownCase(None, None)
    assert judged(LAUNCH, known=nothing).reasons == ("no static baseline for cuda:90 under Triton 3.9",)
    broken = judged(LAUNCH, known=nothing, broken=("can't be compiled: x",))
    assert (broken.verdict, broken.reasons, broken.found.failures) == (
        Verdict.REGRESSED, (), ("can't be compiled: x",),
    )  # fmt: skip


def test_a_baseline_of_another_triton_is_named_with_what_only_warns() -> None:
    elsewhere = KnownCase(None, replace(BEFORE, triton="3.8"))
    found = judged(LAUNCH, known=elsewhere)
    assert found.reasons[0] == "no static baseline for cuda:90 under Triton 3.9, held against that of 3.8"
    said = [RuleMessage(severity, "spills", "grew") for severity in ("fail", "warn", "info")]  # type: ignore[arg-type]
    told = [static_verdict._of_other_triton(elsewhere)(x).text for x in said]
    assert told == ["grew", *["grew, since the baseline of Triton 3.8"] * 2]
    for known in (KNOWN, KnownCase(None, None)):
        assert [static_verdict._of_other_triton(known)(x) for x in said] == said


def test_what_only_the_anchor_finds_is_told_with_its_day() -> None:
    anchor = replace(BEFORE, recorded="2025-12-31T23:00:00Z", launches=(other("first", registers=16),))
    today = other(registers=40)
    known = KnownCase(BEFORE, replace(BEFORE, launches=(other("b", registers=39),)), anchor=anchor)
    found = judged(today, known=known, policy=STRICT)
    assert [x.endswith(", since the anchor of 2025-12-31") for x in found.found.failures] == [True]
    same = KnownCase(BEFORE, replace(BEFORE, launches=anchor.launches), anchor=anchor)
    assert not any("anchor" in x for x in judged(today, known=same, policy=STRICT).found.failures), (
        "it is found since the baseline"
    )


@pytest.mark.parametrize(
    ("end", "accepted", "cut_off", "verdict"),
    [(None, None, False, Verdict.PASS), (END, None, True, Verdict.INCOMPLETE), (END, END, False, Verdict.PASS),
     (END, replace(END, line="y.item()"), True, Verdict.INCOMPLETE)],
)  # fmt: skip
def test_a_call_that_stopped_elsewhere_is_incomplete(
    end: End | None, accepted: End | None, cut_off: bool, verdict: Verdict
) -> None:
    found = judged(LAUNCH, end=end, accepted=accepted)
    assert (found.run.cut_off, found.verdict) == (cut_off, verdict)


def test_code_of_another_environment_is_not_judged() -> None:
    found = judged(other(registers=64, compiler_settings={"DISABLE_PTXAS_OPT": "1"}))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reasons[-1] == (
        "compiled under another environment than the baseline (DISABLE_PTXAS_OPT unset -> 1), so not judged: set it as "
        "it was, or refresh"
    )
    assert (found.found.failures, len(found.found.notes)) == ((), 1), "only warned of"
    assert judged(replace(LAUNCH, compiler_settings={"DISABLE_PTXAS_OPT": "1"})).verdict is Verdict.PASS, "equal code"
    both = StaticFindings(("broken", "grew"), ("a note",)).unsure(("broken",))
    assert both == StaticFindings(("broken",), ("grew", "a note"))


@pytest.mark.parametrize(
    ("refused", "code"), [((), "code unchanged"), (("source",), "code unchanged"), (("s2",), "code changed")]
)
def test_of_a_launch_without_a_binary_its_source_is_known_alone(refused: tuple[str, ...], code: str) -> None:
    found = judged(LAUNCH, LAUNCH, refused=refused, broken=("can't be compiled: x",))
    assert found.reasons[0] == code
    assert ("config unchanged" in found.reasons) is not bool(refused)


def listed(nbytes: int, **changes: Any) -> OperatorList:
    return OperatorList("2.13.0", (OperatorRow("aten.add", "", 1, nbytes),), **changes)


def test_work_that_went_to_operators_fails_and_is_told_alone() -> None:
    before = replace(BEFORE, operators=listed(1 << 10), launches=(LAUNCH, LAUNCH))
    known = KnownCase(before, before)
    found = judged(LAUNCH, known=known, operators=listed(1 << 30))
    assert found.verdict is Verdict.REGRESSED
    assert "torch operators beside the kernels, which are not timed, move more" in found.beside.failures[0]
    assert not any("of the 2 launches" in reason for reason in found.reasons), "that is what became of it"
    warned = Policy(static=StaticPolicy({"other_operators": StaticRule("warn", 0.05)}))
    assert judged(LAUNCH, LAUNCH, known=known, operators=listed(1 << 30), policy=warned).verdict is Verdict.PASS


def test_what_operators_do_since_the_anchor_alone_fails() -> None:
    before, anchor = (replace(BEFORE, operators=listed(n), recorded=day) for n, day in
                      ((1 << 30, "2026-01-02T00:00:00Z"), (1 << 10, "2025-12-31T00:00:00Z")))  # fmt: skip
    found = judged(LAUNCH, known=KnownCase(before, before, anchor=anchor), operators=listed(1 << 30))
    assert [x.endswith(", since the anchor of 2025-12-31") for x in found.beside.failures] == [True]
    for other_anchor in (None, replace(anchor, operators=msgspec.UNSET)):
        known = KnownCase(before, before, anchor=other_anchor)
        assert judged(LAUNCH, known=known, operators=listed(1 << 30)).beside == OperatorChange()


@pytest.mark.parametrize(
    ("config", "origins", "rules", "severity"),
    [
        (128, (), {}, "fail"), (64, (), {}, "warn"), (64, ("aten.add",), {}, "fail"),
        (64, (), {"bytes_moved": StaticRule("fail", 0.1)}, "fail"), (64, (), {"bytes_moved": StaticRule("off")}, "off"),
    ],
)  # fmt: skip
def test_bytes_of_other_settings_only_warn_unless_the_rule_was_set(
    config: int, origins: tuple[str, ...], rules: Any, severity: str
) -> None:
    after = other(config=Config({"BLOCK": config}), origins=origins)
    before = replace(LAUNCH, origins=origins)
    assert static_verdict._bytes_rule((before,), (after,), StaticPolicy(rules)).severity == severity


@pytest.mark.parametrize(
    ("verdict", "after", "told"),
    [
        (Verdict.PASS, (LAUNCH,), ""), (Verdict.REGRESSED, (other(),), ""),
        (Verdict.PASS, (other(source="s2"),), "code"),
        (Verdict.PASS, (other(config=Config({"BLOCK": 64})),), "config"),
        (Verdict.PASS, (other(source="s2", config=Config({"BLOCK": 64})),), "code and config"),
        (Verdict.PASS, (other(),), "arguments or compiler"), (Verdict.PASS, (), "arguments or compiler"),
    ],
)  # fmt: skip
def test_other_code_that_passes_was_not_judged(verdict: Verdict, after: tuple[LaunchStatic, ...], told: str) -> None:
    assert unjudged_remarks(verdict, (LAUNCH,), after) == ((f"{told} changed; {UNJUDGED}",) if told else ())


def test_a_cause_is_told_in_place_of_its_config() -> None:
    found = judged(other(config=Config({"BLOCK": 64})))
    assert [type(cause) for cause in found.launch_causes] == [LaunchCause]
    assert not any(reason.startswith("config of") for reason in found.reasons)


@pytest.mark.parametrize(("severity", "counted"), [("fail", True), ("warn", False)])
def test_bytes_of_operators_count_where_they_may_not_grow(
    monkeypatch: pytest.MonkeyPatch, severity: Any, counted: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        static_verdict, "more_bytes", lambda *words, operators_count: asked.append(operators_count) or NO_CHANGE
    )
    judged(LAUNCH, policy=Policy(static=StaticPolicy({"other_operators": StaticRule(severity, 0.1)})))
    assert asked == [counted]


STORES: Any = SimpleNamespace(
    reference=SimpleNamespace(static_path=lambda *words: words[2], shown=lambda path: f"path of {path}"),
    damage=SimpleNamespace(among=lambda store, target, names: [f"damaged: {len([*names])}"]),
)
STOPPED = f"stopped where the baseline accepts it, at {END}"


@pytest.mark.parametrize(
    ("known", "run", "rule", "warned", "end_accepted"),
    [
        (KNOWN, {}, "report", (), False), (KNOWN, {"end": END, "accepted": END}, "report", (STOPPED,), True),
        (KNOWN, {"end": END}, "report", (), False), (KNOWN, {}, "bitwise", (static_verdict.NOTHING_RUNS,), False),
        (KnownCase(None, BEFORE), {}, "bitwise", (), False),
    ],
)  # fmt: skip
def test_what_limits_a_result_is_warned_of(
    known: KnownCase, run: dict[str, Any], rule: str, warned: tuple[str, ...], end_accepted: bool
) -> None:
    policy = Policy(numerics=NumericsRule.parse(rule, "here"))
    found = judged(LAUNCH, known=known, policy=policy, **run)
    result = found.result(STORES, BEFORE, policy, Unreviewed(), ("further",))
    assert result.warnings == ("damaged: 1", *warned)
    assert (result.end, result.end_accepted, result.rung) == (run.get("end"), end_accepted, "static")
    assert (result.numerics is not None) is (known.own is not None)
    assert (result.causes[-1], result.baseline_path) == ("further", f"path of {BEFORE.case}")
    assert result.message.startswith(f"{found.verdict.value} {BEFORE.case} (cuda:90, static only), ")
    assert (result.outcome, len(result.launches)) == (policy.outcome(found.verdict), 1)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        pytest.param(replace(LAUNCH, grid=(1024, 1, 1)), "grid 2,048x1x1 -> 1,024x1x1", id="fewer"),
        pytest.param(replace(LAUNCH, grid=(2048, 1, 1)), "", id="as many"),
        pytest.param(replace(LAUNCH, grid=(1, 2048, 1)), "", id="another shape"),
        pytest.param(other(grid=(1024, 1, 1)), "", id="of other code"),
        pytest.param(other(grid=(1024, 1, 1), source="s2", registers=64), "", id="a case that fails"),
    ],
)
def test_fewer_programs_of_the_same_code_are_warned_of(after: LaunchStatic, told: str) -> None:
    baseline = replace(BEFORE, launches=(replace(LAUNCH, grid=(2048, 1, 1)),))
    found = judged(after, known=KnownCase(baseline, baseline), policy=STRICT)
    warnings = [x for x in found.result(STORES, BEFORE, STRICT, Unreviewed()).warnings if "fewer programs" in x]
    assert len(warnings) == bool(told)
    assert all(told in text and "add_kernel" in text for text in warnings)
