"""The CUDA driver's own functions, through ctypes: load a kernel, launch it, encode a tensor map.

The driver reads once which GPUs the environment shows to this process, and never again: what it read is kept here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL, PyDLL, Structure, addressof, byref, c_char, c_char_p, c_int, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

import msgspec

from kerntune.base.recording import Binary, Param
from kerntune.errors import BackendError, OutOfResourcesError
from kerntune.gpu.replay_script import (
    FUNCTION_MAX_DYNAMIC_SHARED,
    FUNCTION_NON_PORTABLE_CLUSTER,
    FUNCTION_STATIC_SHARED,
    NON_PORTABLE_CLUSTER,
    PREFER_SHARED,
    SCALARS,
    STATIC_SHARED_LIMIT,
    scalar,
    settings_of,
    tensor_map,
)

CUDA_ERROR_NOT_READY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_NOT_SUPPORTED = 600, 701, 801

NUM_REGS = 4
MAX_THREADS_PER_BLOCK = 0
"""Numbers of ``CUfunction_attribute`` (cuda.h, CUDA 12 and 13). Others, and the driver's structures, are those of the
script that lies in every dump, which can't import them."""


@lru_cache(maxsize=1)
def library() -> Any:
    """libcuda; :class:`BackendError` if this machine has no NVIDIA driver."""
    try:
        return CDLL("libcuda.so.1")
    except OSError as exc:
        raise BackendError(f"the NVIDIA driver library can't be loaded: {exc}") from exc


@lru_cache(maxsize=1)
def quick_library() -> Any:
    """The same, for calls that only enqueue or ask: Python's lock is kept meanwhile, so that no other thread has a turn
    between an event and the launch after it. On an H200's host with 16 compilations under way, such turns made half of
    all first launches several times too long."""
    library()  # says what is wrong where there is none
    return PyDLL("libcuda.so.1")


def check(code: int, what: str) -> None:
    """Raise :class:`BackendError` (or :class:`OutOfResourcesError`) for a driver call that failed."""
    if code == 0:
        return
    name = c_char_p()
    library().cuGetErrorName(code, byref(name))
    text = f"{what}: {(name.value or b'unknown error').decode()} ({code})"
    raise (OutOfResourcesError if code == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES else BackendError)(text)


IPC_HANDLE_BYTES, IPC_LAZY_PEER_ACCESS = 64, 1
"""``CU_IPC_HANDLE_SIZE``, ``CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`` (cuda.h)."""


class IpcHandle(Structure):
    """``CUipcMemHandle``: an allocation of ``cuMemAlloc``, for another process to map."""

    _fields_ = [("reserved", c_char * IPC_HANDLE_BYTES)]


class CudaFunction:
    """A loaded kernel with the driver's own figure of registers a thread."""

    def __init__(self, binary: Binary, data: bytes, max_shared: int) -> None:
        cuda = library()
        self.binary = binary
        self.module, self.handle = c_void_p(), c_void_p()
        check(cuda.cuModuleLoadData(byref(self.module), data), f"loading kernel {binary.symbol}")
        name = binary.symbol.encode()
        check(cuda.cuModuleGetFunction(byref(self.handle), self.module, name), f"finding kernel {binary.symbol}")
        self.registers = self._attribute(NUM_REGS)
        threads = self.binary.num_warps * self.binary.warp_size
        limit = self._attribute(MAX_THREADS_PER_BLOCK)
        if self.binary.shared > max_shared:
            self.unload()
            raise OutOfResourcesError(
                f"needs {self.binary.shared} B shared memory a block, the device has {max_shared} B"
            )
        if threads > limit:
            self.unload()
            raise OutOfResourcesError(f"needs {threads} threads a block, with its registers the device allows {limit}")
        self._reserve(max_shared)

    def unload(self) -> None:
        """Free the module."""
        if self.module:
            check(library().cuModuleUnload(self.module), f"unloading kernel {self.binary.symbol}")
            self.module = c_void_p()

    def _attribute(self, number: int) -> int:
        value = c_int()
        check(library().cuFuncGetAttribute(byref(value), number, self.handle), "reading a kernel attribute")
        return value.value

    def _reserve(self, max_shared: int) -> None:
        cuda = library()
        if self.binary.shared > STATIC_SHARED_LIMIT:
            # As Triton does: all that the device allows, so that carveout and speed are those of a plain launch.
            dynamic = max_shared - self._attribute(FUNCTION_STATIC_SHARED)
            check(cuda.cuFuncSetCacheConfig(self.handle, PREFER_SHARED), "preferring shared memory over L1")
            code = cuda.cuFuncSetAttribute(self.handle, FUNCTION_MAX_DYNAMIC_SHARED, dynamic)
            check(code, f"reserving {dynamic} B shared memory")
        if self.binary.num_ctas == NON_PORTABLE_CLUSTER:
            check(cuda.cuFuncSetAttribute(self.handle, FUNCTION_NON_PORTABLE_CLUSTER, 1), "allowing 16-CTA clusters")


def prepare_launch(
    function: CudaFunction,
    grid: tuple[int, int, int],
    params: Sequence[Param],
    addresses: Sequence[int | None],
    stream: Callable[[], int],
) -> Callable[[], None]:
    """A call that launches on the stream that is current then. All memory it needs is made here, once."""
    values = [_encode(p, a) for p, a in zip(params, addresses, strict=True)]
    pointers = (c_void_p * len(values))(*(addressof(v) for v in values))
    binary = function.binary
    threads = binary.warp_size * binary.num_warps
    config = settings_of(grid, threads, binary.num_ctas, binary.shared, binary.pdl, binary.cooperative)
    launch, handle, reference = quick_library().cuLaunchKernelEx, function.handle, byref(config)

    def call() -> None:
        config.stream = stream()
        code = launch(reference, handle, pointers, None)
        if code:
            check(code, f"launching kernel {binary.symbol} on grid {grid}")

    call.keep = (values, function)  # type: ignore[attr-defined]  # pointers don't own them
    return call


def _encode(param: Param, address: int | None) -> Any:
    if param.tensor_map is not None:
        what = f"encoding the tensor map of {param.name}"
        spec = msgspec.structs.asdict(param.tensor_map)
        return tensor_map(lambda *words: check(library().cuTensorMapEncodeTiled(*words), what), spec, address or 0)
    if param.type.startswith("*"):
        return c_uint64(address or 0)
    if param.type not in SCALARS:
        raise BackendError(f"parameter {param.name} has type {param.type}, which can't be launched")
    return scalar(param.type, 0 if param.value is None else param.value)


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
