"""The device that doesn't exist, as Triton, ``nvidia-smi`` and NVML see it: numbers, clocks, memory, a driver.

Pruning functions and performance models read clocks and memory to order configs; they get those of a target's
typical device. Which device is current is known for each thread, as with torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from threading import local
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
import triton
from triton import testing
from triton.backends.compiler import GPUTarget

from kerntune.base.device import DeviceSpec, Target
from kerntune.gpu import host_gpus
from kerntune.gpu.fake_cuda.patches import StandInEnd, always, replace, replace_known
from kerntune.kernels.compat.triton_compiler import gpu_target


class Clocks(NamedTuple):
    """The highest clock of the multiprocessors and of the memory, in MHz, and the width of the memory's bus in bits.

    The memory's clock is such that ``2 * clock * bits / 8`` (``triton.testing.get_dram_gbps``) is its bandwidth.
    """

    sm_mhz: int
    memory_mhz: int
    bus_bits: int


TYPICAL_CLOCKS = {
    "cuda:75": Clocks(1590, 5001, 256),  # T4: 320 GB/s
    "cuda:80": Clocks(1410, 1215, 5120),  # A100 40 GB: 1,555 GB/s
    "cuda:86": Clocks(1695, 6251, 384),  # A10: 600 GB/s
    "cuda:87": Clocks(1300, 3200, 256),  # Jetson AGX Orin 64 GB: 204.8 GB/s
    "cuda:89": Clocks(2520, 9001, 384),  # L40S: 864 GB/s
    "cuda:90": Clocks(1980, 2619, 5120),  # H100 SXM: 3.35 TB/s
    "cuda:100": Clocks(1965, 3996, 8192),  # B200: 8 TB/s
    "cuda:120": Clocks(2407, 14001, 512),  # RTX 5090: 1,792 GB/s
    "hip:gfx90a": Clocks(1700, 1600, 4096),  # MI250, one of its two dies: half of 3.2 TB/s
    "hip:gfx942": Clocks(2100, 2600, 8192),  # MI300X: 5.3 TB/s
    "hip:gfx950": Clocks(2400, 3906, 8192),  # MI355X: 8 TB/s
    "hip:gfx1100": Clocks(2500, 10000, 384),  # RX 7900 XTX: 960 GB/s
    "hip:gfx1201": Clocks(2970, 10000, 256),  # RX 9070 XT: 640 GB/s
}
"""Boost clock, bandwidth and bus width of the products' datasheets (NVIDIA, AMD); memory clocks follow from the latter
two. Hopper's and Blackwell's SXM boards have no clock in their datasheets: ``nvidia-smi -q -d CLOCK``'s maximum."""


def clocks_of(target: Target) -> Clocks:
    """A target's figures; of one that isn't listed those of the nearest listed one before it, of the same vendor."""
    same = [text for text in TYPICAL_CLOCKS if text.startswith(f"{target.backend}:")]
    before = [text for text in same if _order(text) <= _order(str(target))]
    return TYPICAL_CLOCKS[max(before or same[:1], key=_order)]


def _order(target: str) -> int:
    return int(target.partition(":")[2].removeprefix("gfx"), 16)


class DeviceNumbers:
    """Devices by number, all equal or of several kinds. With a single one every number means that."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self.specs = tuple(specs)
        self._thread = local()

    def current(self, *ignored: Any) -> int:
        """The calling thread's device."""
        return int(getattr(self._thread, "number", 0))

    def set(self, device: Any) -> None:
        """Make a device current. ``RuntimeError`` as torch's if there is no such device."""
        self._thread.number = self.number(device)

    def number(self, device: Any = None) -> int:
        """The number of a device given as number, text, ``torch.device`` or tensor; the current one for None, for
        negative numbers and for what isn't on a GPU. ``RuntimeError`` as torch's if there is no such device."""
        index = _index(device)
        if index is None or index < 0:
            return self.current()
        if len(self.specs) == 1:
            return 0
        if index >= len(self.specs):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return index

    def spec(self, device: Any = None) -> DeviceSpec:
        """What a device is."""
        return self.specs[self.number(device)]

    def context(self) -> type[DeviceContext]:
        """What replaces ``torch.cuda.device``."""
        return type("device", (DeviceContext,), {"numbers": self})


def _index(device: Any) -> int | None:
    if isinstance(device, torch.Tensor):
        device = device.device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        return device.index if device.type == "cuda" else None
    return None if device is None else int(device)


class DeviceContext:
    """``torch.cuda.device`` and ``device_of``: a device is current meanwhile."""

    numbers: ClassVar[DeviceNumbers]

    def __init__(self, device: Any = None) -> None:
        self.idx = self.numbers.number(device)

    def __enter__(self) -> None:
        self.prev_idx = self.numbers.current()
        self.numbers.set(self.idx)

    def __exit__(self, *exc: object) -> None:
        self.numbers.set(self.prev_idx)


