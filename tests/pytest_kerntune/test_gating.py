"""What is gated, and what verdicts do: in a marker and in the ini file."""

from __future__ import annotations

import pytest
from inner import usage_error

from kerntune.tuning.verification import Verify
from pytest_kerntune.values import VERIFY


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


def test_static_rules_of_the_marker_go_before_the_ini_keys(project):
    project.pytester.makeini("[pytest]\nkerntune_static = registers=0.3 fp64=warn all\n")
    project.file(
        """
pytestmark = pytest.mark.autotune(static={"registers": 0.2, "tma": "fail"})

@pytest.mark.autotune(static={"tma": "off"})
def test_a(autotune):
    static = autotune.marker.over(autotune._defaults).static
    assert static.rule("registers").threshold == 0.2
    assert static.rule("fp64").severity == "warn"
    assert static.rule("tma").severity == "off"
    assert static.every_config is True
    autotune(kernel())
"""
    )
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("where", ["ini", "marker"])
def test_a_wrong_static_rule_is_a_usage_error(project, one_test, where):
    if where == "ini":
        project.pytester.makeini("[pytest]\nkerntune_static = spill=warn\n")
    project.file(one_test(marker="static={'spill': 'warn'}" if where == "marker" else ""))
    usage_error(project.run(), "*there is no rule 'spill'; there are limits*")


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
    usage_error(
        project.run("--kerntune-anchor=nowhere"),
        "*--kerntune-anchor: nowhere is no folder (`kerntune anchor` makes it), and *",
    )


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
