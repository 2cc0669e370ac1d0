"""``--kerntune-update``."""

from __future__ import annotations

import pytest
from inner import usage_error


@pytest.mark.parametrize(
    ("arguments", "update"),
    [
        ([], "none"),
        (["--kerntune-update"], "all"),
        (["--kerntune-update=all"], "all"),
        (["--kerntune-update=new"], "new"),
        (["--kerntune-update=improved"], "improved"),
    ],
)
def test_what_the_engine_is_told(project, one_test, arguments, update):
    project.file(one_test())
    project.run(*arguments).assert_outcomes(passed=1)
    assert f"update={update} " in project.log


def test_the_command_line_goes_before_addopts(project, one_test):
    project.file(one_test())
    project.pytester.makeini("[pytest]\naddopts = --kerntune-update=new\n")
    project.run().assert_outcomes(passed=1)
    project.run("--kerntune-update=improved").assert_outcomes(passed=1)
    assert [line.split("update=")[1].split()[0] for line in project.log.splitlines() if "update=" in line] == [
        "new",
        "improved",
    ]


@pytest.mark.parametrize(
    ("arguments", "update"),
    [
        (["--kerntune-update", "test_it.py"], "all"),
        (["--kerntune-update", "test_it.py::test_add"], "all"),
        (["--kerntune-update", "./"], "all"),
        (["--kerntune-update", "tests"], "all"),
        (["--kerntune-update", "new", "test_it.py"], "new"),
        (["--kerntune-update=improved", "test_it.py"], "improved"),
        (["--kerntune-update=all", "test_it.py"], "all"),
        (["test_it.py", "--kerntune-update"], "all"),
        (["--kerntune-update", "-v", "test_it.py"], "all"),
        (["--kerntune-update", "--", "test_it.py"], "all"),
        pytest.param(["-n1", "--kerntune-update", "test_it.py"], "all", marks=pytest.mark.slow),
        pytest.param(["-n1", "--kerntune-update", "new", "test_it.py"], "new", marks=pytest.mark.slow),
    ],
)
def test_a_path_after_it_is_a_path(project, one_test, arguments, update):
    project.file(one_test())
    folder = project.path / "tests"
    folder.mkdir()
    (folder / "test_other.py").write_text("import pytest\nfrom scripted import *\n" + one_test())
    project.run(*arguments).assert_outcomes(passed=2 if "./" in arguments else 1)
    assert f"update={update} " in project.log


def test_conftests_beside_the_path_are_initial_ones(project):
    """They may add options."""
    folder = project.path / "deep"
    folder.mkdir()
    (folder / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--mine')\n")
    (folder / "test_deep.py").write_text("def test_a(request):\n    assert request.config.getoption('--mine') == '3'\n")
    project.run("--kerntune-update", "deep", "--mine=3").assert_outcomes(passed=1)


def test_addopts_may_hold_it(project, one_test):
    project.file(one_test())
    project.pytester.makeini("[pytest]\naddopts = --kerntune-update\n")
    project.run("test_it.py").assert_outcomes(passed=1)
    assert "update=all " in project.log


@pytest.mark.parametrize("arguments", [["--kerntune-update", "newest"], ["--kerntune-update=test_it.py"]])
def test_a_wrong_mode_is_explained(project, one_test, arguments):
    project.file(one_test())
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    value = arguments[-1].rpartition("=")[2]
    result.stderr.fnmatch_lines(
        [f"ERROR: --kerntune-update: '{value}' is none of new, improved, regressed, renamed, all*"]
    )


@pytest.mark.parametrize("given", [["--kerntune-update", "new"], ["--kerntune-update=new"], ["--kerntune-update"]])
def test_the_command_that_is_offered_has_one_update(project, given):
    project.file("def test_fast(autotune):\n    autotune(kernel('IMPROVED', ns=10000.0))\n")
    result = project.run(*given, "test_it.py")
    (line,) = [x for x in result.outlines if "to hold the gain" in x]
    words = line.partition("pytest ")[2].split()
    assert [w for w in words if "update" in w or w == "new"] == ["--kerntune-update=improved"]


@pytest.mark.parametrize("missing", ["warn", "fail"])
def test_recording_and_refusing_to_contradict(project, one_test, missing):
    project.file(one_test())
    usage_error(
        project.run("--kerntune-update=new", f"--kerntune-missing={missing}"),
        f"ERROR: --kerntune-update=new records *--kerntune-missing={missing} refuses*",
    )


def test_update_records_new_cases_in_ci_and_over_the_ini_key(project, one_test, monkeypatch):
    monkeypatch.setenv("CI", "1")
    project.pytester.makeini("[pytest]\nkerntune_missing = warn\n")
    project.file(one_test("NEW"))
    project.run("--kerntune-update").assert_outcomes(passed=1, warnings=0)


def test_update_of_gains_leaves_new_cases_to_missing(project, one_test):
    project.file(one_test("NEW"))
    project.run("--kerntune-update=improved", "--kerntune-missing=fail").assert_outcomes(failed=1)
