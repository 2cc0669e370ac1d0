"""Python imports this at its start where ``kerntune shapes record`` put the folder first: ``triton.autotune`` is noted.

It does what another ``sitecustomize`` would have done, and has kerntune installed once Triton is there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = str(Path(__file__).parent)


class _Watch(MetaPathFinder):
    """Waits for Triton to be imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "triton":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader)
        return spec


class _Then(Loader):
    """Loads Triton as its own loader does, and installs kerntune after it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _install()


def _install() -> None:
    try:
        from kerntune.tuning.api.install import install

        install()
    except Exception as exc:  # the program runs as without
        text = f"kerntune can't note this process's kernels of triton.autotune: {type(exc).__name__}: {exc}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _run_the_other() -> None:
    """The ``sitecustomize`` that Python would have found without this one."""
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if p != HERE])
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        spec.loader.exec_module(module_from_spec(spec))


if "triton" in sys.modules:
    _install()
else:
    sys.meta_path.insert(0, _Watch())
_run_the_other()
