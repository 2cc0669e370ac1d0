"""Rounding in a named direction, beside exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kerntune.gpu.emulator.elements import extern
from kerntune.gpu.emulator.rounding_modes import fused

EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a, "fma": lambda a, b, c: a * b + c,
}  # fmt: skip
COUNTS = {"rcp": 1, "sqrt": 1, "fma": 3}
TYPES = {"f": np.float32, "d": np.float64}


@pytest.fixture(autouse=True)
def _as_in_a_launch() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def numbers(kind: Any, count: int, seed: int) -> list[np.ndarray]:
    """Of all sizes, some alike, some with few digits, so that exact results come, too."""
    chance = np.random.default_rng(seed)
    spread = 30 if kind == np.float32 else 200
    found = [chance.standard_normal(300) * 2.0 ** chance.integers(-spread, spread, 300) for _ in range(count)]
    found[-1][:100] = chance.integers(1, 9, 100)
    found[0][50:150] = -found[-1][50:150] * (1 + 2.0**-20)
    return [x.astype(kind) for x in found]


def is_rounded(found: Any, compare: Callable[[Fraction], int], mode: str) -> bool:
    """Whether a number is what rounding in a direction gives; ``compare`` says on which side of the exact one another
    lies."""
    one = type(found)
    side = compare(Fraction(float(found)))
    if side == 0:
        return True
    below, above = (Fraction(float(np.nextafter(found, one(end)))) for end in (-np.inf, np.inf))
    if mode == "rz":
        mode = "rd" if compare(Fraction(0)) < 0 else "ru"
    if mode == "rd":
        return side < 0 and compare(above) > 0
    if mode == "ru":
        return side > 0 and compare(below) < 0
    middle = (Fraction(float(found)) + (above if side < 0 else below)) / 2
    return compare(middle) * side <= 0


def sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)


@pytest.mark.parametrize("mode", ["rn", "rd", "ru", "rz"])
@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("name", [*EXACT, "sqrt"])
def test_arithmetic_is_rounded_in_its_direction(name: str, letter: str, mode: str) -> None:
    values = numbers(TYPES[letter], COUNTS.get(name, 2), 3)
    values[0] = np.abs(values[0]) if name == "sqrt" else values[0]
    symbol = f"__nv_{letter}{name}_{mode}" if name != "fma" else f"__nv_fma{letter.strip('d')}_{mode}"
    found = extern(symbol)(*values)
    assert found.dtype == TYPES[letter]
    for result, *given in zip(found, *values, strict=True):
        exact = [Fraction(float(x)) for x in given]

        def compare(x: Fraction, exact: Sequence[Fraction] = tuple(exact)) -> int:
            if name == "sqrt":
                return sign(x * abs(x) - exact[0])
            return sign(x - EXACT[name](*exact))

        assert is_rounded(result, compare, mode), (given, result)


@pytest.mark.parametrize("letter", TYPES)
def test_what_overflows_or_vanishes_has_its_direction_too(letter: str) -> None:
    kind = TYPES[letter]
    most, least = np.finfo(kind).max, np.finfo(kind).smallest_subnormal
    big, small, half = (np.array([x], kind) for x in (most, least, 0.5))
    for mode, over, under in (
        ("rn", math.inf, 0.0), ("ru", math.inf, least), ("rd", most, 0.0), ("rz", most, 0.0)
    ):  # fmt: skip
        assert extern(f"__nv_{letter}add_{mode}")(big, big).tolist() == [over]
        assert extern(f"__nv_{letter}mul_{mode}")(small, half).tolist() == [under]
        assert extern(f"__nv_{letter}div_{mode}")(big, np.zeros(1, kind)).tolist() == [math.inf]
        assert np.isnan(extern(f"__nv_{letter}sqrt_{mode}")(-big)).all()
    assert extern(f"__nv_{letter}mul_ru")(-big, big).tolist() == [-most]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_fused_product_and_sum_is_rounded_once(kind: Any) -> None:
    unit = float(np.finfo(kind).eps)
    x, y = np.array([1 + unit, 1 + unit], kind), np.array([1 - unit, 1 + unit], kind)
    found = fused(x, y, np.array([-1, -1 - 2 * unit], kind))
    assert found.tolist() == [-(unit**2), unit**2]
    huge = np.array([np.finfo(kind).max], kind)
    assert np.isinf(fused(huge, huge, -huge).astype(kind)).all()


def test_a_sum_of_a_product_between_two_float32_is_not_rounded_twice() -> None:
    """In float64 it would become the middle of the two, and then the even one."""
    x, y, z = (np.array([n], np.float32) for n in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))
    assert fused(x, y, z).astype(np.float32).tolist() == [1 + 2.0**-11 + 2.0**-23]


@pytest.mark.parametrize(
    ("symbol", "value", "wanted"),
    [
        ("__nv_float2int_rn", np.float32(2.5), 2), ("__nv_float2int_rd", np.float32(-2.5), -3),
        ("__nv_float2int_ru", np.float32(2.1), 3), ("__nv_float2int_rz", np.float32(-2.9), -2),
        ("__nv_float2int_rn", np.float32(3e9), 2**31 - 1), ("__nv_float2int_rn", np.float32(np.nan), 0),
        ("__nv_float2uint_rn", np.float32(3e9), 3_000_000_000 - 2**32), ("__nv_float2uint_rn", np.float32(-5), 0),
        ("__nv_double2ll_rz", np.float64(-1e300), -(2**63)), ("__nv_double2ull_rn", np.float64(2.0**63), -(2**63)),
        ("__nv_int2float_rn", np.int32(2**24 + 1), 2.0**24), ("__nv_int2float_ru", np.int32(2**24 + 1), 2.0**24 + 2),
        ("__nv_int2float_rz", np.int32(-(2**24) - 1), -(2.0**24)), ("__nv_uint2float_rd", np.int32(-1), 2.0**32 - 256),
        ("__nv_ull2double_ru", np.int64(-1), 2.0**64), ("__nv_ll2double_rn", np.int64(-7), -7.0),
        ("__nv_double2float_rd", np.float64(1 + 2.0**-40), 1.0),
        ("__nv_double2float_ru", np.float64(1 + 2.0**-40), 1 + 2.0**-23),
        ("__nv_double2float_rz", np.float64(1e300), float(np.finfo(np.float32).max)),
        ("__nv_frsqrt_rn", np.float32(4), 0.5), ("__nv_div_rn", np.float32(3), 1.0), ("__nv_fmaf", np.float32(2), 6.0),
    ],
)  # fmt: skip
def test_conversions_and_single_results(symbol: str, value: Any, wanted: float) -> None:
    given = [np.array([value])] * {"__nv_div_rn": 2, "__nv_fmaf": 3}.get(symbol, 1)
    assert extern(symbol)(*given).tolist() == [wanted]
