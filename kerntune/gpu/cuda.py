"""A real NVIDIA GPU beside torch: torch's tensors and current stream, everything else through the driver."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Sequence
from typing import Any

import kerntune
from kerntune.base.device import Environment
from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu.base import Buffer, GpuGraph
from kerntune.gpu.compare import Difference
from kerntune.gpu.driver_gpu import DriverGpu, HostBuffer, borrowed
from kerntune.gpu.nvml import device_state
from kerntune.gpu.torch_compare import CHUNK, DeviceBytes, Piece, compare_pieces
from kerntune.kernels import compat
from kerntune.kernels.compat.torch_private import before_compiled

COMPUTE_MODE, COMPUTE_DEFAULT, MPS_ENABLED = 20, 0, 133
"""Numbers of ``CUdevice_attribute`` and of ``CUcomputemode`` (cuda.h); drivers before 12.3 don't know the last."""

MANY = 16
"""Copies that are worth a kernel for all of them."""


class TorchGraph:
    """A graph of a call that uses torch, its allocations included."""

    def __init__(self, work: Callable[[], object]) -> None:
        import torch

        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        """Enqueue the graph once."""
        self._graph.replay()


class CudaGpu(DriverGpu):
    """torch's current CUDA device, on torch's current stream."""

    def __init__(self) -> None:
        import torch

        torch.cuda.init()
        self._torch = torch
        super().__init__(torch.cuda.current_device())

    def current_stream(self) -> int:
        """torch's: our work is ordered with the user's."""
        return int(self._torch._C._cuda_getCurrentRawStream(self.ordinal))

    def looking_process(self) -> tuple[str, ...]:
        """The device's number. None where a second context can't be, or would die with the first."""
        mode = self._attribute(COMPUTE_MODE)
        if mode != COMPUTE_DEFAULT:
            raise BackendError("the device's compute mode allows one process at a time")
        if self._attribute_or(MPS_ENABLED, 0):
            raise BackendError("under MPS a fault ends the work of all processes that share the device")
        return (str(self.ordinal),)

    def environment(self) -> Environment:
        """Versions, and what NVML says of the device as it is now. Nothing is ever set on it."""
        return Environment(
            triton=compat.triton_version(),
            torch=compat.torch_version(),
            python=platform.python_version(),
            assembler=compat.assembler_version("cuda", int(self.spec.target.arch)),
            kerntune=kerntune.__version__,
            device=self.spec.name,
            **device_state(self.spec.uuid),
        )

    def free_bytes(self) -> int:
        """Free on the device, and unused in torch's allocator."""
        cuda = self._torch.cuda
        return super().free_bytes() + int(cuda.memory_reserved() - cuda.memory_allocated())

    def allocate(self, nbytes: int) -> Buffer:
        """From the driver; torch's unused memory is given back first if there is no room."""
        try:
            return super().allocate(nbytes)
        except MeasurementError:
            self._torch.cuda.empty_cache()
            return super().allocate(nbytes)

    def copier(self, pairs: Sequence[tuple[Buffer, Buffer]]) -> Callable[[], None]:
        """Many on the device by torch, which has a kernel for dozens of them."""
        far = [pair for pair in pairs if any(isinstance(buffer, HostBuffer) for buffer in pair)]
        near = [pair for pair in pairs if not any(isinstance(buffer, HostBuffer) for buffer in pair)]
        if len(near) < MANY:
            return super().copier(pairs)
        with self._torch.inference_mode(False):  # such tensors may be written in any mode
            targets = [self._bytes(target.address, source.nbytes) for target, source in near]
            sources = [self._bytes(source.address, source.nbytes) for _, source in near]
        one_by_one, rest = super().copier(pairs), super().copier(far)

        def copy_all() -> None:
            if self._capturing:  # torch doesn't know that stream
                one_by_one()
                return
            self._torch._foreach_copy_(targets, sources)
            rest()

        return copy_all

    def compare(self, expected: Buffer, actual: Buffer, dtype: str, tolerance: float) -> Difference | None:
        """On the device, by torch, in chunks."""
        if not expected.nbytes:
            return None
        self.synchronize()
        return compare_pieces(self._piece(expected), self._piece(actual), expected.nbytes, dtype, tolerance)

    def _piece(self, buffer: Buffer) -> Piece:
        scratch = self.allocate(min(CHUNK, buffer.nbytes)) if isinstance(buffer, HostBuffer) else None

        def piece(offset: int, size: int) -> Any:
            address = buffer.address + offset
            if scratch is not None:
                self.copy(borrowed(scratch.address, size, scratch), borrowed(address, size, buffer))
                address = scratch.address
            return self._bytes(address, size)

        return piece

    def _bytes(self, address: int, nbytes: int) -> Any:
        return self._torch.as_tensor(DeviceBytes(address, nbytes), device=f"cuda:{self.ordinal}")

    def borrow(self, tensor: Any) -> Buffer:
        """The bytes of a tensor's whole storage."""
        storage = tensor.untyped_storage()
        return borrowed(int(storage.data_ptr()), int(storage.nbytes()), storage)

    def call_graph(self, work: Callable[[], object]) -> GpuGraph:
        """A graph of a user's call, through torch, because it may allocate."""
        return TorchGraph(work)


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

    def compiling(
        self, begin: Callable[[contextlib.ExitStack], None]
    ) -> contextlib.AbstractContextManager[Sequence[str]]:
        """Functions are compiled as always; a GPU is there to time what has to be."""
        return before_compiled(begin)


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
