"""The CUDA driver's own functions, through ctypes: load a kernel, launch it, encode a tensor map.

The driver reads once which GPUs the environment shows to this process, and never again: what it read is kept here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kerntune.base.recording import Binary, Param
from kerntune.errors import BackendError, OutOfResourcesError

CUDA_ERROR_NOT_READY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_NOT_SUPPORTED = 600, 701, 801

MAX_DYNAMIC_SHARED = 8
LOCAL_SIZE_BYTES = 3
NUM_REGS = 4
MAX_THREADS_PER_BLOCK = 0
STATIC_SHARED_BYTES = 1
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
"""Numbers of ``CUfunction_attribute`` (cuda.h, CUDA 12 and 13)."""

PREFER_SHARED = 1
"""``CU_FUNC_CACHE_PREFER_SHARED`` of ``CUfunc_cache``."""

ATTRIBUTE_COOPERATIVE = 2
ATTRIBUTE_CLUSTER_DIMENSION = 4
ATTRIBUTE_CLUSTER_SCHEDULING = 5
ATTRIBUTE_PDL = 6
CLUSTER_SCHEDULING_SPREAD = 1
"""Numbers of ``CUlaunchAttributeID`` and of its values (cuda.h)."""

STATIC_SHARED_LIMIT = 48 << 10
"""Above this a kernel must ask for its dynamic shared memory (CUDA C++ Programming Guide, technical specifications)."""

NON_PORTABLE_CLUSTER = 16


class _LaunchAttribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid_x", ctypes.c_uint), ("grid_y", ctypes.c_uint), ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint), ("block_y", ctypes.c_uint), ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)), ("attribute_count", ctypes.c_uint),
    ]  # fmt: skip


@lru_cache(maxsize=1)
def library() -> Any:
    """libcuda; :class:`BackendError` if this machine has no NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as exc:
        raise BackendError(f"the NVIDIA driver library can't be loaded: {exc}") from exc


@lru_cache(maxsize=1)
def quick_library() -> Any:
    """The same, for calls that only enqueue or ask: Python's lock is kept meanwhile, so that no other thread has a turn
    between an event and the launch after it. On an H200's host with 16 compilations under way, such turns made half of
    all first launches several times too long."""
    library()  # says what is wrong where there is none
    return ctypes.PyDLL("libcuda.so.1")


def check(code: int, what: str) -> None:
    """Raise :class:`BackendError` (or :class:`OutOfResourcesError`) for a driver call that failed."""
    if code == 0:
        return
    name = ctypes.c_char_p()
    library().cuGetErrorName(code, ctypes.byref(name))
    text = f"{what}: {(name.value or b'unknown error').decode()} ({code})"
    raise (OutOfResourcesError if code == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES else BackendError)(text)


IPC_HANDLE_BYTES, IPC_LAZY_PEER_ACCESS = 64, 1
"""``CU_IPC_HANDLE_SIZE``, ``CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`` (cuda.h)."""


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * IPC_HANDLE_BYTES)]


def ipc_handle(address: int) -> bytes:
    """A handle of an allocation of ``cuMemAlloc`` for other processes. :class:`BackendError` where there is none."""
    handle = _IpcHandle()
    code = library().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address))
    check(code, "sharing memory with another process")
    return bytes(handle)


def ipc_open(handle: bytes) -> int:
    """Map another process's allocation; its address here. A process can't open its own."""
    address, raw = ctypes.c_uint64(), _IpcHandle.from_buffer_copy(handle)
    code = library().cuIpcOpenMemHandle_v2(ctypes.byref(address), raw, ctypes.c_uint(IPC_LAZY_PEER_ACCESS))
    check(code, "opening another process's memory")
    return address.value


def ipc_close(address: int) -> None:
    """Unmap it."""
    check(library().cuIpcCloseMemHandle(ctypes.c_uint64(address)), "closing another process's memory")


