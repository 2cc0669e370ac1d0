"""Verdicts fall in the test's own call phase."""

from __future__ import annotations

import pytest
import triton  # noqa: F401 - can't be imported twice, and pytester forgets what the inner run imports

REGRESSED = "def test_add(autotune):\n    autotune(kernel('REGRESSED'))\n"
DRIFTED = REGRESSED.replace("REGRESSED", "DRIFTED")
CATEGORY = "error::pytest_kerntune.warning.KerntuneWarning"


def calls(*lines: str) -> str:
    """A test of these calls and statements."""
    return "\n    ".join(["def test_it(autotune):", *lines])


@pytest.mark.parametrize(
    ("source", "words", "outcomes", "shown"),
    [
        pytest.param(REGRESSED, "", {"failed": 1}, ["*FAILURES*", "REGRESSED *::test_add: scripted"], id="slow"),
        pytest.param(DRIFTED, "-W error", {"failed": 1}, ["DRIFTED test_it.py::test_add: scripted"], id="warning"),
        pytest.param(DRIFTED, f"-W {CATEGORY}", {"failed": 1}, ["DRIFTED *::test_add: scripted"], id="its category"),
        pytest.param("@pytest.mark.xfail(strict=True)\n" + REGRESSED, "", {"xfailed": 1}, [], id="expected"),
        pytest.param("@pytest.mark.skip\n@pytest.mark.autotune\n" + REGRESSED, "", {"skipped": 1}, [], id="skipped"),
        pytest.param(
            calls("autotune(kernel('DRIFTED'), name='a')", "autotune(kernel('REGRESSED'), name='b')"),
            "-W error",
            {"failed": 1},
            ["REGRESSED test_it.py::test_it::b: scripted", "DRIFTED *::a: scripted"],
            id="a warning hides no regression",
        ),
        pytest.param(
            calls("autotune(kernel('REGRESSED'))", "assert 1 == 2"),
            "",
            {"failed": 1},
            ["*assert 1 == 2", "*kerntune*", "REGRESSED test_it.py::test_it: scripted"],
            id="a failed body keeps its error",
        ),
        pytest.param(
            calls("autotune(kernel('REGRESSED'))", "pytest.skip('enough')"), "", {"failed": 1}, [], id="slow, skips"
        ),
        pytest.param(calls("autotune(kernel('PASS'))", "pytest.skip('enough')"), "", {"skipped": 1}, [], id="skips"),
        pytest.param(
            calls("autotune(kernel(), name='add')", "autotune(kernel(), name='add')"),
            "",
            {"failed": 1},
            ["test_it.py::test_it: two autotune calls are named 'add'*"],
            id="one name twice",
        ),
        pytest.param(
            calls("autotune(failing(ValueError, 'mine'))"),
            "",
            {"failed": 1},
            ["*scripted.py:*: ValueError*"],
            id="the user's error",
        ),
        pytest.param(
            calls("autotune(kernel('NEW', rung='read-only'))"),
            "",
            {"failed": 1},
            ["baselines: can't be written (Permission denied)*"],
            id="no place for the baseline",
        ),
    ],
)
def test_how_a_test_ends(project, source, words, outcomes, shown):
    project.file(source)
    result = project.run(*words.split())
    result.assert_outcomes(**outcomes)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if "failed" in outcomes else pytest.ExitCode.OK)
    result.stdout.fnmatch_lines(shown)
    for ours in ("Traceback", "fixture.py", "conclude.py"):
        result.stdout.no_fnmatch_line(f"*{ours}*")


def test_engine_errors_fail_cleanly_and_name_the_test(project):
    project.file("def test_a(autotune):\n    autotune(failing())\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_a: no config is left for kernel add"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*scripted.py*")


@pytest.mark.parametrize(
    ("marker", "lines", "outcomes", "checked", "shown"),
    [
        (
            "",
            ["kernel('REGRESSED'), name='a'", "kernel('PASS'), name='b'", "kernel('REGRESSED'), name='c'"],
            {"failed": 1},
            ["a", "b", "c"],
            ["REGRESSED *::a: scripted", "REGRESSED *::c: scripted"],
        ),
        ("", ["kernel(), name='add'", "kernel()", "kernel()"], {"passed": 1}, ["add", "0", "1"], []),
        ("name='forward'", ["kernel()"], {"passed": 1}, ["forward"], []),
        (
            "",
            ["kernel(), 5, reference=lambda: 7, name='first'", "kernel(), 5, name='second'"],
            {"failed": 1},
            ["first"],
            ["test_it.py::test_it: 5 is not 7, off by 2*"],
        ),
    ],
    ids=["all before it fails once", "unnamed ones are counted", "the marker's name", "a wrong result fails at once"],
)
def test_calls_in_order(project, marker, lines, outcomes, checked, shown):
    source = calls(*(f"autotune({line})" for line in lines))
    project.file(f"@pytest.mark.autotune({marker})\n{source}\n")
    result = project.run()
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(shown)
    assert [line.split()[2] for line in project.log.splitlines() if line.startswith("check ")] == checked


def test_marked_test_that_never_calls_fails(project):
    project.file(
        "@pytest.mark.autotune\ndef test_idle(autotune):\n    pass\n\ndef test_unmarked(autotune):\n    pass\n"
    )
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["INCOMPLETE test_it.py::test_idle: *never called the autotune fixture*"])
    assert project.json()["counts"] == {"INCOMPLETE": 1}


def test_baselines_are_written_when_the_test_has_passed(project):
    project.file(
        """
def test_passes(autotune):
    autotune(kernel("NEW", rung="written"))

def test_asserts(autotune):
    autotune(kernel("NEW", rung="written"))
    assert 1 == 2

def test_regresses(autotune):
    autotune(kernel("NEW", rung="written"), name="a")
    autotune(kernel("REGRESSED"), name="b")
"""
    )
    project.run("--kerntune-json=run.json").assert_outcomes(passed=1, failed=2)
    assert [x for x in project.log.splitlines() if x.startswith("commit")] == ["commit test_it.py::test_passes"]
    assert [r.get("recorded", False) for r in project.json()["results"]] == [True, False, False, False]
