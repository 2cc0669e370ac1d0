"""The driver's properties of typical devices."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.gpu.fake_cuda import StandInEnd, driver
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, StandInDriver, capability, clocks_of


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("cuda:75", (7, 5)),
        ("cuda:90", (9, 0)),
        ("cuda:120", (12, 0)),
        ("hip:gfx90a", (9, 0)),
        ("hip:gfx942", (9, 4)),
        ("hip:gfx950", (9, 5)),
        ("hip:gfx1100", (11, 0)),
    ],
)
def test_capability(target: str, expected: tuple[int, int]) -> None:
    assert capability(Target.parse(target)) == expected


@pytest.mark.parametrize("spec", TYPICAL_DEVICES.values(), ids=TYPICAL_DEVICES)
def test_answers_for_its_device(spec: DeviceSpec) -> None:
    made = StandInDriver(DeviceNumbers((spec,)))
    target, properties = made.get_current_target(), made.utils.get_device_properties(0)
    assert (target.backend, str(target.arch), target.warp_size) == (
        spec.target.backend,
        spec.target.arch,
        spec.warp_size,
    )
    clocks = clocks_of(spec.target)
    assert properties == {
        "max_shared_mem": spec.shared_memory_per_block, "max_num_regs": spec.registers_per_sm,
        "multiprocessor_count": spec.sm_count, "warpSize": spec.warp_size, "sm_clock_rate": 1000 * clocks.sm_mhz,
        "mem_clock_rate": 1000 * clocks.memory_mhz, "mem_bus_width": clocks.bus_bits,
    }  # fmt: skip
    assert made.get_device_capability() == capability(spec.target)


H100, A100 = TYPICAL_DEVICES["cuda:90"], TYPICAL_DEVICES["cuda:80"]


@pytest.mark.parametrize(("words", "times"), [({}, 1), ({"quantiles": (0.5,)}, 1), ({"quantiles": (0.5, 0.2)}, 2)])
def test_a_benchmark_calls_once_and_has_a_time_for_each_quantile(words: dict[str, Any], times: int) -> None:
    calls: list[int] = []
    found = StandInDriver(DeviceNumbers((H100,))).get_benchmarker()(lambda: calls.append(1), **words)
    assert (calls, found) == ([1], [1.0] * times)


def test_nothing_is_loaded() -> None:
    made = StandInDriver(DeviceNumbers((H100,)))
    with pytest.raises(StandInEnd, match="loads a compiled kernel onto a GPU that isn't there"):
        made.utils.load_binary("name", b"", 0, 0)
    assert made.utils.unload_module(None) is made.launcher_cls(None, None)(1) is None
    assert (made.is_active(), made.get_current_stream(1)) == (True, 0)
    assert (made.map_python_to_cpp_type("*fp32"), made.assemble_tensormap_to_arg(None, (1,))) == ("*fp32", (1,))


@pytest.mark.parametrize(
    ("device", "number"),
    [(None, 1), (-1, 1), (0, 0), (1, 1), ("cuda:0", 0), ("cuda", 1), ("cpu", 1), (torch.device("cuda", 0), 0),
     (torch.device("meta"), 1), (torch.zeros(1), 1)],
    ids=str,
)  # fmt: skip
def test_devices_have_numbers_and_one_is_current(device: Any, number: int) -> None:
    numbers = DeviceNumbers((A100, H100))
    numbers.set(1)
    assert (numbers.number(device), numbers.spec(device)) == (number, (A100, H100)[number])
    made = StandInDriver(numbers)
    assert (made.get_current_device(), made.get_active_torch_device()) == (1, torch.device("cuda", 1))
    assert (made.get_current_target().arch, made.get_device_capability(0)) == (90, (8, 0))
    made.set_current_device(0)
    assert numbers.current() == 0
    with pytest.raises(RuntimeError, match=r"^CUDA error: invalid device ordinal$"):
        numbers.number(2)
    assert DeviceNumbers((H100,)).number(5) == 0


def test_a_device_is_current_within_its_context_and_for_its_thread() -> None:
    numbers, seen = DeviceNumbers((A100, H100)), list[int]()
    device = numbers.context()
    with device(1) as entered, device(None):
        seen.append(numbers.current())
        thread = threading.Thread(target=lambda: seen.append(numbers.current()))
        thread.start()
        thread.join()
        with device("cuda:0"):
            seen.append(numbers.current())
        seen.append(numbers.current())
    assert (entered, seen, numbers.current()) == (None, [1, 0, 0, 1], 0)


WAYS = ("", ".max", ".current", ".applications")


def test_nvidia_smi_has_clocks_memory_and_a_device_that_does_nothing() -> None:
    nvsmi = driver._nvsmi(H100, 5 << 20)
    for kinds, mhz in ((("sm", "gr", "graphics"), 1980), (("mem", "memory"), 2619)):
        names = [f"clocks{way}.{kind}" for way in WAYS for kind in kinds]
        assert nvsmi(names) == [mhz] * len(names)
    names = "memory.total memory.free memory.used utilization.gpu utilization.memory temperature.gpu index count"
    assert nvsmi(names.split()) == [5, 5, 0, 0, 0, 0, 0, 1]


def test_nvml_has_the_same() -> None:
    answers = driver._nvml(H100, 5 << 20)
    nothing = ("Index", "Temperature", "PowerUsage")
    assert [answers[f"nvmlDeviceGet{name}"](None) for name in nothing] == [0] * 3
    memory, rates = answers["nvmlDeviceGetMemoryInfo"](None), answers["nvmlDeviceGetUtilizationRates"](None)
    assert (memory.total, memory.free, memory.used, rates.gpu, rates.memory) == (5 << 20, 5 << 20, 0, 0, 0)
    for kind in ("ClockInfo", "MaxClockInfo", "ApplicationsClock", "DefaultApplicationsClock", "MaxCustomerBoostClock"):
        assert [answers[f"nvmlDeviceGet{kind}"](None, clock) for clock in range(4)] == [1980, 1980, 2619, 1980]
    assert answers["nvmlDeviceGetClock"](None, 2, 0) == 2619
    assert (answers["nvmlDeviceGetCount"](), answers["nvmlSystemGetDriverVersion"]()) == (1, "570.0")
    assert answers["nvmlDeviceGetUUID"](None) == "GPU-00000000-0000-0000-0000-000000000000"
    assert (answers["nvmlDeviceGetCudaComputeCapability"](None), answers["nvmlInit"]()) == ((9, 0), None)
