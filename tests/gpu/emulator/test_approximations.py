"""Errors of fast functions: as large as NVIDIA's tables say, and never larger."""

from __future__ import annotations

from math import cos, exp, log, log2, log10, pi, sin, tan

import numpy as np
import pytest

from kerntune.gpu.emulator.approximations import BOUNDS, approximated

LAST = 2.0**-23
"""The last place of 1 in float32."""

FUNCTIONS = {
    "sinf": np.sin, "cosf": np.cos, "tanf": np.tan, "expf": np.exp, "exp10f": lambda x: 10.0**x, "logf": np.log,
    "log2f": np.log2, "log10f": np.log10, "powf": np.power, "fdividef": np.divide,
}  # fmt: skip


@pytest.mark.parametrize(("name", "exact", "values", "bound"), [
    ("sinf", sin(1), [1], 2**-21.41), ("sinf", 0, [pi], 2**-21.41), ("sinf", 0, [-4], 4 * LAST),
    ("sinf", 0, [2.0**24], 1), ("cosf", cos(1), [-1], 2**-21.19), ("cosf", 0, [4], 4 * LAST),
    ("tanf", tan(1), [1], 2**-21.41 / cos(1) + 2**-21.19 * sin(1) / cos(1) ** 2),
    ("tanf", tan(2), [-2], 2**-21.41 / -cos(2) + 2**-21.19 * sin(2) / cos(2) ** 2),
    ("expf", 1, [0], 2 * LAST), ("expf", exp(10), [10], 13 * 2**14 * LAST),
    ("expf", exp(-10), [-10], 13 * 2**-15 * LAST),
    ("expf", exp(-200), [-200], 236 * 2**-126 * LAST), ("exp10f", 100, [2], 7 * 2**6 * LAST),
    ("exp10f", 0.01, [-2], 7 * 2**-7 * LAST),
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
    exact = FUNCTIONS[name](*wide)
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


def test_infinities_stay() -> None:
    with np.errstate(all="ignore"):
        assert approximated("logf", np.log, np.zeros(2, np.float32)).tolist() == [-np.inf, -np.inf]
