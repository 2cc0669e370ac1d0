"""pytest's own outcomes: skip, xfail, fixtures that raise, unittest's cases, subtests, ``-x`` and ``--lf``."""

from __future__ import annotations

import pytest

SKIPS = """
@pytest.fixture
def skips(autotune):
    autotune(kernel("VERDICT"))
    pytest.skip("not today")

def test_fixture(skips):
    pass

def test_function(autotune):
    autotune(kernel("VERDICT"), name="before")
    def skips():
        pytest.skip("not today")
    autotune(skips)

@pytest.mark.xfail(raises=ValueError, strict=True)
def test_other_error_expected(autotune):
    autotune(kernel("VERDICT"))
    pytest.skip("not today")
"""


@pytest.mark.parametrize(("verdict", "outcomes"), [("PASS", {"skipped": 3}), ("REGRESSED", {"failed": 2, "errors": 1})])
def test_a_skip_hides_no_regression(project, verdict, outcomes):
    project.file(SKIPS.replace("VERDICT", verdict))
    result = project.run()
    result.assert_outcomes(**outcomes)
    if verdict == "REGRESSED":
        result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_fixture: scripted"])
        result.stdout.no_fnmatch_line("*During handling*")


def test_a_test_that_pytest_counts_as_failed_or_skipped_writes_no_baseline(project):
    project.file(
        """
NEW = kernel("NEW", rung="written")

def test_passes(autotune):
    autotune(NEW)

@pytest.mark.xfail
def test_expected_but_not_strictly(autotune):
    autotune(NEW)

@pytest.mark.xfail(strict=True)
def test_no_longer_fails(autotune):
    autotune(NEW)

@pytest.mark.xfail
def test_fails_as_expected(autotune):
    autotune(NEW)
    assert False

def test_xfails(autotune):
    autotune(NEW)
    pytest.xfail("known")

def test_skips(autotune):
    autotune(NEW)
    pytest.skip("enough")

@pytest.fixture
def broken(autotune):
    autotune(NEW)
    raise RuntimeError("mine")

def test_fixture_raises(broken):
    pass
"""
    )
    project.run().assert_outcomes(passed=1, xpassed=1, failed=1, xfailed=2, skipped=1, errors=1)
    assert project.committed == ["test_passes", "test_expected_but_not_strictly"]


def test_xfail_takes_a_regression_only_if_it_takes_every_failure(project):
    project.file(
        """
@pytest.mark.xfail(raises=AssertionError)
def test_assertion_expected(autotune):
    autotune(kernel("REGRESSED"))

@pytest.mark.xfail
def test_any_expected(autotune):
    autotune(kernel("REGRESSED"))

@pytest.mark.xfail(run=False)
def test_not_run(autotune):
    autotune(kernel("REGRESSED"))
"""
    )
    project.run("--kerntune-json=run.json").assert_outcomes(failed=1, xfailed=2)
    assert project.json()["counts"] == {"REGRESSED": 2}


UNITTEST = """
import unittest

class Test(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def keep(self, autotune):
        self.autotune = autotune

    def test_new(self):
        self.autotune(kernel("NEW", rung="written"))

    def test_slower(self):
        self.autotune(kernel("REGRESSED"))

    def test_slower_and_skipped(self):
        self.autotune(kernel("REGRESSED"))
        self.skipTest("enough")

    def test_skipped(self):
        self.autotune(kernel("NEW", rung="written"))
        self.skipTest("enough")

    def test_wrong(self):
        self.autotune(kernel("REGRESSED"))
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_expected(self):
        self.autotune(kernel("NEW", rung="written"))
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_expected_to_fail_otherwise(self):
        self.autotune(kernel("REGRESSED"))
"""


def test_a_unittest_case_takes_the_fixture_from_one_of_its_class(project):
    project.file(UNITTEST)
    result = project.run()
    result.assert_outcomes(passed=1, failed=4, skipped=1, xfailed=1)
    assert project.committed == ["Test::test_new"]
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::Test::test_slower: scripted"])
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::Test::test_slower_and_skipped: scripted"])
    result.stdout.fnmatch_lines(["*AssertionError: 1 != 2", "*kerntune*", "REGRESSED *::test_wrong: scripted"])
    result.stdout.fnmatch_lines(["Unexpected success", "*kerntune*", "REGRESSED *_to_fail_otherwise: scripted"])


def test_a_unittest_case_without_a_gpu_keeps_its_figures(project):
    project.engine(static=True)
    project.file(
        UNITTEST.partition("    def test_new")[0]
        + """
    def test_values(self):
        self.autotune(kernel("PASS", ns=None))
        raise NeedsGpu("item()")
"""
    )
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["static only: test_it.py::Test::test_values stopped where it needs results of a GPU*"])


def test_a_unittest_method_can_not_take_the_fixture_as_an_argument(project):
    project.file("import unittest\nclass Test(unittest.TestCase):\n    def test_a(self, autotune): pass\n")
    result = project.plain()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["test_it.py::Test::test_a: unittest calls its methods without fixtures. Give the class *", "*self.autotune =*"]
    )
    result.stdout.no_fnmatch_line("*TypeError*")


def test_a_failed_subtest_of_unittest_leaves_no_baseline(project):
    project.file(
        UNITTEST.partition("    def test_new")[0]
        + """
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.autotune(kernel("NEW", rung="written"))
                assert n != 1

    def test_slower(self):
        for verdict in ("PASS", "REGRESSED", "PASS"):
            with self.subTest(verdict=verdict):
                self.autotune(kernel(verdict))
"""
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::Test::test_slower::1: scripted"])
    assert project.committed == []


def test_a_failed_subtest_leaves_no_baseline(project):
    if int(pytest.__version__.partition(".")[0]) < 9:
        pytest.importorskip("pytest_subtests")
    project.file(
        """
def test_parts(autotune, subtests):
    for n in range(3):
        with subtests.test(n=n):
            autotune(kernel("NEW", rung="written"))
            assert n != 1
"""
    )
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED
    assert project.committed == []


FOUR = """
@pytest.mark.parametrize("n", range(4))
def test_a(autotune, n):
    autotune(kernel("REGRESSED" if n == 1 else "PASS"))
"""


@pytest.mark.parametrize("arguments", [["-x"], pytest.param(["-x", "-n1"], marks=pytest.mark.slow)], ids=" ".join)
def test_the_first_regression_stops_the_run(project, arguments):
    project.file(FOUR)
    result = project.run("--kerntune-json=run.json", *arguments)
    assert result.ret != pytest.ExitCode.OK
    assert project.json()["counts"] == {"PASS": 1, "REGRESSED": 1}
    assert "selected_all=False" in project.log  # no baseline of a test that did not run is stale


def test_what_got_slower_is_run_again_by_lf(project):
    project.file(FOUR)
    for arguments in ([], ["--lf"]):
        project.run("-p", "cacheprovider", *arguments)
    ends = [line for line in project.log.splitlines() if line.startswith("stale")]
    assert ends[-1] == "stale selected_all=False ran=['test_it.py::test_a[1]']"
