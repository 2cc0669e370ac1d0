"""Holds what a process tunes with: its GPU, its compiler, the tuners that it launches, and who watches launches.

A tuner that was made elsewhere is asked here whether kerntune launches it, and how. Observers watch launches; a range
in torch's profiler or in NVTX has the kernel, hash, config, grid and stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kerntune import capture as captures
from kerntune.base.device import DeviceSpec
from kerntune.base.warn import warn
from kerntune.capture import Capture
from kerntune.compiling.compiler import Compiler
from kerntune.compiling.forking import may_fork
from kerntune.compiling.frontend import prepare_hashes
from kerntune.errors import BackendError
from kerntune.gpu.base import Backend
from kerntune.gpu.probe import current_device, has_cuda
from kerntune.kernels.compat import launch_environment, launcher
from kerntune.kernels.dispatch.launch_path import ObservedLaunch, observers
from kerntune.kernels.source import jit_of

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


def open_capture(backend: Backend) -> Capture:
    """A capture of this thread's calls, which this process's compiler compiles."""
    return Capture(backend, COMPILER, thread=threading.get_ident())


def device_now() -> DeviceSpec:
    """What kernels are launched on: a capture's device while a call is captured, else torch's."""
    recording = captures.current()
    return current_device() if recording is None else recording.backend.spec


def prepare_launches() -> None:
    """Begin what the first launch of this process waits for, whatever it launches."""
    launcher.prepare_specializing()
    if may_fork():
        prepare_hashes()


@dataclass(frozen=True)
class TunerEngine:
    """How a tuner launches: ``path.launch``, to be read at each call. ``keep``: its winners are on disk too."""

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


def launch_observed(seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
    """Make a launch, seen by all observers, in a range of torch's profiler while that is active."""
    for observer in observers():
        run = partial(observer.launch, seen, run)
    with launch_environment.profiler_range(lambda: range_name(seen)):
        return run()


NVTX = "KERNTUNE_NVTX"

SHORT_HASH = 12
"""Characters of a source's hash in a profile."""


def range_name(seen: ObservedLaunch) -> str:
    """``softmax_kernel [0a1b2c3d4e5f] BLOCK=1024, num_warps: 8, ... grid=(4096, 1, 1) stream=0``."""
    parts = [seen.kernel, f"[{jit_of(seen.tuner).cache_key[:SHORT_HASH]}]", str(seen.config)]
    if seen.grid is not None:
        parts.append(f"grid={(*seen.grid, 1, 1)[:3]}")
    if (stream := launch_environment.current_stream()) is not None:
        parts.append(f"stream={stream}")
    return " ".join(parts)


class NvtxRanges:
    """An observer that marks each launch for Nsight Systems and other tools that read NVTX."""

    def __init__(self) -> None:
        self._missing = False

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        """Within a range; a warning, once, where torch has no NVTX."""
        if self._missing:
            return run()
        try:
            end = launch_environment.begin_nvtx_range(range_name(seen))
        except RuntimeError as exc:
            self._missing = True
            warn(f"{NVTX}: torch has no NVTX here: {exc}")
            return run()
        try:
            return run()
        finally:
            end()
