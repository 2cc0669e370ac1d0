"""Beside other plugins: what they do to a test doesn't change what kerntune says of it. Those that aren't installed are
left out (docs/dependencies.md)."""

from __future__ import annotations

import importlib.util

import pytest

# -- reruns

RERUN = """
import pytest, scripted
from _pytest.runner import runtestprotocol

scripted.install()

def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(r.failed for r in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
"""What plugins that run tests again have in common."""

FLAKY = """
from itertools import count
ATTEMPT = {}

@pytest.fixture
def attempt(request):
    return next(ATTEMPT.setdefault(request.node.name, count()))

def test_slower_once(autotune, attempt):
    autotune(kernel("REGRESSED" if attempt == 0 else "PASS"))

def test_slower_and_wrong(autotune, attempt):
    autotune(kernel("REGRESSED" if attempt == 0 else "PASS"))
    assert attempt == 1

def test_wrong_once(autotune, attempt):
    autotune(kernel("NEW", rung="written"))
    assert attempt == 1

def test_skipped_afterwards(autotune, attempt):
    if attempt:
        pytest.skip("no more")
    autotune(kernel("REGRESSED"))

@pytest.mark.autotune(outcomes={"REGRESSED": "warn"})
def test_only_warns(autotune, attempt):
    autotune(kernel("REGRESSED" if attempt == 0 else "PASS"))
    assert attempt == 1
"""


@pytest.fixture(params=["", "pytest_rerunfailures"])
def rerun(request, project):
    """Runs tests that fail again, up to twice."""
    if request.param:
        pytest.importorskip(request.param)
        return lambda *args: project.run("-p", "rerunfailures", "--reruns=2", *args)
    project.pytester.makeconftest(RERUN)
    return project.run


def test_a_rerun_makes_no_pass_of_a_regression(project, rerun):
    project.file(FLAKY)
    result = rerun("--kerntune-json=run.json")
    found = result.parseoutcomes()
    assert (found["failed"], found["passed"], found["warnings"]) == (3, 2, 1)
    assert project.committed == ["test_wrong_once", "test_only_warns"]
    assert project.json()["counts"] == {"REGRESSED": 4, "NEW": 1}
    result.stdout.fnmatch_lines(["REGRESSED *test_slower_once: scripted; a rerun of the test does not undo this"])


# -- processes that end

DIES = """
import os, signal, time

def test_first(autotune):
    autotune(kernel("NEW", rung="written"))

TIMEOUT
def test_dies(autotune):
    autotune(kernel("NEW", rung="written"), name="before")
    END

@pytest.mark.parametrize("n", range(3))
def test_after(autotune, n):
    autotune(kernel("REGRESSED" if n == 1 else "NEW", rung="written"))
"""


TIMEOUT = "@pytest.mark.timeout(1, method='METHOD', func_only=True)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "timeout"),
    [("os.kill(os.getpid(), signal.SIGKILL)", ""), ("time.sleep(100)", TIMEOUT.replace("METHOD", "thread"))],
    ids=["killed", "timeout"],
)
def test_a_worker_that_dies_costs_its_test(project, monkeypatch, source_environ, end, timeout):
    pytest.importorskip("xdist")
    pytest.importorskip("pytest_timeout")
    project.beside = ("-p", "timeout")
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    project.file(DIES.replace("END", end).replace("TIMEOUT", timeout))
    result = project.run("-n1", "--kerntune-json=run.json")
    result.assert_outcomes(passed=3, failed=2)
    assert sorted(project.committed) == ["test_after[0]", "test_after[2]", "test_first"]
    result.stdout.fnmatch_lines(["not judged: test_it.py::test_dies: worker 'gw0' crashed while running *"])
    assert set(project.json()["failed"]) == {"test_it.py::test_dies", "test_it.py::test_after[1]"}


@pytest.mark.slow
def test_a_timeout_by_a_signal_costs_its_test(project):
    pytest.importorskip("pytest_timeout")
    project.beside = ("-p", "timeout")
    project.file(DIES.replace("END", "time.sleep(100)").replace("TIMEOUT", TIMEOUT.replace("METHOD", "signal")))
    result = project.run()
    result.assert_outcomes(passed=3, failed=2)
    assert project.committed == ["test_first", "test_after[0]", "test_after[2]"]


SLEEPS = """
import time

TIMEOUT
def test_hangs(autotune):
    def hangs():
        time.sleep(100)
    hangs.script = {}
    autotune(hangs)

def test_after(autotune):
    autotune(kernel("PASS"))
"""


@pytest.mark.slow
def test_a_timeout_inside_of_the_function(project):
    pytest.importorskip("pytest_timeout")
    project.beside = ("-p", "timeout")
    project.file(SLEEPS.replace("TIMEOUT", TIMEOUT.replace("METHOD", "signal")))
    result = project.run("--kerntune-json=run.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Timeout (>1.0s) from pytest-timeout*"])
    assert project.json()["counts"] == {"PASS": 1}


# -- forks

FORKED = """
import scripted
scripted.install()

def pytest_addoption(parser):
    parser.addoption("--forked", action="store_true", dest="forked")

def pytest_configure(config):
    config.addinivalue_line("markers", "forked: run in a fork")
"""
"""pytest-forked's option and marker. The real one does not work under every version of pytest."""


