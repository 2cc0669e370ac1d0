"""Rules of the static gate: the marker's keyword and the ini key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.policy import METRIC_TOLERANCES, STATIC_RULES, StaticPolicy, StaticRule
from kerntune.errors import UsageError
from pytest_kerntune.values import parse_static

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("value", "rules", "every"),
    [
        ("all", {}, True),
        ("", {}, None),
        ({"all": False}, {}, False),
        ({"registers": 0.1}, {"registers": StaticRule("fail", 0.1)}, None),
        ({"registers": "warn"}, {"registers": StaticRule("warn", 0.1)}, None),
        ({"occupancy": ("warn", "20%")}, {"occupancy": StaticRule("warn", 0.2)}, None),
        (
            {"shared_memory": 0.2, "binary_size": "off"},
            {"shared_memory": StaticRule("fail", 0.2), "binary_size": StaticRule("off", 0.1)},
            None,
        ),
        (
            "shared_memory=0.2 binary_size=off",
            {"shared_memory": StaticRule("fail", 0.2), "binary_size": StaticRule("off", 0.1)},
            None,
        ),
        (
            {"launches": "fail", "grid": "fail"},
            {"launches": StaticRule("fail", 0.0), "grid": StaticRule("fail", 0.1)},
            None,
        ),
        ({"spills": "off", "registers": 0}, {"spills": StaticRule("off"), "registers": StaticRule("fail", 0.0)}, None),
        (
            "registers=0.1, spills=warn occupancy=warn:20% all",
            {"registers": StaticRule("fail", 0.1), "spills": StaticRule("warn"), "occupancy": StaticRule("warn", 0.2)},
            True,
        ),
    ],
)
def test_what_can_be_written(value: object, rules: dict[str, StaticRule], every: bool | None) -> None:
    assert parse_static(value, "here") == StaticPolicy(rules, every)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (5, "here: 5 is no rules"),
        (True, "here: True is no rules"),
        ({"register": 0.1}, "here: there is no rule 'register'; there are limits, spills, "),
        ("registers=loud", "here, registers: 'loud' is no share; write 0.1, 10%, fail, warn or off"),
        ("registers", "here, registers: '' is no share; write 0.1, 10%, fail, warn or off"),
        (
            "spills=fial",
            "here, spills: spills has no share that may change, any change counts; write fail, warn or off",
        ),
        ({"registers": True}, "here, registers: True is no share"),
        ({"registers": -0.1}, "no share"),
        ({"registers": (0.1, 0.2)}, "is no rule"),
        ({"registers": ()}, "is no rule"),
        ("registers=warn:fail", "is no rule"),
        ({"spills": 0.1}, "here, spills: spills has no share that may change"),
        ({"all": "yes"}, "here, all: 'yes' is neither True nor False"),
    ],
)
def test_what_can_not(value: object, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_static(value, "here")
    assert says in str(caught.value)


_POLICIES = st.builds(
    StaticPolicy,
    st.dictionaries(
        st.sampled_from([n for n, r in STATIC_RULES.items() if r.threshold is not None]),
        st.builds(StaticRule, st.sampled_from(["fail", "warn", "off"]), st.floats(0, 9)),
    ),
    st.none() | st.booleans(),
)


@given(_POLICIES, _POLICIES)
def test_the_closer_one_wins_rule_by_rule(closer: StaticPolicy, farther: StaticPolicy) -> None:
    both = closer.over(farther)
    for name in STATIC_RULES:
        assert both.rule(name) == (closer if name in closer.rules else farther).rule(name)
    assert both.every_config == (farther if closer.every_config is None else closer).every_config


@given(_POLICIES)
def test_text_says_the_same_as_a_mapping(policy: StaticPolicy) -> None:
    text = " ".join(f"{name}={rule.severity}:{rule.threshold!r}" for name, rule in policy.rules.items())
    assert parse_static(text, "here").rules == policy.rules


def test_figures_have_one_name_on_a_gpu_and_without() -> None:
    """What ``metrics=`` gates beside the time is what ``static=`` gates of the same name."""
    assert METRIC_TOLERANCES.keys() <= STATIC_RULES.keys()
    for name, share in METRIC_TOLERANCES.items():
        assert parse_static({name: "warn"}, "here").rules[name].threshold == (share or None)


def test_marker_over_ini_key(project) -> None:
    project.pytester.makeini("[pytest]\nkerntune_static = registers=0.3 fp64=warn all\n")
    project.file(
        """
pytestmark = pytest.mark.autotune(static={"registers": 0.2, "tma": "fail"})

@pytest.mark.autotune(static={"tma": "off"})
def test_a(autotune):
    static = autotune._policy.static
    assert static.rule("registers").threshold == 0.2
    assert static.rule("fp64").severity == "warn"
    assert static.rule("tma").severity == "off"
    assert static.every_config is True
    autotune(kernel())
"""
    )
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("where", ["ini", "marker"])
def test_a_wrong_rule_is_a_usage_error(project, one_test, where: str) -> None:
    if where == "ini":
        project.pytester.makeini("[pytest]\nkerntune_static = spill=warn\n")
    project.file(one_test(marker="static={'spill': 'warn'}" if where == "marker" else ""))
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*there is no rule 'spill'; there are limits*"])
    result.stderr.no_fnmatch_line("*Traceback*")
