"""Baselines whose case is gone are listed, and only when the run could know."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kerntune.run_conditions import within

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


CALL_GONE = "its test ran, but not with this call, shape, dtype or stride"


@pytest.mark.parametrize(
    ("why", "arguments", "told"),
    [
        ("its test is gone", (), "kerntune baselines prune"),
        (
            CALL_GONE,
            ("--kerntune-update=all",),
            "pytest * --kerntune-json=run.json, then kerntune baselines prune --stale-from run.json",
        ),
        (CALL_GONE, ("--kerntune-json=out/a.json",), "kerntune baselines prune --stale-from out/a.json"),
        (CALL_GONE, ("-o", "addopts=--kerntune-json=a.json"), "kerntune baselines prune --stale-from a.json"),
    ],
)
def test_the_command_that_is_named_removes_them(project, why, arguments, told):
    """Nothing but a run shows what a test doesn't call any more."""
    project.engine(stale=["test_it.py::test_b!second"], stale_because=why)
    project.file(SOURCE)
    result = project.run(*arguments)
    (line,) = [x for x in result.outlines if "to remove" in x]
    assert fnmatch(line, f"1 stale baseline; to remove: {told}")
    assert "--kerntune-update" not in line


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


@pytest.mark.parametrize(
    ("arguments", "gone"),
    [
        ([], True), (["-k", "test_a"], True), (["test_it.py::test_a"], True), (["-p", "cacheprovider", "--lf"], False),
        (["test_there.py"], False),
    ],
)  # fmt: skip
def test_a_test_that_its_file_has_no_more_is_gone_whatever_of_the_file_runs(project, arguments, gone):
    """Else its baseline isn't found by the name that it has now, and slower code would be recorded as new."""
    project.engine(stale=["test_it.py::test_gone!0", "test_it.py::test_b!0"])
    project.file(SOURCE)
    project.file("def test_there(): pass\n", "test_there")
    project.run(*arguments)
    assert [line for line in project.log.splitlines() if line.startswith("gone")] == [
        f"gone {'test_it.py::test_gone' if gone else ''}"
    ]


def test_stopped_run_is_not_whole(project):
    project.file("def test_0(): assert False\n" + SOURCE)
    project.run("-x")
    assert told(project) == "selected_all=False"


@pytest.mark.parametrize("source", ["raise ValueError", "pytest.skip('no', allow_module_level=True)"])
@pytest.mark.parametrize("arguments", [[], pytest.param(["-n2"], marks=pytest.mark.slow)])
def test_cases_of_a_file_that_was_not_read_are_not_gone(project, monkeypatch, source_environ, source, arguments):
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    project.engine(stale=["test_shut.py::test_a!0", "test_old.py::test_gone!0"])
    project.file(SOURCE)
    project.file(source, "test_shut")
    result = project.run("--continue-on-collection-errors", *arguments)
    result.stdout.fnmatch_lines(["STALE test_old.py::test_gone: *", "2 PASS, 1 STALE"])


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [([], "here"), (["here"], "here"), (["there"], "there"), (["."], "here there"), (["here/test_here.py"], "here")],
)
def test_only_paths_that_were_read_are_judged(project, arguments, listed):
    project.engine(stale=["here/test_here.py::test_gone!0", "there/test_there.py::test_gone!0"])
    project.pytester.makeini("[pytest]\ntestpaths = here\n")
    for name in ("here", "there"):
        (project.path / name).mkdir()
        (project.path / name / f"test_{name}.py").write_text("def test_a(): pass\n")
    result = project.run(*arguments)
    found = [line.split("/")[0].removeprefix("STALE ") for line in result.outlines if line.startswith("STALE")]
    assert found == listed.split()


@pytest.mark.parametrize("option", ["--fixtures", "--fixtures-per-test", "--setup-plan", "--collect-only"])
def test_a_run_that_only_shows_something_knows_nothing(project, option):
    """pytest runs no test then, and some of these options have it collect none that is reported."""
    project.file(SOURCE)
    ran = project.run(option)
    assert ran.ret == 0
    ran.stdout.no_fnmatch_line("*STALE*")
    ran.stdout.no_fnmatch_line("*= kerntune =*")


def test_single_test_judges_its_own_calls_only(project):
    project.engine(stale=["test_it.py::test_a!second", "test_it.py::test_b!0"])
    project.file(SOURCE)
    result = project.run("test_it.py::test_a")
    result.stdout.fnmatch_lines(["STALE test_it.py::test_a::second: no such case", "1 PASS, 1 STALE"])


parts = st.lists(st.sampled_from("ab"), max_size=3)


@given(parts, parts)
def test_within_is_being_a_parent(a, b):
    assert within(Path("/", *b), [Path("/", *a)]) == (b[: len(a)] == a)
    assert not within(Path("/", *b), [])


def test_a_baseline_that_can_not_be_read_is_told_once_and_is_not_stale(project, one_test):
    project.engine(unreadable={"/baselines/a.json": "the file may be cut off"})
    project.file(one_test())
    result = project.run("--kerntune-json=run.json")
    assert result.ret == 0
    assert [x for x in result.outlines if "a.json" in x] == ["/baselines/a.json: the file may be cut off"]
    result.stdout.no_fnmatch_line("*STALE*")
    assert project.json()["counts"] == {"PASS": 1}


def test_one_that_has_failed_its_test_is_not_told_again(project):
    project.engine(unreadable={"/baselines/a.json": "the file may be cut off"})
    project.file("def test_a(autotune): raise ValueError('/baselines/a.json: the file may be cut off')\n")
    result = project.run()
    result.stdout.no_fnmatch_line("/baselines/a.json: *")


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
