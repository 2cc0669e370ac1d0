"""A real NVIDIA GPU: memory, streams, events and graphs through torch, kernels through the driver."""

from __future__ import annotations

import contextlib
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import filelock

import kerntune
from kerntune import compat
from kerntune.backend.base import Buffer, Event, Function, Graph
from kerntune.backend.cuda_driver import CudaFunction, prepare_launch
from kerntune.device import DeviceSpec, Environment, Target
from kerntune.errors import MeasurementError
from kerntune.recording import Binary, Param

FLUSH_FACTOR = 2
"""An L2 flush writes this many times the cache."""

REST_S = 0.5

LOCK_TIMEOUT_S = 3600.0
"""How long a process waits for its turn to measure on a device that another one holds."""


class CudaBuffer:
    """Device memory owned by a torch tensor of bytes."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.address = int(data.data_ptr())
        self.nbytes = int(data.numel())


class CudaGraph:
    """A torch CUDA graph."""

    def __init__(self, work: Callable[[], None]) -> None:
        import torch

        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        """Enqueue the graph once."""
        self._graph.replay()


class CudaGpu:
    """The current CUDA device of torch."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._device = torch.cuda.current_device()
        self._flush: Any = None

    @cached_property
    def spec(self) -> DeviceSpec:
        """Read from torch and the driver."""
        p = self._torch.cuda.get_device_properties(self._device)
        return DeviceSpec(
            target=Target("cuda", f"{p.major}{p.minor}"),
            name=p.name,
            sm_count=p.multi_processor_count,
            registers_per_sm=p.regs_per_multiprocessor,
            max_threads_per_sm=p.max_threads_per_multi_processor,
            max_threads_per_block=1024,
            shared_memory_per_block=p.shared_memory_per_block_optin,
            shared_memory_per_sm=p.shared_memory_per_multiprocessor,
            l2_bytes=p.L2_cache_size,
            uuid=str(p.uuid),
        )

    def environment(self) -> Environment:
        """Versions, clocks and throttle reasons (NVML) as they are now."""
        driver, sm, memory, throttle = self._nvml()
        return Environment(
            triton=compat.triton_version(),
            torch=compat.torch_version(),
            python=platform.python_version(),
            driver=driver,
            assembler=compat.assembler_version("cuda", int(self.spec.target.arch)),
            kerntune=kerntune.__version__,
            device=self.spec.name,
            sm_clock_mhz=sm,
            memory_clock_mhz=memory,
            throttle=throttle,
        )

    def _nvml(self) -> tuple[str, int | None, int | None, str]:
        import pynvml

        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{self.spec.uuid}")
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            idle = pynvml.nvmlClocksThrottleReasonGpuIdle
            return (
                str(pynvml.nvmlSystemGetDriverVersion()),
                int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
                int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
                hex(reasons & ~idle) if reasons & ~idle else "",
            )
        except pynvml.NVMLError:
            return "", None, None, ""

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One measuring process per device, whatever project it works on."""
        path = Path(tempfile.gettempdir()) / f"kerntune-{self.spec.uuid or self.spec.slug}.lock"
        try:
            with filelock.FileLock(path, timeout=LOCK_TIMEOUT_S, mode=0o666):
                yield
        except filelock.Timeout as exc:
            raise MeasurementError(f"{self.spec.name} is measured on by another process: {exc.lock_file}") from exc

    def free_bytes(self) -> int:
        """Free on the device, and unused in torch's allocator."""
        cuda = self._torch.cuda
        return int(cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated())

    def allocate(self, nbytes: int) -> Buffer:
        """Memory from torch's allocator (512-byte aligned)."""
        try:
            return CudaBuffer(self._torch.empty(max(nbytes, 1), dtype=self._torch.uint8, device="cuda"))
        except self._torch.cuda.OutOfMemoryError as exc:
            raise MeasurementError(
                f"no room on {self.spec.name} for a copy of {nbytes / 2**20:.0f} MiB: kerntune keeps the first content "
                "of what a kernel writes and a working copy; use smaller inputs"
            ) from exc

    def borrow(self, tensor: Any) -> Buffer:
        """The bytes of a tensor's whole storage."""
        storage = tensor.untyped_storage()
        return CudaBuffer(self._torch.empty(0, dtype=self._torch.uint8, device=tensor.device).set_(storage))

    def copy(self, target: Buffer, source: Buffer) -> None:
        """On the current stream."""
        target.data[: source.nbytes].copy_(source.data)  # type: ignore[attr-defined]

    def read(self, buffer: Buffer, limit: int | None = None) -> bytes:
        """Waits for enqueued work."""
        return bytes(buffer.data[:limit].cpu().numpy().tobytes())  # type: ignore[attr-defined]

    def write(self, buffer: Buffer, data: bytes) -> None:
        """From host memory."""
        host = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        buffer.data[: len(data)].copy_(host)  # type: ignore[attr-defined]

    def fill(self, buffer: Buffer, byte: int) -> None:
        """On the current stream."""
        buffer.data.fill_(byte)  # type: ignore[attr-defined]

    def load(self, binary: Binary, data: bytes) -> Function:
        """Through ``cuModuleLoadData``."""
        return CudaFunction(binary, data, self.spec.shared_memory_per_block)

    def unload(self, function: Function) -> None:
        """Through ``cuModuleUnload``."""
        assert isinstance(function, CudaFunction)
        function.unload()

    def prepare(
        self, function: Function, grid: tuple[int, int, int], params: Sequence[Param], addresses: Sequence[int | None]
    ) -> Callable[[], None]:
        """A launch on torch's current stream, so that torch's graphs record it."""
        assert isinstance(function, CudaFunction)
        current, device = self._torch._C._cuda_getCurrentRawStream, self._device
        return prepare_launch(function, grid, params, addresses, lambda: int(current(device)))

    def event(self) -> Event:
        """Recorded on the current stream."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event  # type: ignore[no-any-return]  # torch has no types here

    def elapsed_ns(self, start: Event, end: Event) -> float:
        """From milliseconds, of about half a microsecond resolution."""
        end.synchronize()  # type: ignore[attr-defined]
        return float(start.elapsed_time(end)) * 1e6  # type: ignore[attr-defined]

    def graph(self, work: Callable[[], None]) -> Graph:
        """Everything ``work`` enqueues on torch's current stream."""
        return CudaGraph(work)

    def flush_l2(self) -> None:
        """Write twice the L2 cache."""
        if self._flush is None:
            size = max(FLUSH_FACTOR * self.spec.l2_bytes, 1 << 20)
            self._flush = self._torch.empty(size // 4, dtype=self._torch.int32, device="cuda")
        self._flush.zero_()

    def rest(self) -> None:
        """Half a second: power limits that hard work ran into are lifted within that time (seen on an H200)."""
        self.synchronize()
        time.sleep(REST_S)

    def synchronize(self) -> None:
        """The whole device."""
        self._torch.cuda.synchronize()


class CudaTensors:
    """Real CUDA tensors."""

    def is_tensor(self, value: Any) -> bool:
        """A torch tensor on a GPU."""
        import torch

        return isinstance(value, torch.Tensor) and value.is_cuda

    def storage_address(self, tensor: Any) -> int:
        """Where the storage starts."""
        return int(tensor.untyped_storage().data_ptr())

    def address(self, tensor: Any) -> int:
        """Where the tensor's first element is."""
        return int(tensor.data_ptr())

    def specializing(self) -> contextlib.AbstractContextManager[None]:
        """Real tensors know their addresses."""
        return contextlib.nullcontext()


class CudaBackend:
    """Runs on the GPU of this machine."""

    name = "cuda"
    torch_device = "cuda"

    def __init__(self) -> None:
        self.gpu = CudaGpu()
        self.spec = self.gpu.spec
        self.targets = (self.spec.target,)
        self.tensors = CudaTensors()

    def activate(self) -> contextlib.AbstractContextManager[None]:
        """Nothing to install."""
        return contextlib.nullcontext()

    def end_reason(self, error: BaseException) -> str | None:
        """Every failure is genuine."""
        return None
