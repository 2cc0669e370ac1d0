"""What NVML is asked: of a GPU, of a MIG instance, and where it knows nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from kerntune.base.device import DeviceSpec, Target
from kerntune.gpu.cuda import CudaGpu
from kerntune.gpu.host_gpus import device_state, is_limited
from kerntune.kernels.compat import versions

UUID = "5f3a1c2e-0000-1111-2222-333344445555"

ANSWERS = {
    "nvmlInit": None,
    "nvmlSystemGetDriverVersion": "570.86.15",
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x5,  # idle, and a power cap
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetPowerUsage": 123_456,
    "nvmlDeviceGetTemperature": 41,
}

STATE = {
    "driver": "570.86.15",
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 1980,
    "throttle": "0x4",
    "power_w": 123.5,
    "temperature_c": 41,
}


def refused(*args: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces functions of NVML."""

    def replace(**functions: Any) -> None:
        for name, answer in functions.items():
            monkeypatch.setattr(pynvml, name, answer if callable(answer) else lambda *args, _=answer: _)

    replace(**ANSWERS, nvmlDeviceGetHandleByUUID=lambda uuid: {f"GPU-{UUID}": "gpu"}[uuid])
    return replace


def test_a_gpu(nvml: Callable[..., None]) -> None:
    assert device_state(UUID) == STATE


def test_a_gpu_that_is_not_held_back(nvml: Callable[..., None]) -> None:
    nvml(nvmlDeviceGetCurrentClocksThrottleReasons=pynvml.nvmlClocksThrottleReasonGpuIdle)
    assert device_state(UUID)["throttle"] == ""


def test_the_limits_are_asked_for_first(nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is idle while it is asked, and soon limited by nothing: nothing that takes time comes before."""
    asked: list[str] = []
    nvml(
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda *args: asked.append("limits") or 0x4,
        nvmlDeviceGetClockInfo=lambda *args: asked.append("clock") or 1,
    )
    monkeypatch.setattr(versions, "assembler_version", lambda *args: asked.append("assembler") or "13")
    gpu: Any = SimpleNamespace(spec=DeviceSpec(Target("cuda", "90"), "H200", 132, uuid=UUID))
    found = CudaGpu.environment(gpu)
    assert (found.throttle, found.assembler) == ("0x4", "13")
    assert asked == ["limits", "clock", "clock", "assembler"]


def test_a_mig_instance_has_its_gpus_clocks(nvml: Callable[..., None]) -> None:
    def by_uuid(uuid: str) -> str:
        return "instance" if uuid == f"MIG-{UUID}" else refused()

    def clock(handle: str, kind: int) -> int:
        return 1755 if handle == "gpu of instance" else refused()

    nvml(
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda handle: f"gpu of {handle}",
        nvmlDeviceGetClockInfo=clock,
    )
    assert device_state(UUID) == STATE | {"sm_clock_mhz": 1755, "memory_clock_mhz": 1755}


def test_what_is_refused_is_left_out(nvml: Callable[..., None]) -> None:
    nvml(nvmlDeviceGetPowerUsage=refused, nvmlDeviceGetClockInfo=refused)
    assert device_state(UUID) == {k: STATE[k] for k in ("driver", "throttle", "temperature_c")}


def test_a_device_that_nvml_does_not_know(nvml: Callable[..., None]) -> None:
    nvml(nvmlDeviceGetHandleByUUID=refused)
    assert device_state(UUID) == {"driver": "570.86.15"}


def test_no_nvml(nvml: Callable[..., None]) -> None:
    nvml(nvmlInit=refused)
    assert device_state(UUID) == {}


@pytest.mark.parametrize(
    ("throttle", "limited"),
    [
        ("", False),
        ("0x4", True),
        ("0x8", True),
        ("0x20", True),
        ("0x40", True),
        ("0x80", True),
        ("0x6", True),
        ("0x12", False),
    ],
)
def test_power_and_heat_limit_a_clock_and_what_somebody_has_set_does_not(throttle: str, limited: bool) -> None:
    assert is_limited(throttle) is limited
