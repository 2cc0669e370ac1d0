"""A real NVIDIA GPU beside torch: torch's tensors and current stream, everything else through the driver.

The rate that matrix products reach on a device is measured with torch's own, large, of random numbers, by event
pairs. The numbers are random because a GPU's clocks depend on its power, and that on how many bits change: products
of zeros are faster.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from statistics import median
from typing import Any

import kerntune
from kerntune.base.device import Environment
from kerntune.base.users_line import UsersLine
from kerntune.base.warn import warn
from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu.base import Buffer, Executor, GpuGraph, OperatorListener
from kerntune.gpu.compare import CHUNK, DeviceBytes, Difference, Piece, compare_pieces
from kerntune.gpu.driver_gpu import BorrowedBuffer, DriverGpu, HostBuffer
from kerntune.gpu.host_gpus import device_state, mps_folder, unprotected_by
from kerntune.kernels.access import Access
from kerntune.kernels.compat import inductor_parts, versions

COMPUTE_MODE, COMPUTE_DEFAULT, MPS_ENABLED = 20, 0, 133
"""Numbers of ``CUdevice_attribute`` and of ``CUcomputemode`` (cuda.h); drivers before 12.3 don't know the last."""

CALL_STREAMS = 16
"""Streams that several calls of one graph are recorded on, in turn. torch's allocator gives freed memory to the stream
that had it; a library's workspaces are one for each stream (32 MiB of cuBLAS on a Hopper)."""


class TorchGraph:
    """A graph of calls that use torch, their allocations included.

    Several are recorded on streams of their own, each after the one before, so the graph is the same chain of kernels
    as on one stream. But no call's temporaries are those of the call before it, which may still be in the L2 cache;
    results of all calls are kept until all are recorded. A stream that all waited for would gather the calls that it
    has waited for, and each further one would wait for all of these: on an H200, 32 calls of 13 us took 11 % longer,
    256 calls of 3 us more than twice as long. That a call also waits for an earlier one of its stream adds nothing.
    """

    def __init__(self, *calls: Callable[[], object]) -> None:
        import torch

        self._graph = torch.cuda.CUDAGraph()
        streams = [torch.cuda.Stream() for _ in calls[:CALL_STREAMS]] if len(calls) > 1 else []
        kept = []
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            own = last = torch.cuda.current_stream()
            for i, call in enumerate(calls):
                side = streams[i % len(streams)] if streams else own
                if side != last:
                    side.wait_stream(last)
                with torch.cuda.stream(side):
                    kept.append(call())
                last = side
            if last != own:
                own.wait_stream(last)

    def replay(self) -> None:
        self._graph.replay()


class CudaGpu(DriverGpu):
    """A CUDA device that torch sees, by default its current one, on torch's current stream."""

    def __init__(self, ordinal: int | None = None) -> None:
        import torch

        torch.cuda.init()
        self._torch = torch
        number = torch.cuda.current_device() if ordinal is None else ordinal
        with torch.cuda.device(number):  # the driver makes its context the thread's own
            super().__init__(number)

    def entered(self) -> AbstractContextManager[None]:
        """Through torch, which keeps count of the thread's device."""
        return self._torch.cuda.device(self.ordinal)  # type: ignore[no-any-return]

    def synchronize(self) -> None:
        """Whatever device is current."""
        with self.entered():
            super().synchronize()

    def current_stream(self) -> int:
        """torch's: our work is ordered with the user's."""
        return int(self._torch._C._cuda_getCurrentRawStream(self.ordinal))

    def first_launch_arguments(self) -> tuple[str, ...]:
        """The device's number. None where a second context can't be, or would die with the first."""
        if found := self.unprotected():
            raise BackendError("; ".join(found))
        if self._attribute(COMPUTE_MODE) != COMPUTE_DEFAULT:
            raise BackendError("the device's compute mode allows no second context")
        return (str(self.ordinal),)

    def unprotected(self) -> list[str]:
        """As the driver says; of MPS, as its pipes say where the driver doesn't know."""
        mps = self._attribute_or(MPS_ENABLED, int(mps_folder() is not None))
        return unprotected_by(self._attribute(COMPUTE_MODE), bool(mps))

    def environment(self) -> Environment:
        """Versions, and what NVML says of the device as it is now. Nothing is ever set on it."""
        state = device_state(self.spec.uuid)  # before the assembler's process, while which the device is idle
        return Environment(
            triton=versions.triton_version(),
            torch=versions.torch_version(),
            python=platform.python_version(),
            assembler=versions.assembler_version("cuda", int(self.spec.target.arch)),
            kerntune=kerntune.__version__,
            device=self.spec.name,
            **state,
        )

    def free_bytes(self) -> int:
        """Free on the device, and unused in torch's allocator."""
        cuda, number = self._torch.cuda, self.ordinal
        with self.entered():
            return super().free_bytes() + int(cuda.memory_reserved(number) - cuda.memory_allocated(number))

    def allocate(self, nbytes: int) -> Buffer:
        """From the driver; torch's unused memory is given back first if there is no room."""
        try:
            return super().allocate(nbytes)
        except MeasurementError:
            self._torch.cuda.empty_cache()
            return super().allocate(nbytes)

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
                self.copy(BorrowedBuffer(scratch.address, size, scratch), BorrowedBuffer(address, size, buffer))
                address = scratch.address
            return self._bytes(address, size)

        return piece

    def _bytes(self, address: int, nbytes: int) -> Any:
        return self._torch.as_tensor(DeviceBytes(address, nbytes), device=f"cuda:{self.ordinal}")

    def borrow(self, tensor: Any) -> Buffer:
        """The bytes of a tensor's whole storage."""
        storage = tensor.untyped_storage()
        return BorrowedBuffer(int(storage.data_ptr()), int(storage.nbytes()), storage)

    def call_graph(self, *calls: Callable[[], object]) -> GpuGraph:
        """A graph of users' calls, through torch, because they may allocate."""
        return TorchGraph(*calls)


