"""The driver's properties of typical devices."""

from __future__ import annotations

import pytest

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.gpu.fake_cuda import StandInEnd
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, StandInDriver, capability


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
    driver = StandInDriver(DeviceNumbers((spec,)))
    target, properties = driver.get_current_target(), driver.utils.get_device_properties(0)
    assert (target.backend, str(target.arch), target.warp_size) == (
        spec.target.backend,
        spec.target.arch,
        spec.warp_size,
    )
    assert properties["max_shared_mem"] == spec.shared_memory_per_block
    assert properties["multiprocessor_count"] == spec.sm_count


def test_a_benchmark_calls_once() -> None:
    calls: list[int] = []
    times = StandInDriver(DeviceNumbers((TYPICAL_DEVICES["cuda:90"],))).get_benchmarker()(
        lambda: calls.append(1), quantiles=(0.5, 0.2)
    )
    assert (len(calls), len(times)) == (1, 2)


def test_nothing_is_loaded() -> None:
    with pytest.raises(StandInEnd, match="loads"):
        StandInDriver(DeviceNumbers((TYPICAL_DEVICES["cuda:90"],))).utils.load_binary("name", b"", 0, 0)
