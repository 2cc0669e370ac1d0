"""``--kerntune-target``."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("text", "targets"),
    [("cuda:90", "cuda:90"), ("cuda:90, hip:gfx942,", "cuda:90,hip:gfx942"), ("cuda:80,cuda:80", "cuda:80")],
)
def test_option_and_ini_key(project, one_test, text, targets):
    project.file(one_test())
    project.run(f"--kerntune-target={text}").assert_outcomes(passed=1)
    project.pytester.makeini(f"[pytest]\nkerntune_target = {text}\n")
    project.run().assert_outcomes(passed=1)
    assert [x.split("targets=")[1] for x in project.log.splitlines() if "targets=" in x] == [targets] * 2


def test_unknown_target(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-target=h100")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kerntune-target: unknown target 'h100': write backend:arch, *"])


def test_each_target_has_its_row_without_a_gpu(project, one_test):
    project.engine(static=True)
    project.file(one_test("PASS", extra=", ns=None, base=None"))
    result = project.run("--kerntune-target=cuda:90,hip:gfx942")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*32 regs, 2048 B shared*PASS*", "*(cuda:90)*", "*PASS*", "*(hip:gfx942)*", "2 PASS"])


def test_nothing_to_compile_for_is_a_usage_error(project, one_test):
    project.engine(unusable="no GPU, and no target is known: give --kerntune-target=cuda:90")
    project.file(one_test())
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no GPU, and no target is known: *"])
    result.stderr.no_fnmatch_line("*Traceback*")
