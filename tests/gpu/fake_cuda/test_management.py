"""What performance models of public kernels ask of a GPU that isn't there: clocks, bandwidth, peak rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
import torch
import triton
from fake_runs import active
from msgspec.structs import replace
from triton import testing

from kerntune.base.device import TYPICAL_DEVICES, Target
from kerntune.gpu import host_gpus
from kerntune.gpu.fake_cuda import StandInEnd
from kerntune.gpu.fake_cuda.driver import TYPICAL_CLOCKS, clocks_of
from kerntune.gpu.interpreter import Interpreter

DATASHEETS = {
    "cuda:75": 320,
    "cuda:80": 1555,
    "cuda:86": 600,
    "cuda:87": 204.8,
    "cuda:89": 864,
    "cuda:90": 3350,
    "cuda:100": 8000,
    "cuda:120": 1792,
    "hip:gfx90a": 1638,
    "hip:gfx942": 5300,
    "hip:gfx950": 8000,
    "hip:gfx1100": 960,
    "hip:gfx1201": 640,
}
"""GB/s."""


@pytest.fixture(params=["static", "interpreted"])
def no_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """An H100 that isn't there."""
    spec = TYPICAL_DEVICES["cuda:90"]
    with active() if request.param == "static" else Interpreter(spec).activate():
        yield


def clock_rate_khz() -> float:
    """As models of matrix products ask: ``nvidia-smi``, else NVML."""
    try:
        return testing.nvsmi(["clocks.max.sm"])[0] * 1e3
    except FileNotFoundError:
        return nvml_clock_khz()


def nvml_clock_khz() -> float:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e3)


@pytest.mark.usefixtures("no_gpu")
def test_a_performance_model_gets_the_targets_figures() -> None:
    assert clock_rate_khz() == nvml_clock_khz() == 1_980_000
    assert torch.cuda.clock_rate() == 1980
    assert testing.get_dram_gbps() == pytest.approx(3352, abs=1)
    assert testing.get_max_tensorcore_tflops(torch.float16, clock_rate_khz()) == pytest.approx(535, abs=1)
    assert testing.get_max_simd_tflops(torch.float32, clock_rate_khz()) == pytest.approx(33.5, abs=0.1)


@pytest.mark.usefixtures("no_gpu")
def test_nvml_answers_for_the_target() -> None:
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetName(handle) == torch.cuda.get_device_name()
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM) == 2619
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == torch.cuda.get_device_properties(0).total_memory
    assert (torch.cuda.temperature(), torch.cuda.power_draw(), torch.cuda.memory_usage()) == (0, 0, 0)


@pytest.mark.usefixtures("no_gpu")
def test_all_that_tells_the_clock_agrees() -> None:
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    torchs = torch.cuda.get_device_properties(0)
    assert properties["sm_clock_rate"] == torchs.clock_rate == clock_rate_khz()
    assert properties["mem_clock_rate"] == torchs.memory_clock_rate == 1e3 * testing.nvsmi(["clocks.max.memory"])[0]
    assert properties["mem_bus_width"] == torchs.memory_bus_width == pynvml.nvmlDeviceGetMemoryBusWidth(None)


@pytest.mark.usefixtures("no_gpu")
def test_what_nobody_can_tell_is_named() -> None:
    with pytest.raises(StandInEnd, match=r"asks nvidia-smi for serial, pci\.bus"):
        testing.nvsmi(["clocks.sm", "serial", "pci.bus"])


def test_afterwards_they_are_tritons_and_nvmls_own() -> None:
    before = testing.nvsmi, pynvml.nvmlInit, pynvml.nvmlDeviceGetMaxClockInfo
    with active():
        assert (testing.nvsmi, pynvml.nvmlInit, pynvml.nvmlDeviceGetMaxClockInfo) != before
    assert (testing.nvsmi, pynvml.nvmlInit, pynvml.nvmlDeviceGetMaxClockInfo) == before


def test_a_lock_on_a_device_knows_its_node_while_stubs_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML knows two devices; handles of stand-ins are none of its own."""
    nodes = {"GPU-here": 3, "GPU-other": 5}
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: nodes[uuid])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMinorNumber", lambda handle: int(handle))
    host_gpus.device_node.cache_clear()
    with Interpreter(replace(TYPICAL_DEVICES["cuda:90"], uuid="here")).activate():
        assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByUUID("GPU-here")) == torch.cuda.get_device_name()
        assert [host_gpus.device_node(uuid) for uuid in ("here", "other")] == [
            Path("/dev/nvidia3"),
            Path("/dev/nvidia5"),
        ]
    host_gpus.device_node.cache_clear()


def test_nvml_stays_what_it_is_for_amd() -> None:
    before = pynvml.nvmlInit
    with Interpreter(TYPICAL_DEVICES["hip:gfx942"]).activate():
        assert pynvml.nvmlInit is before
        assert torch.cuda.clock_rate() == 2100
        assert testing.get_dram_gbps() == pytest.approx(5300, rel=0.02)


@pytest.mark.parametrize("target", TYPICAL_CLOCKS)
def test_bandwidths_are_the_datasheets(target: str) -> None:
    clocks = TYPICAL_CLOCKS[target]
    assert 2 * clocks.memory_mhz * clocks.bus_bits / 8 / 1000 == pytest.approx(DATASHEETS[target], rel=0.03)


@pytest.mark.parametrize("target", TYPICAL_DEVICES)
def test_every_typical_device_has_figures(target: str) -> None:
    assert min(clocks_of(Target.parse(target))) > 0


@pytest.mark.parametrize(
    ("target", "like"),
    [("cuda:103", "cuda:100"), ("cuda:121", "cuda:120"), ("cuda:70", "cuda:75"), ("hip:gfx1200", "hip:gfx1100")],
)
def test_other_targets_have_those_of_their_nearest(target: str, like: str) -> None:
    assert clocks_of(Target.parse(target)) == TYPICAL_CLOCKS[like]