@pytest.fixture(params=[False, True], ids=["option", "pytest-forked"])
def forked(request, project):
    """Runs a project with pytest-forked, or with what kerntune sees of it."""
    if request.param:
        pytest.importorskip("pytest_forked")
        return project.run
    project.pytester.makeconftest(FORKED)
    return lambda *args: project.run("-p", "no:pytest_forked", *args)


def test_other_tests_may_be_forked(project, forked):
    project.file("@pytest.mark.forked\ndef test_plain(): pass\ndef test_a(autotune):\n    autotune(kernel())\n")
    assert forked("--collect-only").ret == pytest.ExitCode.OK


def test_a_call_in_a_fork_is_refused(project):
    project.file(
        """
import os

def test_forks(autotune, tmp_path):
    child = os.fork()
    if child == 0:
        try:
            autotune(kernel())
        except BaseException as error:
            (tmp_path / "said").write_text(str(error))
        os._exit(0)
    os.waitpid(child, 0)
    said = (tmp_path / "said").read_text()
    assert said.startswith(f"test_it.py::test_forks: autotune was called in a fork of pytest's process {os.getpid()}")
"""
    )
    project.run().assert_outcomes(passed=1)
    assert "check " not in project.log


# -- async tests

ASYNC = """
import asyncio

@pytest.mark.MARK
async def test_new(autotune):
    await asyncio.sleep(0)
    autotune(kernel("NEW", rung="written"))

@pytest.mark.MARK
async def test_slower(autotune):
    await asyncio.to_thread(autotune, kernel("REGRESSED"))

@pytest.mark.MARK
async def test_wrong(autotune):
    autotune(kernel("NEW", rung="written"))
    assert False
"""


@pytest.mark.parametrize(("module", "marker"), [("pytest_asyncio", "asyncio"), ("anyio", "anyio")])
def test_async_tests(project, module, marker):
    pytest.importorskip(module)
    project.beside = ("-p", marker)
    if importlib.util.find_spec("pytest_asyncio") is not None:
        project.pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")  # it warns without
    project.file(ASYNC.replace("MARK", marker))
    result = project.run()
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_slower*: scripted"])
    assert [x.partition("[")[0] for x in project.committed] == ["test_new"]


def test_async_methods_of_unittest(project):
    project.file(
        """
import unittest

class Test(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def keep(self, autotune):
        self.autotune = autotune

    async def test_new(self):
        self.autotune(kernel("NEW", rung="written"))

    async def test_slower(self):
        self.autotune(kernel("REGRESSED"))
"""
    )
    project.run().assert_outcomes(passed=1, failed=1)
    assert project.committed == ["Test::test_new"]


@pytest.mark.parametrize("flag", ["--kerntune", "-q"])
def test_a_coroutine_launches_nothing(project, flag):
    project.file(
        """
async def launches(x):
    return x

def test_function(autotune):
    autotune(launches, 5)

def test_what_a_function_returns(autotune):
    f = lambda x: launches(x)
    f.script = kernel("PASS").script
    autotune(f, 5)
"""
    )
    result = project.plain(flag)
    result.assert_outcomes(failed=2)
    said = "gives a coroutine, which launches nothing before it is awaited; hand autotune an ordinary function*"
    result.stdout.fnmatch_lines([f"test_it.py::test_function: launches {said}"])
    result.stdout.fnmatch_lines([f"test_it.py::test_what_a_function_returns: *lambda> {said}"])


# -- order and coverage

MANY = """
@pytest.mark.parametrize("n", range(6))
def test_a(autotune, n):
    autotune(kernel("REGRESSED" if n == 3 else "NEW", rung="written"))
"""


@pytest.mark.parametrize(
    "arguments", [pytest.param([], id="one process"), pytest.param(["-n2"], id="xdist", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("pytest_randomly", ["-p", "randomly", "--randomly-seed=7"]),
        ("pytest_cov", ["-p", "pytest_cov", "--cov=.", "--cov-branch"]),
    ],
    ids=["randomly", "cov"],
)
def test_order_and_coverage_change_nothing(project, monkeypatch, source_environ, module, options, arguments):
    pytest.importorskip(module)
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    project.file(MANY)
    result = project.run(*options, *arguments)
    found = result.parseoutcomes()
    assert (found["passed"], found["failed"]) == (5, 1)
    assert sorted(project.committed) == [f"test_a[{n}]" for n in (0, 1, 2, 4, 5)]
    assert "selected_all=True" in project.log


SEEDS = """
import random

import numpy, torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (64, 128)], key=["n"])
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def seed():
    random.seed(5), numpy.random.seed(5), torch.manual_seed(5)

def draw():
    return random.random(), numpy.random.rand(), torch.rand(1).item()

def test_a(autotune):
    x, y = (torch.ones(4096, device=autotune.device) for _ in range(2))
    seed()
    expected = draw()
    seed()
    autotune(scale[(64,)], x, y, 4096)
    assert draw() == expected
"""

GPU = """
from kerntune.gpu.scripted import FakeBackend

def pytest_kerntune_backend(config):
    return FakeBackend()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("keep_libraries")
def test_seeds_are_the_tests_own(project):
    """pytest-randomly seeds before each test: what a test draws after a call must not depend on the call."""
    project.pytester.makeconftest(GPU)
    project.pytester.makepyfile(test_it=SEEDS)
    project.run("-W", "ignore:TRITON_DEFAULT_FP_FUSION", "--kerntune-cache-dir=cache").assert_outcomes(passed=1)
