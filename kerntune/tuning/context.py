"""Holds what a process tunes with: its GPU, its compiler, and the tuners that it launches.

A tuner that was made elsewhere is asked here whether kerntune launches it, and how. torch's compiler learns of tuned
kernels once something else imports it: never before.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kerntune import capture as captures
from kerntune.base.device import DeviceSpec
from kerntune.compiling.compiler import Compiler
from kerntune.compiling.forking import may_fork
from kerntune.compiling.frontend import prepare_hashes
from kerntune.errors import BackendError
from kerntune.gpu.base import Backend
from kerntune.gpu.probe import current_device, has_cuda
from kerntune.kernels import compat
from kerntune.kernels.compat import torch_private

COMPILER = Compiler()
"""One for the whole process: what was compiled for one call, another needn't."""


def this_gpu() -> Backend | None:
    """torch's current GPU, if kerntune can time on it."""
    if not has_cuda():
        return None
    from kerntune.gpu.cuda import CudaBackend

    try:
        return CudaBackend()
    except BackendError:  # stand-ins answer that there is a GPU; there is no driver behind them
        return None


def device_now() -> DeviceSpec:
    """What kernels are launched on: a capture's device while a call is captured, else torch's."""
    recording = captures.current()
    return current_device() if recording is None else recording.backend.spec


def prepare_launches() -> None:
    """Begin what the first launch of this process waits for, whatever it launches."""
    compat.prepare_specializing()
    if may_fork():
        prepare_hashes()


@dataclass(frozen=True)
class TunerEngine:
    """How a tuner launches: ``path.front(grid, *args, **kwargs)``, to be read at each call. ``keep``: its winners are
    on disk too."""

    path: Any
    keep: bool


class PlainPath:
    """A tuner that launches in its own way, as a path."""

    def __init__(self, tuner: Any) -> None:
        self._tuner = tuner

    def front(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """``kernel[grid](...)``."""
        return self._tuner[grid](*args, **kwargs)


Finder = Callable[[Any], "TunerEngine | None"]

_finders: list[Finder] = []


def find_engines_with(finder: Finder) -> Finder:
    """Ask a function too, from now on; a decorator."""
    _finders.append(finder)
    return finder


def engine_of(tuner: Any) -> TunerEngine | None:
    """How kerntune launches a tuner; None if it doesn't."""
    return next((found for find in _finders if (found := find(tuner)) is not None), None)


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
