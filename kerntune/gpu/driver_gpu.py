"""A CUDA device through the driver alone: memory, streams, events, graphs, kernels. Needs neither torch nor Triton.

Worker processes run on this, so that a fresh one is ready in a few tenths of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from threading import Thread

from kerntune.base.device import DeviceSpec, Target
from kerntune.base.recording import Binary, Param
from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu import cuda_driver
from kerntune.gpu.base import Buffer, Function, GpuEvent, GpuGraph
from kerntune.gpu.compare import Difference, compare_bytes
from kerntune.gpu.cuda_driver import (
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED,
    IPC_LAZY_PEER_ACCESS,
    CudaFunction,
    IpcHandle,
    check,
    library,
    prepare_launch,
    quick_library,
)
from kerntune.gpu.device_lock import LockedDevice
from kerntune.gpu.replay_script import DEVICE_L2_BYTES, DEVICE_SHARED_OPTIN

FLUSH_FACTOR = 2
"""An L2 flush writes this many times the cache."""

REST_S = 0.5

STREAM_NON_BLOCKING = 1
CAPTURE_RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``: memory that Python frees meanwhile doesn't spoil the capture."""

ATTRIBUTES = {
    "sm_count": 16, "max_threads_per_sm": 39, "max_threads_per_block": 1, "registers_per_sm": 82,
    "shared_memory_per_sm": 81, "shared_memory_per_block": DEVICE_SHARED_OPTIN, "l2_bytes": DEVICE_L2_BYTES,
}  # fmt: skip
MAJOR, MINOR = 75, 76
"""Numbers of ``CUdevice_attribute`` (cuda.h)."""

MEMORY_TYPE = 2
"""``CU_POINTER_ATTRIBUTE_MEMORY_TYPE``."""


class DriverBuffer:
    """Device memory of our own."""

    def __init__(self, nbytes: int) -> None:
        pointer = ctypes.c_uint64()
        check(library().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 1))), "allocating memory")
        self.address, self.nbytes = pointer.value, nbytes

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            library().cuMemFree_v2(ctypes.c_uint64(self.address))


class HostBuffer:
    """Pinned memory of the host, under its address; with unified addressing copies take it like the device's."""

    def __init__(self, nbytes: int) -> None:
        pointer = ctypes.c_void_p()
        code = library().cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 1)), ctypes.c_uint(0))
        check(code, "allocating pinned memory of the host")
        self.address, self.nbytes = pointer.value or 0, nbytes

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            library().cuMemFreeHost(ctypes.c_void_p(self.address))


