"""Values that people write."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.policy import METRIC_TOLERANCES, STATIC_RULES, Metrics, Outcome, StaticPolicy, StaticRule, Verdict
from kerntune.errors import UsageError
from pytest_kerntune.values import (
    MODES,
    member_of,
    needed_words,
    one_of,
    parse_choice,
    parse_floor,
    parse_kernel_values,
    parse_limit,
    parse_metrics,
    parse_name,
    parse_names,
    parse_outcomes,
    parse_share,
    parse_static,
    parse_switch,
    parse_targets,
    parse_tolerance,
    parse_update,
    with_update,
)


class Tensor:
    """What torch's tensors are known by."""

    untyped_storage = None


READ = {
    parse_tolerance: [(0.02, 0.02), ("0.02", 0.02), ("2%", 0.02), (" 2.5 % ", 0.025), ("1e-3", 1e-3)],
    parse_floor: [
        (500, 500), (0, 0), ("500", 500), ("500ns", 500), ("0.5us", 500), ("0.5 µs", 500), ("1ms", 1e6), ("2s", 2e9)
    ],
    parse_share: [(0, 0.0), ("0", 0.0), (0.1, 0.1), ("10%", 0.1), (5, 5.0), ("250%", 2.5)],
    parse_targets: [
        ("cuda:90", ("cuda:90",)), (" cuda:90,, cuda:80,cuda:90", ("cuda:90", "cuda:80")), ("", ()), (" , ", ())
    ],
    parse_names: [("x, k.y  z", ("x", "k.y", "z")), (["x", "k._y1"], ("x", "k._y1")), ((), ()), ("", ())],
    parse_switch: [(True, True)],
    parse_name: [("forward", "forward")],
    parse_metrics: [
        ("time", Metrics()),
        (("time", "spills"), Metrics(True, {"spills": 0.0})),
        (["registers"], Metrics(False, {"registers": 0.1})),
        ({"time": True, "registers": 0.2}, Metrics(True, {"registers": 0.2})),
        ({"time": True, "spills": True}, Metrics(True, {"spills": 0.0})),
        ("time registers=20%, binary_size", Metrics(True, {"registers": 0.2, "binary_size": 0.1})),
        ({"shared_memory": 0}, Metrics(False, {"shared_memory": 0.0})),
        (tuple(METRIC_TOLERANCES), Metrics(False, METRIC_TOLERANCES)),
        ("shared_memory binary_size=20%", Metrics(False, {"shared_memory": 0.1, "binary_size": 0.2})),
        ({"instructions": True}, Metrics(False, {"instructions": 0.1})),
    ],
    parse_outcomes: [
        ({"DRIFTED": "fail"}, {Verdict.DRIFTED: Outcome.FAIL}),
        ("drifted=fail regressed=warn", {Verdict.DRIFTED: Outcome.FAIL, Verdict.REGRESSED: Outcome.WARN}),
        ({Verdict.IMPROVED: Outcome.WARN}, {Verdict.IMPROVED: Outcome.WARN}),
        (
            {"inconclusive": "pass", "INCOMPLETE": "fail"},
            {Verdict.INCONCLUSIVE: Outcome.PASS, Verdict.INCOMPLETE: Outcome.FAIL},
        ),
        ({"STALE": "fail"}, {Verdict.STALE: Outcome.FAIL}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("parse", "value", "found"), [(parse, *row) for parse, rows in READ.items() for row in rows])
def test_what_is_read(parse, value, found):
    assert parse(value, "here") == (pytest.approx(found) if isinstance(found, float) else found)


SHARELESS = r"^here, spills: spills has no share that may change, any change counts; write fail, warn or off$"
NO_TENSORS = r"^here: .* is no mapping from arguments .*lambda: fn\(values"
NO_UPDATE = r"is none of .*; the flag alone means all, a path may follow it$"
REFUSED = {
    parse_tolerance: [
        (value, r"^here: .* is no tolerance; .*2%")
        for value in (0, 1, 2, -0.1, "2", "", "two", "200%", True, None, float("nan"), float("inf"), [0.1])
    ],
    parse_floor: [
        (value, r"^here: .* is no time")
        for value in (-1, "-1us", "", "fast", "5 minutes", True, None, float("nan"), "inf")
    ],
    parse_limit: [
        (text, rf"^here is {re.escape(repr(text))}; give seconds, 0 for no limit$")
        for text in ("-1", "", "soon", "inf", repr(threading.TIMEOUT_MAX * 2))
    ],
    parse_targets: [("cuda:90,tpu", r"^here: ")],
    parse_names: [
        (value, r"^here: .* is no list of arguments; write names, or kernel.name$")
        for value in ("1x", "a.b.c", ["x y"], [1], 5, None, {"x"})
    ],
    parse_switch: [(value, "neither True nor False") for value in (1, "yes", None)],
    parse_name: [(value, "is no name") for value in ("", "  ", "a::b", "a\nb", 5)],
    parse_kernel_values: [
        (Tensor(), NO_TENSORS),
        ({"counts": Tensor()}, NO_TENSORS),
        ({"a.b.c": Tensor()}, NO_TENSORS),
        ({1: Tensor()}, NO_TENSORS),
        ([("a.b", Tensor())], NO_TENSORS),
        ({"a.": Tensor()}, NO_TENSORS),
        ({"route.counts": [1, 2]}, r"^here: route.counts: a list is no tensor"),
    ],
    parse_update: [(mode, NO_UPDATE) for mode in ("none", "", "every")],
    parse_metrics: [
        ("", r"^here: '' names no metrics; write some of time, registers"),
        (5, r"^here: 5 names no metrics"),
        ("warps", r"^here: 'warps' is none of time, registers, spills, shared_memory, binary_size"),
        ([5], r"^here: '5' is none of"),
        ([["time"]], r"^here: .*is none of time"),
        ("time=0.1", r"^here: time is named alone or left out; its share is what tolerance= says$"),
        ({"time": 0.05}, r"^here: time is named alone or left out; its share is what tolerance= says$"),
        ({"time": False}, r"^here: time is named alone or left out"),
        ("registers=much", r"^here, registers: 'much' is no share"),
        ({"registers": -0.1}, r"^here, registers: -0.1 is no share"),
        ({"registers": False}, r"^here, registers: False is no share"),
    ],
    parse_outcomes: [
        ({}, r"^here: {} maps no verdict; write for example {'DRIFTED': 'fail'}$"),
        (7, r"^here: 7 maps no verdict"),
        ("new=fail", r"^here: what NEW does is for missing= \(--kerntune-missing\) to say$"),
        ({"PASS": "fail"}, r"^here: 'PASS' is none of"),
        ("quick=fail", r"^here: 'quick' is none of IMPROVED, REGRESSED, DRIFTED, INCONCLUSIVE, INCOMPLETE"),
        ({"DRIFTED": "stop"}, r"^here, DRIFTED: 'stop' is none of pass, warn, fail"),
        ("drifted=maybe", r"^here, drifted: 'maybe' is none of "),
        ("drifted", r"^here, drifted: True is none of pass, warn, fail"),
    ],
    parse_static: [
        (5, r"^here: 5 is no rules; write for example {'spills': 'warn', 'registers': 0.1}$"),
        (True, r"^here: True is no rules"),
        (
            {"register": 0.1},
            r"^here: there is no rule 'register'; there are limits, spills, .*, and all; did you mean registers\?$",
        ),
        ("all=yes", r"^here, all: 'yes' is neither True nor False$"),
        ({"registers": ()}, r"^here, registers: \(\) is no rule; write one of fail, warn, off, a share, or both$"),
        ({"registers": (0.1, 0.2)}, r"^here, registers: \(0.1, 0.2\) is no rule"),
        ("registers=warn:off", r"^here, registers: 'warn:off' is no rule"),
        ("registers=warn:warn", r"^here, registers: 'warn:warn' is no rule"),
        ("registers=0.1:0.2", r"^here, registers: '0.1:0.2' is no rule"),
        ("registers=much", r"^here, registers: 'much' is no share; write 0.1, 10%, fail, warn or off$"),
        ("registers", r"^here, registers: '' is no share; write 0.1, 10%, fail, warn or off$"),
        ({"registers": True}, r"^here, registers: True is no share"),
        ({"registers": -0.1}, r"^here, registers: -0.1 is no share"),
        ({"spills": 0.1}, SHARELESS),
        ("spills=fial", SHARELESS),
    ],
}


@pytest.mark.parametrize(("parse", "value", "says"), [(parse, *row) for parse, rows in REFUSED.items() for row in rows])
def test_what_is_refused(parse, value, says):
    with pytest.raises(UsageError, match=says):
        parse(value, "here")


@given(st.floats(min_value=0, max_value=1e12), st.sampled_from(["ns", "us", "µs", "ms", "s"]))
def test_floor_reads_any_number_with_a_unit(number, unit):
    scale = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert parse_floor(f"{number}{unit}", "here") == pytest.approx(number * scale)


def test_choice_names_the_choices():
    assert parse_choice("op", ("kernels", "op"), "here") == "op"
    for wrong in ("all", 5, None):
        with pytest.raises(UsageError, match="is none of kernels, op"):
            parse_choice(wrong, ("kernels", "op"), "here")


def test_kernel_values_are_sorted_by_kernel():
    x, y, z = Tensor(), Tensor(), Tensor()
    given = {"route.counts": x, "route.ends": y, "sort.at": z}
    assert parse_kernel_values(given, "values") == {"route": {"counts": x, "ends": y}, "sort": {"at": z}}
    assert parse_kernel_values({}, "values") == {}


@pytest.mark.parametrize("value", [-0.1, "-1%", "", "%", "x%", True, None, float("nan")])
def test_no_share_names_what_may_stand_in_its_place(value):
    with pytest.raises(UsageError, match=rf"^here: {re.escape(repr(value))} is no share; write 0.1 or 10%$"):
        parse_share(value, "here")
    with pytest.raises(UsageError, match=r"is no share; write 0.1, 10%, fail or off$"):
        parse_share(value, "here", ("fail", "off"))


@pytest.mark.parametrize("text", ["0", "1.5", "60", repr(threading.TIMEOUT_MAX)])
def test_limit(text):
    assert parse_limit(text, "here") == float(text)


def test_members_are_themselves_or_their_words():
    parse = member_of(Outcome)
    assert [parse(x, "here") for x in ("fail", Outcome.WARN)] == [Outcome.FAIL, Outcome.WARN]
    with pytest.raises(UsageError, match=r"^here: 'stop' is none of pass, warn, fail$"):
        parse("stop", "here")
    assert one_of(("a", "b"))("b", "here") == "b"
    with pytest.raises(UsageError, match=r"^here: 'c' is none of a, b$"):
        one_of(("a", "b"))("c", "here")


def test_all_errors_of_outcomes_are_told_at_once():
    with pytest.raises(UsageError) as info:
        parse_outcomes({"DRIFTE": "fail", "PASS": "maybe", "NEW": "warn"}, "here")
    lines = str(info.value).splitlines()
    assert [line.partition(" is none of")[0].partition(": ")[2] for line in lines[:2]] == ["'DRIFTE'", "'PASS'"]
    assert lines[0].endswith("did you mean DRIFTED?")
    assert [line.partition(":")[0] for line in lines] == ["here", "here", "here", "here, PASS"]


@pytest.mark.parametrize(
    ("value", "rules", "every"),
    [
        ("all", {}, True),
        ("", {}, None),
        ({}, {}, None),
        ({"all": False}, {}, False),
        ({"registers": 0.1}, {"registers": StaticRule("fail", 0.1)}, None),
        ({"registers": "warn"}, {"registers": StaticRule("warn", 0.1)}, None),
        ({"registers": "warn:20%"}, {"registers": StaticRule("warn", 0.2)}, None),
        ({"registers": "20%:off"}, {"registers": StaticRule("off", 0.2)}, None),
        ({"registers": ("off", 0.3)}, {"registers": StaticRule("off", 0.3)}, None),
        ({"registers": ["fail"]}, {"registers": StaticRule("fail", 0.1)}, None),
        ({"occupancy": ("warn", "20%")}, {"occupancy": StaticRule("warn", 0.2)}, None),
        ("shared_memory=0.2", {"shared_memory": StaticRule("fail", 0.2)}, None),
        ({"binary_size": "off"}, {"binary_size": StaticRule("off", 0.1)}, None),
        ({"launches": "fail"}, {"launches": StaticRule("fail", 0.0)}, None),
        ({"grid": "fail"}, {"grid": StaticRule("fail", 0.1)}, None),
        ({"spills": "off", "registers": 0}, {"spills": StaticRule("off"), "registers": StaticRule("fail", 0.0)}, None),
        (
            "registers=0.1, spills=warn occupancy=warn:20% all",
            {"registers": StaticRule("fail", 0.1), "spills": StaticRule("warn"), "occupancy": StaticRule("warn", 0.2)},
            True,
        ),
    ],
)
def test_static_rules(value, rules, every):
    assert parse_static(value, "here") == StaticPolicy(rules, every)


_POLICIES = st.builds(
    StaticPolicy,
    st.dictionaries(
        st.sampled_from([n for n, r in STATIC_RULES.items() if r.threshold is not None]),
        st.builds(StaticRule, st.sampled_from(["fail", "warn", "off"]), st.floats(0, 9)),
    ),
    st.none() | st.booleans(),
)


@given(_POLICIES, _POLICIES)
def test_the_closer_policy_wins_rule_by_rule(closer: StaticPolicy, farther: StaticPolicy) -> None:
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


def test_update_is_one_of_its_modes():
    assert [parse_update(mode, "here").value for mode in MODES] == list(MODES)


@pytest.mark.parametrize(
    ("args", "amended", "left"),
    [
        (["--sw", "--kerntune-update"], ["--sw", "--kerntune-update=all"], ["--sw"]),
        (["--kerntune-update", "new", "t.py"], ["--kerntune-update=new", "t.py"], ["t.py"]),
        (["--kerntune-update", "there"], ["--kerntune-update=all", "there"], ["there"]),
        (["--kerntune-update", "mistake"], ["--kerntune-update=mistake"], []),
        (["--kerntune-update", "a/b.py"], ["--kerntune-update=all", "a/b.py"], ["a/b.py"]),
        (["--kerntune-update", "--sw"], ["--kerntune-update=all", "--sw"], ["--sw"]),
        (["--kerntune-update=new", "t"], ["--kerntune-update=new", "t"], ["t"]),
        ([], [], []),
    ],
)
def test_a_word_after_the_bare_update_is_its_mode_or_a_test(tmp_path, args, amended, left):
    (tmp_path / "there").mkdir()
    assert with_update(args, tmp_path) == amended
    assert needed_words(args, tmp_path) == left


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("-q -xvs -rA -n 2 -n4 --tb short --tb=short --maxfail=1 --junitxml=a.xml --quiet t.py", "t.py"),
        ("-p no:xdist -pno:cacheprovider -p kerntune -p mine -pours t.py", "-p mine -p ours t.py"),
        ("--kerntune --kerntune-target=H100 --out=a --out a -k fast -m slow --device cuda t.py::test_a",
         "--kerntune --kerntune-target=H100 -k fast -m slow --device cuda t.py::test_a"),
        ("--pyargs -c my.ini --lf -- -q", "--pyargs -c my.ini --lf -- -q"),
    ],
)  # fmt: skip
def test_what_another_run_of_the_same_tests_needs(tmp_path, command, needed):
    assert needed_words(command.split(), tmp_path, ["--out"]) == needed.split(" ")


def test_what_follows_two_dashes_is_no_option(tmp_path):
    args = ["-q", "--", "--kerntune-update", "new"]
    assert with_update(args, tmp_path) == args
