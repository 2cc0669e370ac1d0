"""Values that people write."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.policy import METRIC_TOLERANCES, STATIC_RULES, Outcome, StaticRule, Verdict
from kerntune.errors import UsageError
from pytest_kerntune.values import (
    MODES,
    member_of,
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
    without_update,
)


@pytest.mark.parametrize(
    ("value", "share"), [(0.02, 0.02), ("0.02", 0.02), ("2%", 0.02), (" 2.5 % ", 0.025), ("1e-3", 1e-3)]
)
def test_tolerance(value, share):
    assert parse_tolerance(value, "here") == pytest.approx(share)


@pytest.mark.parametrize(
    "value", [0, 1, 2, -0.1, "2", "", "two", "200%", True, None, float("nan"), float("inf"), [0.1]]
)
def test_no_tolerance(value):
    with pytest.raises(UsageError, match=r"^here: .* is no tolerance; .*2%"):
        parse_tolerance(value, "here")


@pytest.mark.parametrize(
    ("value", "ns"),
    [(500, 500), (0, 0), ("500", 500), ("500ns", 500), ("0.5us", 500), ("0.5 µs", 500), ("1ms", 1e6), ("2s", 2e9)],
)
def test_floor(value, ns):
    assert parse_floor(value, "here") == pytest.approx(ns)


@pytest.mark.parametrize("value", [-1, "-1us", "", "fast", "5 minutes", True, None, float("nan"), "inf"])
def test_no_floor(value):
    with pytest.raises(UsageError, match=r"^here: .* is no time"):
        parse_floor(value, "here")


@given(st.floats(min_value=0, max_value=1e12), st.sampled_from(["ns", "us", "µs", "ms", "s"]))
def test_floor_reads_any_number_with_a_unit(number, unit):
    scale = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert parse_floor(f"{number}{unit}", "here") == pytest.approx(number * scale)


def test_choice_names_the_choices():
    assert parse_choice("op", ("kernels", "op"), "here") == "op"
    for wrong in ("all", 5, None):
        with pytest.raises(UsageError, match="is none of kernels, op"):
            parse_choice(wrong, ("kernels", "op"), "here")


def test_switch_takes_truth_values_only():
    assert parse_switch(True, "here") is True
    for wrong in (1, "yes", None):
        with pytest.raises(UsageError, match="neither True nor False"):
            parse_switch(wrong, "here")


def test_name_has_no_separator():
    assert parse_name("forward", "here") == "forward"
    for wrong in ("", "  ", "a::b", "a\nb", 5):
        with pytest.raises(UsageError, match="is no name"):
            parse_name(wrong, "here")


class Tensor:
    """What torch's tensors are known by."""

    untyped_storage = None


def test_kernel_values_are_sorted_by_kernel():
    x, y, z = Tensor(), Tensor(), Tensor()
    given = {"route.counts": x, "route.ends": y, "sort.at": z}
    assert parse_kernel_values(given, "values") == {"route": {"counts": x, "ends": y}, "sort": {"at": z}}
    assert parse_kernel_values({}, "values") == {}


@pytest.mark.parametrize(
    "value", [Tensor(), {"counts": Tensor()}, {"a.b.c": Tensor()}, {1: Tensor()}, [("a.b", Tensor())], {"a.": Tensor()}]
)
def test_no_kernel_values(value):
    with pytest.raises(UsageError, match=r"^values: .* is no mapping from arguments .*lambda: fn\(values"):
        parse_kernel_values(value, "values")


def test_kernel_values_are_tensors():
    with pytest.raises(UsageError, match=r"^values: route.counts: a list is no tensor"):
        parse_kernel_values({"route.counts": [1, 2]}, "values")


@pytest.mark.parametrize(("value", "share"), [(0, 0.0), ("0", 0.0), (0.1, 0.1), ("10%", 0.1), (5, 5.0), ("250%", 2.5)])
def test_share(value, share):
    assert parse_share(value, "here") == pytest.approx(share)


@pytest.mark.parametrize("value", [-0.1, "-1%", "", "%", "x%", True, None, float("nan")])
def test_no_share_names_what_may_stand_in_its_place(value):
    with pytest.raises(UsageError, match=rf"^here: {re.escape(repr(value))} is no share; write 0.1 or 10%$"):
        parse_share(value, "here")
    with pytest.raises(UsageError, match=r"is no share; write 0.1, 10%, fail or off$"):
        parse_share(value, "here", ("fail", "off"))


