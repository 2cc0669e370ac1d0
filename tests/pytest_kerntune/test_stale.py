"""Baselines whose case is gone are listed, and only when the run could know."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kerntune.selection import covers

pytest_plugins = ["pytester"]

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
        (["test_it.py"], False),
        (["test_it.py::test_a"], False),
        (["--deselect", "test_it.py::test_a"], False),
        (["--ignore", "sub"], False),
        (["-x"], True),
    ],
)
def test_only_a_whole_run_knows(project, arguments, whole):
    project.file(SOURCE)
    project.run(*arguments)
    assert told(project) == f"selected_all={whole}"


def test_stopped_run_is_not_whole(project):
    project.file("def test_0(): assert False\n" + SOURCE)
    project.run("-x")
    assert told(project) == "selected_all=False"


@pytest.mark.parametrize("source", ["raise ValueError", "pytest.skip('no', allow_module_level=True)"])
@pytest.mark.parametrize("arguments", [[], ["-n2"]])
def test_cases_of_a_file_that_was_not_read_are_not_gone(project, monkeypatch, source_environ, source, arguments):
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    project.engine(stale=["test_shut.py::test_a!0", "test_old.py::test_gone!0"])
    project.file(SOURCE)
    project.file(source, "test_shut")
    result = project.run("--continue-on-collection-errors", *arguments)
    result.stdout.fnmatch_lines(["STALE test_old.py::test_gone: *", "2 PASS, 1 STALE"])


def test_arguments_that_cover_testpaths_are_whole(project):
    project.pytester.makeini("[pytest]\ntestpaths = here\n")
    (project.path / "here").mkdir()
    (project.path / "here" / "test_here.py").write_text("def test_a(): pass\n")
    (project.path / "there").mkdir()
    project.run("here")
    assert told(project) == "selected_all=True"
    (project.path / "engine.log").unlink()
    project.run("here/test_here.py")
    assert told(project) == "selected_all=False"


parts = st.lists(st.sampled_from("ab"), max_size=3)


@given(parts, parts)
def test_covers_is_being_a_parent(a, b):
    given_path, wanted = Path("/", *a), Path("/", *b)
    assert covers([given_path], [wanted]) == (b[: len(a)] == a)
    assert not covers([], [wanted])
    assert covers(None, [wanted])
