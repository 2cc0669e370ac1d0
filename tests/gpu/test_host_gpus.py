"""GPUs of a host as environment variables and NVML name them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.device import DeviceSpec, Target
from kerntune.gpu import host_gpus
from kerntune.gpu.host_gpus import gpu_id, gpu_name, is_limited, listed, rotated, turned, unprotected_by, visible_count

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("reasons", "limited"),
    [("", False), ("0x1", False), ("0x2", False), ("0x4", True), ("0x8", True), ("0x10", False), ("0x20", True),
     ("0x40", True), ("0x80", True), ("0x100", False), ("0x101", False), ("0x104", True)],
)  # fmt: skip
def test_which_reasons_are_of_power_or_heat(reasons: str, limited: bool) -> None:
    """nvml.h: idle 1, clocks set 2, power cap 4, hardware slowdown 8, sync boost 16, thermal 32 and 64, brake 128."""
    assert is_limited(reasons) is limited


@pytest.mark.parametrize(
    ("text", "count", "entries"),
    [(None, 3, ["0", "1", "2"]), ("", 3, []), ("-1", 3, []), ("2, 0 ,1", 3, ["2", "0", "1"]), ("0,-1,1", 3, ["0"]),
     ("0,,1", 3, ["0"]), ("2,0,1", 2, ["2", "0"]), ("2,0,1", None, ["2", "0", "1"]),
     ("MIG-a,MIG-b", 1, ["MIG-a", "MIG-b"]), ("0,MIG-b", 1, ["0"]),
     ("NoDevFiles", None, ["NoDevFiles"])],
)  # fmt: skip
def test_entries_of_a_variable(text: str | None, count: int | None, entries: list[str]) -> None:
    assert listed({} if text is None else {CUDA: text}, CUDA, count) == entries


@pytest.mark.parametrize(
    ("environ", "count", "turns", "amd", "found"),
    [
        ({}, 4, 1, False, {CUDA: "1,2,3,0"}), ({}, 4, 5, False, {CUDA: "1,2,3,0"}), ({}, 4, 4, False, {}),
        ({}, 4, 0, False, {}), ({}, 1, 1, False, {}), ({CUDA: "2,GPU-a"}, 2, 1, False, {CUDA: "GPU-a,2"}),
        ({CUDA: "2,2"}, 2, 1, False, {}), ({CUDA: "2,3,4"}, 2, 1, False, {CUDA: "3,2"}),
        ({HIP: "3,2"}, 2, 1, False, {CUDA: "1,0"}), ({HIP: "3,2"}, 2, 1, True, {HIP: "2,3"}),
        ({CUDA: "3,2", ROCR: "1,0"}, 2, 1, True, {CUDA: "2,3"}), ({ROCR: "1,0"}, 2, 1, True, {ROCR: "0,1"}),
        ({}, 2, 1, True, {HIP: "1,0"}), ({HIP: "3,2", CUDA: "0,1"}, 2, 1, True, {HIP: "2,3"}),
        ({}, 4, 7, False, {CUDA: "3,0,1,2"}), ({CUDA: "MIG-a,MIG-b,MIG-c"}, 1, 2, False, {CUDA: "MIG-c,MIG-a,MIG-b"}),
        ({CUDA: " 0 , 1,-1,2"}, 2, 1, False, {CUDA: "1,0"}), ({CUDA: "1,0,9"}, 2, 3, False, {CUDA: "0,1"}),
        ({CUDA: ""}, 0, 1, False, {}), ({}, 0, 1, False, {}), ({CUDA: "3"}, 1, 1, False, {}),
    ],
)  # fmt: skip
def test_a_process_begins_some_gpus_later(environ: Any, count: int, turns: int, amd: bool, found: Any) -> None:
    assert rotated(environ, count, turns, amd) == found


def test_an_entry_comes_to_the_front() -> None:
    assert turned(["0", "1", "2"], "1") == ["1", "2", "0"]
    assert turned(["0", "1", "2"], "0") == ["0", "1", "2"]
    assert turned(["0", "1", "2"], "7") == ["7", "0", "1", "2"]
    assert turned([], "7") == ["7"]


@pytest.mark.parametrize(
    ("seen", "environ", "count"),
    [
        (0, {CUDA: "0,1"}, 0),
        (2, {}, 2),
        (2, {CUDA: "0,1,2"}, 2),
        (1, {CUDA: "MIG-a,MIG-b"}, 2),
        (1, {CUDA: ""}, 1),
        (1, {CUDA: "5"}, 1),
        (0, {CUDA: "MIG-a,MIG-b"}, 0),
    ],
)
def test_how_many_gpus_processes_can_begin_with(seen: int, environ: Any, count: int) -> None:
    assert visible_count(seen, environ) == count


def test_an_environment_that_names_gpus_already() -> None:
    assert [host_gpus.turned_by_others({name: ""}) for name in (CUDA, HIP, ROCR, "OTHER")] == [True] * 3 + [False]


def test_what_a_device_does_not_protect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert host_gpus.mps_folder() is None
    (tmp_path / "control").touch()
    assert host_gpus.mps_folder() == tmp_path
    (shared,) = unprotected_by(0, mps=True)
    assert shared.startswith(f"MPS is on ({tmp_path}): a fault of one process ends the others that use the device")
    (exclusive,) = unprotected_by(3, mps=False)
    assert exclusive.startswith("the device is in exclusive-process mode: no second process can use it")
    assert [len(unprotected_by(mode, mps=mps)) for mode, mps in ((None, False), (0, False), (2, False), (3, True))] == [
        0, 0, 0, 2,
    ]  # fmt: skip
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "")
    monkeypatch.setattr(host_gpus, "MPS_FOLDER", tmp_path / "none")
    assert unprotected_by(0, mps=True)[0].startswith("MPS is on: a fault")


class Nvml(SimpleNamespace):
    """A library that knows one GPU, ``GPU-abc``, and an instance of it."""

    class NVMLError(Exception):
        """As NVML's."""

    nvmlClocksThrottleReasonGpuIdle, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 1, 2, 0
    reasons, started = 0x5, True

    def nvmlInit(self) -> None:
        if not self.started:
            raise self.NVMLError

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        if name not in ("GPU-abc", "MIG-def"):
            raise self.NVMLError(name)
        return name

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: str) -> str:
        return {"MIG-def": "GPU-abc"}[instance]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if handle != "GPU-abc":
            raise self.NVMLError
        return 123_456

    def __getattr__(self, name: str) -> Any:
        return {
            "nvmlSystemGetDriverVersion": lambda: "580.1", "nvmlDeviceGetCount": lambda: 3,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: self.reasons,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1000 * kind + 980,
            "nvmlDeviceGetTemperature": lambda handle, kind: 55 + kind,
            "nvmlDeviceGetComputeMode": lambda handle: 3, "nvmlDeviceGetMinorNumber": lambda handle: 7,
        }[name]  # fmt: skip


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    found = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)  # type: ignore[arg-type]
    host_gpus.device_node.cache_clear()
    yield found
    host_gpus.device_node.cache_clear()


