"""``--kerntune-strict``."""

from __future__ import annotations

pytest_plugins = ["pytester"]


def test_inconclusive_fails(project, one_test):
    project.file(one_test("INCONCLUSIVE"))
    project.run().assert_outcomes(passed=1, warnings=1)
    project.run("--kerntune-strict").assert_outcomes(failed=1)


def test_ini_key(project, one_test):
    project.file(one_test("INCONCLUSIVE"))
    project.pytester.makeini("[pytest]\nkerntune_outcomes = inconclusive=fail\n")
    project.run().assert_outcomes(failed=1)


def test_marker_has_the_last_word(project, one_test):
    project.file(one_test("INCONCLUSIVE", "outcomes={'INCONCLUSIVE': 'warn'}"))
    project.run("--kerntune-strict").assert_outcomes(passed=1, warnings=1)