class BorrowedBuffer:
    """Device memory of another owner, kept alive."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.address, self.nbytes, self._owner = address, nbytes, owner


class DriverEvent:
    """A CUDA event."""

    def __init__(self, stream: int) -> None:
        self.handle = ctypes.c_void_p()
        check(quick_library().cuEventCreate(ctypes.byref(self.handle), 0), "creating an event")
        check(quick_library().cuEventRecord(self.handle, ctypes.c_void_p(stream)), "recording an event")

    def __del__(self) -> None:
        library().cuEventDestroy_v2(self.handle)


class DriverGraph:
    """An instantiated CUDA graph; ``keep`` holds what its launches point to."""

    def __init__(self, executable: ctypes.c_void_p, stream: Callable[[], int], keep: object) -> None:
        self._executable, self._stream, self._keep = executable, stream, keep

    def replay(self) -> None:
        check(quick_library().cuGraphLaunch(self._executable, ctypes.c_void_p(self._stream())), "launching a graph")

    def __del__(self) -> None:
        library().cuGraphExecDestroy(self._executable)


class DriverGpu(LockedDevice):
    """One device in its primary context (the one that torch uses too), on one stream: an
    :class:`~kerntune.gpu.base.Executor`, which describes the methods."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        cuda = library()
        check(cuda.cuInit(0), "starting the driver")
        cuda_driver.remember_visible()
        self._device = ctypes.c_int()
        check(cuda.cuDeviceGet(ctypes.byref(self._device), ordinal), f"finding device {ordinal}")
        context = ctypes.c_void_p()
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device), "taking the device's context")
        check(cuda.cuCtxSetCurrent(context), "entering the device's context")
        self._context = context
        self._side = ctypes.c_void_p()
        check(cuda.cuStreamCreate(ctypes.byref(self._side), STREAM_NON_BLOCKING), "creating a stream")
        self._capturing = False
        self._awaiting: Thread | None = None
        self._flush: DriverBuffer | None = None

    def current_stream(self) -> int:
        """The stream that work goes to."""
        return self._side.value or 0

    def _stream(self) -> int:
        return (self._side.value or 0) if self._capturing else self.current_stream()

    @cached_property
    def spec(self) -> DeviceSpec:  # type: ignore[override]  # no code sets it
        name, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
        check(library().cuDeviceGetName(name, 256, self._device), "reading the device's name")
        check(library().cuDeviceGetUuid_v2(uuid, self._device), "reading the device's id")
        figures = {field: self._attribute(number) for field, number in ATTRIBUTES.items()}
        digits = bytes(uuid).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        target = Target("cuda", f"{self._attribute(MAJOR)}{self._attribute(MINOR)}")
        return DeviceSpec(target=target, name=name.value.decode(), uuid="-".join(parts), **figures)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        check(library().cuDeviceGetAttribute(ctypes.byref(value), number, self._device), "reading a device attribute")
        return value.value

    def _attribute_or(self, number: int, default: int) -> int:
        """An attribute that older drivers don't know."""
        value = ctypes.c_int(default)
        code = library().cuDeviceGetAttribute(ctypes.byref(value), number, self._device)
        return default if code else value.value

    def _enter(self) -> None:
        """Give the calling thread the device's context if it has none, or another's: autograd's own thread has touched
        no device when the first backward function that it runs launches a kernel."""
        current = ctypes.c_void_p()
        check(library().cuCtxGetCurrent(ctypes.byref(current)), "asking for the current context")
        if current.value != self._context.value:
            check(library().cuCtxSetCurrent(self._context), "entering the device's context")

    def free_bytes(self) -> int:
        """As the driver says."""
        self._enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        check(library().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "asking for free memory")
        return free.value

    def allocate(self, nbytes: int) -> Buffer:
        """Of the driver's own allocator (256-byte aligned at least)."""
        self._enter()
        try:
            return DriverBuffer(nbytes)
        except BackendError as exc:
            raise MeasurementError(
                f"no room on {self.spec.name} for a copy of {nbytes / 2**20:.0f} MiB: kerntune keeps the first content "
                "of what a kernel writes and a working copy; use smaller inputs"
            ) from exc

    def allocate_host(self, nbytes: int) -> Buffer:
        """Pinned, so that copies run at the bus's speed."""
        try:
            return HostBuffer(nbytes)
        except BackendError as exc:
            raise MeasurementError(
                f"no room for {nbytes / 2**20:.0f} MiB of pinned host memory, where kerntune would keep the first "
                "content of what a kernel writes; use smaller inputs"
            ) from exc

    def reaches(self, address: int) -> bool:
        """Whether the driver knows what kind of memory lies there; it refuses numbers that are no addresses."""
        self._enter()
        kind = ctypes.c_uint()
        code = library().cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, ctypes.c_uint64(address))
        return bool(code == 0)

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer:
        return BorrowedBuffer(buffer.address + offset, nbytes, buffer)

    def carve(self, buffer: Buffer, sizes: Sequence[int]) -> list[Buffer]:
        starts = accumulate(sizes, initial=buffer.address)
        return [BorrowedBuffer(start, s, buffer) for start, s in zip(starts, sizes, strict=False)]

    def share(self, buffer: Buffer) -> bytes:
        """Of ``cuIpcGetMemHandle``."""
        self._enter()
        handle = IpcHandle()
        code = library().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(buffer.address))
        check(code, "sharing memory with another process")
        return bytes(handle)

    @contextlib.contextmanager
    def shared(self, handle: bytes, nbytes: int) -> Iterator[Buffer]:
        """Through ``cuIpcOpenMemHandle``. A process can't open its own."""
        self._enter()
        address, raw = ctypes.c_uint64(), IpcHandle.from_buffer_copy(handle)
        code = library().cuIpcOpenMemHandle_v2(ctypes.byref(address), raw, ctypes.c_uint(IPC_LAZY_PEER_ACCESS))
        check(code, "opening another process's memory")
        try:
            yield BorrowedBuffer(address.value, nbytes, None)
        finally:
            check(library().cuIpcCloseMemHandle(address), "closing another process's memory")

    def compare(self, expected: Buffer, actual: Buffer, dtype: str, tolerance: float) -> Difference | None:
        data = ctypes.string_at(expected.address, expected.nbytes) if isinstance(expected, HostBuffer) else None
        wanted = self.read(expected) if data is None else data
        return compare_bytes(wanted, self.read(actual), dtype, tolerance)

    def copy(self, target: Buffer, source: Buffer) -> None:
        """On the current stream, from or to the host too."""
        code = library().cuMemcpyAsync(
            ctypes.c_uint64(target.address), ctypes.c_uint64(source.address), ctypes.c_size_t(source.nbytes),
            ctypes.c_void_p(self._stream()),
        )  # fmt: skip
        check(code, "copying device memory")

    def read(self, buffer: Buffer, limit: int | None = None) -> bytes:
        self.synchronize()
        size = buffer.nbytes if limit is None else min(limit, buffer.nbytes)
        data = (ctypes.c_ubyte * max(size, 1))()
        check(library().cuMemcpyDtoH_v2(data, ctypes.c_uint64(buffer.address), ctypes.c_size_t(size)), "reading memory")
        return bytes(memoryview(data)[:size])

    def write(self, buffer: Buffer, data: bytes, offset: int = 0) -> None:
        self.synchronize()
        code = library().cuMemcpyHtoD_v2(ctypes.c_uint64(buffer.address + offset), data, ctypes.c_size_t(len(data)))
        check(code, "writing memory")
        # From pageable memory the call returns when the last piece is staged (CUDA driver API, "API synchronization
        # behavior"); our stream doesn't wait for the one that the copy is on.
        self.synchronize()

    def repeat(self, buffer: Buffer, data: bytes) -> None:
        """From host memory once, then by copies on the device, each twice as long as the one before."""
        self.write(buffer, data[: buffer.nbytes])
        done = len(data)
        while done < buffer.nbytes:
            step = min(done, buffer.nbytes - done)
            self.copy(BorrowedBuffer(buffer.address + done, step, buffer), BorrowedBuffer(buffer.address, step, buffer))
            done += step

    def fill(self, buffer: Buffer, byte: int) -> None:
        code = quick_library().cuMemsetD8Async(
            ctypes.c_uint64(buffer.address), ctypes.c_ubyte(byte), ctypes.c_size_t(buffer.nbytes),
            ctypes.c_void_p(self._stream()),
        )  # fmt: skip
        check(code, "filling memory")

    def load(self, binary: Binary, data: bytes) -> Function:
        return CudaFunction(binary, data, self.spec.shared_memory_per_block)

    def unload(self, function: Function) -> None:
        assert isinstance(function, CudaFunction)
        function.unload()

    def prepare(
        self, function: Function, grid: tuple[int, int, int], params: Sequence[Param], addresses: Sequence[int | None]
    ) -> Callable[[], None]:
        """A launch on the stream that is current when it is called."""
        assert isinstance(function, CudaFunction)
        return prepare_launch(function, grid, params, addresses, self._stream)

    def event(self) -> GpuEvent:
        return DriverEvent(self._stream())

    def reached(self, event: GpuEvent) -> bool:
        """By asking the driver."""
        assert isinstance(event, DriverEvent)
        code = quick_library().cuEventQuery(event.handle)
        if code != CUDA_ERROR_NOT_READY:
            check(code, "asking for an event")
        return bool(code == 0)

    def elapsed_ns(self, start: GpuEvent, end: GpuEvent) -> float:
        """From milliseconds, of about half a microsecond resolution."""
        assert isinstance(start, DriverEvent)
        assert isinstance(end, DriverEvent)
        milliseconds = ctypes.c_float()
        check(library().cuEventSynchronize(end.handle), "waiting for an event")
        code = library().cuEventElapsedTime(ctypes.byref(milliseconds), start.handle, end.handle)
        check(code, "reading the time between events")
        return milliseconds.value * 1e6

    def graph(self, work: Callable[[], None]) -> GpuGraph:
        """What ``work`` enqueues through this object, captured on a stream of its own."""
        cuda, graph, executable = library(), ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuStreamBeginCapture_v2(self._side, CAPTURE_RELAXED), "beginning a graph")
        self._capturing = True
        try:
            work()
        finally:
            self._capturing = False
            code = cuda.cuStreamEndCapture(self._side, ctypes.byref(graph))
        check(code, "ending a graph")
        try:
            code = cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
            check(code, "making a graph")
        finally:
            cuda.cuGraphDestroy(graph)
        return DriverGraph(executable, self._stream, work)

    def flush_l2(self) -> None:
        if self._flush is None:
            self._flush = DriverBuffer(max(FLUSH_FACTOR * self.spec.l2_bytes, 1 << 20))
        self.fill(self._flush, 0)

    def reset_persisting_l2(self) -> None:
        """By ``cuCtxResetPersistingL2Cache``, which is no work of a stream; devices without such lines refuse it."""
        self.synchronize()
        code = library().cuCtxResetPersistingL2Cache()
        if code != CUDA_ERROR_NOT_SUPPORTED:
            check(code, "resetting lines that stay in the L2 cache")

    def rest(self, seconds: float = REST_S) -> None:
        """Half a second: power limits that hard work ran into are lifted within that time (seen on an H200)."""
        self.synchronize()
        time.sleep(seconds)

    def synchronize(self) -> None:
        """The whole context, torch's streams included."""
        check(library().cuCtxSynchronize(), "waiting for the device")

    def idle(self, limit_s: float) -> bool:
        """The driver has no question for this, and a collective's stream is not known here: another thread waits for
        the whole context, and goes on waiting where that takes longer than ``limit_s``."""
        self._enter()
        end = time.monotonic() + limit_s
        if self._awaiting is not None:  # of an earlier question: it says nothing of what was enqueued since
            self._awaiting.join(limit_s)
            if self._awaiting.is_alive():
                return False
        self._awaiting = Thread(target=self._await, name="kerntune-idle", daemon=True)
        self._awaiting.start()
        self._awaiting.join(max(0.0, end - time.monotonic()))
        return not self._awaiting.is_alive()

    def _await(self) -> None:
        """The next call of the driver meets an error of the device again."""
        library().cuCtxSetCurrent(self._context)
        library().cuCtxSynchronize()
