"""A project in pytester's folder that runs on a scripted engine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _pytest.pytester
import inner
import pytest
from forked import Copies
from inner import SAME_PROCESS, find_plugin

import kerntune.gate

# numpy can't be imported twice, and pytester forgets what the inner run imports: a third of each run was for that again
import kerntune.gate.stopped_tests
import pytest_kerntune.session  # noqa: F401

HERE = Path(__file__).parent

ENGINE = "kerntune.gate.api"
"""What a scripted engine stands in for."""

QUIET = (*inner.QUIET, *inner.USER_WARNINGS)


class KeepLibraries(_pytest.pytester.SysModulesSnapshot):
    """Lets pytester forget the project's modules only: torch and triton can't be imported twice."""

    def __init__(self, preserve: Callable[[str], bool] | None = None) -> None:
        super().__init__(preserve=lambda name: name not in ("conftest", "scripted", "kernels", "test_it", "test_new"))


@pytest.fixture
def keep_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests on the real engine. Use it before pytester is set up, which records the loaded modules then."""
    monkeypatch.setattr(_pytest.pytester, "SysModulesSnapshot", KeepLibraries)


class Project:
    """Runs pytest on test files given as text."""

    def __init__(self, pytester: pytest.Pytester, python: Callable[[], str] | None = None) -> None:
        self.pytester = pytester
        self.python = python
        """Runs xdist's workers; None for this Python, which imports everything anew."""

        self.beside: tuple[str, ...] = ()
        """Options that name other plugins, which a run has only where a test is about them."""

        self.path = pytester.path
        shutil.copy(HERE / "scripted.py", pytester.path / "scripted.py")
        self.engine()

    def engine(self, **options: Any) -> None:
        """Script the engine; see ``scripted.install``."""
        self.pytester.makeconftest(f"import scripted\nscripted.install(**{options!r})\n")

    def file(self, source: str, name: str = "test_it") -> None:
        """A test file."""
        self.pytester.makepyfile(**{name: "import pytest\nfrom scripted import *\n" + source})

    def plain(self, *args: str) -> pytest.RunResult:
        """Without ``--kerntune``."""
        with pytest.MonkeyPatch.context() as patch:
            if self.python is not None and any(arg.startswith("-n") for arg in args):
                patch.setattr(sys, "executable", self.python())
            return self.pytester.runpytest_inprocess("-p", find_plugin(), *QUIET, *self.beside, *args, *SAME_PROCESS)

    def run(self, *args: str) -> pytest.RunResult:
        """With it."""
        return self.plain("--kerntune", *args)

    def json(self, name: str = "run.json") -> dict[str, Any]:
        """A JSON file that the run wrote."""
        return json.loads((self.path / name).read_text())

    @property
    def log(self) -> str:
        """The calls of the engine, a line each."""
        path = self.path / "engine.log"
        return path.read_text() if path.exists() else ""

    @property
    def committed(self) -> list[str]:
        """The cases whose baselines were written."""
        return [x.partition("::")[2] for x in self.log.splitlines() if x.startswith("commit")]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, copies: Copies) -> Project:
    # The conftest that scripts the engine comes later than stand-ins for targets: they have their own tests.
    monkeypatch.setattr("pytest_kerntune.run_lifetime._without_gpu", lambda resolved: False)
    return Project(pytester, lambda: copies.python)


@pytest.fixture
def plugin_name() -> str:
    """What ``-p`` takes."""
    return find_plugin()


@pytest.fixture
def source_environ() -> dict[str, str]:
    """The environment of a subprocess that imports kerntune from this source tree, as this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def run_copy(
    pytester: pytest.Pytester, copies: Copies, source_environ: dict[str, str]
) -> Callable[..., pytest.RunResult]:
    """Runs pytest in pytester's folder, as a process of its own that needn't import torch."""

    def run(*args: str) -> pytest.RunResult:
        done = copies.run("-m", "pytest", *args, cwd=pytester.path, env=source_environ)
        print(done.stdout, done.stderr)  # seen where an assertion about it fails
        return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0.0)

    return run


@pytest.fixture
def one_test() -> Callable[..., str]:
    """The source of a test with one call that gets ``verdict``."""

    def source(verdict: str = "PASS", marker: str = "", extra: str = "") -> str:
        decorator = f"@pytest.mark.autotune({marker})\n" if marker is not None else ""
        return f"{decorator}def test_add(autotune):\n    assert autotune(kernel({verdict!r}{extra}), 5) == 5\n"

    return source


@pytest.fixture(autouse=True)
def gate_stays() -> Iterator[None]:
    """A run in this process may leave its scripted engine where later tests of this process look for the real one."""
    before = sys.modules.get(ENGINE)
    yield
    if sys.modules.get(ENGINE) is not before:
        sys.modules.pop(ENGINE, None)
        if before is not None:
            sys.modules[ENGINE] = before
    found = sys.modules.get(ENGINE)
    if found is None:
        vars(kerntune.gate).pop("api", None)
    else:
        vars(kerntune.gate)["api"] = found
