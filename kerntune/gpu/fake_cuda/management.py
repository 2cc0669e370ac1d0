"""``nvidia-smi`` and NVML for a device that doesn't exist: pruning functions read clocks from them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from triton import testing

from kerntune.base.device import DeviceSpec
from kerntune.gpu.fake_cuda.clocks import clocks_of
from kerntune.gpu.fake_cuda.end_reasons import StandInEnd
from kerntune.gpu.fake_cuda.patches import replace, replace_known

MEMORY_CLOCK = 2
"""``NVML_CLOCK_MEM``; the other kinds are clocks of the chip."""

DRIVER_VERSION = "570.0"
"""The driver of CUDA 12.8, the ``torch.version.cuda`` of stand-ins."""

CUDA_DRIVER_VERSION = 12080

HANDLE = SimpleNamespace(value=0)
"""The handle of the only device."""


def install_management(stack: contextlib.ExitStack, spec: DeviceSpec, memory_bytes: int) -> None:
    """Make ``triton.testing.nvsmi`` and, for an NVIDIA GPU, NVML report the device ``spec`` until ``stack`` closes."""
    if spec.target.backend != "cuda":
        return
    replace(stack, testing, "nvsmi", _nvsmi(spec, memory_bytes))
    pynvml = sys.modules.get("pynvml")  # torch.cuda has imported it, if it can be
    if pynvml is not None:
        for name, stub in _nvml(spec, memory_bytes).items():
            replace_known(stack, pynvml, name, stub)


def _nvsmi(spec: DeviceSpec, memory_bytes: int) -> Callable[[Sequence[str]], list[int]]:
    """Triton's function, which runs ``nvidia-smi --query-gpu``: integers, in MHz, MiB, W, degrees Celsius, percent."""
    clocks, megabytes = clocks_of(spec.target), memory_bytes >> 20
    known = {
        "memory.total": megabytes,
        "memory.free": megabytes,
        "memory.used": 0,
        "utilization.gpu": 0,
        "utilization.memory": 0,
        "temperature.gpu": 0,
        "index": 0,
        "count": 1,
    }
    for kind in ("sm", "gr", "graphics"):
        known |= {f"clocks{way}.{kind}": clocks.sm_mhz for way in ("", ".max", ".current", ".applications")}
    for kind in ("mem", "memory"):
        known |= {f"clocks{way}.{kind}": clocks.memory_mhz for way in ("", ".max", ".current", ".applications")}

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
    from kerntune.gpu.fake_cuda.driver import capability

    clocks = clocks_of(spec.target)

    def clock(handle: Any, kind: int = 0, *ignored: Any) -> int:
        return clocks.memory_mhz if kind == MEMORY_CLOCK else clocks.sm_mhz

    answers: dict[str, Any] = {
        "nvmlInit": None,
        "nvmlInitWithFlags": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": HANDLE,
        "nvmlDeviceGetHandleByUUID": HANDLE,
        "nvmlDeviceGetHandleByPciBusId": HANDLE,
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
    kinds = (
        "ClockInfo",
        "MaxClockInfo",
        "ApplicationsClock",
        "DefaultApplicationsClock",
        "MaxCustomerBoostClock",
        "Clock",
    )
    return {**{k: _always(v) for k, v in answers.items()}, **{f"nvmlDeviceGet{kind}": clock for kind in kinds}}


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer
