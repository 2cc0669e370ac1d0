"""A device through a driver whose memory is the host's: what is asked of it, in which order, and what becomes of it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kerntune.base.device import DeviceSpec, Target
from kerntune.base.recording import Param, TensorMap
from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError
from kerntune.gpu import cuda, cuda_driver, driver_gpu, host_gpus
from kerntune.gpu.cuda_driver import CudaFunction, prepare_launch
from kerntune.gpu.driver_gpu import DriverGpu, HostBuffer

CONTEXT, SIDE, CURRENT, GRAPH, EXECUTABLE, MODULE, KERNEL = 77, 5, 9, 31, 32, 41, 42
DEVICE = {16: 132, 39: 2048, 1: 1024, 82: 65536, 81: 233472, 97: 232448, 38: 1 << 15, 75: 9, 76: 0}
FUNCTION = {0: 512, 1: 1024, 3: 24, 4: 80}


ENDS = ("cuMemFree_v2", "cuMemFreeHost", "cuEventDestroy_v2", "cuGraphExecDestroy")


GIVEN: dict[str, tuple[int, Any]] = {
    "cuGetErrorName": (1, b"CUDA_ERROR_TOLD"),
    "cuDevicePrimaryCtxRetain": (0, CONTEXT),
    "cuStreamCreate": (0, SIDE),
    "cuEventElapsedTime": (0, 0.25),
    "cuStreamEndCapture": (1, GRAPH),
    "cuModuleLoadData": (0, MODULE),
    "cuModuleGetFunction": (0, KERNEL),
}
"""What a call puts where which of its arguments points to."""


class HostDriver:
    """libcuda, as far as a host can be it. ``fails`` has codes of calls that fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails: dict[str, int] = {}
        self.memory: dict[int, Any] = {}
        self.owned: set[int] = set()
        self.context: int | None = None
        self.launched: Any = None

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*args: Any) -> int:
            if name in ENDS and args[0].value not in self.owned:
                return 0  # of an earlier test
            self.calls.append((name, *(a.value for a in args if isinstance(getattr(a, "value", None), int))))
            if code := self.fails.get(name, 0):
                return code
            if name in GIVEN:
                place, value = GIVEN[name]
                args[place]._obj.value = value
            return getattr(type(self), f"do_{name}", lambda *_: None)(self, *args) or 0

        return call

    def names(self) -> list[str]:
        """The names of the calls since the last question."""
        found = [name for name, *_ in self.calls]
        self.calls.clear()
        return found

    def do_cuCtxSetCurrent(self, context: Any) -> None:
        self.context = context.value

    def do_cuCtxGetCurrent(self, context: Any) -> None:
        context._obj.value = self.context

    def do_cuDeviceGetName(self, name: Any, size: int, device: Any) -> None:
        name.value = b"NVIDIA H200"

    def do_cuDeviceGetUuid_v2(self, uuid: Any, device: Any) -> None:
        uuid[:] = range(16)

    def do_cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:
        value._obj.value = DEVICE.get(number, 0)
        return 0 if number in DEVICE else 1

    def do_cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = 1 << 20, 1 << 30

    def do_cuMemAlloc_v2(self, pointer: Any, size: Any) -> None:
        made = ctypes.create_string_buffer(b"\x07" * size.value, size.value)
        pointer._obj.value = ctypes.addressof(made)
        self.memory[ctypes.addressof(made)] = made
        self.owned.add(ctypes.addressof(made))

    def do_cuMemHostAlloc(self, pointer: Any, size: Any, flags: Any) -> None:
        self.do_cuMemAlloc_v2(pointer, size)

    def do_cuMemFree_v2(self, address: Any) -> None:
        del self.memory[address.value]

    do_cuMemFreeHost = do_cuMemFree_v2

    def do_cuMemcpyAsync(self, target: Any, source: Any, size: Any, stream: Any) -> None:
        ctypes.memmove(target.value, source.value, size.value)

    def do_cuMemcpyDtoH_v2(self, target: Any, source: Any, size: Any) -> None:
        ctypes.memmove(target, source.value, size.value)

    def do_cuMemcpyHtoD_v2(self, target: Any, source: Any, size: Any) -> None:
        ctypes.memmove(target.value, source, size.value)

    def do_cuMemsetD8Async(self, target: Any, byte: Any, size: Any, stream: Any) -> None:
        ctypes.memset(target.value, byte.value, size.value)

    def do_cuPointerGetAttribute(self, kind: Any, number: int, address: Any) -> int:
        return 0 if address.value in self.memory else 1

    def do_cuIpcGetMemHandle(self, handle: Any, address: Any) -> None:
        ctypes.memmove(ctypes.addressof(handle._obj), struct.pack("Q", address.value), 8)

    def do_cuIpcOpenMemHandle_v2(self, address: Any, handle: Any, flags: Any) -> None:
        (address._obj.value,) = struct.unpack("Q", bytes(handle)[:8])

    def do_cuEventCreate(self, event: Any, flags: int) -> None:
        event._obj.value = id(event)
        self.owned.add(id(event))

    def do_cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, flags: Any) -> None:
        executable._obj.value = EXECUTABLE
        self.owned.add(EXECUTABLE)

    def do_cuFuncGetAttribute(self, value: Any, number: int, function: Any) -> None:
        value._obj.value = FUNCTION[number]

    def do_cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: None) -> None:
        self.launched = config._obj, pointers

    def do_cuTensorMapEncodeTiled(self, target: Any, *args: Any) -> None:
        self.launched = ctypes.addressof(target), *(list(a) if hasattr(a, "__len__") else a for a in args)


