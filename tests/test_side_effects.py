"""What importing kerntune and tuning a call change in the user's process: what docs/side-effects.md lists."""

from __future__ import annotations

import ast
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, block, by_block, configs, scale_kernel, script
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import context
from kerntune.tuning import tuned_call as autotuner_run
from kerntune.tuning.cache import WinnerCache

pytest.importorskip("sympy")  # torch's fake tensors import it at their first use, and it adds a filter of its own

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "side-effects.md").read_text(encoding="utf-8")


def process_state() -> dict[str, Any]:
    """What a process has once, and any library could change. Self-contained: a child process runs its source."""
    unset = object()
    return {
        "switch interval": sys.getswitchinterval(),
        "warning filters": list(warnings.filters),
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "hooks": [sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, warnings.showwarning],
        "tracing": [sys.gettrace(), sys.getprofile(), vars(threading).get("_trace_hook", unset) is None],
        "limits": [sys.getrecursionlimit(), os.getcwd(), sys.path, sys.meta_path, sys.path_hooks],
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: after[name] for name, value in before.items() if after[name] != value}


IMPORTS = """
import importlib, os, pkgutil, signal, sys, threading, warnings
from typing import Any
import numpy, pytest, sympy, torch._dynamo, triton, triton.runtime.autotuner
{state}
{changed}
warnings.simplefilter("ignore")
before = process_state()
import kerntune, pytest_kerntune
modules = [m.name for p in (kerntune, pytest_kerntune) for m in pkgutil.walk_packages(p.__path__, p.__name__ + ".")]
for name in modules:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(modules), changed(before, process_state()))
"""


@pytest.mark.slow
def test_imports_change_nothing() -> None:
    """Of every module there is, beside what numpy, torch and Triton change when they are imported."""
    text = IMPORTS.format(state=inspect.getsource(process_state), changed=inspect.getsource(changed))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    count, _, found = done.stdout.strip().partition(" ")
    assert int(count) > 300
    assert found == "{}"


def entry_points() -> list[Any]:
    return [
        JITFunction.run,
        JITFunction.__getitem__,
        Autotuner.run,
        vars(Autotuner).get("__getitem__"),
        CompiledKernel.__getitem__,
    ]


@pytest.fixture
def tuned_call(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], None]:
    """Tunes and launches a kernel on the scripted GPU, nothing of which is stored."""
    script(backend, block(64, 9_000.0), block(128, 2_000.0))
    monkeypatch.setattr(context, "this_gpu", lambda: backend)
    monkeypatch.setattr(autotuner_run, "WinnerCache", lambda: WinnerCache(tmp_path))

    def call(kernel: Any) -> None:
        x = torch.empty(N, device="cuda")
        kernel[by_block](x, x, N, 2.0)
        assert kernel.best_config.kwargs["BLOCK"] == 128

    return call


def test_a_tuned_call_leaves_the_process_as_it_was(tuned_call: Callable[[Any], None]) -> None:
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    before, launching = process_state(), entry_points()
    tuned_call(kernel)
    assert changed(before, process_state()) == {}
    assert entry_points() == launching


def test_a_failed_tuning_leaves_it_too(tuned_call: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerntune.tuning.tune_call.tune", lambda *given, **words: 1 / 0)
    before, launching = process_state(), entry_points()
    with pytest.raises(ZeroDivisionError):
        tuned_call(kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel))
    assert changed(before, process_state()) == {}
    assert entry_points() == launching


# the document

SETTERS = re.compile(
    r"""(sys\.(setswitchinterval|setrecursionlimit|settrace|setprofile) | threading\.(settrace|setprofile)
    | warnings\.(filterwarnings|simplefilter|resetwarnings|catch_warnings) | os\.environ\.(update|setdefault|pop|clear)
    | os\.(putenv|unsetenv|chdir|umask|nice|setsid|dup2|fork|forkpty|register_at_fork|sched_setaffinity|setpriority)
    | signal\.(signal|set_wakeup_fd|siginterrupt|setitimer) | faulthandler\.\w+ | atexit\.register
    | gc\.(disable|enable|freeze|set_threshold) | resource\.setrlimit | locale\.setlocale | logging\.basicConfig
    | ctypes\.pythonapi\.\w+ | \w+\.reconfigure)$""",
    re.VERBOSE,
)


def setters_in(path: Path) -> Iterator[str]:
    """Names of what a module uses or assigns that is its whole process's, Triton's or torch's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    theirs = set(imported_from(tree, ("triton", "torch")))
    for node in ast.walk(tree):
        name = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Subscript)) else ""
        stored = name and isinstance(node.ctx, (ast.Store, ast.Del))  # type: ignore[attr-defined]
        owned = name.startswith(("os.environ[", "tempfile.tempdir")) or name.partition(".")[0] in theirs
        if SETTERS.match(name) or (stored and owned):
            yield name


def imported_from(tree: ast.AST, libraries: Collection[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in libraries:
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            yield from (name for name in names if name in libraries)


@pytest.mark.slow
def test_every_module_that_changes_its_process_is_listed() -> None:
    sources = [path for top in ("kerntune", "pytest_kerntune") for path in sorted((ROOT / top).rglob("*.py"))]
    using = {path.relative_to(ROOT).as_posix(): sorted(set(setters_in(path))) for path in sources}
    assert sum(map(bool, using.values())) > 20
    unlisted = {module: names for module, names in using.items() if names and f"`{module}`" not in DOCUMENT}
    assert unlisted == {}, "say so, or do without"


def test_what_the_document_names_exists() -> None:
    named = set(re.findall(r"`((?:kerntune|pytest_kerntune)/[\w/]+\.py)`", DOCUMENT))
    assert named, "modules are named by their paths"
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
    sources = "".join(
        p.read_text(encoding="utf-8") for top in ("kerntune", "pytest_kerntune") for p in (ROOT / top).rglob("*.py")
    )
    variables = set(re.findall(r"KERNTUNE_[A-Z_]+", DOCUMENT))
    assert variables
    assert [name for name in sorted(variables) if f'"{name}"' not in sources] == []