BENCHMARK_MS = 1.0
"""The result of a benchmark, in milliseconds; nothing is run."""


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

    def get_device_properties(self, device: int) -> dict[str, int]:
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
        self.launcher_cls = always(always(None))

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


def install_driver(stack: ExitStack, numbers: DeviceNumbers) -> None:
    """Until ``stack`` closes, Triton's driver is the one of devices that don't exist."""
    driver = StandInDriver(numbers)
    replace(stack, triton.runtime.driver, "_default", driver)
    replace(stack, triton.runtime.driver, "_active", driver)


MEMORY_CLOCK = 2
"""``NVML_CLOCK_MEM``; the other kinds are clocks of the chip."""

DRIVER_VERSION = "570.0"
"""The driver of CUDA 12.8, the ``torch.version.cuda`` of stand-ins."""

CUDA_DRIVER_VERSION = 12080

HANDLE = SimpleNamespace()
"""The handle of the only device."""


def install_management(stack: ExitStack, spec: DeviceSpec, memory_bytes: int) -> None:
    """Make ``triton.testing.nvsmi`` and, for an NVIDIA GPU, NVML report the device ``spec`` until ``stack`` closes."""
    if spec.target.backend != "cuda":
        return
    replace(stack, testing, "nvsmi", _nvsmi(spec, memory_bytes))
    pynvml = sys.modules.get("pynvml")  # torch.cuda has imported it, if it can be
    if pynvml is not None:
        host_gpus.device_node(spec.uuid)  # is remembered: a lock on the device asks for it while stubs answer
        asked, own = pynvml.nvmlDeviceGetHandleByUUID, {f"{k}{spec.uuid}" for k in ("", "GPU-", "MIG-")}
        handle = {"nvmlDeviceGetHandleByUUID": lambda uuid: HANDLE if uuid in own else asked(uuid)}
        stubs = _nvml(spec, memory_bytes) | handle  # locks on other devices ask for theirs meanwhile
        for name, stub in stubs.items():
            replace_known(stack, pynvml, name, stub)


def _nvsmi(spec: DeviceSpec, memory_bytes: int) -> Callable[[Sequence[str]], list[int]]:
    """Triton's function, which runs ``nvidia-smi --query-gpu``: integers, in MHz, MiB, W, degrees Celsius, percent."""
    clocks, megabytes = clocks_of(spec.target), memory_bytes >> 20
    zero = ("memory.used", "utilization.gpu", "utilization.memory", "temperature.gpu", "index")
    known = {"memory.total": megabytes, "memory.free": megabytes, **dict.fromkeys(zero, 0), "count": 1}
    for kind in ("sm", "gr", "graphics", "mem", "memory"):
        mhz = clocks.memory_mhz if kind.startswith("mem") else clocks.sm_mhz
        known |= {f"clocks{way}.{kind}": mhz for way in ("", ".max", ".current", ".applications")}

    def nvsmi(attrs: Sequence[str]) -> list[int]:
        unknown = [name for name in attrs if name not in known]
        if unknown:
            raise StandInEnd(
                f"asks nvidia-smi for {', '.join(unknown)}, which nobody can tell of a GPU that isn't there"
            )
        return [known[name] for name in attrs]

    return nvsmi


def _nvml(spec: DeviceSpec, memory_bytes: int) -> dict[str, Callable[..., Any]]:
    """Replacements by name in ``pynvml`` of the most used functions. Clocks in MHz, memory in bytes, power in mW."""

    clocks = clocks_of(spec.target)

    def clock(handle: Any, kind: int, *ignored: Any) -> int:
        return clocks.memory_mhz if kind == MEMORY_CLOCK else clocks.sm_mhz

    answers: dict[str, Any] = {
        **dict.fromkeys(("nvmlInit", "nvmlInitWithFlags", "nvmlShutdown")),
        "nvmlDeviceGetCount": 1,
        **dict.fromkeys(("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByPciBusId"), HANDLE),
        "nvmlDeviceGetIndex": 0,
        "nvmlDeviceGetName": spec.name,
        "nvmlDeviceGetUUID": spec.uuid or "GPU-00000000-0000-0000-0000-000000000000",
        "nvmlDeviceGetCudaComputeCapability": capability(spec.target),
        "nvmlDeviceGetMemoryBusWidth": clocks.bus_bits,
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=memory_bytes, free=memory_bytes, used=0),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0),
        "nvmlDeviceGetTemperature": 0,
        "nvmlDeviceGetPowerUsage": 0,
        "nvmlSystemGetDriverVersion": DRIVER_VERSION,
        "nvmlSystemGetCudaDriverVersion": CUDA_DRIVER_VERSION,
        "nvmlSystemGetCudaDriverVersion_v2": CUDA_DRIVER_VERSION,
    }
    applications = ("ApplicationsClock", "DefaultApplicationsClock")
    kinds = ("Clock", "ClockInfo", "MaxClockInfo", "MaxCustomerBoostClock", *applications)
    return {**{k: always(v) for k, v in answers.items()}, **{f"nvmlDeviceGet{kind}": clock for kind in kinds}}
