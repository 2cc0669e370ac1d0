"""What NVML says of a device as it is now. Nothing is ever set on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

LIMITS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Reasons for a lower clock that come of power or heat: software's power cap, a slowdown by hardware, both thermal
ones, a power brake (``nvmlClocksThrottleReason...``, NVML's API reference). A clock that is set by hand is none."""


def is_limited(throttle: str) -> bool:
    """Whether throttle reasons, as :func:`device_state` gives them, have power or heat among them."""
    return bool(int(throttle or "0", 16) & LIMITS)


def device_state(uuid: str) -> dict[str, Any]:
    """Driver, clocks in MHz, throttle reasons (idling is none), power in W, temperature in degrees Celsius, of the
    device with ``uuid`` (as the driver gives it, without prefix); without what can't be asked, empty where NVML can't.

    A MIG instance has an id of its own and no clocks: they are those of its GPU.
    """
    import pynvml

    found: dict[str, Any] = {}
    try:
        pynvml.nvmlInit()
        found["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
        handle = _handle(pynvml, uuid)
    except pynvml.NVMLError:
        return found
    for name, ask in _QUESTIONS.items():
        with contextlib.suppress(pynvml.NVMLError):
            found[name] = ask(pynvml, handle)
    return found


def device_count() -> int:
    """NVIDIA's GPUs of this machine; 0 where NVML finds none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def _handle(nvml: Any, uuid: str) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        instance = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)


def _throttle(nvml: Any, handle: Any) -> str:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & ~nvml.nvmlClocksThrottleReasonGpuIdle
    return hex(reasons) if reasons else ""


_QUESTIONS: dict[str, Callable[[Any, Any], object]] = {
    "throttle": _throttle,  # first: a device that is idle is soon limited by nothing
    "sm_clock_mhz": lambda nvml, handle: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
    "memory_clock_mhz": lambda nvml, handle: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
    "power_w": lambda nvml, handle: round(nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 1),
    "temperature_c": lambda nvml, handle: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
}
