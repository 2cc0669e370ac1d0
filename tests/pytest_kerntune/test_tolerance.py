"""``--kerntune-tolerance``, and the ini keys that stand beside it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_default(project, one_test):
    project.file(one_test())
    project.run().assert_outcomes(passed=1)
    assert "tolerance=0.02" in project.log


@pytest.mark.parametrize("text", ["0.05", "5%"])
def test_option_before_ini_key(project, one_test, text):
    project.file(one_test())
    project.pytester.makeini("[pytest]\nkerntune_tolerance = 0.5\n")
    project.run(f"--kerntune-tolerance={text}").assert_outcomes(passed=1)
    assert "check test_it.py::test_add 0 scope=kernels tolerance=0.05" in project.log


def test_wrong_option(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-tolerance=5")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kerntune-tolerance: '5' is no tolerance; write a share * 0.02 or 2%"])
    result.stderr.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    "key",
    ["tolerance", "floor", "scope", "missing", "tune", "target", "anchor_tolerance", "metrics", "outcomes"],
)
def test_wrong_ini_key_is_named(project, one_test, key):
    project.file(one_test())
    project.pytester.makeini(f"[pytest]\nkerntune_{key} = -wrong-\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: ini key kerntune_{key}: *-wrong-*"])


def test_floor_and_scope_have_ini_keys(project, one_test):
    project.file(one_test())
    project.pytester.makeini("[pytest]\nkerntune_floor = 0.5us\nkerntune_scope = op\n")
    project.run().assert_outcomes(passed=1)
    assert "floor_ns=500.0" in project.log
    assert "scope=op" in project.log
