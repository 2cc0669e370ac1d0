"""What static rules that warn have found is a pytest warning, one a case."""

from __future__ import annotations

import inner
import pytest
from inner import SAME_PROCESS, find_plugin

FOUND = """
FOUND = ("add: loads got narrower", "add: registers 32 -> 40", "add: instructions 88 -> 99")

@pytest.mark.parametrize("n", [1, 2])
def test_a(autotune, n):
    autotune(kernel("VERDICT", ns=None, base=None, findings=FOUND))
    autotune(kernel("VERDICT", ns=None, base=None, findings=FOUND[:1]), name="second")
    autotune(kernel("VERDICT", ns=None, base=None, remarks=("add: no more spills",)), name="better")
"""

ALL = "add: loads got narrower; add: registers 32 -> 40; add: instructions 88 -> 99"


def lines(result) -> list[str]:
    return [x.partition("KerntuneWarning: ")[2] for x in result.outlines if "KerntuneWarning: " in x]


@pytest.mark.parametrize("arguments", [[], ["-q"], pytest.param(["-n1"], marks=pytest.mark.slow)])
def test_a_warning_a_case_with_all_findings(project, arguments):
    project.file(FOUND.replace("VERDICT", "PASS"))
    result = project.run(*arguments)
    result.assert_outcomes(passed=2, warnings=4)
    assert sorted(lines(result)) == [
        f"PASS test_it.py::test_a[{n}]{call} (cuda:90): {found}"
        for n in (1, 2)
        for call, found in (("", ALL), ("::second", "add: loads got narrower"))
    ]


@pytest.mark.parametrize("how", ["option", "ini"])
def test_they_can_be_errors(project, how):
    project.file(FOUND.replace("VERDICT", "PASS"))
    if how == "ini":
        project.pytester.makeini("[pytest]\nfilterwarnings = error\n")
    options = ["-W", "error"] if how == "option" else []
    result = project.pytester.runpytest_inprocess(
        "-p", find_plugin(), *inner.QUIET, "--kerntune", *options, *SAME_PROCESS
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"PASS test_it.py::test_a[[]1[]] (cuda:90): {ALL}"])
    assert "commit" not in project.log


def test_a_refresh_accepts_them(project):
    project.file(FOUND.replace("VERDICT", "PASS"))
    result = project.run("--kerntune-update", "-W", "error::pytest_kerntune.warning.KerntuneWarning")
    result.assert_outcomes(passed=2, warnings=0)
    assert project.log.count("commit") == 6


def test_the_table_has_all_findings(project, monkeypatch):
    project.file(FOUND.replace("VERDICT", "PASS"))
    monkeypatch.setenv("COLUMNS", "200")
    result = project.run("-v")
    text = result.stdout.str().partition("= kerntune =")[2]
    for found in ("loads got narrower", "registers 32 -> 40", "instructions 88 -> 99", "no more spills"):
        assert text.count(found) >= 2, found


def test_a_failing_case_tells_what_its_message_lacks_itself(project):
    project.file(
        "def test_a(autotune):\n"
        "    autotune(kernel('REGRESSED', ns=None, base=None, findings=('add: scripted', 'scripted', 'add: wider')))\n"
    )
    result = project.run()
    result.assert_outcomes(failed=1, warnings=0)
    result.stdout.fnmatch_lines(
        ["REGRESSED test_it.py::test_a: scripted", "  also: add: scripted", "  also: add: wider"]
    )


def test_a_verdict_that_warns_has_its_findings_in_the_same_warning(project):
    project.file(
        "@pytest.mark.autotune(outcomes={'REGRESSED': 'warn'})\ndef test_a(autotune):\n"
        "    autotune(kernel('REGRESSED', ns=None, base=None, findings=('add: wider',)))\n"
    )
    result = project.run()
    result.assert_outcomes(passed=1, warnings=1)
    assert lines(result) == ["REGRESSED test_it.py::test_a: scripted; add: wider"]
