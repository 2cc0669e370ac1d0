"""Without ``--kerntune``: ordinary correctness tests, and the engine is left alone."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch  # here, because pytester forgets what is imported in a test, and neither can be imported twice
import triton.runtime.driver  # noqa: F401 - for its source below
from inner import usage_error

from pytest_kerntune.options import OPTIONS


def test_runs_the_function_once_and_times_nothing(project):
    project.file(
        """
runs = []

@pytest.mark.autotune(tolerance=0.05)
@pytest.mark.parametrize("rows", [1, 2])
def test_a(autotune, rows):
    assert autotune(lambda x, y: runs.append(x) or x * y, rows, y=3) == rows * 3
    assert runs.count(rows) == 1
"""
    )
    result = project.plain()
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*kerntune: *")
    result.stdout.no_fnmatch_line("=* kerntune =*")
    assert project.log == ""


def test_reference_is_checked(project):
    project.file(
        """
def test_good(autotune):
    assert autotune(kernel(), 5, reference=lambda: 5) == 5

def test_close(autotune):
    autotune(kernel(), 5, reference=lambda: 6, atol=1)

def test_bad(autotune):
    autotune(kernel(), 5, reference=lambda: 7, rtol=0.5)
"""
    )
    result = project.plain()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_bad: 5 is not 7, off by 2 (rtol=0.5)"])


LAUNCHES = """
import pytest

def launch(why="0 active drivers ([]). There should only be one."):
    raise RuntimeError(why)

@pytest.mark.parametrize("rows", [1024, 65536])
def test_a(autotune, rows):
    autotune(launch)

def test_b(autotune):
    autotune(lambda: [][1])

def test_c(autotune):
    from kerntune.errors import NoGpuError

    def launch():
        raise NoGpuError("kernel k can't be launched (0 active drivers)")
    autotune(launch)

def test_d(autotune):
    autotune(launch, why="another error")
"""


@pytest.mark.parametrize("arguments", [[], ["-q"], ["-n1"]])
def test_a_launch_without_a_gpu_is_skipped_and_what_can_be_done_is_said_once(project, arguments, monkeypatch):
    assert " active drivers (" in inspect.getsource(sys.modules["triton.runtime.driver"]), "Triton's own words"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    project.file(LAUNCHES)
    result = project.plain("-rs", *arguments)
    result.assert_outcomes(skipped=3, failed=2)
    text = "no GPU here: pytest --kerntune --kerntune-target=cuda:90 *, pytest --kerntune-interpret checks *"
    result.stdout.fnmatch_lines([f"SKIPPED * {text}"])
    (line,) = [x for x in result.outlines if x.startswith("3 tests skipped, no GPU here: pytest --kerntune")]
    assert "--kerntune-target=cuda:90" in line
    result.stdout.fnmatch_lines(["*IndexError*", "*RuntimeError: another error*"])


def test_where_torch_has_a_gpu_the_same_error_is_one(project, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    project.file(LAUNCHES)
    result = project.plain("-k", "test_a")
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*skipped, no GPU*")


def test_the_summary_has_the_reason_and_not_the_id_twice(project):
    project.file("def test_bad(autotune):\n    autotune(kernel(), 5, reference=lambda: 7)\n")
    result = project.plain()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_bad - 5 is not 7, off by 2 *"])


def test_keywords_reach_the_function(project):
    project.file("def test_a(autotune):\n    assert autotune(kernel(), fn=1, BLOCK=2) == {'fn': 1, 'BLOCK': 2}\n")
    project.plain().assert_outcomes(passed=1)
    project.run().assert_outcomes(passed=1)


def test_marked_test_may_leave_the_fixture_alone(project):
    project.file("@pytest.mark.autotune\ndef test_a():\n    pass\n")
    project.plain("--strict-markers").assert_outcomes(passed=1)


def test_device_is_torchs(project, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    project.file("def test_a(autotune):\n    assert autotune.device == 'cuda'\n")
    project.plain().assert_outcomes(passed=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    project.file("def test_a(autotune):\n    assert autotune.device == 'cpu'\n")
    project.plain().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "flag",
    [
        "--kerntune-update",
        "--kerntune-update=new",
        "--kerntune-baselines=b",
        "--kerntune-tolerance=0.1",
        "--kerntune-missing=warn",
        "--kerntune-strict",
        "--kerntune-target=cuda:90",
        "--kerntune-json=f",
        "--kerntune-tune=force",
        "--kerntune-summary=f",
        "--kerntune-cache-dir=d",
    ],
)
def test_options_without_kerntune_are_refused(project, one_test, flag):
    project.file(one_test())
    usage_error(project.plain(flag), f"ERROR: {flag.partition('=')[0]}: does nothing without --kerntune*")


def test_ini_keys_without_kerntune_wait_for_it(project, one_test):
    project.file(one_test())
    project.pytester.makeini("[pytest]\nkerntune_tolerance = 0.1\nkerntune_history = runs\n")
    project.plain().assert_outcomes(passed=1)
    assert not (project.path / "runs").exists()


def test_ini_key_turns_it_on(project, one_test):
    project.file(one_test("REGRESSED"))
    project.pytester.makeini("[pytest]\nkerntune = true\n")
    project.plain("--kerntune-tolerance=0.1").assert_outcomes(failed=1)
    project.plain("-o", "kerntune=false").assert_outcomes(passed=1)


def test_fixture_and_marker_are_documented(project):
    project.plain("--fixtures").stdout.fnmatch_lines(["*autotune*", "*autotune(fn, *args, reference=...)*"])
    project.plain("--markers").stdout.fnmatch_lines(["@pytest.mark.autotune(tolerance, floor,*"])


@pytest.mark.parametrize("key", [o.ini for o in OPTIONS if o.flag and o.ini and o.switch])
def test_an_ini_key_that_is_neither_on_nor_off_is_named(project, one_test, key):
    project.file(one_test())
    usage_error(project.plain("-o", f"{key}=maybe"), f"ERROR: ini key {key}: *'maybe'; write true or false")
