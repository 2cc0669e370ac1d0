"""A GPU that only records launches, under Triton's own launching code of any version."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler import CompiledKernel
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from kerntune.kernels.dispatch import native

STREAM = 77


@dataclass(eq=False)
class FakeTensor:
    """The attributes of a tensor that a launch reads."""

    address: int = 4096
    dtype: torch.dtype = torch.float32
    device: int = 0
    shape: tuple[int, ...] = (64,)
    strides: tuple[int, ...] = (1,)

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.device

    @property
    def is_cuda(self) -> bool:
        return self.device >= 0

    def stride(self) -> tuple[int, ...]:
        return self.strides


@dataclass(frozen=True)
class Launched:
    """One call of the C launcher, in one form for all ways of launching: addresses for tensors."""

    function: int
    grid: tuple[int, int, int]
    stream: int
    cooperative: bool
    pdl: bool
    packed: Any
    arguments: tuple[Any, ...]
    scratch: Any = None


@dataclass
class FakeCuda:
    """What was compiled and launched."""

    launches: list[Launched] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)
    device: int = 0
    stream: int = STREAM
    scratch: int = 0
    flags: tuple[bool, bool] = (False, False)
    refuses: bool = False
    driven: int = 0
    """How many launches came to the driver itself."""

    through_triton: int = 0
    """How many launches came by way of ``JITFunction.run``."""

    def launcher(self, signature: dict[str, Any]) -> CudaLauncher:
        """Triton's own launcher object over a C function that records."""
        out = CudaLauncher.__new__(CudaLauncher)
        out.num_ctas, out.gsan_enabled = 1, False
        out.global_scratch_size, out.global_scratch_align = self.scratch, 16
        out.profile_scratch_size, out.profile_scratch_align = 0, 1
        out.launch_cooperative_grid, out.launch_pdl = self.flags
        out.arg_annotations, out.kernel_signature = [], b""

        def launch(*args: Any) -> None:
            if self.refuses:
                raise RuntimeError("the driver refused")
            if 0 not in args[:3]:  # as the C launcher does
                self.launches.append(told(args, signature))

        out.launch = launch
        return out

    def compile(self, jit: Any, key: Any, signature: dict[str, Any]) -> Any:
        """A compiled kernel without code."""
        kernel = CompiledKernel.__new__(CompiledKernel)
        kernel.module, kernel.function = None, 1000 + len(self.compiled)
        kernel.packed_metadata = ("packed", kernel.function)
        kernel.src = SimpleNamespace(signature=signature, fn=jit)
        kernel.name = jit.__name__
        kernel.metadata = SimpleNamespace(num_warps=4, shared=48, num_ctas=1, target=TARGET)
        kernel._run = self.launcher(signature)
        kernel._init_handles = lambda: None
        self.compiled.append(kernel)
        return kernel

    def drive(self, function: int, *rest: Any) -> int:
        """``cuLaunchKernel``: it finds a kernel's arguments by the addresses that it is given."""
        if self.refuses:
            return 1
        kernel = next(k for k in self.compiled if k.function == function)
        x, y, z, threads, one, another, shared, stream, addresses, extra = rest
        assert (threads, one, another, shared, extra) == (128, 1, 1, 48, None)
        types = [t for t in kernel.src.signature.values() if t != "constexpr"]
        arguments = tuple(
            C_TYPES["*" if t[0] == "*" else t].from_address(addresses[i]).value for i, t in enumerate(types)
        )
        memory, profile = (ctypes.c_uint64.from_address(addresses[len(types) + i]).value for i in (0, 1))
        assert profile == 0
        packed = kernel.packed_metadata
        given = Launched(function, (x, y, z), stream or 0, False, False, packed, arguments, memory or None)
        self.launches.append(given)
        self.driven += 1
        return 0


C_TYPES: dict[str, Any] = {
    "*": ctypes.c_uint64, "i1": ctypes.c_int8, "u1": ctypes.c_uint8, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64, "u8": ctypes.c_uint8, "fp32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip

LAUNCH_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)

TARGET = GPUTarget("cuda", 90, 32)


def told(args: tuple[Any, ...], signature: dict[str, Any]) -> Launched:
    """A C launcher's arguments in either version's order."""
    grid, (stream, function, cooperative, pdl) = args[:3], args[3:7]
    if triton.__version__.startswith("3.6"):
        scratch, packed, own = args[7], args[9], args[13:]
    else:
        packed, scratch, own = args[7], args[11], args[15]
    passed = [as_type(a, type_) for a, type_ in zip(own, signature.values(), strict=True) if type_ != "constexpr"]
    return Launched(function, grid, stream, cooperative, pdl, packed, tuple(passed), scratch)


def as_type(value: Any, type_: str) -> Any:
    """What a binary makes of an argument; what only Triton's launcher can take apart stays."""
    if hasattr(value, "data_ptr"):
        return value.data_ptr()
    known = C_TYPES.get("*" if type_[0] == "*" else type_)
    if known is None or (value is None and type_[0] != "*"):
        return value
    return known(float(value) if type_.startswith("fp") else int(value or 0)).value


@contextlib.contextmanager
def fake_cuda(devices: int = 2, driven: bool = False) -> Iterator[FakeCuda]:
    """Triton launches on this meanwhile; and so does the C front, if it is to come to the ``driven`` driver itself."""
    cuda, before = FakeCuda(), driver._active
    entry = LAUNCH_KERNEL(cuda.drive)
    compiled = native.module()
    if compiled is not None:
        compiled.use_driver(ctypes.cast(entry, ctypes.c_void_p).value if driven else 0)
    fake = SimpleNamespace(
        get_current_device=lambda: cuda.device,
        get_current_stream=lambda device: cuda.stream,
        get_current_target=lambda: TARGET,
    )

    def compile_(jit: Any, key: Any, signature: Any, device: int, *rest: Any) -> Any:
        cuda.through_triton += 1
        kernel = jit.device_caches[device][0][key] = cuda.compile(jit, key, signature)
        return kernel

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_active", fake)
        patch.setattr(JITFunction, "_do_compile", compile_)
        patch.setattr(torch.cuda, "device_count", lambda: devices)
        patch.setattr(torch.cuda, "get_device_name", lambda device=None: "a GPU")
        yield cuda
    driver._active = before
    if compiled is not None:
        compiled.use_driver(native.driver_address())