class CudaTensors:
    """Real CUDA tensors (:class:`~kerntune.gpu.base.Tensors`)."""

    def is_tensor(self, value: Any) -> bool:
        import torch
        from torch._subclasses.fake_tensor import FakeTensor  # a compiled graph's, without memory

        return isinstance(value, torch.Tensor) and value.is_cuda and not isinstance(value, FakeTensor)

    def storage_address(self, tensor: Any) -> int:
        return int(tensor.untyped_storage().data_ptr())

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def specializing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def watching(self, listener: OperatorListener) -> AbstractContextManager[None]:
        from kerntune.gpu.operator_mode import noting  # commands open a device without a capture

        return noting(listener)

    def compiling(self, begin: Callable[[ExitStack], None]) -> AbstractContextManager[Sequence[str]]:
        """Functions are compiled as always; a GPU is there to time what has to be."""
        return before_compiled(begin)

    def launched(self, pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        """Nothing is to be done: memory has what the kernel writes."""

    def take_unanswered(self) -> list[tuple[UsersLine, str]]:
        return []

    def supply(self, tensor: Any, values: Any) -> None:
        """Nothing is to be done: the kernel itself computes them."""


@contextmanager
def before_compiled(begin: Callable[[ExitStack], None]) -> Iterator[Sequence[str]]:
    """``begin`` is called before a function compiled by ``torch.compile`` runs meanwhile, with a stack that closes at
    the end: now if such a function may exist, else when the first is made. Torch's compiler isn't imported for a call
    that has none. Where this torch has moved a part that ``begin`` needs, a warning names the part, and kernels that
    aren't compiled by torch are captured as always."""
    import torch

    with ExitStack() as stack:
        original, first = torch.compile, iter([True])

        def compile_(*args: Any, **kwargs: Any) -> Any:
            if next(first, False):
                _begin(begin, stack)
            return original(*args, **kwargs)

        if inductor_parts.inductor_is_used():
            _begin(begin, stack)
        else:
            torch.compile = compile_
            stack.callback(setattr, torch, "compile", original)
        yield ()


def _begin(begin: Callable[[ExitStack], None], stack: ExitStack) -> None:
    why = inductor_parts.why_gate_is_off()
    if not why:
        try:
            begin(stack)
        except BackendError as exc:
            why = f"{exc}: {inductor_parts.GATE_OFF}"
    if why:
        warn(f"kernels of functions compiled by torch are not captured: {why}")


class CudaBackend:
    """Runs on a GPU of this machine, by default torch's current one."""

    name = "cuda"
    torch_device = "cuda"

    def __init__(self, ordinal: int | None = None) -> None:
        self.gpu = CudaGpu(ordinal)
        self.ordinal = self.gpu.ordinal
        self.spec = self.gpu.spec
        self.tensors = CudaTensors()
        self._others = {self.ordinal: self}

    @property
    def count(self) -> int:
        import torch

        return int(torch.cuda.device_count())

    def current(self) -> int:
        import torch

        return int(torch.cuda.current_device())

    def on(self, ordinal: int) -> CudaBackend:
        """One for each device, made when it is first asked for."""
        if ordinal not in self._others:
            other = CudaBackend(ordinal)
            other._others = self._others
            self._others[ordinal] = other
        return self._others[ordinal]

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end_reason(self, error: BaseException) -> str | None:
        return None


SIZE = 8192
"""Rows and columns: 1.1e12 operations, 1 to 2 ms of a large GPU in 16 bits."""

SIZES = {"float64": 4096}
"""Of dtypes that most GPUs are slow in."""

RUNS, WARM_UP = 10, 3


def measured_matmul(gpu: Executor, dtype: str) -> float | None:
    """Operations (a multiply-add is two) a second; None where there is no torch on this device, or no such product.

    ``float32`` is multiplied as Triton does by default, in TF32. Raises what torch raises if there is no room.
    """
    if not isinstance(gpu, CudaGpu):
        return None
    size = SIZES.get(dtype, SIZE)
    product = _product(dtype, size, "cuda")
    if product is None:
        return None
    times = [_seconds(product) for _ in range(WARM_UP + RUNS)][WARM_UP:]
    return 2.0 * size**3 / median(times)


def _product(dtype: str, size: int, device: str) -> Callable[[], object] | None:
    """The random numbers are of a generator of its own: a test's don't depend on what was measured before."""
    import torch

    own = torch.Generator(device)

    def random() -> Any:
        return torch.randn(size, size, device=device, generator=own)

    if dtype == "int8":
        shape = (size, size)
        a, b = (torch.randint(-128, 128, shape, device=device, dtype=torch.int8, generator=own) for _ in range(2))
        return lambda: torch._int_mm(a, b.t())
    if dtype == "float8_e4m3fn":
        one = torch.ones((), device=device)
        a, b = random().to(torch.float8_e4m3fn), random().to(torch.float8_e4m3fn)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        return None
    a, b = random().to(kind), random().to(kind)
    out = torch.empty_like(a)
    return _in_tf32(lambda: torch.mm(a, b, out=out)) if dtype == "float32" else lambda: torch.mm(a, b, out=out)


def _in_tf32(product: Callable[[], object]) -> Callable[[], object]:
    import torch

    def run() -> object:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return product()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return run


def _seconds(product: Callable[[], object]) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    product()
    end.record()
    end.synchronize()
    milliseconds = float(begin.elapsed_time(end))
    if milliseconds <= 0:
        raise MeasurementError("a matrix product took no time")
    return milliseconds / 1e3
