"""Baselines whose case is gone are listed, and only when the run could know."""

from __future__ import annotations

import pytest

SOURCE = """
def test_a(autotune):
    autotune(kernel())

def test_b(autotune):
    autotune(kernel())
"""


def told(project) -> str:
    return next(line for line in project.log.splitlines() if line.startswith("stale ")).split()[1]


def test_stale_baselines_are_listed(project):
    project.engine(stale=["test_old.py::test_gone!0"])
    project.file(SOURCE)
    result = project.run("--kerntune-json=run.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["STALE test_old.py::test_gone: no such case", "2 PASS, 1 STALE", "1 stale baseline; to remove: *prune"]
    )
    assert project.json()["counts"] == {"PASS": 2, "STALE": 1}
    assert "ran=['test_it.py::test_a', 'test_it.py::test_b']" in project.log


def test_calls_of_a_test_that_did_not_finish_are_not_gone(project):
    project.engine(stale=["test_it.py::test_fails!second", "test_it.py::test_skips!0", "test_it.py::test_ends!second"])
    project.file(
        """
def test_fails(autotune):
    autotune(kernel())
    assert False

@pytest.mark.skip
def test_skips(autotune): pass

def test_ends(autotune):
    autotune(kernel("REGRESSED"))
"""
    )
    result = project.run()
    result.stdout.no_fnmatch_line("STALE *::second*fails*")
    result.stdout.fnmatch_lines(["STALE test_it.py::test_ends::second: no such case", "*1 STALE*"])


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ([], True),
        (["."], True),
        (["-k", "test_"], False),
        (["-m", "not slow"], False),
        (["-p", "cacheprovider", "--lf"], False),
        (["--deselect", "test_it.py::test_a"], False),
        (["--ignore", "sub"], False),
        (["-x"], True),
    ],
)
def test_narrowed_run_does_not_know(project, arguments, whole):
    project.file(SOURCE)
    project.run(*arguments)
    assert told(project) == f"selected_all={whole}"


@pytest.mark.parametrize("source", ["raise ValueError", "pytest.skip('no', allow_module_level=True)"])
@pytest.mark.parametrize("arguments", [[], pytest.param(["-n2"], marks=pytest.mark.slow)])
def test_cases_of_a_file_that_was_not_read_are_not_gone(project, monkeypatch, source_environ, source, arguments):
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    project.engine(stale=["test_shut.py::test_a!0", "test_old.py::test_gone!0"])
    project.file(SOURCE)
    project.file(source, "test_shut")
    result = project.run("--continue-on-collection-errors", *arguments)
    result.stdout.fnmatch_lines(["STALE test_old.py::test_gone: *", "2 PASS, 1 STALE"])


@pytest.mark.parametrize("option", ["--fixtures", "--fixtures-per-test", "--setup-plan", "--collect-only"])
def test_a_run_that_only_shows_something_knows_nothing(project, option):
    """pytest runs no test then, and some of these options have it collect none that is reported."""
    project.file(SOURCE)
    ran = project.run(option)
    assert ran.ret == 0
    ran.stdout.no_fnmatch_line("*STALE*")
    ran.stdout.no_fnmatch_line("*= kerntune =*")


def test_stale_baselines_can_fail_the_run(project):
    project.engine(stale=["test_old.py::test_gone!0"])
    project.file(SOURCE)
    result = project.run("-o", "kerntune_outcomes=stale=fail", "--kerntune-json=run.json")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["STALE test_old.py::test_gone: no such case", "*STALE baselines fail this run (1)*"])
    assert project.json()["counts"] == {"PASS": 2, "STALE": 1}


@pytest.mark.parametrize("options", [(), pytest.param(("-n1",), marks=pytest.mark.slow)])
def test_a_test_says_what_its_own_stale_calls_do(project, options):
    project.engine(stale=["test_it.py::test_a!second", "test_it.py::test_b!second"])
    project.file('@pytest.mark.autotune(outcomes={"STALE": "fail"})' + SOURCE)
    assert project.run(*options).ret == 1
    project.file('@pytest.mark.autotune(outcomes={"STALE": "pass"})' + SOURCE)
    assert project.run(*options).ret == 0
