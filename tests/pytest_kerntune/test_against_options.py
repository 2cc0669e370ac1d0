"""Errors of the options for other reference baselines, and what all collected tests share; on the scripted engine."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
from inner import usage_error

from pytest_kerntune.options import OPTIONS
from pytest_kerntune.reference_settings import ReferenceSettings

LINES = 20


# what contradicts


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--kerntune-against=gone",), "gone: no such commit, branch or tag"),
        (("--kerntune-baselines-ref=gone",), "gone: no such commit, branch or tag"),
        (("--kerntune-against=a", "--kerntune-baselines-ref=b"), "drop one of them"),
        (("--kerntune-against=a", "--kerntune-update=all"), "--kerntune-against writes no baselines"),
    ],
)
def test_what_cant_be_done_is_said(project, one_test, args, text):
    subprocess.run(["git", "init", "-q"], cwd=project.path, check=True)
    project.file(one_test())
    usage_error(project.run(*args), f"*{text}*")


def test_the_command_line_goes_before_addopts(project, one_test):
    subprocess.run(["git", "init", "-q"], cwd=project.path, check=True)
    project.pytester.makeini("[pytest]\naddopts = --kerntune-baselines-ref=from_ini\n")
    project.file(one_test())
    project.run("--kerntune-baselines-ref=given").stderr.fnmatch_lines(["*given: no such commit*"])


def test_the_internal_option_is_not_in_the_help(project):
    project.plain("--help").stdout.no_fnmatch_line("*kerntune-export*")


# the family


FLAGS = [o.flag for o in OPTIONS if o.flag and not o.switch]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", ["", "  "], ids=["empty", "blank"])
def test_a_value_that_an_unset_variable_left_empty_is_a_usage_error(project, one_test, flag, value):
    """``--kerntune-against=$BASE`` with nothing in BASE must not be held against stored baselines."""
    project.file(one_test())
    usage_error(project.run(f"{flag}={value}"), f"*{flag}= has no value; a variable that should give one may be unset*")


def test_an_empty_value_does_nothing_without_kerntune_either(project, one_test):
    project.file(one_test())
    usage_error(project.plain("--kerntune-against="), "*--kerntune-against: does nothing without --kerntune*")


@pytest.mark.parametrize(("more", "last"), [(0, ": none, there autotune()"), (3, "... and 3 more markers")])
def test_of_many_changed_markers_the_first_are_listed(tmp_path, more, last) -> None:
    names = [f"test_{i}" for i in range(LINES + more)]
    settings = ReferenceSettings(tmp_path, revision="main", top=tmp_path, commit="c0ffee")
    settings._known[tmp_path] = ({}, {name: ["autotune()"] for name in names})
    items = [SimpleNamespace(nodeid=f"t.py::{name}", path=tmp_path, stash={}) for name in names]
    lines = settings.marker_differences(items)
    assert len(lines) == LINES + bool(more)
    assert lines[-1].endswith(last)