class Gpu(DriverGpu):
    def current_stream(self) -> int:
        return CURRENT


@pytest.fixture(scope="module")
def drivers() -> Iterator[list[HostDriver]]:
    """The last one is asked; buffers may outlive their test."""
    found: list[HostDriver] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (cuda_driver, driver_gpu):
            for name in ("library", "quick_library"):
                patch.setattr(module, name, lambda: found[-1])
        yield found
        gc.collect()


@pytest.fixture
def driver(drivers: list[HostDriver]) -> Iterator[HostDriver]:
    drivers.append(made := HostDriver())
    yield made
    made.fails.clear()
    gc.collect(1)  # what this test made is young: all that torch is made of needn't be gone through


@pytest.fixture
def gpu(driver: HostDriver) -> Gpu:
    found = Gpu(3)
    assert driver.names() == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate"]
    return found


def test_a_device_is_described_by_the_driver(gpu: Gpu) -> None:
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert gpu.spec == DeviceSpec(
        Target("cuda", "90"), "NVIDIA H200", 132, 65536, 2048, 1024, 232448, 233472, 1 << 15, uuid
    )
    assert gpu.free_bytes() == 1 << 20
    assert (gpu._attribute_or(16, 4), gpu._attribute_or(999, 4), DriverGpu.current_stream(gpu)) == (132, 4, SIDE)


def test_memory_is_written_copied_and_read(gpu: Gpu) -> None:
    a, b, host = gpu.allocate(8), gpu.allocate(8), gpu.allocate_host(8)
    gpu.write(a, b"abcdefgh")
    gpu.write(a, b"XY", 2)
    gpu.copy(b, a)
    gpu.copy(host, b)
    assert (gpu.read(b), gpu.read(b, 3), gpu.read(b, 99), gpu.read(a, 0)) == (b"abXYefgh", b"abX", b"abXYefgh", b"")
    assert gpu.read(host) == b"abXYefgh"
    assert gpu.read(gpu.part(a, 4, 4)) == b"efgh"
    gpu.fill(gpu.part(a, 1, 2), 0x2A)
    assert gpu.read(a) == b"a**Yefgh"
    assert [gpu.read(piece) for piece in gpu.carve(a, [3, 1, 4])] == [b"a**", b"Y", b"efgh"]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 6, 7, 24, 25])
def test_a_pattern_is_repeated(gpu: Gpu, size: int) -> None:
    buffer = gpu.allocate(32)
    gpu.repeat(gpu.part(buffer, 0, size), b"abc")
    assert gpu.read(buffer) == (b"abc" * 9)[:size] + b"\x07" * (32 - size)


def test_patterns_double_on_the_device(gpu: Gpu, driver: HostDriver) -> None:
    buffer = gpu.allocate(48)
    driver.calls.clear()
    gpu.repeat(buffer, b"abc")
    assert driver.names() == ["cuCtxSynchronize", "cuMemcpyHtoD_v2", "cuCtxSynchronize", *["cuMemcpyAsync"] * 4]


