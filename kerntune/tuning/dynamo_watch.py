"""Waits until torch's compiler is imported, and teaches it tuned kernels then: never before."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kerntune.kernels.compat import torch_private


class AfterImport:
    """A finder of ``sys.meta_path`` that calls a function once a module has been imported, and removes itself."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The module's own spec, whose loader also calls the function."""
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenLoader(spec, self._then)
        return spec


class _ThenLoader(Loader):
    """A module's loader, with something to do afterwards."""

    def __init__(self, spec: ModuleSpec, then: Callable[[], None]) -> None:
        self._spec, self._loader, self._then = spec, spec.loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's loader."""
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the module's loader, which is put back before; then the function."""
        assert self._loader is not None
        self._spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._then()
        except Exception as exc:  # an unknown change of torch: its import goes on
            with contextlib.suppress(Warning):
                what = f"kerntune: tuned kernels in compiled graphs are left to torch ({type(exc).__name__}: {exc})"
                warnings.warn(what, RuntimeWarning, stacklevel=2)


_lock = threading.Lock()

_watched: set[str] = set()


def watch_dynamo() -> None:
    """Have torch's compiler know tuned kernels: now if it is loaded, else when it is. Once a process."""
    if not _watched:
        _after(torch_private.DYNAMO, _teach_tracing)
        _after(torch_private.AOT_CACHE, _teach_cache)


def _after(name: str, then: Callable[[], None]) -> None:
    with _lock:
        if name in _watched:
            return
        _watched.add(name)
        loaded = name in sys.modules
        if not loaded:
            sys.meta_path.insert(0, AfterImport(name, then))
    if loaded:
        then()


def _teach_tracing() -> None:
    from kerntune.tuning.torch_compile.hook_in import teach_tracing

    teach_tracing()


def _teach_cache() -> None:
    from kerntune.tuning.torch_compile.hook_in import teach_cache

    teach_cache()
