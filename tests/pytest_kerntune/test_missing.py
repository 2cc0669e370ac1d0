"""``--kerntune-missing``, and what CI changes."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

OUTCOMES = {"record": {"passed": 1}, "warn": {"passed": 1, "warnings": 1}, "fail": {"failed": 1}}


@pytest.mark.parametrize("missing", OUTCOMES)
def test_option(project, one_test, missing):
    project.file(one_test("NEW"))
    project.run(f"--kerntune-missing={missing}").assert_outcomes(**OUTCOMES[missing])


@pytest.mark.parametrize("missing", OUTCOMES)
def test_ini_key(project, one_test, missing):
    project.file(one_test("NEW"))
    project.pytester.makeini(f"[pytest]\nkerntune_missing = {missing}\n")
    project.run().assert_outcomes(**OUTCOMES[missing])


@pytest.mark.parametrize(("ci", "outcomes"), [("true", {"failed": 1}), ("", {"passed": 1})])
def test_default_fails_in_ci_only(project, one_test, monkeypatch, ci, outcomes):
    monkeypatch.setenv("CI", ci)
    project.file(one_test("NEW"))
    project.run().assert_outcomes(**outcomes)


def test_incomplete_fails_in_ci(project, one_test, monkeypatch):
    monkeypatch.setenv("CI", "true")
    project.file(one_test("INCOMPLETE"))
    project.run().assert_outcomes(failed=1)


def test_wrong_value(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-missing=skip")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kerntune-missing: 'skip' is none of record, warn, fail"])