def test_what_is_written_is_there_before_our_stream_goes_on(gpu: Gpu, driver: HostDriver) -> None:
    """A copy from pageable memory returns before it has ended, on a stream that ours doesn't wait for."""
    buffer = gpu.allocate(8)
    driver.calls.clear()
    gpu.write(buffer, b"abcdefgh")
    assert driver.names()[-2:] == ["cuMemcpyHtoD_v2", "cuCtxSynchronize"]


def test_memory_goes_with_its_buffer(gpu: Gpu, driver: HostDriver) -> None:
    kept, gone, host = gpu.allocate(0), gpu.allocate(4), gpu.allocate_host(0)
    assert [len(made) for made in driver.memory.values()] == [1, 4, 1]
    assert (gpu.reaches(gone.address), gpu.reaches(12345)) == (True, False)
    del gone, host
    assert list(driver.memory) == [kept.address]
    part = gpu.part(kept, 0, 0)
    del kept
    assert list(driver.memory) == [part.address], "a part keeps the whole"


def test_others_open_memory_and_close_it(gpu: Gpu, driver: HostDriver) -> None:
    buffer = gpu.allocate(4)
    with gpu.shared(gpu.share(buffer), 4) as same:
        assert (same.address, same.nbytes) == (buffer.address, 4)
    assert ("cuIpcOpenMemHandle_v2", 1) in [(name, values[-1]) for name, *values in driver.calls if values]
    assert driver.calls[-1] == ("cuIpcCloseMemHandle", buffer.address)


def test_comparisons_take_either_kind_of_memory(gpu: Gpu) -> None:
    host, device = gpu.allocate_host(8), gpu.allocate(8)
    for values, differ in (((1.0, 2.0), False), ((1.0, 2.5), True)):
        gpu.write(host, struct.pack("2f", 1.0, 2.0))
        gpu.write(device, struct.pack("2f", *values))
        for expected in (host, device):
            assert (gpu.compare(expected, device, "float32", 0.0) is not None) == (differ and expected is host)


@pytest.mark.parametrize(("current", "entered"), [(CONTEXT, 0), (None, 1), (CONTEXT + 1, 1)])
def test_a_thread_without_the_context_gets_it(gpu: Gpu, driver: HostDriver, current: int | None, entered: int) -> None:
    buffer = gpu.allocate(1)
    for use in (gpu.free_bytes, lambda: gpu.allocate(1), lambda: gpu.reaches(1), lambda: gpu.share(buffer),
                lambda: gpu.shared(bytes(64), 1).__enter__()):  # fmt: skip
        driver.context = current
        driver.calls.clear()
        use()
        assert (driver.context, driver.names().count("cuCtxSetCurrent")) == (CONTEXT, entered)
    driver.context = current
    assert gpu.idle(60.0)
    assert (driver.context, driver.names().count("cuCtxSetCurrent")) == (CONTEXT, entered + 1), "and its own thread"


def test_a_graph_is_captured_on_its_own_stream_and_replayed_on_the_current_one(gpu: Gpu, driver: HostDriver) -> None:
    buffer = gpu.allocate(4)
    driver.calls.clear()
    graph = gpu.graph(lambda: gpu.fill(buffer, 1))
    gpu.fill(buffer, 2)
    graph.replay()
    del graph
    assert driver.calls == [
        ("cuStreamBeginCapture_v2", SIDE), ("cuMemsetD8Async", buffer.address, 1, 4, SIDE),
        ("cuStreamEndCapture", SIDE), ("cuGraphInstantiateWithFlags", GRAPH, 0), ("cuGraphDestroy", GRAPH),
        ("cuMemsetD8Async", buffer.address, 2, 4, CURRENT), ("cuGraphLaunch", EXECUTABLE, CURRENT),
        ("cuGraphExecDestroy", EXECUTABLE),
    ]  # fmt: skip


def test_a_capture_ends_with_the_work_that_fails(gpu: Gpu, driver: HostDriver) -> None:
    driver.calls.clear()
    with pytest.raises(KeyError):
        gpu.graph(lambda: {}["no"])
    assert driver.names() == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]
    buffer = gpu.allocate(1)
    gpu.fill(buffer, 0)
    assert driver.calls[-1][-1] == CURRENT
    driver.fails["cuGraphInstantiateWithFlags"] = 1
    with pytest.raises(BackendError, match=r"^making a graph: CUDA_ERROR_TOLD \(1\)$"):
        gpu.graph(lambda: None)
    assert driver.names()[-1] == "cuGraphDestroy"


