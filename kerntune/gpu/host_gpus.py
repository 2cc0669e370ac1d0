"""The GPUs of a host, without a context on any: what NVML says of them, their order, their sharing, their names.

Nothing is ever set on a device. Each process of a run may see all GPUs in another order, with another first one.
Sharing takes protection away under MPS, and a device in exclusive-process mode takes one process alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from kerntune.base.device import DeviceSpec

T = TypeVar("T")

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
        with suppress(pynvml.NVMLError):
            found[name] = ask(pynvml, handle)
    return found


def device_count() -> int:
    """NVIDIA's GPUs of this machine; 0 where NVML finds none."""
    return by_nvml(lambda nvml: int(nvml.nvmlDeviceGetCount())) or 0


def by_nvml(ask: Callable[[Any], T]) -> T | None:
    """What NVML's module answers; None where it doesn't. The driver isn't started."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return ask(pynvml)
    except pynvml.NVMLError:
        return None


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

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
"""What NVIDIA's driver, AMD's HIP and the layer below HIP read once, when they start."""

MIG = "MIG-"
"""A process sees the first MIG instance of its list alone (NVIDIA MIG user guide, "CUDA Device Enumeration")."""


def rotated(environ: Mapping[str, str], count: int, turns: int, amd: bool = False) -> dict[str, str]:
    """The variable to set so that a process begins its list ``turns`` GPUs later than this one, which sees ``count``;
    empty where there is nothing to turn.

    Entries stay as the user wrote them (index, UUID, MIG instance), and only those that this process sees are listed:
    the driver would drop all after one that it doesn't know. Of HIP's variables the one nearest to the program is
    turned, because its numbers count what the one below leaves.
    """
    names = (HIP, CUDA, ROCR) if amd else (CUDA,)
    name = next((n for n in names if n in environ), names[0])
    entries = listed(environ, name, count)
    if len(entries) < 2 or len(set(entries)) < len(entries) or turns % len(entries) == 0:
        return {}
    return {name: ",".join(turned(entries, entries[turns % len(entries)]))}


def turned(entries: Sequence[str], first: str) -> list[str]:
    """The list with one entry in front, the others after it in the order of a ring; one that isn't listed comes
    before all."""
    at = entries.index(first) if first in entries else 0
    return [*([] if first in entries else [first]), *entries[at:], *entries[:at]]


def listed(environ: Mapping[str, str], name: str = CUDA, count: int | None = None) -> list[str]:
    """The entries of a variable, as users write them (index, UUID, MIG instance), up to the first that is none; the
    numbers of all GPUs where it isn't set.

    ``count`` is how many a process sees that has started the driver, which drops what it doesn't know and all after.
    Without it the driver isn't asked, and NVML counts NVIDIA's GPUs; it finds none where there are none.
    """
    text = environ.get(name)
    if text is None:
        return [str(i) for i in range(device_count() if count is None else count)]
    entries = [entry.strip() for entry in text.split(",")]
    entries = entries[: next((i for i, e in enumerate(entries) if not e or e.startswith("-")), len(entries))]
    return entries if count is None or (entries and entries[0].startswith(MIG)) else entries[:count]


def turned_by_others(given: Mapping[str, str]) -> bool:
    """Whether an environment that a process is to get names GPUs already."""
    return any(name in given for name in (CUDA, HIP, ROCR))


def visible_count(seen: int, environ: Mapping[str, str] = os.environ) -> int:
    """How many GPUs the processes of a run can begin with, where this one sees so many of them: of MIG instances it
    sees one, whatever the list has."""
    return max(seen, len(listed(environ, CUDA, seen))) if seen else 0


MPS_FOLDER = Path("/tmp/nvidia-mps")
"""Where MPS has its pipes unless ``CUDA_MPS_PIPE_DIRECTORY`` says otherwise (NVIDIA's Multi-Process Service guide)."""

MPS_CONTROL = "control"
"""The daemon's pipe among them."""

EXCLUSIVE_PROCESS = 3
"""``NVML_COMPUTEMODE_EXCLUSIVE_PROCESS``, and ``CU_COMPUTEMODE_EXCLUSIVE_PROCESS`` of cuda.h: one process at a time may
have a context."""


def unprotected(uuid: str) -> list[str]:
    """What can't be protected on the device with this UUID (without ``GPU-``), a sentence each, as NVML and the
    environment say."""
    return unprotected_by(compute_mode(uuid), mps_folder() is not None)


def unprotected_by(mode: int | None, mps: bool) -> list[str]:
    """The same of a device in compute mode ``mode``, whose clients MPS serves or doesn't."""
    found = []
    if mps:
        pipes = mps_folder()
        found.append(
            f"MPS is on{f' ({pipes})' if pipes else ''}: a fault of one process ends the others that use the device, "
            "so a broken candidate can end this run, and work of others can slow it down; measure where no MPS daemon "
            "runs"
        )
    if mode == EXCLUSIVE_PROCESS:
        found.append(
            "the device is in exclusive-process mode: no second process can use it, so candidates run in this one, a "
            "broken one ends the run, and baselines can't be replayed in processes of their own; an administrator can "
            "set it back: nvidia-smi -c DEFAULT"
        )
    return found


def mps_folder() -> Path | None:
    """The folder of MPS's pipes where a daemon listens there, or where the environment names one."""
    named = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    folder = Path(named) if named else MPS_FOLDER
    return folder if (folder / MPS_CONTROL).exists() else None


def compute_mode(uuid: str) -> int | None:
    """The device's compute mode, as NVML numbers it; None where NVML doesn't say."""
    return by_nvml(lambda nvml: int(nvml.nvmlDeviceGetComputeMode(nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))))


SHORT = 8
"""Characters of a UUID, as ``nvidia-smi`` takes them too."""


def gpu_id(spec: DeviceSpec) -> str:
    """``GPU-`` and the UUID; empty for a device that has none. Equal in all processes, however they number GPUs."""
    return f"GPU-{spec.uuid}" if spec.uuid else ""


def gpu_name(spec: DeviceSpec) -> str:
    """``GPU 1`` of ``/dev/nvidia1``, ``GPU-8932f937`` where there is no such node; empty without a UUID."""
    if not spec.uuid:
        return ""
    node = device_node(spec.uuid)
    number = re.search(r"\d+$", node.name) if node is not None else None
    return f"GPU {number[0]}" if number is not None else f"GPU-{spec.uuid[:SHORT]}"


@lru_cache(maxsize=16)
def device_node(uuid: str) -> Path | None:
    """The device's node, ``/dev/nvidia0``, as NVML numbers it; None for a MIG instance, which shares its node with
    others, and where NVML doesn't say."""
    number = by_nvml(lambda nvml: int(nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))))
    return None if number is None else Path(f"/dev/nvidia{number}")
