"""Building blocks, each against its definition."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.errors import HintError
from kerntune.heuristics.hints import KernelHints
from kerntune.heuristics.presets import INDUCTOR_2_6, INDUCTOR_2_13
from kerntune.heuristics.sizing import (
    Bounds,
    bounds,
    ceil_div,
    ceil_pow2,
    check_blocks,
    choose_warps,
    device_major,
    fit_pointwise,
    floor_pow2,
    grow,
    spread_reduction,
    widen_for_grid,
)

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
POWERS = st.integers(0, 30).map(lambda n: 1 << n)


def limits_of(device: DeviceSpec = H100, preset: object = INDUCTOR_2_13) -> Bounds:
    return bounds(KernelHints(sizes={"x": 1}), device, preset)  # type: ignore[arg-type]


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_integer_roundings(n: int, d: int) -> None:
    assert (ceil_div(n, d) - 1) * d < n <= ceil_div(n, d) * d
    assert ceil_pow2(n) // 2 < n <= ceil_pow2(n)
    assert floor_pow2(n) <= n < 2 * floor_pow2(n)
    assert ceil_pow2(0) == ceil_pow2(-5) == 1


@given(POWERS, st.integers(0, 1 << 32), POWERS)
def test_grow_is_doubling_until_goal_or_cap(block: int, goal: int, cap: int) -> None:
    slow = block
    while slow < cap and slow < goal:
        slow *= 2
    assert grow(block, goal, cap) == slow


@pytest.mark.parametrize(
    ("wanted", "kwargs", "warps"),
    [
        (0, {}, 2),
        (3, {}, 4),
        (100, {}, 8),
        (100, {"most": 16}, 16),
        (100, {"most": 16, "intensive": True}, 8),
        (0, {"least": 1}, 1),
    ],
)
def test_warps_on_wave32(wanted: int, kwargs: dict[str, int], warps: int) -> None:
    assert choose_warps(wanted, limits_of(), **kwargs) == warps  # type: ignore[arg-type]


def test_wave64_halves_both_bounds_rounding_up() -> None:
    assert choose_warps(0, limits_of(MI300)) == 1
    assert choose_warps(1, limits_of(MI300), least=5) == 4
    assert choose_warps(100, limits_of(MI300)) == 4
    assert choose_warps(100, limits_of(MI300), most=1) == 1
    assert choose_warps(100, limits_of(TYPICAL_DEVICES["hip:gfx1100"])) == 8
    assert choose_warps(100, limits_of(TYPICAL_DEVICES["hip:gfx1100"], INDUCTOR_2_6)) == 4


def test_cuda_bounds_blocks_and_hip_bounds_threads() -> None:
    assert widen_for_grid(1, 1 << 31, 4, limits_of()) == 2
    assert widen_for_grid(1, 1 << 30, 4, limits_of()) == 1
    assert widen_for_grid(1, 1 << 30, 4, limits_of(MI300)) == 256
    assert widen_for_grid(1, 1 << 30, 4, limits_of(preset=INDUCTOR_2_6)) == 128


def test_hip_stops_at_the_largest_block_though_threads_stay_over() -> None:
    assert widen_for_grid(1, 1 << 36, 8, limits_of(MI300)) == 8192


def test_a_grid_that_no_block_can_cover_is_an_error() -> None:
    assert widen_for_grid(1, 1 << 42, 4, limits_of()) == 4096
    with pytest.raises(HintError, match=r"x=8796093022208 needs 2147483648 blocks of XBLOCK=4096"):
        widen_for_grid(1, 1 << 43, 4, limits_of())


def test_y_grows_past_its_grid_limit() -> None:
    blocks = fit_pointwise({"x": 1, "y": 1 << 27}, (32, 32), limits_of())
    assert blocks == {"x": 1, "y": 1024}
    assert fit_pointwise({"x": 1, "y": 1 << 26}, (1, 1), limits_of())["y"] == 1024
    assert fit_pointwise({"x": 4, "y": 1 << 17}, (1, 1), limits_of())["y"] == 4


@given(st.tuples(POWERS, POWERS, POWERS), st.tuples(*[st.sampled_from([1, 8, 16, 64, 256, 1024])] * 3))
def test_pointwise_blocks_stay_within_sizes_and_limits(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    limits = limits_of()
    by_axis = dict(zip("xyz", sizes, strict=True))
    blocks = fit_pointwise(by_axis, wanted, limits)
    for axis, block in blocks.items():
        assert block <= by_axis[axis]
        assert block <= max(limits.max_block[axis], 1024)


def test_reduction_blocks_fill_the_last_axis_first() -> None:
    assert spread_reduction(64, {"x": 1, "r0": 32, "r1": 32}, limits_of()) == {"r1": 32, "r0": 2}
    assert spread_reduction(64, {"x": 1, "r0": 16}, limits_of()) == {"r0": 16}


@given(POWERS, POWERS, POWERS)
def test_reduction_blocks_hold_all_that_was_asked_or_refuse(r: int, r0: int, r1: int) -> None:
    sizes = {"x": 1, "r0": r0, "r1": r1}
    last = min(r1, 32768)
    if min(r, r0 * r1) > last * min(r0, 65536):
        with pytest.raises(HintError, match="R0_BLOCK 65536"):
            spread_reduction(r, sizes, limits_of())
    else:
        blocks = spread_reduction(r, sizes, limits_of())
        assert prod(blocks.values()) == min(r, r0 * r1)
        assert blocks["r1"] == min(r, last)


@pytest.mark.parametrize(
    ("blocks", "sizes", "message"),
    [
        ({"x": 8192}, {"x": 1 << 20}, "XBLOCK=8192 is over the limit of 4096"),
        ({"x": 48}, {"x": 64}, "XBLOCK=48 doesn't divide the limit of 4096"),
        ({"y": 2}, {"y": 1}, "YBLOCK=2, but the axis y has one element"),
        ({"r0": 131072}, {"r0": 131072}, "R0_BLOCK=131072 is over the limit of 65536"),
    ],
)
def test_illegal_blocks_are_refused(blocks: dict[str, int], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(HintError) as caught:
        check_blocks(blocks, sizes, limits_of())
    assert message in str(caught.value)


def test_device_majors() -> None:
    majors = {target: device_major(device) for target, device in TYPICAL_DEVICES.items()}
    assert majors["cuda:75"] == 7
    assert majors["cuda:120"] == 12
    assert majors["hip:gfx90a"] == majors["hip:gfx942"] == 9
    assert majors["hip:gfx1100"] == 11
    assert device_major(DeviceSpec(Target("xpu", "pvc"), "Max 1550", 128)) is None
