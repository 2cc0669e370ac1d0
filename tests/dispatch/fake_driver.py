"""A GPU that only writes down what it is asked to launch, under Triton's own launching code of any version."""

from __future__ import annotations

import contextlib
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

STREAM = 77


@dataclass(eq=False)
class FakeTensor:
    """As much of a tensor as a launch looks at."""

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
    """One call of the C launcher, told in the same words whichever way it came: addresses for tensors."""

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
            self.launches.append(told(args, signature))

        out.launch = launch
        return out

    def compile(self, jit: Any, key: Any, signature: dict[str, Any]) -> Any:
        """A compiled kernel without code."""
        kernel = CompiledKernel.__new__(CompiledKernel)
        kernel.module, kernel.function = None, 1000 + len(self.compiled)
        kernel.packed_metadata = ("packed", kernel.function)
        kernel.src = SimpleNamespace(signature=signature, fn=jit)
        kernel.name, kernel.metadata = jit.__name__, SimpleNamespace()
        kernel._run = self.launcher(signature)
        kernel._init_handles = lambda: None
        self.compiled.append(kernel)
        return kernel


def told(args: tuple[Any, ...], signature: dict[str, Any]) -> Launched:
    """A C launcher's arguments in either version's order."""
    grid, (stream, function, cooperative, pdl) = args[:3], args[3:7]
    if triton.__version__.startswith("3.6"):
        scratch, packed, own = args[7], args[9], args[13:]
    else:
        packed, scratch, own = args[7], args[11], args[15]
    passed = [pointer(a) for a, type_ in zip(own, signature.values(), strict=True) if type_ != "constexpr"]
    return Launched(function, grid, stream, cooperative, pdl, packed, tuple(passed), scratch)


def pointer(value: Any) -> Any:
    """What the C launcher makes of an argument."""
    return value.data_ptr() if hasattr(value, "data_ptr") else value


@contextlib.contextmanager
def fake_cuda(devices: int = 2) -> Iterator[FakeCuda]:
    """Triton launches on this meanwhile."""
    cuda, before = FakeCuda(), driver._active
    fake = SimpleNamespace(
        get_current_device=lambda: cuda.device,
        get_current_stream=lambda device: cuda.stream,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
    )

    def compile_(jit: Any, key: Any, signature: Any, device: int, *rest: Any) -> Any:
        cuda.through_triton += 1
        kernel = jit.device_caches[device][0][key] = cuda.compile(jit, key, signature)
        return kernel

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_active", fake)
        patch.setattr(JITFunction, "_do_compile", compile_)
        patch.setattr(torch.cuda, "device_count", lambda: devices)
        yield cuda
    driver._active = before