@pytest.mark.parametrize("text", ["0", "1.5", "60", repr(threading.TIMEOUT_MAX)])
def test_limit(text):
    assert parse_limit(text, "here") == float(text)


@pytest.mark.parametrize("text", ["-1", "", "soon", "inf", repr(threading.TIMEOUT_MAX * 2)])
def test_no_limit(text):
    with pytest.raises(UsageError, match=rf"^here is {re.escape(repr(text))}; give seconds, 0 for no limit$"):
        parse_limit(text, "here")


@pytest.mark.parametrize(
    ("text", "targets"),
    [("cuda:90", ("cuda:90",)), (" cuda:90,, cuda:80,cuda:90", ("cuda:90", "cuda:80")), ("", ()), (" , ", ())],
)
def test_targets_are_listed_once(text, targets):
    assert parse_targets(text, "here") == targets


def test_no_target_names_the_place():
    with pytest.raises(UsageError, match=r"^here: "):
        parse_targets("cuda:90,tpu", "here")


@pytest.mark.parametrize(
    ("value", "names"),
    [("x, k.y  z", ("x", "k.y", "z")), (["x", "k._y1"], ("x", "k._y1")), ((), ()), ("", ())],
)
def test_names(value, names):
    assert parse_names(value, "here") == names


@pytest.mark.parametrize("value", ["1x", "a.b.c", ["x y"], [1], 5, None, {"x"}])
def test_no_names(value):
    with pytest.raises(UsageError, match=r"^here: .* is no list of arguments; write names, or kernel.name$"):
        parse_names(value, "here")


def test_members_are_themselves_or_their_words():
    parse, some = member_of(Outcome), member_of(Outcome, (Outcome.FAIL, Outcome.WARN))
    assert [parse(x, "here") for x in ("fail", Outcome.WARN)] == [Outcome.FAIL, Outcome.WARN]
    assert some("warn", "here") is Outcome.WARN
    with pytest.raises(UsageError, match=r"^here: 'pass' is none of fail, warn$"):
        some(Outcome.PASS, "here")
    assert one_of(("a", "b"))("b", "here") == "b"
    with pytest.raises(UsageError, match=r"^here: 'c' is none of a, b$"):
        one_of(("a", "b"))("c", "here")


SPILLS, REGISTERS = METRIC_TOLERANCES["spills"], METRIC_TOLERANCES["registers"]


@pytest.mark.parametrize(
    ("value", "time", "static"),
    [
        (("time", "spills"), True, {"spills": SPILLS}),
        ("registers=10%, spills", False, {"registers": 0.1, "spills": SPILLS}),
        ({"time": True, "registers": 0.25}, True, {"registers": 0.25}),
        ("time", True, {}),
        ({"registers": True}, False, {"registers": REGISTERS}),
    ],
)
def test_metrics(value, time, static):
    found = parse_metrics(value, "here")
    assert (found.time, dict(found.static)) == (time, static)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", r"^here: '' names no metrics; write some of time, "),
        (5, r"^here: 5 names no metrics"),
        ("speed", r"^here: 'speed' is none of time, "),
        ("time=0.1", r"^here: time is named alone or left out; its share is what tolerance= says$"),
        ({"time": False}, r"^here: time is named alone"),
        ("registers=much", r"^here, registers: 'much' is no share"),
        ([5], r"^here: '5' is none of"),
    ],
)
def test_no_metrics(value, says):
    with pytest.raises(UsageError, match=says):
        parse_metrics(value, "here")


@pytest.mark.parametrize("value", ["drifted=fail regressed=warn", {"DRIFTED": "fail", Verdict.REGRESSED: Outcome.WARN}])
def test_outcomes(value):
    assert parse_outcomes(value, "here") == {Verdict.DRIFTED: Outcome.FAIL, Verdict.REGRESSED: Outcome.WARN}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, r"^here: {} maps no verdict; write for example {'DRIFTED': 'fail'}$"),
        ("new=fail", r"^here: what NEW does is for missing= \(--kerntune-missing\) to say$"),
        ("quick=fail", r"^here: 'quick' is none of "),
        ("drifted=maybe", r"^here, drifted: 'maybe' is none of "),
        ("drifted", r"^here, drifted: True is none of "),
    ],
)
def test_no_outcomes(value, says):
    with pytest.raises(UsageError, match=says):
        parse_outcomes(value, "here")


