"""``--kerntune-update``."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


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


def test_ini_key(project, one_test):
    project.file(one_test())
    project.pytester.makeini("[pytest]\nkerntune_update = new\n")
    project.run().assert_outcomes(passed=1)
    project.run("--kerntune-update=improved").assert_outcomes(passed=1)
    assert [line.split("update=")[1].split()[0] for line in project.log.splitlines() if "update=" in line] == [
        "new",
        "improved",
    ]


def test_swallowed_path_is_explained(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-update", "test_it.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --kerntune-update: 'test_it.py' is none of new, improved, regressed, renamed, all*"]
    )


@pytest.mark.parametrize("missing", ["warn", "fail"])
def test_recording_and_refusing_to_contradict(project, one_test, missing):
    project.file(one_test())
    result = project.run("--kerntune-update=new", f"--kerntune-missing={missing}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --kerntune-update=new records *--kerntune-missing={missing} refuses*"])


def test_update_records_new_cases_in_ci_and_over_the_ini_key(project, one_test, monkeypatch):
    monkeypatch.setenv("CI", "1")
    project.pytester.makeini("[pytest]\nkerntune_missing = warn\n")
    project.file(one_test("NEW"))
    project.run("--kerntune-update").assert_outcomes(passed=1, warnings=0)


def test_update_of_gains_leaves_new_cases_to_missing(project, one_test):
    project.file(one_test("NEW"))
    project.run("--kerntune-update=improved", "--kerntune-missing=fail").assert_outcomes(failed=1)
