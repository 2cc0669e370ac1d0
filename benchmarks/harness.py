"""What each benchmark does around its measurement: arguments, where it ran, processes that it starts, its result.

Programs are started from the project's root as modules: ``python -m benchmarks.FOLDER.PROGRAM``. What runs under
another revision or another Python (``before_after_child``, ``verdict_process``) doesn't import this module.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

WIDTH = 150
"""What fits in so many characters stands on one line: a config a line, so that two results can be compared."""


# arguments


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the program's docstring as it stands."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


# where it ran


def today() -> str:
    """The date in UTC, as ``2026-11-23``."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def commit() -> str:
    """The checkout's commit, with ``+`` after it if files differ from it; empty where git doesn't know it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def versions(*packages: str) -> dict[str, str]:
    """The versions of those packages that are installed, by name. Nothing is imported."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment(*packages: str, **more: Any) -> dict[str, Any]:
    """Date, versions of Triton, torch, Python and ``packages``, number of cores, and ``more``."""
    found = {"date": today(), **versions("triton", "torch", *packages), "python": platform.python_version()}
    return {**found, "cpus": len(os.sched_getaffinity(0)), **more}


def device_name() -> str | None:
    """The GPU's name as torch has it; ``None`` without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def gpu_environment() -> dict[str, Any]:
    """Device, driver, clocks and assembler, as kerntune's samples have them; empty without a GPU."""
    import msgspec

    from kerntune.gpu.cuda import CudaBackend

    if device_name() is None:
        return {}
    return {k: v for k, v in msgspec.to_builtins(CudaBackend().gpu.environment()).items() if v not in (None, "")}


# processes


def child_environment(*before: Path | str, **variables: str) -> dict[str, str]:
    """This process's variables for a child: ``before`` and this checkout come first in its ``PYTHONPATH``."""
    given = filter(None, [os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, before), str(ROOT), *given]), **variables}


def plugin_options() -> list[str]:
    """The options that load kerntune's plugin in pytest: none where kerntune is installed, and pytest finds it."""
    installed = any(e.value.startswith("pytest_kerntune") for e in importlib.metadata.entry_points(group="pytest11"))
    return [] if installed else ["-p", "pytest_kerntune.plugin"]


@contextmanager
def scratch() -> Iterator[str]:
    """A folder for caches, which goes afterwards."""
    folder = tempfile.mkdtemp(prefix="kerntune-benchmark-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def module_of(text: str, name: str, folder: Path) -> ModuleType:
    """A text as a module. It is kept in ``folder``: Triton reads the sources of kernels from files."""
    path = folder / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)  # whole at once: other processes write and read the same file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# results


def write(path: Path, result: Any) -> None:
    """A result as JSON that can be read in a diff; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def merge(path: Path, **parts: Any) -> dict[str, Any]:
    """Put some parts into a result file; its other parts stay. Returns all of it."""
    found = {**(json.loads(path.read_text()) if path.exists() else {}), **parts}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(layout(found) + "\n")
    return found


def between(document: str, begin: str, end: str, text: str) -> str:
    """The document with ``text`` between two marks, each on a line of its own, in the place of what is there.

    Raises ``SystemExit`` if the document lacks one of them.
    """
    before, found, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"the document lacks {begin} or {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """The same in a file."""
    page.write_text(between(page.read_text(encoding="utf-8"), begin, end, text), encoding="utf-8")


def layout(value: Any, indent: str = "") -> str:
    """JSON with one line for whatever is short, or is a row of a list."""
    text = json.dumps(value)
    if len(text) + len(indent) <= WIDTH or not isinstance(value, (dict, list)):
        return text
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(k)}: {layout(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _row(item, inner) for item in value) + f"\n{indent}]"


def _row(item: Any, indent: str) -> str:
    """A list's item: on one line unless it holds lists of its own."""
    nested = isinstance(item, dict) and any(isinstance(v, list) and len(v) > 8 for v in item.values())
    return layout(item, indent) if nested else json.dumps(item)
