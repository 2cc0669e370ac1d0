"""What a process tunes with: its GPU and its compiler."""

from __future__ import annotations

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