def test_all_errors_of_outcomes_are_told_at_once():
    with pytest.raises(UsageError) as info:
        parse_outcomes({"DRIFTE": "fail", "PASS": "maybe", "NEW": "warn"}, "here")
    lines = str(info.value).splitlines()
    assert [line.partition(" is none of")[0].partition(": ")[2] for line in lines[:2]] == ["'DRIFTE'", "'PASS'"]
    assert lines[0].endswith("did you mean DRIFTED?")
    assert [line.partition(":")[0] for line in lines] == ["here", "here", "here", "here, PASS"]


@pytest.mark.parametrize(
    ("value", "severity", "threshold"),
    [
        ("warn", "warn", STATIC_RULES["registers"].threshold),
        (0.1, "fail", 0.1),
        ("warn:20%", "warn", 0.2),
        ("20%:off", "off", 0.2),
        (("off", 0.3), "off", 0.3),
        (["fail"], "fail", STATIC_RULES["registers"].threshold),
    ],
)
def test_static_rule(value, severity, threshold):
    policy = parse_static({"registers": value}, "here")
    assert (policy.rules["registers"], policy.every_config) == (StaticRule(severity, threshold), None)


@pytest.mark.parametrize(
    ("value", "every"), [("all", True), ({"all": False}, False), ("spills=warn", None), ({}, None)]
)
def test_every_config_is_a_word_among_the_rules(value, every):
    found = parse_static(value, "here")
    assert (found.every_config, "all" in found.rules) == (every, False)


UNSHARED = next(name for name, rule in STATIC_RULES.items() if rule.threshold is None)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (5, r"^here: 5 is no rules; write for example {'spills': 'warn', 'registers': 0.1}$"),
        ("speed=warn", r"^here: there is no rule 'speed'; there are .*, and all$"),
        ("all=yes", r"^here, all: 'yes' is neither True nor False$"),
        ({"registers": ()}, r"^here, registers: \(\) is no rule; write one of fail, warn, off, a share, or both$"),
        ("registers=warn:off", r"^here, registers: 'warn:off' is no rule"),
        ("registers=warn:warn", r"^here, registers: 'warn:warn' is no rule"),
        ("registers=0.1:0.2", r"^here, registers: '0.1:0.2' is no rule"),
        ("registers=much", r"^here, registers: 'much' is no share; write 0.1, 10%, fail, warn or off$"),
        ({UNSHARED: 0.1}, rf"^here, {UNSHARED}: {UNSHARED} has no share that may change, any change counts; write "),
    ],
)
def test_no_static_rules(value, says):
    with pytest.raises(UsageError, match=says):
        parse_static(value, "here")


def test_update_is_one_of_its_modes():
    assert [parse_update(mode, "here").value for mode in MODES] == list(MODES)
    for wrong in ("none", "", "every"):
        with pytest.raises(UsageError, match=r"is none of .*; the flag alone means all, a path may follow it$"):
            parse_update(wrong, "here")


@pytest.mark.parametrize(
    ("args", "amended", "left"),
    [
        (["-q", "--kerntune-update"], ["-q", "--kerntune-update=all"], ["-q"]),
        (["--kerntune-update", "new", "t.py"], ["--kerntune-update=new", "t.py"], ["t.py"]),
        (["--kerntune-update", "there"], ["--kerntune-update=all", "there"], ["there"]),
        (["--kerntune-update", "mistake"], ["--kerntune-update=mistake"], []),
        (["--kerntune-update", "a/b.py"], ["--kerntune-update=all", "a/b.py"], ["a/b.py"]),
        (["--kerntune-update", "-q"], ["--kerntune-update=all", "-q"], ["-q"]),
        (["--kerntune-update=new", "t"], ["--kerntune-update=new", "t"], ["t"]),
        ([], [], []),
    ],
)
def test_a_word_after_the_bare_update_is_its_mode_or_a_test(tmp_path, args, amended, left):
    (tmp_path / "there").mkdir()
    assert with_update(args, tmp_path) == amended
    assert without_update(args, tmp_path) == left


def test_what_follows_two_dashes_is_no_option(tmp_path):
    args = ["-q", "--", "--kerntune-update", "new"]
    assert with_update(args, tmp_path) == args
