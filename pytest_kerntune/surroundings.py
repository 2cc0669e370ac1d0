"""What makes a run another one than its reader takes it for: a GPU that torch doesn't see, kernels that know pytest."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

DEVICES = Path("/dev")

ASKS_FOR_PYTEST = re.compile(r"PYTEST_VERSION|PYTEST_CURRENT_TEST|[\"']pytest[\"']\s+(?:not\s+)?in\s+sys\.modules")
"""How code asks whether it runs in a test; Triton's own tutorials take one config then, instead of their list."""


def unseen_gpu() -> str:
    """What to know where an NVIDIA GPU's device file is, but torch sees no GPU; empty elsewhere, and where the user has
    hidden all of them. Without this, a GPU runner with the wrong torch would pass by figures of compiled kernels."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return ""
    files = sorted(path for path in DEVICES.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit())
    if not files:
        return ""
    from kerntune.gpu.probe import why_unused

    return (
        f"{files[0]} is there, but {why_unused()}: kernels are compiled only, nothing is timed. Install a torch with "
        "CUDA that suits the driver; where this is meant, say --kerntune-target=cuda:90"
    )


def kernels_that_know_pytest(names: Collection[str]) -> list[str]:
    """A line for each file with kernels of these names that asks whether it runs under pytest: what is gated there may
    not be what runs elsewhere."""
    files: dict[Path, list[str]] = {}
    for module in list(sys.modules.values()) if names else ():
        for name, file in _kernels(module):
            if name in names and name not in files.setdefault(file, []):
                files[file].append(name)
    return [
        f"{file.name} asks whether it runs under pytest ({found}): what is gated of kernel {', '.join(kernels)} may "
        "not be what runs elsewhere, its configs for example"
        for file, kernels in sorted(files.items())
        if (found := _question(file))
    ]


def _kernels(module: ModuleType) -> list[tuple[str, Path]]:
    """The kernels among a module's globals and their files, behind whatever decorators have put around them."""
    found = []
    for value in list(vars(module).values()) if isinstance(module, ModuleType) else ():
        kind = getattr(type(value), "__module__", None)
        if isinstance(kind, str) and kind.startswith(("triton.", "kerntune.")):
            function = _python_function(value)
            file = inspect.getsourcefile(function) if function is not None else None
            found += [(function.__name__, Path(file))] if function is not None and file else []
    return found


def _python_function(value: Any) -> Any:
    for _ in range(MAX_WRAPPERS):
        if inspect.isfunction(value):
            return value
        value = vars(value).get("fn") if hasattr(value, "__dict__") else None
    return None


MAX_WRAPPERS = 8


def _question(file: Path) -> str:
    """The words with which a file asks; empty if it doesn't, or can't be read."""
    try:
        match = ASKS_FOR_PYTEST.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return match.group() if match else ""