class CudaFunction:
    """A loaded kernel with the driver's own figures: registers a thread, spilled 4-byte words, most threads a block."""

    def __init__(self, binary: Binary, data: bytes, max_shared: int) -> None:
        cuda = library()
        self.binary = binary
        self.module, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(self.module), data), f"loading kernel {binary.symbol}")
        name = binary.symbol.encode()
        check(cuda.cuModuleGetFunction(ctypes.byref(self.handle), self.module, name), f"finding kernel {binary.symbol}")
        self.registers = self._attribute(NUM_REGS)
        self.spills = self._attribute(LOCAL_SIZE_BYTES) // 4
        self._check_limits(max_shared)
        self._reserve(max_shared)

    def unload(self) -> None:
        """Free the module."""
        if self.module:
            check(library().cuModuleUnload(self.module), f"unloading kernel {self.binary.symbol}")
            self.module = ctypes.c_void_p()

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        check(library().cuFuncGetAttribute(ctypes.byref(value), number, self.handle), "reading a kernel attribute")
        return value.value

    def _check_limits(self, max_shared: int) -> None:
        threads, limit = self.binary.num_warps * self.binary.warp_size, self._attribute(MAX_THREADS_PER_BLOCK)
        if self.binary.shared > max_shared:
            self.unload()
            raise OutOfResourcesError(
                f"needs {self.binary.shared} B shared memory a block, the device has {max_shared} B"
            )
        if threads > limit:
            self.unload()
            raise OutOfResourcesError(f"needs {threads} threads a block, with its registers the device allows {limit}")

    def _reserve(self, max_shared: int) -> None:
        cuda = library()
        if self.binary.shared > STATIC_SHARED_LIMIT:
            # As Triton does: all that the device allows, so that carveout and speed are those of a plain launch.
            dynamic = max_shared - self._attribute(STATIC_SHARED_BYTES)
            check(cuda.cuFuncSetCacheConfig(self.handle, PREFER_SHARED), "preferring shared memory over L1")
            check(
                cuda.cuFuncSetAttribute(self.handle, MAX_DYNAMIC_SHARED, dynamic),
                f"reserving {dynamic} B shared memory",
            )
        if self.binary.num_ctas == NON_PORTABLE_CLUSTER:
            check(
                cuda.cuFuncSetAttribute(self.handle, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), "allowing 16-CTA clusters"
            )


def prepare_launch(
    function: CudaFunction,
    grid: tuple[int, int, int],
    params: Sequence[Param],
    addresses: Sequence[int | None],
    stream: Callable[[], int],
) -> Callable[[], None]:
    """A call that launches on the stream that is current then. All memory it needs is made here, once."""
    values = [_encode(p, a) for p, a in zip(params, addresses, strict=True)]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    attributes, count = _attributes(function.binary)
    binary = function.binary
    config = _LaunchConfig(
        grid[0] * binary.num_ctas, grid[1], grid[2], binary.warp_size * binary.num_warps, 1, 1,
        binary.shared, None, attributes, count,
    )  # fmt: skip
    launch, handle, reference = quick_library().cuLaunchKernelEx, function.handle, ctypes.byref(config)

    def call() -> None:
        config.stream = stream()
        code = launch(reference, handle, pointers, None)
        if code:
            check(code, f"launching kernel {binary.symbol} on grid {grid}")

    call.keep = (values, attributes, function)  # type: ignore[attr-defined]  # the pointers above don't own these
    return call


def _attributes(binary: Binary) -> tuple[Any, int]:
    wanted: list[tuple[int, list[int]]] = []
    if binary.pdl:
        wanted.append((ATTRIBUTE_PDL, [1]))
    if binary.cooperative:
        wanted.append((ATTRIBUTE_COOPERATIVE, [1]))
    if binary.num_ctas != 1:
        wanted.append((ATTRIBUTE_CLUSTER_DIMENSION, [binary.num_ctas, 1, 1]))
        wanted.append((ATTRIBUTE_CLUSTER_SCHEDULING, [CLUSTER_SCHEDULING_SPREAD]))
    array = (_LaunchAttribute * max(len(wanted), 1))()
    for slot, (number, words) in zip(array, wanted, strict=False):
        slot.id = number
        for i, word in enumerate(words):
            slot.value[i] = word
    return array, len(wanted)


