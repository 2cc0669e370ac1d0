"""Which packages one new case passes at run time, and which calls go up: imports alone don't show callbacks."""

from __future__ import annotations

import collections
import gc
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import inner
import pytest
from test_architecture import LAYERS, package_of

import kerntune.tuning.tuner  # noqa: F401 - by the run's first case, else: importing a package is not passing it
from pytest_kerntune.progress import Progress

pytestmark = pytest.mark.usefixtures("keep_libraries")

ORDER = [package for layer in LAYERS for package in layer]

MOST_PACKAGES, MOST_KINDS = 11, 7

GOING_UP = {
    ("gpu: FakeGpu.graph", "timing: GraphSlot.__init__.<locals>.work"): "a graph records what its caller enqueues",
    ("kernels: specialize", "gpu: StandIns.specializing.<locals>.<lambda>"): "a stand-in tensor is asked its address",
    ("capture: CandidateLaunches._in_order", "gate: GpuCapture.prefer"): "the gate knows earlier winners",
    (
        "capture: Capture._run_recorded",
        "gate: GpuCapture.before_launch",
    ): "a config first runs in another process",
    (
        "static: Disassembler._listed",
        "tuning: ListingCache.complete",
    ): "listings of earlier runs are a protocol of static",
    ("gpu: Watch.run", "capture: CallOperators.observe"): "a device passes the operators that run on it to a listener",
}
"""Callbacks that stay, each with its reason."""

COMPREHENSION = re.compile(r"(\.<locals>\.<(dict|list|set)comp>)+$")

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script([Rule(constexprs={"BLOCK": 1024}, time_ns=20_000.0), Rule(time_ns=24_000.0)]))
"""

SOURCE = """
import pytest, torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b in (1024, 2048) for w in (4, 8)], key=["columns"])
@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * columns + at, power / tl.sum(power, 0), mask=at < columns)

def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1])
    return y

@pytest.mark.autotune
def test_softmax(autotune):
    x = torch.randn(64, 1000, device=autotune.device)
    assert autotune(softmax, x).shape == x.shape
"""


class Calls:
    """A pytest plugin that profiles each test's call: ``passed`` packages, and calls ``up`` from one to a later one,
    with the frames of other libraries between them left out."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.up: collections.Counter[tuple[str, str]] = collections.Counter()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_pyfunc_call(self) -> Iterator[None]:
        before = sys.getprofile()
        gc.collect()
        gc.disable()  # a collection ends generators of earlier tests, as calls from wherever it begins
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)
            gc.enable()

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        here = _package(frame)
        if event != "call" or here not in ORDER:
            return
        self.passed.add(here)
        caller = frame.f_back
        while caller is not None and _package(caller) not in ORDER:
            caller = caller.f_back
        if caller is not None and ORDER.index(here) > ORDER.index(_package(caller)):
            self.up[_name(caller), _name(frame)] += 1


def _package(frame: FrameType) -> str:
    return package_of(frame.f_globals.get("__name__", ""))


def _name(frame: FrameType) -> str:
    """Package and function; up to Python 3.11 a comprehension is a function of its own."""
    name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
    return f"{_package(frame)}: {COMPREHENSION.sub('', name)}"


def _is_torchs_dispatch(kind: tuple[str, str]) -> bool:
    """Also a function of ``torch.cuda`` that is asked by its name: a stand-in answers."""
    return kind[1].endswith("__torch_function__") or kind[1] == "gpu: always.<locals>.stub"


def _is_import(kind: tuple[str, str]) -> bool:
    """A finder on ``sys.meta_path``, which Python asks at any module's first import, whoever imports it."""
    return kind[1].endswith(".find_spec")


def _is_progress(kind: tuple[str, str]) -> bool:
    return kind[1].startswith(f"pytest_kerntune: {Progress.__name__}.")


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects have no qualified names before Python 3.11")
def test_a_new_case_passes_few_packages_and_calls_up_rarely(project: Any, plugin_name: str) -> None:
    calls = Calls()
    project.pytester.makeconftest(CONFTEST)
    project.pytester.makepyfile(test_it=SOURCE)
    quiet = ("-W", "ignore:TRITON_DEFAULT_FP_FUSION", "-W", "ignore:Module already imported:pytest.PytestWarning")
    given = ("-p", plugin_name, *inner.QUIET, "--kerntune", "--kerntune-cache-dir=cache", *quiet)
    project.pytester.runpytest_inprocess(*given, plugins=[calls]).assert_outcomes(passed=1)
    kinds = {kind for kind in calls.up if not (_is_torchs_dispatch(kind) or _is_progress(kind) or _is_import(kind))}
    assert any(map(_is_progress, calls.up)), "the profile saw the call"
    assert kinds <= GOING_UP.keys(), "a call of a later package: give the earlier one a value instead, or say why not"
    assert len(kinds) <= MOST_KINDS
    assert len(calls.passed) <= MOST_PACKAGES, sorted(calls.passed, key=ORDER.index)