def test_events(gpu: Gpu, driver: HostDriver) -> None:
    start, end = gpu.event(), gpu.event()
    assert gpu.elapsed_ns(start, end) == 250_000
    assert [name for name in driver.names() if name != "cuEventRecord"] == [
        "cuEventCreate", "cuEventCreate", "cuEventSynchronize", "cuEventElapsedTime"
    ]  # fmt: skip
    assert gpu.reached(end) is True
    driver.fails["cuEventQuery"] = cuda_driver.CUDA_ERROR_NOT_READY
    assert gpu.reached(end) is False
    driver.fails["cuEventQuery"] = 1
    with pytest.raises(BackendError, match="asking for an event"):
        gpu.reached(end)
    driver.calls.clear()
    del start, end
    assert driver.names() == ["cuEventDestroy_v2"] * 2


@pytest.mark.parametrize(("l2", "nbytes"), [(1 << 15, 1 << 20), (1 << 20, 1 << 21)])
def test_a_flush_writes_twice_the_cache(
    gpu: Gpu, driver: HostDriver, monkeypatch: pytest.MonkeyPatch, l2: int, nbytes: int
) -> None:
    monkeypatch.setitem(DEVICE, 38, l2)
    gpu.flush_l2()
    gpu.flush_l2()
    fills = [call[2:] for call in driver.calls if call[0] == "cuMemsetD8Async"]
    assert fills == [(0, nbytes, CURRENT)] * 2
    assert [len(made) for made in driver.memory.values()] == [nbytes]