_C_TYPES: dict[str, Any] = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip


def _encode(param: Param, address: int | None) -> Any:
    if param.tensor_map is not None:
        return _tensor_map(param, address or 0)
    if param.type.startswith("*"):
        return ctypes.c_uint64(address or 0)
    if param.type == "fp16":
        return ctypes.c_uint16(_bits_of_half(float(param.value or 0)))
    if param.type == "bf16":
        return ctypes.c_uint16(_bits_of_bfloat16(float(param.value or 0)))
    if param.type not in _C_TYPES:
        raise BackendError(f"parameter {param.name} has type {param.type}, which can't be launched")
    value = float(param.value) if isinstance(param.value, str) else param.value
    return _C_TYPES[param.type](value)


def _bits_of_half(value: float) -> int:
    import numpy as np

    return int(np.float16(value).view(np.uint16))


def _bits_of_bfloat16(value: float) -> int:
    import numpy as np

    bits = int(np.float32(value).view(np.uint32))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64
L2_PROMOTION_128B = 2
TMA_TF32 = 11
"""``CU_TENSOR_MAP_DATA_TYPE_TFLOAT32``."""
OOB_NONE, OOB_NAN = 0, 1


def _tensor_map(param: Param, address: int) -> Any:
    """A ``CUtensorMap`` as Triton's driver encodes it (``cuTensorMapEncodeTiled``, dimensions innermost first)."""
    spec = param.tensor_map
    assert spec is not None
    rank = len(spec.shape)
    raw = (ctypes.c_uint8 * (TENSOR_MAP_BYTES + TENSOR_MAP_ALIGN))()
    offset = -ctypes.addressof(raw) % TENSOR_MAP_ALIGN
    aligned = (ctypes.c_uint8 * TENSOR_MAP_BYTES).from_buffer(raw, offset)
    dims = (ctypes.c_uint64 * rank)(*reversed(spec.shape))
    strides = (ctypes.c_uint64 * max(rank - 1, 1))(*(s * spec.elem_size for s in reversed(spec.strides[:-1])))
    box = (ctypes.c_uint32 * rank)(*reversed(spec.block))
    steps = (ctypes.c_uint32 * rank)(*([1] * rank))
    code = library().cuTensorMapEncodeTiled(
        aligned, ctypes.c_int(TMA_TF32 if spec.tf32 else spec.elem_type), ctypes.c_uint32(rank),
        ctypes.c_void_p(address), dims, strides, box, steps,
        0, ctypes.c_int(spec.swizzle), L2_PROMOTION_128B, OOB_NAN if spec.nan_padding else OOB_NONE,
    )  # fmt: skip
    check(code, f"encoding the tensor map of {param.name}")
    return aligned


VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""By index, by UUID (``GPU-...``) or of a MIG instance (``MIG-...``)."""

_visible_env: dict[str, str | None] = {}


def remember_visible() -> None:
    """Keep what the driver has read. Called by the code that starts it; later calls change nothing."""
    for name in VISIBLE_VARIABLES:
        _visible_env.setdefault(name, os.environ.get(name))


def visible_env(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a new process numbers the GPUs as this one does, although code has changed the variables
    since: a test's ``monkeypatch.setenv``, a conftest that is too late."""
    kept = {name: os.environ.get(name) for name in VISIBLE_VARIABLES} | _visible_env
    return {k: v for k, v in environ.items() if k not in VISIBLE_VARIABLES} | {
        k: v for k, v in kept.items() if v is not None
    }
