"""A Triton driver for a device that doesn't exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.backends.compiler import GPUTarget

from kerntune.base.device import Target
from kerntune.gpu.fake_cuda.clocks import clocks_of
from kerntune.gpu.fake_cuda.device_numbers import DeviceNumbers
from kerntune.gpu.fake_cuda.end_reasons import StandInEnd

BENCHMARK_MS = 1.0
"""The result of a benchmark, in milliseconds; nothing is run."""


def gpu_target(target: Target) -> GPUTarget:
    """A target as Triton's ``GPUTarget``."""
    return GPUTarget(target.backend, target.triton_arch, target.warp_size)


def capability(target: Target) -> tuple[int, int]:
    """As ``torch.cuda.get_device_capability``: ``(9, 0)`` for cuda:90, and ``(9, 4)`` for hip:gfx942 as on ROCm."""
    if target.backend == "cuda":
        return divmod(int(target.arch), 10)
    digits = target.arch.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16)


class DeviceUtils:
    """``driver.utils``: device properties for Triton and its users, and the loader, which must never be called."""

    def __init__(self, numbers: DeviceNumbers) -> None:
        self._numbers = numbers

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """The keys that CUDA's and HIP's drivers share, with ``warpSize`` as both name it; clocks in kHz."""
        spec = self._numbers.spec(device)
        clocks = clocks_of(spec.target)
        return {
            "max_shared_mem": spec.shared_memory_per_block,
            "max_num_regs": spec.registers_per_sm,
            "multiprocessor_count": spec.sm_count,
            "warpSize": spec.warp_size,
            "sm_clock_rate": 1000 * clocks.sm_mhz,
            "mem_clock_rate": 1000 * clocks.memory_mhz,
            "mem_bus_width": clocks.bus_bits,
        }

    def load_binary(self, *args: Any) -> Any:
        """Raise :class:`StandInEnd`: binaries are never loaded."""
        raise StandInEnd("loads a compiled kernel onto a GPU that isn't there")

    def unload_module(self, module: Any) -> None:
        """Nothing was loaded."""


class StandInDriver:
    """The replacement of ``triton.runtime.driver.active``. Triton requires no base class."""

    def __init__(self, numbers: DeviceNumbers) -> None:
        self._numbers = numbers
        self.utils = DeviceUtils(numbers)
        self.launcher_cls = _no_launcher

    @staticmethod
    def is_active() -> bool:
        """Whether this driver's device is available: always."""
        return True

    def get_current_target(self) -> GPUTarget:
        """The target to compile for."""
        return gpu_target(self._numbers.spec().target)

    def get_current_device(self) -> int:
        """torch's."""
        return self._numbers.current()

    def set_current_device(self, device: Any) -> None:
        """torch's."""
        self._numbers.set(device)

    def get_current_stream(self, device: Any = None) -> int:
        """The handle of the default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """The device of stand-ins."""
        return torch.device("cuda", self._numbers.current())

    def get_device_interface(self) -> Any:
        """torch's module for this kind of device, whose functions are replaced as well."""
        return torch.cuda

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """As ``torch.cuda.get_device_capability``."""
        return capability(self._numbers.spec(device).target)

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """A benchmark that calls once, so that launches are recorded, and measures nothing."""

        def benchmark(call: Callable[[], Any], *, quantiles: Sequence[float] = (), **ignored: Any) -> list[float]:
            call()
            return [BENCHMARK_MS] * max(1, len(quantiles))

        return benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """The tensor that a benchmark overwrites to flush the cache."""
        return torch.empty(1, dtype=torch.int32, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Nothing is cached."""

    def map_python_to_cpp_type(self, ty: str) -> str:
        """No launcher is generated, so that types keep Triton's names."""
        return ty

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        """The arguments, unchanged."""
        return args


def _no_launcher(source: Any, metadata: Any) -> Callable[..., None]:
    return lambda *args, **kwargs: None