def test_waiting(gpu: Gpu, driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(driver_gpu, "time", SimpleNamespace(sleep=slept.append, monotonic=driver_gpu.time.monotonic))
    gpu.rest()
    gpu.rest(2.0)
    assert (slept, driver.names()) == ([0.5, 2.0], ["cuCtxSynchronize"] * 2)
    assert gpu.idle(60.0)
    assert driver.names()[-2:] == ["cuCtxSetCurrent", "cuCtxSynchronize"]
    assert gpu.idle(60.0), "an earlier question that was answered"


def test_a_device_that_works_is_not_idle(gpu: Gpu, driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    done = threading.Event()
    monkeypatch.setattr(HostDriver, "do_cuCtxSynchronize", lambda self: done.wait() and None, raising=False)
    assert not gpu.idle(0.01)
    waiting = driver.names().count("cuCtxSynchronize")
    assert not gpu.idle(0.01)
    assert (waiting, driver.names().count("cuCtxSynchronize")) == (1, 0), "one thread waits"
    done.set()
    assert gpu.idle(60.0)


FAILING: dict[str, tuple[Callable[[Gpu, Any], object], str]] = {
    "cuMemGetInfo_v2": (lambda gpu, one: gpu.free_bytes(), "asking for free memory"),
    "cuCtxGetCurrent": (lambda gpu, one: gpu.free_bytes(), "asking for the current context"),
    "cuMemcpyAsync": (lambda gpu, one: gpu.copy(one, one), "copying device memory"),
    "cuMemcpyDtoH_v2": (lambda gpu, one: gpu.read(one), "reading memory"),
    "cuMemcpyHtoD_v2": (lambda gpu, one: gpu.write(one, b"x"), "writing memory"),
    "cuMemsetD8Async": (lambda gpu, one: gpu.fill(one, 0), "filling memory"),
    "cuCtxSynchronize": (lambda gpu, one: gpu.synchronize(), "waiting for the device"),
    "cuEventCreate": (lambda gpu, one: gpu.event(), "creating an event"),
    "cuEventRecord": (lambda gpu, one: gpu.event(), "recording an event"),
    "cuEventSynchronize": (lambda gpu, one: gpu.elapsed_ns(gpu.event(), gpu.event()), "waiting for an event"),
    "cuEventElapsedTime": (
        lambda gpu, one: gpu.elapsed_ns(gpu.event(), gpu.event()), "reading the time between events"
    ),
    "cuStreamBeginCapture_v2": (lambda gpu, one: gpu.graph(lambda: None), "beginning a graph"),
    "cuStreamEndCapture": (lambda gpu, one: gpu.graph(lambda: None), "ending a graph"),
    "cuGraphLaunch": (lambda gpu, one: gpu.graph(lambda: None).replay(), "launching a graph"),
    "cuDeviceGetAttribute": (lambda gpu, one: gpu.spec, "reading a device attribute"),
    "cuDeviceGetName": (lambda gpu, one: gpu.spec, "reading the device's name"),
    "cuDeviceGetUuid_v2": (lambda gpu, one: gpu.spec, "reading the device's id"),
    "cuIpcGetMemHandle": (lambda gpu, one: gpu.share(one), "sharing memory with another process"),
    "cuIpcOpenMemHandle_v2": (
        lambda gpu, one: gpu.shared(bytes(64), 4).__enter__(), "opening another process's memory"
    ),
    "cuInit": (lambda gpu, one: Gpu(), "starting the driver"),
    "cuDeviceGet": (lambda gpu, one: Gpu(6), "finding device 6"),
    "cuDevicePrimaryCtxRetain": (lambda gpu, one: Gpu(), "taking the device's context"),
    "cuCtxSetCurrent": (lambda gpu, one: Gpu(), "entering the device's context"),
    "cuStreamCreate": (lambda gpu, one: Gpu(), "creating a stream"),
    "cuModuleLoadData": (lambda gpu, one: gpu.load(binary(), b""), "loading kernel k"),
    "cuModuleGetFunction": (lambda gpu, one: gpu.load(binary(), b""), "finding kernel k"),
    "cuFuncGetAttribute": (lambda gpu, one: gpu.load(binary(), b""), "reading a kernel attribute"),
    "cuFuncSetAttribute": (lambda gpu, one: gpu.load(binary(shared=99999), b""), "reserving 231424 B shared memory"),
    "cuFuncSetCacheConfig": (
        lambda gpu, one: gpu.load(binary(shared=99999), b""), "preferring shared memory over L1"
    ),
    "cuModuleUnload": (lambda gpu, one: gpu.unload(gpu.load(binary(), b"")), "unloading kernel k"),
    "cuLaunchKernelEx": (
        lambda gpu, one: gpu.prepare(gpu.load(binary(), b""), (1, 2, 3), [], [])(),
        "launching kernel k on grid (1, 2, 3)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_call_that_fails_says_at_what(gpu: Gpu, driver: HostDriver, name: str) -> None:
    fails, what = FAILING[name]
    one = gpu.allocate(4)
    driver.fails[name] = 700
    with pytest.raises(BackendError) as caught:
        fails(gpu, one)
    assert str(caught.value) == f"{what}: CUDA_ERROR_TOLD (700)"


def test_no_room_says_for_how_much(gpu: Gpu, driver: HostDriver) -> None:
    driver.fails |= {"cuMemAlloc_v2": 2, "cuMemHostAlloc": 2}
    with pytest.raises(MeasurementError, match=r"^no room on NVIDIA H200 for a copy of 3 MiB: .*use smaller inputs$"):
        gpu.allocate(3 << 20)
    with pytest.raises(MeasurementError, match=r"^no room for 3 MiB of pinned host memory, .*use smaller inputs$"):
        gpu.allocate_host(3 << 20)
    with pytest.raises(BackendError, match="allocating pinned memory of the host"):
        HostBuffer(1)
    driver.fails["cuLaunchKernelEx"] = cuda_driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(OutOfResourcesError, match="launching"):
        gpu.prepare(gpu.load(binary(), b""), (1, 1, 1), [], [])()


# kernels


def binary(**fields: Any) -> Any:
    given = {"symbol": "k", "num_warps": 4, "warp_size": 32, "num_ctas": 1, "shared": 100, "pdl": False,
             "cooperative": False} | fields  # fmt: skip
    return SimpleNamespace(**given)


def test_a_kernel_s_figures_are_the_drivers(gpu: Gpu, driver: HostDriver) -> None:
    found = gpu.load(binary(), b"cubin")
    assert found.registers == 80
    assert "cuFuncSetAttribute" not in driver.names()
    for _ in range(2):
        gpu.unload(found)
    assert driver.calls == [("cuModuleUnload", MODULE)]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"shared": 232449}, "needs 232449 B shared memory a block, the device has 232448 B"),
        ({"num_warps": 17}, "needs 544 threads a block, with its registers the device allows 512"),
    ],
)
def test_what_does_not_fit_is_unloaded_and_told(
    gpu: Gpu, driver: HostDriver, fields: dict[str, int], says: str
) -> None:
    with pytest.raises(OutOfResourcesError) as caught:
        gpu.load(binary(**fields), b"")
    assert (str(caught.value), driver.calls[-1]) == (says, ("cuModuleUnload", MODULE))
    edge = {name: value - 1 for name, value in fields.items()}
    gpu.load(binary(**edge), b"")


