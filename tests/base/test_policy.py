"""What each verdict does to its test, under every policy."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from of_each import of_each

from kerntune.base.policy import (
    MAPPABLE,
    METRIC_TOLERANCES,
    METRICS,
    STATIC_RULES,
    Metrics,
    Missing,
    Outcome,
    Policy,
    StaticPolicy,
    StaticPrune,
    StaticRule,
    Verdict,
    spent,
)
from kerntune.errors import UsageError

DEFAULT_LEVEL = 0.999
DEFAULT_TOLERANCE = 0.02


ALWAYS = {
    "PASS": "pass",
    "IMPROVED": "pass",
    "REGRESSED": "fail",
    "DRIFTED": "warn",
    "STALE": "warn",
}
"""Of DESIGN's table: verdicts whose outcome no option changes."""

POLICIES = [
    Policy(missing=missing, strict=strict, ci=ci)
    for missing, strict, ci in itertools.product(Missing, [False, True], [False, True])
]


@of_each("policy", POLICIES)
@of_each("verdict", Verdict)
def test_outcome(policy: Policy, verdict: Verdict) -> None:
    expected = {
        **ALWAYS,
        "NEW": {"record": "pass", "warn": "warn", "fail": "fail"}[policy.missing.value],
        "INCONCLUSIVE": "fail" if policy.strict else "warn",
        "INCOMPLETE": "fail" if policy.ci else "warn",
    }
    assert policy.outcome(verdict) is Outcome(expected[verdict.value])


def test_verdict_names_are_what_users_read() -> None:
    """In reports and JSON, and in ``--kerntune-json`` consumers: not to be renamed lightly."""
    assert {v.name for v in Verdict} == {v.value for v in Verdict}
    assert {v.value for v in Verdict} == {*ALWAYS, "NEW", "INCONCLUSIVE", "INCOMPLETE"}


def test_defaults() -> None:
    policy = Policy()
    assert (policy.tolerance, policy.level) == (DEFAULT_TOLERANCE, DEFAULT_LEVEL) == (0.02, 0.999)
    assert policy.floor_ns == 0.0
    assert policy.missing is Missing.RECORD
    assert not policy.strict
    assert not policy.ci


def test_round_trip() -> None:
    policy = Policy(
        tolerance=0.05,
        floor_ns=100.0,
        missing=Missing.FAIL,
        strict=True,
        ci=True,
        anchor_tolerance=0.1,
        metrics=Metrics(False, {"spills": 0.0}),
        outcomes={Verdict.DRIFTED: Outcome.FAIL},
    )
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


@of_each("policy", POLICIES[::5])
@of_each("mapped", MAPPABLE)
@of_each("outcome", Outcome)
def test_a_mapped_verdict_has_that_outcome_and_no_other_changes(
    policy: Policy, mapped: Verdict, outcome: Outcome
) -> None:
    changed = msgspec.structs.replace(policy, outcomes={mapped: outcome})
    assert changed.outcome(mapped) is outcome
    assert all(changed.outcome(v) is policy.outcome(v) for v in Verdict if v is not mapped)


def test_time_alone_is_gated_by_default() -> None:
    assert Policy().metrics == Metrics(time=True, static={})
    assert set(METRICS) == {"time", "registers", "spills", "shared_memory", "binary_size", "instructions"}
    assert METRIC_TOLERANCES["spills"] == 0.0, "a spill more is never allowed unless somebody says so"


@given(st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_the_anchor_is_never_the_stricter_gate(tolerance: float, anchor: float) -> None:
    found = Policy(tolerance=tolerance, anchor_tolerance=anchor).since_anchor()
    assert found.tolerance == max(tolerance, anchor)
    assert msgspec.structs.replace(found, tolerance=tolerance) == Policy(tolerance=tolerance, anchor_tolerance=anchor)


def test_unknown_words_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="toleranz"):
        msgspec.convert({"toleranz": 0.1}, Policy)
    with pytest.raises(msgspec.ValidationError, match="ignore"):
        msgspec.convert({"missing": "ignore"}, Policy)


