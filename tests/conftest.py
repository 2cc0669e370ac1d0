"""Shared by all tests."""

import atexit
import contextlib
import gc
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator

import hypothesis.internal.entropy
import pytest
from forked import PYTHON, SHARED, Copies
from hypothesis import HealthCheck, settings
from inner import known_distributions

CACHES = tempfile.mkdtemp(prefix="kerntune-tests-")
"""Caches of this run alone: the user's hold what other checkouts compiled, and are nothing for tests to write."""

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share what they compile: they inherit the controller's folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(CACHES, "triton")
SHARED_COPIES = os.environ.pop(SHARED, None)  # no test's environment has it
for name in ("CI", "BUILD_NUMBER", *(n for n in os.environ if n.startswith("KERNTUNE_") and "_TESTS_" not in n)):
    os.environ.pop(name, None)  # they change verdicts and winners; a test that is about one sets it
os.environ["KERNTUNE_CACHE_DIR"] = os.path.join(CACHES, "kerntune")
os.environ["KERNTUNE_PATIENCE"] = "all"  # the winner must not depend on how busy the machine is
os.environ["LANGUAGE"] = "C"  # for each word of its help, argparse looks for translations in four folders otherwise
atexit.register(shutil.rmtree, CACHES, ignore_errors=True)

pytest_plugins = ["pytester"]

settings.register_profile("kerntune", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kerntune")
"""No test here asserts a time, so a slow machine must not fail one."""

hypothesis.internal.entropy.NP_RANDOM = object()
"""No property draws from numpy's global generator: to keep, seed and restore it took more than many an example."""


def pytest_configure(config: pytest.Config) -> None:
    """Copies of one process serve all workers of xdist, which find it by the environment that they inherit."""
    if getattr(config.option, "tx", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        shared = Copies()
        os.environ[SHARED] = shared.socket
        config.add_cleanup(lambda: os.environ.pop(SHARED, None))
        config.add_cleanup(shared.close)
        shared.start()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported and collected is garbage, and looking for some took an eighth of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """torch and all test modules are loaded by now, and no garbage: going through them took a quarter of the run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # of 700 new objects each time, hardly any was garbage
    atexit.register(gc.unfreeze)  # the interpreter's end goes through them, or bindings report them as leaked


@pytest.fixture(scope="session", autouse=True)
def distributions() -> Iterator[None]:
    """pytest runs in this process needn't read what is installed each time: a fifth of each short run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.metadata, "distributions", known_distributions)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_is_synced() -> Iterator[None]:
    """No file of a test outlives the machine's power: to wait for the disk is left out, except where a test asks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def triton_settings_stay() -> Iterator[None]:
    """What a test sets of Triton's knobs ends with it: ``monkeypatch`` leaves a knob set that was not set before."""
    with contextlib.ExitStack() as stack:
        if triton_knobs := sys.modules.get("triton.knobs"):  # tests of the pure packages don't load Triton
            for group in vars(triton_knobs).values():
                if isinstance(group, triton_knobs.base_knobs):
                    stack.enter_context(group.scope())
        yield


FEW = 16
"""Launches in a graph, and copies of memory that a timer takes in turn."""


@pytest.fixture(autouse=True)
def few_executions(request: pytest.FixtureRequest) -> Iterator[None]:
    """A scripted GPU's 16 executions say what 256 do, which took half the time of all tests of the gate."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (("gpu.memory", "MAX_REPLICAS"), ("timing.timers", "TARGET_LAUNCHES")):
            found = sys.modules.get(f"kerntune.{module}")  # tests of the pure packages don't load them
            if found is not None and request.node.get_closest_marker("gpu") is None:
                patch.setattr(found, name, FEW)
        yield


@pytest.fixture(scope="session")
def copies() -> Iterator[Copies]:
    """Python programs in processes of their own, without the seconds that imports of torch take."""
    found = Copies(SHARED_COPIES)
    yield found
    found.close()


@pytest.fixture
def quick_python(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts of pytest runs and of xdist's workers, and what those start, needn't import torch."""
    monkeypatch.setattr(sys, "executable", copies.python)
    monkeypatch.setenv(PYTHON, copies.python)


@pytest.fixture(scope="module")
def shared():
    """A scripted GPU for the tests of one module; :func:`fake_runs.script` sets new times of kernels."""
    from fake_runs import active  # loads torch, which tests of the pure packages don't need

    with active() as backend:
        yield backend


@pytest.fixture
def backend(shared):
    """The module's GPU, on which everything takes what it takes by default."""
    from fake_runs import script

    script(shared)
    return shared


@pytest.fixture
def this_gpu(shared, monkeypatch, tmp_path):
    """The module's GPU as the one that ``kerntune.autotune`` finds, with a cache of its own."""
    from fake_runs import script

    from kerntune.tuning import context, tuned_call
    from kerntune.tuning.cache import WinnerCache

    script(shared)
    monkeypatch.setattr(context, "this_gpu", lambda: shared)
    monkeypatch.setattr(tuned_call, "WinnerCache", lambda: WinnerCache(tmp_path))
    return shared


@pytest.fixture
def launches(monkeypatch):
    """Keywords of the launches that reach Triton."""
    from triton.runtime.jit import JITFunction

    seen = []
    below = JITFunction.run

    def run(kernel, *args, **kwargs):
        seen.append(kwargs)
        return below(kernel, *args, **kwargs)

    monkeypatch.setattr(JITFunction, "run", run)
    return seen