@pytest.mark.parametrize(
    ("fields", "attributes", "allowed"),
    [
        ({}, {}, False),
        ({"pdl": True}, {6: [1, 0, 0]}, False),
        ({"cooperative": True}, {2: [1, 0, 0]}, False),
        ({"num_ctas": 2}, {4: [2, 1, 1], 5: [1, 0, 0]}, False),
        ({"num_ctas": 16, "pdl": True, "cooperative": True}, {6: [1, 0, 0], 2: [1, 0, 0], 4: [16, 1, 1],
                                                              5: [1, 0, 0]}, True),
    ],
    ids=["plain", "programmatic", "cooperative", "cluster", "all"],
)  # fmt: skip
def test_a_launch_is_what_the_binary_wants(
    gpu: Gpu, driver: HostDriver, fields: dict[str, Any], attributes: dict[int, list[int]], allowed: bool
) -> None:
    function, stream = CudaFunction(binary(**fields), b"", 232448), iter([CURRENT, CURRENT + 1])
    assert ("cuFuncSetAttribute" in driver.names()) == allowed
    call = prepare_launch(function, (7, 8, 9), [Param("n", "i32", value=5)], [None], lambda: next(stream))
    for expected in (CURRENT, CURRENT + 1):
        call()
        config, pointers = driver.launched
        assert (config.grid_x, config.grid_y, config.grid_z) == (7 * fields.get("num_ctas", 1), 8, 9)
        assert (config.block_x, config.block_y, config.block_z, config.shared) == (128, 1, 1, 100)
        found = {a.id: list(a.value)[:3] for a in config.attributes[: config.attribute_count]}
        assert (found, config.stream) == (attributes, expected)
        assert ctypes.c_int32.from_address(pointers[0]).value == 5


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("*fp32", None, struct.pack("Q", 4096)),
        ("i1", True, b"\x01"), ("i8", -1, b"\xff"), ("i16", -2, b"\xfe\xff"), ("i32", -3, struct.pack("i", -3)),
        ("i64", -4, struct.pack("q", -4)), ("u1", 1, b"\x01"), ("u8", 255, b"\xff"), ("u16", 65535, b"\xff\xff"),
        ("u32", (1 << 32) - 1, b"\xff" * 4), ("u64", (1 << 64) - 1, b"\xff" * 8),
        ("fp16", 1.5, b"\x00\x3e"), ("fp16", None, b"\x00\x00"), ("fp16", "-inf", b"\x00\xfc"),
        ("fp16", 65519.0, b"\xff\x7b"), ("fp16", -65520.0, b"\x00\xfc"), ("fp16", "nan", b"\x00\x7e"),
        ("bf16", 1.0, b"\x80\x3f"), ("bf16", None, b"\x00\x00"), ("bf16", -2.0, b"\x00\xc0"),
        ("bf16", 1 + 1 / 256, b"\x80\x3f"), ("bf16", 1 + 3 / 256, b"\x82\x3f"), ("bf16", 1 + 1.5 / 256, b"\x81\x3f"),
        ("fp32", 1.5, struct.pack("f", 1.5)), ("f32", "inf", struct.pack("f", math.inf)),
        ("fp64", 0.1, struct.pack("d", 0.1)),
    ],
)  # fmt: skip
def test_values_are_encoded_by_their_types(gpu: Gpu, kind: str, value: Any, data: bytes) -> None:
    """bfloat16 rounds to the nearest, ties to even."""
    made = cuda_driver._encode(Param("p", kind, value=value), 4096 if kind[0] == "*" else None)
    assert bytes(made) == data
    assert bytes(cuda_driver._encode(Param("p", "*i8"), None)) == bytes(8)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(BackendError, match="parameter p has type fp8, which can't be launched"):
        cuda_driver._encode(Param("p", "fp8", value=1.0), None)


