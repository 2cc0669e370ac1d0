"""Verdicts fall in the test's own call phase."""

from __future__ import annotations

import pytest
import triton  # noqa: F401 - can't be imported twice, and pytester forgets what the inner run imports

REGRESSED = "def test_add(autotune):\n    autotune(kernel('REGRESSED'))\n"
DRIFTED = REGRESSED.replace("REGRESSED", "DRIFTED")
CATEGORY = "error::pytest_kerntune.warning.KerntuneWarning"


def calls(*lines: str) -> str:
    """A test of these calls and statements."""
    return "\n    ".join(["def test_it(autotune):", *lines])


@pytest.mark.parametrize(
    ("source", "words", "outcomes", "shown"),
    [
        pytest.param(REGRESSED, "", {"failed": 1}, ["*FAILURES*", "REGRESSED *::test_add: scripted"], id="slow"),
        pytest.param(DRIFTED, "-W error", {"failed": 1}, ["DRIFTED test_it.py::test_add: scripted"], id="warning"),
        pytest.param(DRIFTED, f"-W {CATEGORY}", {"failed": 1}, ["DRIFTED *::test_add: scripted"], id="its category"),
        pytest.param("@pytest.mark.xfail(strict=True)\n" + REGRESSED, "", {"xfailed": 1}, [], id="expected"),
        pytest.param("@pytest.mark.skip\n@pytest.mark.autotune\n" + REGRESSED, "", {"skipped": 1}, [], id="skipped"),
        pytest.param(
            calls("autotune(kernel('DRIFTED'), name='a')", "autotune(kernel('REGRESSED'), name='b')"),
            "-W error",
            {"failed": 1},
            ["REGRESSED test_it.py::test_it::b: scripted", "DRIFTED *::a: scripted"],
            id="a warning hides no regression",
        ),
        pytest.param(
            calls("autotune(kernel('REGRESSED'))", "assert 1 == 2"),
            "",
            {"failed": 1},
            ["*assert 1 == 2", "*kerntune*", "REGRESSED test_it.py::test_it: scripted"],
            id="a failed body keeps its error",
        ),
        pytest.param(
            calls("autotune(kernel('REGRESSED'))", "pytest.skip('enough')"), "", {"failed": 1}, [], id="slow, skips"
        ),
        pytest.param(calls("autotune(kernel('PASS'))", "pytest.skip('enough')"), "", {"skipped": 1}, [], id="skips"),
        pytest.param(
            calls("autotune(kernel(), name='add')", "autotune(kernel(), name='add')"),
            "",
            {"failed": 1},
            ["test_it.py::test_it: two autotune calls are named 'add'*"],
            id="one name twice",
        ),
        pytest.param(
            calls("autotune(failing(ValueError, 'mine'))"),
            "",
            {"failed": 1},
            ["*scripted.py:*: ValueError*"],
            id="the user's error",
        ),
        pytest.param(
            calls("autotune(kernel('NEW', rung='read-only'))"),
            "",
            {"failed": 1},
            ["baselines: can't be written (Permission denied)*"],
            id="no place for the baseline",
        ),
    ],
)
def test_how_a_test_ends(project, source, words, outcomes, shown):
    project.file(source)
    result = project.run(*words.split())
    result.assert_outcomes(**outcomes)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if "failed" in outcomes else pytest.ExitCode.OK)
    result.stdout.fnmatch_lines(shown)
    for ours in ("Traceback", "fixture.py", "conclude.py"):
        result.stdout.no_fnmatch_line(f"*{ours}*")


def test_engine_errors_fail_cleanly_and_name_the_test(project):
    project.file("def test_a(autotune):\n    autotune(failing())\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_a: no config is left for kernel add"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*scripted.py*")


@pytest.mark.parametrize(
    ("marker", "lines", "outcomes", "checked", "shown"),
    [
        (
            "",
            ["kernel('REGRESSED'), name='a'", "kernel('PASS'), name='b'", "kernel('REGRESSED'), name='c'"],
            {"failed": 1},
            ["a", "b", "c"],
            ["REGRESSED *::a: scripted", "REGRESSED *::c: scripted"],
        ),
        ("", ["kernel(), name='add'", "kernel()", "kernel()"], {"passed": 1}, ["add", "0", "1"], []),
        ("name='forward'", ["kernel()"], {"passed": 1}, ["forward"], []),
        (
            "",
            ["kernel(), 5, reference=lambda: 7, name='first'", "kernel(), 5, name='second'"],
            {"failed": 1},
            ["first"],
            ["test_it.py::test_it: 5 is not 7, off by 2*"],
        ),
    ],
    ids=["all before it fails once", "unnamed ones are counted", "the marker's name", "a wrong result fails at once"],
)
def test_calls_in_order(project, marker, lines, outcomes, checked, shown):
    source = calls(*(f"autotune({line})" for line in lines))
    project.file(f"@pytest.mark.autotune({marker})\n{source}\n")
    result = project.run()
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(shown)
    assert [line.split()[2] for line in project.log.splitlines() if line.startswith("check ")] == checked


VERDICTS = "@pytest.mark.parametrize('verdict', {})\ndef test_a(autotune, verdict):\n    autotune(kernel(verdict))\n"


def test_these_verdicts_pass(project):
    project.file(VERDICTS.format(["PASS", "IMPROVED", "NEW"]))
    result = project.run("-W", "error")
    result.assert_outcomes(passed=3)
    assert result.ret == 0


def test_these_verdicts_warn(project):
    verdicts = ["DRIFTED", "INCONCLUSIVE", "INCOMPLETE"]
    project.file(VERDICTS.format(verdicts))
    result = project.run()
    result.assert_outcomes(passed=3, warnings=3)
    result.stdout.fnmatch_lines_random([f"*KerntuneWarning: {v} test_it.py::test_a[[]{v}]: scripted" for v in verdicts])


def test_marked_test_that_never_calls_fails(project):
    project.file(
        "@pytest.mark.autotune\ndef test_idle(autotune):\n    pass\n\ndef test_unmarked(autotune):\n    pass\n"
    )
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["INCOMPLETE test_it.py::test_idle: *never called the autotune fixture*"])
    assert project.json()["counts"] == {"INCOMPLETE": 1}


