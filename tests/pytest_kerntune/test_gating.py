"""What is gated, and what verdicts do: in a marker and in the ini file."""

from __future__ import annotations

import pytest

from kerntune.base.policy import METRIC_TOLERANCES, Metrics, Outcome, Verdict
from kerntune.errors import UsageError
from kerntune.tuning.verification import Verify
from pytest_kerntune.values import VERIFY, parse_metrics, parse_outcomes

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
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
)
def test_metrics(value, found):
    assert parse_metrics(value, "here") == found


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("warps", "here: 'warps' is none of time, registers, spills, shared_memory, binary_size"),
        ("", "here: '' names no metrics; write some of time, registers"),
        (5, "here: 5 names no metrics"),
        ([["time"]], "here: .*is none of time"),
        ({"registers": "much"}, "here, registers: 'much' is no share"),
        ({"registers": -0.1}, "here, registers: -0.1 is no share"),
        ({"registers": False}, "here, registers: False is no share"),
        ({"time": 0.05}, "here: time is named alone or left out; its share is what tolerance= says"),
        ({"time": False}, "here: time is named alone or left out"),
    ],
)
def test_wrong_metrics(value, says):
    with pytest.raises(UsageError, match=says):
        parse_metrics(value, "here")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"DRIFTED": "fail"}, {Verdict.DRIFTED: Outcome.FAIL}),
        ("drifted=fail regressed=warn", {Verdict.DRIFTED: Outcome.FAIL, Verdict.REGRESSED: Outcome.WARN}),
        ({Verdict.IMPROVED: Outcome.WARN}, {Verdict.IMPROVED: Outcome.WARN}),
        ({"inconclusive": "pass", "INCOMPLETE": "fail"},
         {Verdict.INCONCLUSIVE: Outcome.PASS, Verdict.INCOMPLETE: Outcome.FAIL}),
        ({"STALE": "fail"}, {Verdict.STALE: Outcome.FAIL}),
    ],
)  # fmt: skip
def test_outcomes(value, found):
    assert parse_outcomes(value, "here") == found


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"SLOW": "fail"}, "here: 'SLOW' is none of IMPROVED, REGRESSED, DRIFTED, INCONCLUSIVE, INCOMPLETE"),
        ({"PASS": "fail"}, "here: 'PASS' is none of"),
        ({"NEW": "fail"}, "here: what NEW does is for missing="),
        ({"DRIFTED": "stop"}, "here, DRIFTED: 'stop' is none of pass, warn, fail"),
        ("drifted", "here, drifted: True is none of pass, warn, fail"),
        ({}, "here: {} maps no verdict"),
        (7, "here: 7 maps no verdict"),
    ],
)
def test_wrong_outcomes(value, says):
    with pytest.raises(UsageError, match=says):
        parse_outcomes(value, "here")


def test_a_marker_says_it_and_a_closer_one_overrides(project):
    project.file(
        """
@pytest.mark.autotune(metrics=("time", "spills"), outcomes={"DRIFTED": "fail", "REGRESSED": "warn"})
class TestIt:
    @pytest.mark.autotune(outcomes={"REGRESSED": "pass"}, anchor_tolerance="8%")
    def test_near(self, autotune):
        autotune(kernel("REGRESSED"))

    def test_far(self, autotune):
        autotune(kernel("REGRESSED"))

    def test_drifted(self, autotune):
        autotune(kernel("DRIFTED"))
"""
    )
    project.pytester.makeini("[pytest]\nkerntune_outcomes = improved=warn drifted=pass\nkerntune_metrics = registers\n")
    result = project.run()
    result.assert_outcomes(passed=2, failed=1, warnings=1)
    result.stdout.fnmatch_lines(["*KerntuneWarning: REGRESSED test_it.py::TestIt::test_far: scripted"])
    (near, far, _) = (line for line in project.log.splitlines() if line.startswith("judged "))
    assert "IMPROVED=warn" in near, "the ini file's, verdict by verdict"
    assert "metrics=Metrics(time=True, static={'spills': 0.0})" in near, "the marker's, as a whole"
    assert "anchor_tolerance=0.08" in near
    assert "anchor_tolerance=0.05" in far


def test_strict_on_the_command_line_rules_out_the_ini_file(project, one_test):
    project.file(one_test("INCONCLUSIVE"))
    project.pytester.makeini("[pytest]\nkerntune_outcomes = inconclusive=pass\n")
    project.run("-W", "error").assert_outcomes(passed=1)
    project.run("--kerntune-strict").assert_outcomes(failed=1)


def test_the_words_of_verify_are_the_engines():
    assert tuple(v.value for v in Verify) == VERIFY


# --kerntune-anchor


def test_the_folder_beside_the_baselines_is_the_anchor(project, one_test):
    project.file(one_test())
    project.run()
    assert "anchor" not in [line.split()[0] for line in project.log.splitlines()]
    (project.path / "anchors").mkdir()
    project.run()
    assert "anchor anchors at anchors" in project.log.splitlines()


def test_an_anchor_doubles_the_decisions(project, one_test):
    project.file(one_test())
    project.run("--kerntune-anchor=off")
    (project.path / "anchors").mkdir()
    project.run()
    cases = [line.partition("cases=")[2][0] for line in project.log.splitlines() if line.startswith("judged ")]
    assert cases == ["1", "2"]


@pytest.mark.parametrize(("text", "expected"), [("off", []), ("kept", ["anchor kept at kept"])])
def test_another_folder_or_none(project, one_test, text, expected):
    project.file(one_test())
    (project.path / "anchors").mkdir()
    (project.path / "kept").mkdir()
    project.pytester.makeini(f"[pytest]\nkerntune_anchor = {text}\n")
    project.run().assert_outcomes(passed=1)
    assert [line for line in project.log.splitlines() if line.startswith("anchor ")] == expected


def test_an_anchor_that_is_nothing(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-anchor=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--kerntune-anchor: nowhere is no folder (`kerntune anchor` makes it), and *"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_which_changes_of_results_fail_comes_from_the_marker_the_command_line_or_the_ini_file(project):
    project.file(
        """
@pytest.mark.autotune(numerics="ulp:2")
def test_marked(autotune):
    autotune(kernel())

def test_plain(autotune):
    autotune(kernel())
"""
    )
    project.pytester.makeini("[pytest]\nkerntune_numerics = rtol:1e-5\n")
    seen = []
    for words in ((), ("-o", "kerntune_numerics=bitwise")):
        project.run(*words).assert_outcomes(passed=2)
        judged = [line for line in project.log.splitlines() if line.startswith("judged ")]
        seen += [line.partition("numerics=")[2].partition(")")[0] for line in judged[-2:]]
    rules = [f"NumericsRule(kind='{kind}', limit={limit}" for kind, limit in
             (("ulp", 2.0), ("rtol", 1e-05), ("ulp", 2.0), ("bitwise", 0.0))]  # fmt: skip
    assert seen == rules