@pytest.mark.parametrize(("tf32", "nan"), [(False, False), (True, False), (False, True)])
def test_a_tensor_map_is_encoded_innermost_first(driver: HostDriver, tf32: bool, nan: bool) -> None:
    given = TensorMap(3, 4, 7, (1, 16, 32), (5, 100, 200), (20000, 200, 1), tf32=tf32, nan_padding=nan)
    made = cuda_driver._encode(Param("desc", "nvTmaDesc", tensor_map=given), 0x7000)
    place, kind, rank, address, dims, strides, box, steps, *rest = driver.launched
    assert (place % 64, ctypes.sizeof(made), place) == (0, 128, ctypes.addressof(made))
    assert (kind.value, rank.value, address.value) == (11 if tf32 else 7, 3, 0x7000)
    assert (dims, strides, box, steps) == ([200, 100, 5], [800, 80000], [32, 16, 1], [1, 1, 1])
    assert [getattr(one, "value", one) for one in rest] == [0, 3, 2, 1 if nan else 0]
    driver.fails["cuTensorMapEncodeTiled"] = 1
    with pytest.raises(BackendError, match="encoding the tensor map of desc"):
        cuda_driver._encode(Param("desc", "nvTmaDesc", tensor_map=given), 0)


# beside torch


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Devices that torch was told to make current."""
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device", lambda number: (found.append(number), contextlib.nullcontext())[1])
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda number: 100 + number, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda number: 5000 + number)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda number: 1000)
    return found


class CopyingGpu(cuda.CudaGpu):
    def _bytes(self, address: int, nbytes: int) -> Any:
        return torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), dtype=torch.uint8)


def test_a_gpu_of_torch_is_the_current_one_or_the_given_one(driver: HostDriver, entered: list[int]) -> None:
    current, other = cuda.CudaGpu(), cuda.CudaGpu(0)
    assert (current.ordinal, other.ordinal, entered) == (2, 0, [2, 0])
    assert (current.current_stream(), other.current_stream()) == (102, 100)
    assert current.free_bytes() == (1 << 20) + 4002
    current.synchronize()
    assert (entered[2:], driver.names()[-1]) == ([2, 2], "cuCtxSynchronize")


@pytest.mark.parametrize(
    ("mode", "mps", "folder", "refused"),
    [
        (0, 0, "/tmp", None),
        (0, 1, None, "MPS is on: a fault of one process"),
        (0, None, None, None),
        (0, None, "/tmp", r"MPS is on \(/tmp\)"),
        (3, 0, None, "exclusive-process mode"),
        (2, 0, None, "^the device's compute mode allows no second context$"),
    ],
)
def test_a_second_context_where_it_may_be(
    driver: HostDriver, entered: list[int], monkeypatch: pytest.MonkeyPatch, mode: int, mps: int | None,
    folder: str | None, refused: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(cuda, "mps_folder", lambda: Path(folder) if folder else None)
    monkeypatch.setattr(host_gpus, "mps_folder", cuda.mps_folder)
    monkeypatch.setitem(DEVICE, cuda.COMPUTE_MODE, mode)
    if mps is not None:
        monkeypatch.setitem(DEVICE, cuda.MPS_ENABLED, mps)
    gpu = cuda.CudaGpu(6)
    if refused is None:
        assert gpu.first_launch_arguments() == ("6",)
    else:
        with pytest.raises(BackendError, match=refused):
            gpu.first_launch_arguments()


def test_torch_gives_memory_back_where_there_is_no_room(
    driver: HostDriver, entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, emptied = cuda.CudaGpu(), list[int]()
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: (emptied.append(1), driver.fails.clear()))
    assert (gpu.allocate(4).nbytes, emptied) == (4, [])
    driver.fails["cuMemAlloc_v2"] = 2
    assert (gpu.allocate(4).nbytes, emptied) == (4, [1])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    driver.fails["cuMemAlloc_v2"] = 2
    with pytest.raises(MeasurementError, match="no room"):
        gpu.allocate(4)


@pytest.mark.parametrize("host", [False, True])
def test_memory_of_host_and_device_is_compared_by_torch(driver: HostDriver, entered: list[int], host: bool) -> None:
    gpu = CopyingGpu()
    expected, actual = gpu.allocate_host(8) if host else gpu.allocate(8), gpu.allocate(8)
    gpu.write(expected, struct.pack("2f", 1.0, 2.0))
    for second, differs in ((2.0, False), (2.5, True)):
        gpu.write(actual, struct.pack("2f", 1.0, second))
        driver.calls.clear()
        assert (gpu.compare(expected, actual, "float32", 0.0) is not None) == differs
        assert ("cuMemcpyAsync" in driver.names()) == host
    assert gpu.compare(gpu.allocate(0), gpu.allocate(0), "float32", 0.0) is None
    tensor = torch.zeros(8)[2:4]
    storage = gpu.borrow(tensor)
    assert (storage.address, storage.nbytes) == (tensor.data_ptr() - 8, 32)
    assert (cuda.CudaTensors().address(tensor), cuda.CudaTensors().storage_address(tensor)) == (
        tensor.data_ptr(), storage.address
    )  # fmt: skip
    with FakeTensorMode():
        fake = torch.empty(8, device="cuda")  # a compiled graph's: to ask for its address warns
    assert fake.is_cuda
    assert [cuda.CudaTensors().is_tensor(value) for value in (tensor, 3, fake)] == [False, False, False]


def test_a_backend_makes_one_of_each_device(
    driver: HostDriver, entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    first = cuda.CudaBackend()
    other = first.on(1)
    assert (first.ordinal, first.count, first.current(), other.ordinal, first.on(2)) == (2, 4, 2, 1, first)
    assert (other.on(1), other.on(2), first.spec.target) == (other, first, Target("cuda", "90"))


def test_a_matrix_product_s_rate(driver: HostDriver, entered: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the median of ten runs after three others."""
    taken, asked = iter([9.0, 9.0, 9.0, *[1.0, 2.0, 4.0] * 3, 2.0]), list[tuple[object, ...]]()
    monkeypatch.setattr(cuda, "_seconds", lambda product: next(taken))
    monkeypatch.setattr(cuda, "_product", lambda *words: (asked.append(words), print)[1])
    assert cuda.measured_matmul(cuda.CudaGpu(), "float16") == 2 * 8192**3 / 2.0
    assert next(taken, None) is None
    monkeypatch.setattr(cuda, "_seconds", lambda product: 1.0)
    assert cuda.measured_matmul(cuda.CudaGpu(), "float64") == 2 * 4096**3
    assert asked == [("float16", 8192, "cuda"), ("float64", 4096, "cuda")]
    monkeypatch.setattr(cuda, "_product", lambda *words: None)
    assert cuda.measured_matmul(cuda.CudaGpu(), "int4") is cuda.measured_matmul(Gpu(), "float16") is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("milliseconds", "seconds"), [(2.5, 0.0025), (0.0, None), (-1.0, None)])