STATE = {
    "driver": "580.1", "throttle": "0x4", "sm_clock_mhz": 1980, "memory_clock_mhz": 2980, "power_w": 123.5,
    "temperature_c": 55,
}  # fmt: skip


def test_what_nvml_says_of_a_device(nvml: Nvml) -> None:
    """Idling is no reason; an instance has its GPU's state."""
    assert host_gpus.device_state("abc") == host_gpus.device_state("def") == STATE
    nvml.reasons = 1
    assert host_gpus.device_state("abc")["throttle"] == ""
    assert host_gpus.device_state("unknown") == {"driver": "580.1"}
    assert (host_gpus.device_count(), host_gpus.compute_mode("abc"), host_gpus.compute_mode("no")) == (3, 3, None)
    assert (listed({}), listed({}, count=1)) == (["0", "1", "2"], ["0"])


def test_without_nvml_nothing_is_known(nvml: Nvml) -> None:
    nvml.started = False
    assert (host_gpus.device_state("abc"), host_gpus.device_count(), host_gpus.compute_mode("abc")) == ({}, 0, None)


def test_names_of_a_device(nvml: Nvml) -> None:
    target = Target("cuda", "90")
    known, unknown = DeviceSpec(target, "x", 1, uuid="abc"), DeviceSpec(target, "x", 1, uuid="0123456789")
    assert (gpu_name(known), gpu_name(unknown), gpu_name(DeviceSpec(target, "x", 1))) == ("GPU 7", "GPU-01234567", "")
    assert (gpu_id(known), gpu_id(DeviceSpec(target, "x", 1))) == ("GPU-abc", "")
    assert host_gpus.device_node("abc") == Path("/dev/nvidia7")
