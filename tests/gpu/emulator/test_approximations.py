"""Errors of fast functions: as large as NVIDIA's tables say, and never larger."""

from __future__ import annotations

import math
from math import cos, exp, log, log2, log10, pi, sin, tan

import numpy as np
import pytest

from kerntune.gpu.emulator.approximations import BOUNDS, FACTORS, approximated, quotient, remainder, root

LAST = 2.0**-23
"""The last place of 1 in float32."""

FUNCTIONS = {
    "sinf": np.sin, "cosf": np.cos, "tanf": np.tan, "expf": np.exp, "exp10f": lambda x: 10.0**x, "logf": np.log,
    "log2f": np.log2, "log10f": np.log10, "powf": np.power, "fdividef": np.divide,
}  # fmt: skip


def exponential(name: str, x: np.ndarray) -> np.ndarray:
    """Of the product that float32 holds, as PTX has it."""
    return np.asarray(np.exp2((x * FACTORS[name]).astype(np.float64)))


@pytest.mark.parametrize(("name", "exact", "values", "bound"), [
    ("sinf", sin(1), [1], 2**-21.41), ("sinf", 0, [pi], 2**-21.41), ("sinf", 0, [-4], 4 * LAST),
    ("sinf", 0, [2.0**24], 1), ("cosf", cos(1), [-1], 2**-21.19), ("cosf", 0, [4], 4 * LAST),
    ("tanf", tan(1), [1], 2**-21.41 / cos(1) + 2**-21.19 * sin(1) / cos(1) ** 2),
    ("tanf", tan(2), [-2], 2**-21.41 / -cos(2) + 2**-21.19 * sin(2) / cos(2) ** 2),
    ("expf", 1, [0], 2 * LAST), ("expf", exp(10), [10], 2 * 2**14 * LAST),
    ("expf", exp(-10), [-10], 2 * 2**-15 * LAST),
    ("expf", exp(-200), [-200], 2 * 2**-126 * LAST), ("exp10f", 100, [2], 2 * 2**6 * LAST),
    ("exp10f", 0.01, [-2], 2 * 2**-7 * LAST),
    ("logf", 0, [0.5], 2**-21.41), ("logf", 0, [2], 2**-21.41), ("logf", log(4), [4], 3 * LAST),
    ("logf", log(0.25), [0.25], 3 * LAST), ("log2f", 0, [1], 2**-22), ("log2f", log2(8), [8], 2 * 2 * LAST),
    ("log10f", 0, [1], 2**-24), ("log10f", log10(100), [100], 3 * 2 * LAST),
    ("powf", 64, [4, 3], 64 * log(2) * 3 * 2 * 2 * LAST + 2 * 64 * LAST),
    ("powf", -64, [-4, 3], 64 * log(2) * 3 * 2 * 2 * LAST + 2 * 64 * LAST),
    ("powf", 1 / 64, [4, -3], log(2) / 64 * 3 * 2 * 2 * LAST + 2 / 64 * LAST),
    ("fdividef", 1 / 3, [1, 3], 2 * LAST / 4), ("fdividef", -3, [3, -1], 2 * 2 * LAST),
])  # fmt: skip
def test_the_largest_errors_are_nvidias(name: str, exact: float, values: list[float], bound: float) -> None:
    """By hand, of CUDA's guide: so many units of the last place, or an absolute error near one and within pi."""
    found = BOUNDS[name](np.asarray(exact, np.float64), *(np.asarray(v, np.float64) for v in values))
    assert found == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_are_spread_between_the_bounds_and_follow_from_the_arguments(name: str) -> None:
    chance = np.random.default_rng(3)
    values = [chance.uniform(0.1, 9.0, 4096).astype(np.float32) for _ in range(1 + (name in ("powf", "fdividef")))]
    wide = [v.astype(np.float64) for v in values]
    exact = exponential(name, values[0]) if name in FACTORS else FUNCTIONS[name](*wide)
    found = approximated(name, FUNCTIONS[name], *values)
    share = (found - exact) / BOUNDS[name](exact, *wide)
    assert np.quantile(share, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([-1, -0.5, 0, 0.5, 1], abs=0.06)
    assert np.abs(share).max() <= 1.0
    again = approximated(name, FUNCTIONS[name], *(v[::-1] for v in values))
    assert (again[::-1] == found).all()


def test_the_error_of_one_quotient_is_another_for_other_arguments() -> None:
    one, other = (approximated("fdividef", np.divide, x, x) for x in (np.array([3], "f4"), np.array([5], "f4")))
    assert one != other


@pytest.mark.parametrize(("divisor", "found"), [(2.0**126, 2.0), (2.0**127, 0.0), (-(2.0**127), 0.0)])
def test_a_fast_quotient_of_a_large_divisor_is_zero(divisor: float, found: float) -> None:
    """From 2**126 on, CUDA's guide says."""
    quotient = approximated("fdividef", np.divide, np.array([2.0**127], "f4"), np.array([divisor], "f4"))
    assert quotient == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize(("name", "per_unit"), [("expf", 1.173), ("exp10f", 2.97)])
def test_an_exponential_is_within_the_guide_s_bound_and_as_far_off_as_its_product(name: str, per_unit: float) -> None:
    """2 + floor(abs(1.173 * x)) units of the last place, and 2.97 for ``__exp10f``: the product's rounding, mostly. One
    unit more, since what ``ex2`` adds is drawn to its own bound."""
    x = np.random.default_rng(3).uniform(-35, 35, 100_000).astype(np.float32)
    exact = FUNCTIONS[name](x.astype(np.float64))
    units = np.abs(approximated(name, FUNCTIONS[name], x) - exact) / 2.0 ** (np.floor(np.log2(exact)) - 23)
    assert (units <= 3 + np.floor(per_unit * np.abs(x))).all()
    assert units[np.abs(x) > 30].max() > 0.5 * per_unit * 30
    assert units[np.abs(x) < 0.1].max() < 2.2


def test_nothing_is_left_of_subnormal_exponentials() -> None:
    """``ex2.approx.ftz.f32``: exp(-87.3) is normal, exp(-87.4) is not. Of zeros it is one."""
    found = approximated("expf", np.exp, np.array([-87.3, -87.4, -100, 0.0, -0.0], "f4"))
    assert found[0] == pytest.approx(np.exp(-87.3), rel=1e-4)
    assert found[1:].tolist() == [0, 0, 1, 1]


def test_infinities_stay() -> None:
    with np.errstate(all="ignore"):
        assert approximated("logf", np.log, np.zeros(2, np.float32)).tolist() == [-np.inf, -np.inf]
        assert approximated("expf", np.exp, np.array([-np.inf, np.inf], "f4")).tolist() == [0, np.inf]


def test_a_quotient_is_off_by_two_units_of_the_last_place_at_most() -> None:
    """PTX ISA, ``div.full.f32``: over the full range."""
    chance = np.random.default_rng(4)
    a, b = (
        (chance.uniform(1, 2, 200_000) * 2.0 ** chance.integers(-60, 60, 200_000)).astype(np.float32) for _ in range(2)
    )
    exact = a.astype(np.float64) / b
    off = np.abs(quotient(a, b) - exact) / np.spacing(exact.astype(np.float32))
    assert 1.4 < off.max() <= 2.0
    assert 0.2 < np.mean(off > 0.5) < 0.6
    assert np.mean(quotient(a, a) == 1) < 0.999
    assert (quotient(a, b) == quotient(a[::-1], b[::-1])[::-1]).all()


def test_a_root_is_off_by_a_unit_of_the_last_place_at_most() -> None:
    """PTX ISA, ``sqrt.approx.ftz.f32``. Of squares it is exact, of subnormal numbers it is zero."""
    x = (np.random.default_rng(4).uniform(1, 4, 100_000) * 2.0 ** (2 * np.arange(100_000) % 60)).astype(np.float32)
    exact = np.sqrt(x.astype(np.float64))
    off = np.abs(root(x) - exact) / np.spacing(exact.astype(np.float32))
    assert 0.7 < off.max() < 1.0
    assert 0.2 < np.mean(off > 0.5) < 0.3
    with np.errstate(all="ignore"):
        found = root(np.array([0.0, -0.0, 4.0, 9.0, 1e-40, np.inf, -1.0], np.float32))
    assert found.tolist()[:6] == [0, 0, 2, 3, 0, math.inf]
    assert np.signbit(found[1])
    assert np.isnan(found[6])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_remainder_is_that_of_a_rounded_quotient(dtype: str) -> None:
    """As NVPTX computes it: of small quotients it is right, of large ones any number."""
    a, b = np.array([5, -7.5, 3, 1]).astype(dtype), np.array([3, 2, np.inf, 0.25]).astype(dtype)
    with np.errstate(all="ignore"):
        assert remainder(a, b).tolist() == [2, -1.5, 3, 0]
    if dtype == "f4":
        large = remainder(np.array([1e9], dtype), np.array([3], dtype))
        assert large.tolist() == [-32.0]
        assert math.fmod(1e9, 3) == 1


def test_a_quotient_by_a_power_of_two_is_exact() -> None:
    a = np.random.default_rng(4).standard_normal(1000).astype(np.float32)
    for power in (-126, -3, 0, 1, 100):
        b = np.float32(2.0**power)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(quotient(a, b), a / b)


def test_the_reciprocal_of_a_divisor_of_few_bits_is_the_nearest() -> None:
    b = np.arange(1, 257).astype(np.float32)
    np.testing.assert_array_equal(quotient(np.float32(1), b), 1 / b)
    many = np.random.default_rng(4).uniform(1, 2, 1000).astype(np.float32)
    assert 0.1 < np.mean(quotient(np.float32(1), many) != 1 / many) < 0.4


def test_quotients_that_are_no_usual_numbers() -> None:
    inf, nan = np.inf, np.nan
    a = np.array([1, -1, 0, inf, inf, 3, nan, 1e38, 1e-40, 3], "f4")
    b = np.array([0, 0, 0, inf, 2, -inf, 1, 1e-38, 1e-40, nan], "f4")
    with np.errstate(all="ignore"):
        found = quotient(a, b)
    np.testing.assert_array_equal(found[:8], np.array([inf, -inf, nan, nan, inf, -0.0, nan, inf], "f4"))
    assert np.signbit(found[5])
    assert found[8] == pytest.approx(1, abs=2.0**-22)
    assert np.isnan(found[9])