def test_a_product_s_time_is_that_between_its_events(
    monkeypatch: pytest.MonkeyPatch, milliseconds: float, seconds: float | None
) -> None:
    did: list[str] = []
    event = SimpleNamespace(
        record=lambda: did.append("record"),
        synchronize=lambda: did.append("wait"),
        elapsed_time=lambda end: milliseconds,
    )
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event if enable_timing else None)
    if seconds is None:
        with pytest.raises(MeasurementError, match="a matrix product took no time"):
            cuda._seconds(lambda: did.append("product"))
    else:
        assert cuda._seconds(lambda: did.append("product")) == seconds
    assert did == ["record", "product", "record", "wait"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8"])
def test_products_are_of_random_numbers_that_tests_do_not_share(dtype: str) -> None:
    state, tf32 = torch.get_rng_state(), torch.backends.cuda.matmul.allow_tf32
    product = cuda._product(dtype, 32, "cpu")
    assert product is not None
    found: Any = product()
    assert (found.shape, found.dtype) == ((32, 32), torch.int32 if dtype == "int8" else getattr(torch, dtype))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.cuda.matmul.allow_tf32 == tf32
    assert [cuda._product(name, 32, "cpu") for name in ("int32", "no_such", "randn")] == [None] * 3


@pytest.mark.slow
def test_float32_is_multiplied_in_tf32_and_only_there() -> None:
    before, seen = torch.backends.cuda.matmul.allow_tf32, list[bool]()
    cuda._in_tf32(lambda: seen.append(torch.backends.cuda.matmul.allow_tf32))()
    with pytest.raises(ZeroDivisionError):
        cuda._in_tf32(lambda: 1 / 0)()
    assert (seen, torch.backends.cuda.matmul.allow_tf32) == ([True], before)