@given(st.floats(1e-6, 0.1), st.integers(1, 500), st.integers(0, 2000))
def test_decisions_of_a_run_never_spend_more_than_the_whole(alpha: float, cases: int, more: int) -> None:
    """However many calls the announced tests turn out to make."""
    total = sum(spent(alpha, cases, i) for i in range(1, cases + more + 1))
    assert total <= alpha * (1 + 1e-9)
    assert sum(spent(alpha, cases, i) for i in range(1, cases + 1)) == pytest.approx(alpha / 2)


@given(st.integers(1, 1000), st.integers(1, 3000))
def test_later_decisions_never_get_more(cases: int, decision: int) -> None:
    assert 0 < spent(0.001, cases, decision + 1) <= spent(0.001, cases, decision)


def test_levels() -> None:
    assert Policy().level_of(1) == pytest.approx(0.9995)
    assert Policy(cases=200).level_of(200) == pytest.approx(1 - 0.001 / 400)
    assert Policy(cases=200).level_of(201) == pytest.approx(1 - 0.0005 * 200 / (201 * 200))


def test_the_documents_table_has_each_static_rules_default() -> None:
    """``| `a` `b` | what | warn, 10 % |`` of docs/ci.md."""
    text = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
    told = {}
    for names, default in re.findall(r"^\| ((?:`\w+` ?)+)\|.*\| ((?:fail|warn|off)[^|]*) \|$", text, re.MULTILINE):
        severity, _, share = default.partition(" (")[0].partition(", ")
        for name in re.findall(r"\w+", names):
            told[name] = StaticRule(severity, *([float(share.rstrip(" %")) / 100] if share else []))
    assert {name: told.get(name) for name in STATIC_RULES} == STATIC_RULES


@pytest.mark.parametrize(
    ("value", "prune"),
    [
        ("spills model", StaticPrune(spills=True, model=True)), ("occupancy,spills", StaticPrune(True, True)),
        (0.33, StaticPrune(share=0.33)), ("33%", StaticPrune(share=0.33)), ("1", StaticPrune(share=1.0)),
        ("100%", StaticPrune(share=1.0)), (["model", 0.5], StaticPrune(model=True, share=0.5)),
        (("off",), StaticPrune()), ("off", StaticPrune()), ("", StaticPrune()),
    ],
)  # fmt: skip
def test_what_is_left_out_unrun(value: object, prune: StaticPrune) -> None:
    assert StaticPrune.parse(value, "here") == prune
    assert bool(prune) is (prune != StaticPrune())


@pytest.mark.parametrize("part", [{"spills": True}, {"occupancy": True}, {"model": True}, {"share": 0.1}])
def test_any_part_of_a_pruning_is_one(part: dict[str, float]) -> None:
    assert StaticPrune(**part)


@pytest.mark.parametrize("value", ["off spills", "spils", 0, "0", "0%", 1.01, "101%", -0.5, "nan", ["model", "off"]])
def test_what_is_no_pruning(value: object) -> None:
    with pytest.raises(UsageError) as told:
        StaticPrune.parse(value, "here")
    words = "spills, occupancy, model, a share above 0 (0.33 or 33%), several of them, or off"
    assert str(told.value) == f"here: {value!r} is none of {words}"


def test_a_rule_is_the_policys_own_or_the_usual_one() -> None:
    own, theirs = StaticRule("off"), StaticRule("fail", 0.0)
    policy, defaults = StaticPolicy({"work": own}), StaticPolicy({"work": theirs, "grid": theirs}, True)
    assert (policy.rule("work"), policy.rule("grid")) == (own, STATIC_RULES["grid"])
    assert policy.over(defaults) == StaticPolicy({"work": own, "grid": theirs}, True)
    assert StaticPolicy({}, False).over(defaults).every_config is False
    assert {n: 0.0 if n == "spills" else STATIC_RULES[n].threshold for n in METRIC_TOLERANCES} == METRIC_TOLERANCES
