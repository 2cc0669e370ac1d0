"""``--kerntune-json``."""

from __future__ import annotations

import pytest
from inner import usage_error

from kerntune.base.policy import Verdict
from kerntune.gate.report import read_run

SOURCE = """
@pytest.mark.autotune
def test_slow(autotune):
    autotune(kernel("REGRESSED"))
    autotune(kernel("PASS"), name="second")

def test_new(autotune):
    autotune(kernel("NEW", base=None, rung="written"))
"""


def test_holds_everything(project):
    project.file(SOURCE)
    result = project.run("--kerntune-json=out/run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    run = read_run(project.path / "out" / "run.json")
    assert [(str(r.case), r.verdict) for r in run.results] == [
        ("test_it.py::test_slow", Verdict.REGRESSED),
        ("test_it.py::test_slow::second", Verdict.PASS),
        ("test_it.py::test_new", Verdict.NEW),
    ]
    assert run.results[0].change.point == pytest.approx(0.121, abs=1e-3)
    assert run.counts == {"PASS": 1, "REGRESSED": 1, "NEW": 1}
    assert run.exit_status == 1
    assert run.header[0] == "scripted device, Triton 3.9"
    assert run.versions["pytest"] == pytest.__version__
    assert run.created.endswith("+00:00")


def test_infinite_figures_survive(project):
    project.file("def test_a(autotune):\n    autotune(kernel('INCONCLUSIVE', high=float('inf')))\n")
    project.run("--kerntune-json=run.json").assert_outcomes(passed=1, warnings=1)
    assert read_run(project.path / "run.json").results[0].change.high > 1e300


def test_addopts_may_name_it(project):
    project.file(SOURCE)
    project.pytester.makeini("[pytest]\naddopts = --kerntune-json=from_ini.json\n")
    project.run()
    assert project.json("from_ini.json")["schema"] == "kerntune.run/1"


def test_is_written_when_nothing_was_checked(project):
    project.file("def test_a(): pass\n")
    project.run("--kerntune-json=run.json").assert_outcomes(passed=1)
    assert project.json()["results"] == []


def test_unwritable_file_is_shown_and_fails_the_run(project):
    project.file("def test_a(autotune):\n    autotune(kernel())\n")
    (project.path / "file").write_text("")
    result = project.run("--kerntune-json=file/run.json", "--kerntune-summary=summary.md")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 PASS", "ERROR: *file/run.json: can't be written (*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "test_it.py::test_a" in (project.path / "summary.md").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kerntune-json=."], "--kerntune-json: * is a folder; name a file"),
        (
            ["--kerntune-json=a.json", "--kerntune-summary=./a.json"],
            "--kerntune-json and --kerntune-summary both name *",
        ),
    ],
)
def test_what_can_not_be_an_output_is_refused_before_anything_runs(project, options, said):
    project.file(SOURCE)
    usage_error(project.run(*options), f"ERROR: {said}")
    assert project.log == ""
