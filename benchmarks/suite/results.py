"""Result files: parts of one JSON file that runs add to, and where they ran."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTH = 150
"""What fits in so many characters stands on one line: a config a line, so that two results can be compared."""


def merge(path: Path, **parts: Any) -> dict[str, Any]:
    """Put some parts into a result file; its other parts stay. Returns all of it."""
    found = {**(json.loads(path.read_text()) if path.exists() else {}), **parts}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(layout(found) + "\n")
    return found


@contextmanager
def scratch() -> Iterator[str]:
    """A folder for caches, which goes afterwards."""
    folder = tempfile.mkdtemp(prefix="kerntune-benchmark-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def environment() -> dict[str, Any]:
    """Where this ran; the GPU's side only where there is one."""
    import torch
    import triton

    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
    }
    return {**found, **gpu_environment()} if torch.cuda.is_available() else found


def gpu_environment() -> dict[str, Any]:
    """Device, driver, clocks and assembler, as kerntune's samples have them."""
    import msgspec

    from kerntune.gpu.cuda import CudaBackend

    return {k: v for k, v in msgspec.to_builtins(CudaBackend().gpu.environment()).items() if v not in (None, "")}
