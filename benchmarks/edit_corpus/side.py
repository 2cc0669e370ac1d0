"""A side of an edit as a module, whose kernels can be compiled."""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType


def load(text: str, name: str, folder: Path) -> ModuleType:
    """The text as a module. It is kept in ``folder``: Triton reads the sources of kernels from files."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"{name}_{digest}.py"
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)  # whole at once: other processes write and read the same file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
