"""Verdicts fall in the test's own call phase."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_regression_fails_the_test_with_its_message_only(project, one_test):
    project.file(one_test("REGRESSED"))
    result = project.run()
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*FAILURES*", "*test_add*", "REGRESSED test_it.py::test_add: scripted"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*fixture.py*")


@pytest.mark.parametrize("verdict", ["PASS", "IMPROVED", "NEW"])
def test_these_verdicts_pass(project, one_test, verdict):
    project.file(one_test(verdict))
    result = project.run("-W", "error")
    result.assert_outcomes(passed=1)
    assert result.ret == 0


@pytest.mark.parametrize("verdict", ["DRIFTED", "INCONCLUSIVE", "INCOMPLETE"])
def test_these_verdicts_warn(project, one_test, verdict):
    project.file(one_test(verdict))
    result = project.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines([f"*KerntuneWarning: {verdict} test_it.py::test_add: scripted"])


@pytest.mark.parametrize("category", ["error", "error::pytest_kerntune.warning.KerntuneWarning"])
def test_warning_as_error_fails_the_test_cleanly(project, one_test, category):
    project.file(one_test("DRIFTED"))
    result = project.run("-W", category)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["DRIFTED test_it.py::test_add: scripted"])
    result.stdout.no_fnmatch_line("*conclude.py*")


def test_every_call_runs_before_the_test_fails_once(project):
    project.file(
        """
def test_two(autotune):
    autotune(kernel("REGRESSED"), name="first")
    autotune(kernel("PASS"), name="second")
    autotune(kernel("REGRESSED"), name="third")
"""
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED *::first: scripted", "REGRESSED *::third: scripted"])
    assert project.log.count("check ") == 3


def test_failed_body_keeps_its_error_and_shows_the_verdicts(project):
    project.file(
        """
def test_two(autotune):
    autotune(kernel("REGRESSED"))
    assert 1 == 2
"""
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2", "*kerntune*", "REGRESSED test_it.py::test_two: scripted"])


def test_skip_in_the_body_does_not_hide_a_regression(project):
    project.file(
        """
def test_hidden(autotune):
    autotune(kernel("REGRESSED"))
    pytest.skip("enough")

def test_shown(autotune):
    autotune(kernel("PASS"))
    pytest.skip("enough")
"""
    )
    project.run().assert_outcomes(failed=1, skipped=1)


def test_xfail_sees_a_regression(project, one_test):
    project.file("@pytest.mark.xfail(strict=True)\n" + one_test("REGRESSED"))
    project.run().assert_outcomes(xfailed=1)


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


def test_skipped_marked_test_stays_skipped(project):
    project.file("@pytest.mark.skip\n@pytest.mark.autotune\ndef test_idle(autotune):\n    pass\n")
    project.run().assert_outcomes(skipped=1)


def test_two_calls_with_one_name_fail(project):
    project.file(
        """
def test_twice(autotune):
    autotune(kernel(), name="add")
    autotune(kernel(), name="add")
"""
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_twice: two autotune calls are named 'add'*"])
    result.stdout.no_fnmatch_line("*Error*")


def test_unnamed_calls_are_counted_apart_from_named_ones(project):
    project.file(
        """
def test_many(autotune):
    autotune(kernel(), name="add")
    autotune(kernel())
    autotune(kernel())
"""
    )
    project.run().assert_outcomes(passed=1)
    calls = [line.split()[2] for line in project.log.splitlines() if line.startswith("check ")]
    assert calls == ["add", "0", "1"]


def test_marker_names_the_one_call(project):
    project.file("@pytest.mark.autotune(name='forward')\ndef test_a(autotune):\n    autotune(kernel())\n")
    project.run().assert_outcomes(passed=1)
    assert "check test_it.py::test_a forward " in project.log


def test_engine_errors_fail_cleanly_and_name_the_test(project):
    project.file("def test_a(autotune):\n    autotune(failing())\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_a: no config is left for kernel add"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*scripted.py*")


def test_errors_of_the_user_keep_their_traceback(project):
    project.file("def test_a(autotune):\n    autotune(failing(ValueError, 'mine'))\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*scripted.py:*: ValueError*"])


def test_reference_mismatch_fails_at_once(project):
    project.file(
        """
def test_a(autotune):
    autotune(kernel(), 5, reference=lambda: 7, name="first")
    autotune(kernel(), 5, name="second")
"""
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_a: 5 is not 7, off by 2*"])
    assert "second" not in project.log


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("autotune(5)", "*takes a function that launches kernels, not 5*"),
        ("autotune(kernel(), reference=5)", "*reference is a int; give a function*"),
        ("autotune(kernel(), scope='all')", "*scope: 'all' is none of kernels, op"),
        ("autotune(kernel(), name='')", "*name: '' is no name*"),
    ],
)
@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_bad_arguments_of_a_call(project, call, says, flag):
    project.file(f"def test_a(autotune):\n    {call}\n")
    result = project.plain(flag)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"test_it.py::test_a: {says}"])


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


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
@pytest.mark.parametrize(
    "called", ["scale_kernel", "partial(scale_kernel, BLOCK=64)", "triton.autotune([], [])(scale_kernel)"]
)
def test_a_kernel_without_a_grid_is_refused(project, flag, called):
    project.pytester.makepyfile(kernels="import triton\n\n@triton.jit\ndef scale_kernel(x, BLOCK): pass\n")
    project.file(
        "import triton\nfrom functools import partial\nfrom kernels import scale_kernel\n"
        f"def test_a(autotune):\n    autotune({called}, 5)\n"
    )
    result = project.plain(flag)
    result.assert_outcomes(failed=1)
    told = "test_it.py::test_a: kernel scale_kernel has no grid*; write autotune(scale_kernel[[]grid], [*]args)*"
    result.stdout.fnmatch_lines([told])


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


def test_baseline_that_can_not_be_written_fails_cleanly(project):
    project.file("def test_a(autotune):\n    autotune(kernel('NEW', rung='read-only'))\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_a: baselines: can't be written (Permission denied)*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_warning_as_error_hides_no_regression(project):
    project.file(
        """
def test_both(autotune):
    autotune(kernel("DRIFTED"), name="a")
    autotune(kernel("REGRESSED"), name="b")
"""
    )
    result = project.run("-W", "error")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_both::b: scripted", "DRIFTED *::a: scripted"])


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
