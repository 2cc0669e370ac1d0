"""The check before every launch: normalised triples, and errors that name kernel, axis and limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target
from kerntune.errors import GridError
from kerntune.grids import check_grid

H100 = TYPICAL_DEVICES["cuda:90"]
MI300 = TYPICAL_DEVICES["hip:gfx942"]
NAVI31 = TYPICAL_DEVICES["hip:gfx1100"]
INT32_MAX = 2**31 - 1


def on(spec: DeviceSpec, grid: object, **options: int) -> tuple[int, int, int]:
    return check_grid(grid, kernel="softmax", spec=spec, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grid", "triple"),
    [
        ((7,), (7, 1, 1)),
        ([7, 8], (7, 8, 1)),
        ((7, 8, 9), (7, 8, 9)),
        ((np.int64(7), np.int32(8)), (7, 8, 1)),
        ((INT32_MAX,), (INT32_MAX, 1, 1)),
        ((1, 65535, 1), (1, 65535, 1)),
        ((1, 1, 65535), (1, 1, 65535)),
        ((32768, 65535, 1), (32768, 65535, 1)),
    ],
)
def test_normalises(grid: object, triple: tuple[int, int, int]) -> None:
    checked = on(H100, grid)
    assert checked == triple
    assert all(type(axis) is int for axis in checked)


@pytest.mark.parametrize("grid", [(0,), (0, 70000, 1), (5, 0), (1, 1, 0), (2**31 - 1, 65536, 0)])
def test_zero_axis_is_a_legal_no_op(grid: tuple[int, ...]) -> None:
    assert on(H100, grid) == (*grid, 1, 1)[:3]


@pytest.mark.parametrize(
    ("grid", "options", "words"),
    [
        ((2**31,), {}, ("axis x is 2147483648", "2147483647")),
        ((1, 65536), {}, ("axis y is 65536", "limit of 65535")),
        ((1, 1, 65536), {}, ("axis z is 65536", "limit of 65535")),
        ((65536, 32768), {}, ("product", "2147483648", "2147483647", "int32")),
        ((65536, 65535), {}, ("product", "4294901760")),
        ((2**30,), {"num_ctas": 2}, ("axis x times num_ctas 2 is 2147483648", "limit of 2147483647")),
        ((-1,), {}, ("axis x is -1",)),
        ((0, -1), {}, ("axis y is -1",)),
        ((0, 1, 2**31), {}, ("axis z is 2147483648",)),
        ((1, 2, 3, 4), {}, ("4 axes",)),
        ((), {}, ("0 axes",)),
        ((1.0,), {}, ("integers",)),
        (("8",), {}, ("integers",)),
        (1024, {}, ("1024", "tuple")),
        (None, {}, ("None", "tuple")),
        ((1,), {"num_ctas": 0}, ("num_ctas is 0",)),
    ],
)
def test_errors_name_kernel_axis_and_limit(grid: object, options: dict[str, int], words: tuple[str, ...]) -> None:
    with pytest.raises(GridError) as caught:
        on(H100, grid, **options)
    message = str(caught.value)
    assert "kernel softmax" in message
    for word in words:
        assert word in message


def test_over_limit_names_the_device() -> None:
    with pytest.raises(GridError, match=r"cuda:90, NVIDIA H100"):
        on(H100, (1, 65536))


def test_num_ctas_leaves_other_axes_alone() -> None:
    assert on(H100, (2**29, 1, 1), num_ctas=3) == (2**29, 1, 1)
    assert on(H100, (1, 65535, 1), num_ctas=16) == (1, 65535, 1)


@pytest.mark.parametrize(
    ("spec", "warps", "limit"),
    [
        (MI300, 4, 2**24 - 1),
        (NAVI31, 4, 2**25 - 1),
        (MI300, 8, 2**23 - 1),
        (MI300, 1, 2**26 - 1),
        (MI300, 0, 2**26 - 1),
    ],
)
def test_hip_counts_threads_on_x(spec: DeviceSpec, warps: int, limit: int) -> None:
    assert on(spec, (limit,), num_warps=warps) == (limit, 1, 1)
    with pytest.raises(GridError, match=f"axis x is {limit + 1}, over the limit of {limit}"):
        on(spec, (limit + 1,), num_warps=warps)


def test_hip_yz_are_bound_by_the_launcher_only() -> None:
    assert on(MI300, (1, 70000, 2)) == (1, 70000, 2)
    with pytest.raises(GridError, match="product"):
        on(MI300, (1, 65536, 32768))


def test_unknown_backend_keeps_the_launcher_limits() -> None:
    xpu = DeviceSpec(Target("xpu", "pvc"), "some XPU", 64)
    assert on(xpu, (INT32_MAX,)) == (INT32_MAX, 1, 1)
    assert on(xpu, (1, 100000, 1)) == (1, 100000, 1)


AXIS = st.sampled_from([0, 1, 2, 128, 65534, 65535, 65536, 2**23, 2**30, INT32_MAX, 2**31]) | st.integers(-2, 2**33)


@given(grid=st.lists(AXIS, min_size=1, max_size=3), num_ctas=st.sampled_from([1, 2, 16]))
def test_accepts_exactly_what_the_launcher_can_launch(grid: list[int], num_ctas: int) -> None:
    before = list(grid)
    x, y, z = triple = (*grid, 1, 1)[0:3]
    readable = all(0 <= axis <= INT32_MAX for axis in triple)
    fits = x * num_ctas <= INT32_MAX and y <= 65535 and z <= 65535 and x * y * z <= INT32_MAX
    if readable and (0 in triple or fits):
        assert on(H100, grid, num_ctas=num_ctas) == triple
    else:
        with pytest.raises(GridError):
            on(H100, grid, num_ctas=num_ctas)
    assert grid == before


def test_advice_is_given_once() -> None:
    with pytest.raises(GridError) as caught:
        on(H100, (1, 70_000))
    assert str(caught.value).count("take a larger block") == 1