def test_a_marked_test_without_the_parameter_is_told_so(project):
    project.file(
        "@pytest.mark.autotune\n@pytest.mark.parametrize('n', [1])\ndef test_idle(n):\n    pass\n\n"
        "@pytest.mark.autotune\ndef test_takes_it(autotune):\n    pass\n"
    )
    result = project.run()
    result.assert_outcomes(failed=2)
    never = "marked autotune, but it never called the autotune fixture, so nothing was checked"
    write = "it has no parameter autotune: write def test_idle(autotune, ...), and autotune(fn, [*]args) in it"
    result.stdout.fnmatch_lines([f"*test_idle[[]1]: {never}; {write}, or take the marker off"])
    result.stdout.fnmatch_lines([f"*test_takes_it: {never}; write autotune(fn, [*]args), or take the marker off"])


BAD_ARGUMENTS = {
    "5": "*takes a function that launches kernels, not 5*",
    "kernel(), reference=5": "*reference is a int; give a function*",
    "kernel(), scope='all'": "*scope: 'all' is none of kernels, op",
    "kernel(), name=''": "*name: '' is no name*",
}
"""What a call is given, and what is said of it."""


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_bad_arguments_of_a_call(project, flag):
    tests = (f"def test_{i}(autotune):\n    autotune({given})\n" for i, given in enumerate(BAD_ARGUMENTS))
    project.file("\n".join(tests))
    result = project.plain(flag)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines([f"test_it.py::test_{i}: {says}" for i, says in enumerate(BAD_ARGUMENTS.values())])


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_a_misspelt_keyword_is_told(project, flag):
    project.file(
        "def plain(x): return x\nplain.script = kernel().script\n"
        "def takes(**named): return named['refrence']\ntakes.script = kernel().script\n"
        "def test_near(autotune):\n    autotune(plain, 5, refrence=lambda: 5)\n"
        "def test_far(autotune):\n    autotune(plain, 5, other=1)\n"
        "def test_takes_it(autotune):\n    assert autotune(takes, refrence=5) == 5\n"
    )
    result = project.plain(flag)
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_near: plain() got an unexpected keyword argument 'refrence'; did you mean autotune's "
            "reference= where you wrote refrence=[?]"
        ]
    )
    result.stdout.no_fnmatch_line("*other=*did you mean*")


def test_missing_arguments_are_told_by_the_line_that_lacks_them(project):
    """Not by thirty lines of what calls it."""
    project.file(
        "def add(a, b): return a\nadd.script = kernel().script\n"
        "def inside(): return add(1)\ninside.script = kernel().script\n"
        "def test_a(autotune):\n    autotune(add, 1)\n"
        "def test_b(autotune):\n    autotune(inside)\n"
    )
    result = project.plain()
    result.assert_outcomes(failed=2)
    missing = "add() missing 1 required positional argument: 'b'"
    result.stdout.fnmatch_lines([f"test_it.py::test_a: {missing}; it was called as in test_it.py:*: autotune(add, 1)"])
    result.stdout.fnmatch_lines([f"E *TypeError: {missing}"])
    assert "fixture.py" not in result.stdout.str()


WITHOUT_GRID = """
import triton
from functools import partial
from kernels_without_grid import scale_kernel

@pytest.mark.parametrize("called", [
    scale_kernel, partial(scale_kernel, BLOCK=64), triton.autotune([], [])(scale_kernel)
], ids=range(3))
def test_a(autotune, called):
    autotune(called, 5)
"""


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_a_kernel_without_a_grid_is_refused(project, flag):
    project.pytester.makepyfile(kernels_without_grid="import triton\n\n@triton.jit\ndef scale_kernel(x, BLOCK): pass\n")
    project.file(WITHOUT_GRID)
    result = project.plain(flag)
    result.assert_outcomes(failed=3)
    told = "]: kernel scale_kernel has no grid*; write autotune(scale_kernel[[]grid], [*]args)*"
    result.stdout.fnmatch_lines([f"test_it.py::test_a[[]{i}{told}" for i in range(3)])


def test_baselines_are_written_when_the_test_has_passed(project):
    project.file(
        """
def test_passes(autotune):
    autotune(kernel("NEW", rung="written"))

def test_asserts(autotune):
    autotune(kernel("NEW", rung="written"))
    assert 1 == 2

def test_regresses(autotune):
    autotune(kernel("NEW", rung="written"), name="a")
    autotune(kernel("REGRESSED"), name="b")
"""
    )
    project.run("--kerntune-json=run.json").assert_outcomes(passed=1, failed=2)
    assert [x for x in project.log.splitlines() if x.startswith("commit")] == ["commit test_it.py::test_passes"]
    assert [r.get("recorded", False) for r in project.json()["results"]] == [True, False, False, False]


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_tracebacks_start_in_the_users_code(project, flag):
    project.file(
        """
def inner():
    raise ValueError("mine")

def test_a(autotune):
    autotune(inner)
"""
    )
    result = project.plain(flag, "--tb=short")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py:*: in test_a", "test_it.py:*: in inner"], consecutive=False)
    result.stdout.no_fnmatch_line("*pytest_kerntune*fixture.py*")
