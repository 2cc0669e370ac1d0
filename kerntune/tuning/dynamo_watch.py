"""Waits until torch's compiler is imported, and teaches it tuned kernels then: never before.

It loads nothing but Python's own library, since ``sitecustomize`` waits for Triton with it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any


class AfterImport:
    """A finder of ``sys.meta_path`` that calls a function once a module has been imported, and removes itself.

    An error of the function's is a warning that says what is ``lost``.
    """

    def __init__(self, name: str, then: Callable[[], None], lost: str) -> None:
        self._name, self._then, self._lost = name, then, lost

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The module's own spec, whose loader also calls the function."""
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            loader.exec_module = partial(self._execute, loader)
        return spec

    def _execute(self, loader: Any, module: ModuleType) -> None:
        del loader.exec_module  # its own again
        loader.exec_module(module)
        self.call()

    def call(self) -> None:
        """Call the function; whatever comes of it, the program goes on."""
        try:
            self._then()
        except Exception as exc:
            with contextlib.suppress(Warning):
                why = f"{type(exc).__name__}: {exc}"
                warnings.warn(f"kerntune: {self._lost} ({why})", RuntimeWarning, stacklevel=2)


_lock = threading.Lock()

_watched: set[str] = set()


def watch_dynamo() -> None:
    """Have torch's compiler know tuned kernels: now if it is loaded, else when it is. Once a process."""
    if not _watched:
        from kerntune.kernels.compat import torch_private

        _after(torch_private.DYNAMO, _teach_tracing)
        _after(torch_private.AOT_CACHE, _teach_cache)


def _after(name: str, then: Callable[[], None]) -> None:
    with _lock:
        if name in _watched:
            return
        _watched.add(name)
        loaded = name in sys.modules
        if not loaded:
            sys.meta_path.insert(0, AfterImport(name, then, "tuned kernels in compiled graphs are left to torch"))
    if loaded:
        then()


def _teach_tracing() -> None:
    from kerntune.tuning.torch_compile.hook_in import teach_tracing

    teach_tracing()


def _teach_cache() -> None:
    from kerntune.tuning.torch_compile.hook_in import teach_cache

    teach_cache()
