"""Holds what a process tunes with: its GPU, its compiler, and the tuners that it launches.

A tuner that was made elsewhere is asked here whether kerntune launches it, and how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    """How a tuner launches: ``path.launch(grid, *args, **kwargs)``, to be read at each call. ``keep``: its winners are
    on disk too."""

    path: Any
    keep: bool


class PlainPath:
    """A tuner that launches in its own way, as a path."""

    def __init__(self, tuner: Any) -> None:
        self._tuner = tuner

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
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
