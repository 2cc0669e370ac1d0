"""Runs that another run starts: they select as it does, and leave pytest's cache and the keyboard to it."""

from __future__ import annotations

import json

import pytest

TESTS = """
import os
import pytest

@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_it(name):
    assert name not in os.environ["FAILING"]
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """``run(*args, failing="b")``: the names of the tests that ran, and the exit code."""
    pytester.makepyfile(test_it=TESTS)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*args, failing=""):
        monkeypatch.setenv("FAILING", failing)
        result = pytester.runpytest_inprocess("-rA", "-p", "no:kerntune", *args)
        lines = [x for x in result.outlines if x.startswith(("PASSED test_it", "FAILED test_it"))]
        return sorted(line.split("[")[1][0] for line in lines), result.ret

    def remembered(name):
        path = pytester.path / ".pytest_cache" / "v" / "cache" / name
        return json.loads(path.read_text()) if path.exists() else None

    run.remembered, run.ini = remembered, pytester.makeini
    return run


UNATTENDED = ("-p", "pytest_kerntune.unattended")


@pytest.mark.parametrize("more", [(), pytest.param(("-n1",), marks=pytest.mark.slow)], ids=["one process", "xdist"])
@pytest.mark.parametrize("option", ["--lf", "--last-failed"])
def test_failed_ones_are_selected_and_stay_failed(run, more, option):
    if more:
        pytest.importorskip("xdist")
    run(failing="b")
    run.ini(f"[pytest]\naddopts = {option}\n")
    before = run.remembered("lastfailed")
    assert run(*UNATTENDED, *more) == (["b"], 0)
    assert run.remembered("lastfailed") == before == {"test_it.py::test_it[b]": True}
    assert run(*more) == (["b"], 0), "what the other run selects then"


@pytest.mark.parametrize("more", [(), pytest.param(("-n1",), marks=pytest.mark.slow)], ids=["one process", "xdist"])
def test_steps_are_selected_and_not_taken(run, more):
    if more:
        pytest.importorskip("xdist")
    assert run("--sw", failing="bc")[0] == ["a", "b"]
    before = run.remembered("stepwise")
    assert run(*UNATTENDED, "--sw-skip", *more, failing="bc") == (["b", "c"], pytest.ExitCode.TESTS_FAILED)
    assert run(*UNATTENDED, "--sw", *more, failing="bc") == (["b", "c"], pytest.ExitCode.TESTS_FAILED)
    assert run.remembered("stepwise") == before


def test_new_tests_stay_new(run):
    assert run(*UNATTENDED, "--nf") == (["a", "b", "c"], 0)
    assert run.remembered("nodeids") is None


@pytest.mark.parametrize("option", ["--pdb", "--trace"])
def test_nobody_is_asked(run, option):
    assert run(*UNATTENDED, option, failing="b") == (["a", "b", "c"], pytest.ExitCode.TESTS_FAILED)
