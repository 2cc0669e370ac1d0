"""Elementwise operations against Python's numbers: every pair of 8-bit integers, and borders of the others."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.elements import (
    ELEMENTWISE,
    NARROW,
    bytes_of,
    compare_floats,
    compare_integers,
    constant,
    converted,
    cut,
    from_bits,
    from_narrow,
    numpy_of,
    rounded,
    to_bits,
    to_narrow,
    updated,
)
from kerntune.gpu.emulator.products import cut_to_tf32

ALL = np.arange(-128, 128).astype(np.int8)
LEFT, RIGHT = (side.ravel() for side in np.meshgrid(ALL, ALL))
PAIRS = list(zip(LEFT.tolist(), RIGHT.tolist(), strict=True))


def wrapped(number: int, bits: int = 8) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def without_sign(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda a, b: function(a % 256, b % 256)


WHOLE: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divsi": toward_zero,
    "arith.remsi": lambda a, b: a - toward_zero(a, b) * b,
    "arith.divui": without_sign(operator.floordiv),
    "arith.remui": without_sign(operator.mod),
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.shli": lambda a, b: a << b % 256 if b % 256 < 8 else 0,
    "arith.shrsi": lambda a, b: a >> min(b % 256, 7),
    "arith.shrui": lambda a, b: a % 256 >> b % 256,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.maxui": without_sign(max),
    "arith.minui": without_sign(min),
    "tt.mulhiui": without_sign(lambda a, b: a * b >> 8),
}
DIVISIONS = {name for name in WHOLE if "div" in name or "rem" in name}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("arith.divsi", -1), ("arith.divui", -1), ("arith.remsi", -7), ("arith.remui", -7)],
)
def test_a_division_by_zero_has_all_bits(name: str, wanted: int) -> None:
    """As on a GPU; its remainder is what was divided."""
    found = ELEMENTWISE[name](np.array([-7], np.int32), np.array([0], np.int32))
    assert (found.dtype, found.tolist()) == (np.int32, [wanted])


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_wrap_around(name: str) -> None:
    """But for divisions by 0, and of the smallest number by -1, which are anything."""
    asked = [i for i, (a, b) in enumerate(PAIRS) if name not in DIVISIONS or (b != 0 and (a, b) != (-128, -1))]
    found = ELEMENTWISE[name](LEFT[asked], RIGHT[asked])
    assert found.dtype == np.int8
    assert found.tolist() == [wrapped(WHOLE[name](*PAIRS[i])) for i in asked]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_high_halves_of_products(dtype: Any) -> None:
    a, b = np.random.default_rng(4).integers(0, 256, (2, 100 * 8), dtype=np.uint8).view(dtype)
    bits = 8 * a.dtype.itemsize
    wanted = [wrapped((x % (1 << bits)) * (y % (1 << bits)) >> bits, bits) for x, y in zip(a.tolist(), b.tolist())]  # noqa: B905
    assert ELEMENTWISE["tt.mulhiui"](a, b).tolist() == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("arith.addi", [0, 1, 1, 0]), ("arith.subi", [0, 1, 1, 0]), ("arith.muli", [0, 0, 0, 1]),
     ("arith.maxui", [0, 1, 1, 1]), ("arith.minui", [0, 0, 0, 1])],
)  # fmt: skip
def test_bits_are_numbers_of_one_bit(name: str, wanted: list[int]) -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    found = ELEMENTWISE[name](a, b)
    assert (found.dtype, found.astype(int).tolist()) == (np.bool_, wanted)


ORDERS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@pytest.mark.parametrize("predicate", ["eq", "ne", *(f"{sign}{order}" for sign in "su" for order in ORDERS)])
def test_whole_numbers_are_compared_with_their_sign_or_without(predicate: str) -> None:
    function = {"eq": operator.eq, "ne": operator.ne}.get(predicate) or ORDERS[predicate[1:]]
    a, b = (side % 256 if predicate[0] == "u" else side for side in (LEFT.astype(int), RIGHT.astype(int)))
    assert compare_integers(predicate, LEFT, RIGHT).tolist() == function(a, b).tolist()
    true, false = np.array([True, True]), np.array([False, True])
    less = predicate in ("slt", "sle", "ugt", "uge", "ne")
    assert compare_integers(predicate, true, false).tolist() == [less, predicate in ("eq", "sle", "sge", "ule", "uge")]


@pytest.mark.parametrize(
    "predicate", ["false", "true", "ord", "uno", *(f"{odd}{order}" for odd in "ou" for order in ("eq", "ne", *ORDERS))]
)
def test_floats_are_compared_by_what_holds_for_nan(predicate: str) -> None:
    a, b = np.array([1.0, 2.0, 2.0, np.nan, 1.0]), np.array([2.0, 1.0, 2.0, 1.0, np.nan])
    constant_ones = {"false": [False] * 5, "true": [True] * 5, "ord": [True] * 3 + [False] * 2}
    constant_ones["uno"] = [not x for x in constant_ones["ord"]]
    order: dict[str, Any] = {"eq": operator.eq, "ne": operator.ne, **ORDERS}
    numbers = (
        [order[predicate[1:]](x, y) for x, y in ((1, 2), (2, 1), (2, 2))] if predicate not in constant_ones else []
    )
    assert compare_floats(predicate, a, b).tolist() == (
        constant_ones.get(predicate) or [*numbers, *[predicate[0] == "u"] * 2]
    )


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("arith.addf", operator.add), ("arith.subf", operator.sub), ("arith.mulf", operator.mul),
        ("arith.divf", operator.truediv), ("tt.precise_divf", operator.truediv), ("arith.remf", math.fmod),
        ("arith.maxnumf", max), ("arith.minnumf", min), ("arith.maximumf", max), ("arith.minimumf", min),
    ],
)  # fmt: skip
def test_operations_of_two_floats(name: str, function: Callable[[float, float], float]) -> None:
    a, b = np.array([7.5, -7.5, 0.25, -3.0]), np.array([2.0, 4.0, -2.0, 3.0])
    wanted = [function(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert ELEMENTWISE[name](a, b).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("arith.maxnumf", 1.0), ("arith.minnumf", 1.0), ("arith.maximumf", math.nan), ("arith.minimumf", math.nan)],
)
def test_which_extremes_pass_over_nan(name: str, wanted: float) -> None:
    assert ELEMENTWISE[name](np.array([np.nan]), np.array([1.0])).tolist() == pytest.approx([wanted], nan_ok=True)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        *((f"math.{n}", getattr(math, n)) for n in ("exp", "log", "log2", "sin", "cos", "sqrt", "floor", "ceil")),
        ("arith.negf", operator.neg), ("math.exp2", lambda x: 2**x), ("math.rsqrt", lambda x: 1 / math.sqrt(x)),
        ("math.absf", abs), ("math.absi", abs), ("tt.precise_sqrt", math.sqrt),
    ],
)  # fmt: skip
def test_operations_of_one_float(name: str, function: Callable[[float], float]) -> None:
    numbers = [0.3, 1.5, 2.5, 7.75]
    assert ELEMENTWISE[name](np.array(numbers)).tolist() == pytest.approx([function(x) for x in numbers])


def test_magnitudes_and_erf_and_a_product_that_is_added_unrounded() -> None:
    assert ELEMENTWISE["math.absf"](np.array([-2.0])).tolist() == [2.0]
    assert ELEMENTWISE["math.erf"](np.array([0.5], np.float32))[0] == pytest.approx(math.erf(0.5), rel=1e-6)
    one = np.array([1 + 2.0**-12], np.float32)
    assert ELEMENTWISE["math.fma"](one, one, np.array([-1.0], np.float32)).tolist() == [2.0**-11 + 2.0**-24]


@pytest.mark.parametrize(
    ("name", "value", "target", "wanted"),
    [
        ("arith.extui", np.array([-1, 5], np.int8), "i32", [255, 5]),
        ("arith.extsi", np.array([-1, 5], np.int8), "i32", [-1, 5]),
        ("arith.extui", np.array([True, False]), "i32", [1, 0]),
        ("arith.extsi", np.array([True, False]), "i32", [-1, 0]),
        ("arith.trunci", np.array([257, -1], np.int32), "i8", [1, -1]),
        ("arith.trunci", np.array([2, 3, -1], np.int32), "i1", [False, True, True]),
        ("arith.uitofp", np.array([-1], np.int8), "f32", [255.0]),
        ("arith.sitofp", np.array([-1], np.int8), "f32", [-1.0]),
        ("arith.sitofp", np.array([True]), "f32", [-1.0]),
        ("arith.uitofp", np.array([True]), "f32", [1.0]),
        ("arith.fptosi", np.array([-1.9, 127.9, 128.0, -129.0, np.nan, np.inf, -np.inf]), "i8",
         [-1, 127, -128, 127, 0, -1, 0]),
        ("arith.fptoui", np.array([-1.0, 254.9, 256.0, 257.0, 1e9, np.nan]), "i8", [0, -2, 0, 1, -1, 0]),
        ("arith.fptosi", np.array([-1.9, 4e4, -4e4]), "i16", [-1, 2**15 - 1, -(2**15)]),
        ("arith.fptosi", np.array([2.0**31, -(2.0**31), 3.5]), "i32", [2**31 - 1, -(2**31), 3]),
        ("arith.fptosi", np.array([2.0**63, -(2.0**63)]), "i64", [2**63 - 1, -(2**63)]),
        ("arith.fptoui", np.array([0.0, 1.5, -3.0]), "i1", [False, True, False]),
        ("arith.truncf", np.array([1 + 2.0**-9, 1 + 3 * 2.0**-9], np.float32), "bf16", [1.0, 1 + 2.0**-7]),
        ("arith.truncf", np.array([70000.0], np.float32), "f16", [np.inf]),
        ("arith.extf", np.array([1.5], np.float16), "f32", [1.5]),
    ],
)  # fmt: skip
def test_conversions(name: str, value: np.ndarray, target: str, wanted: list[Any]) -> None:
    with np.errstate(all="ignore"):
        found = converted(name, value, target)
    assert (found.tolist(), found.dtype) == (wanted, numpy_of(target))


@pytest.mark.parametrize(
    ("text", "element", "value"),
    [
        ("true", "i1", True), ("dense<false>", "i1", False), ("7", "i32", 7), ("dense<-7>", "i8", -7),
        ("0xFF", "i8", -1), ("0x7F", "i8", 127), ("-1", "i64", -1), ("1.500000e+00", "f32", 1.5),
        ("dense<0x7F800000>", "f32", math.inf), ("0xFC00", "f16", -math.inf), ("0x3FC0", "bf16", 1.5),
        ("0x3E", "f8E5M2", 1.5), ("1.00390625", "bf16", 1.0),
    ],
)  # fmt: skip
def test_constants(text: str, element: str, value: Any) -> None:
    found = constant(text, element)
    assert (found.shape, found.item(), found.dtype) == ((), value, numpy_of(element))


@pytest.mark.parametrize("text", ["dense<[1, 2]>", 'dense<"0x00">'])
def test_a_constant_with_several_values_is_refused(text: str) -> None:
    with pytest.raises(InterpreterLimit, match=r"^it has a constant with several values$"):
        constant(text, "i32")


@pytest.mark.parametrize(
    ("element", "size", "kept"),
    [("i1", 1, np.bool_), ("i8", 1, np.int8), ("i16", 2, np.int16), ("i32", 4, np.int32), ("i64", 8, np.int64),
     ("f16", 2, np.float16), ("bf16", 2, np.float32), ("f32", 4, np.float32), ("f64", 8, np.float64),
     ("ptr", 8, np.int64), ("f8E5M2", 1, np.float32), ("f8E4M3FN", 1, np.float32), ("f8E4M3FNUZ", 1, np.float32),
     ("f8E5M2FNUZ", 1, np.float32)],
)  # fmt: skip
def test_sizes_of_elements(element: str, size: int, kept: Any) -> None:
    assert (bytes_of(element), numpy_of(element)) == (size, kept)
    if element != "ptr":
        bits = to_bits(rounded(np.array([1.0]), element), element)
        assert bits.nbytes == size
        assert from_bits(bits, element).tolist() == [1]
        alone = to_bits(rounded(np.float32(1), element), element)
        assert alone.shape == from_bits(alone, element).shape == ()


@pytest.mark.parametrize("function", [bytes_of, numpy_of])
def test_a_type_that_is_not_known_is_named(function: Callable[[str], Any]) -> None:
    with pytest.raises(InterpreterLimit, match=r"^values of type f4 can't be emulated$"):
        function("f4")


@pytest.mark.parametrize(
    ("element", "number", "wanted"),
    [("bf16", 1 + 2.0**-8, 1.0), ("bf16", 1 + 3 * 2.0**-8, 1 + 2.0**-6), ("bf16", math.nan, math.nan),
     ("bf16", 3.4e38, math.inf),
     ("f8E4M3FN", 1000.0, 448.0), ("f8E4M3FN", -1000.0, -448.0), ("f8E5M2", 1e9, 57344.0), ("f16", 1e9, math.inf)],
)  # fmt: skip
def test_numbers_are_rounded_to_nearest_even_and_eight_bits_saturate(
    element: str, number: float, wanted: float
) -> None:
    with np.errstate(over="ignore"):
        assert rounded(np.array([number]), element).tolist() == pytest.approx([wanted], nan_ok=True)


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(1.0, 1.0), (1 + 2.0**-11, 1 + 2.0**-10), (1 + 2.0**-12, 1.0), (-(1 + 2.0**-11), -(1 + 2.0**-10)),
     (1 + 3 * 2.0**-11, 1 + 2.0**-9)],
)  # fmt: skip
def test_tf32_is_to_nearest_and_ties_go_away_from_zero(number: float, wanted: float) -> None:
    assert cut_to_tf32(np.array([number], np.float32)).tolist() == [wanted]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("exch", [5, -3]), ("add", [-2, 1]), ("and", [1, 4]), ("or", [-3, -3]), ("xor", [-4, -7]), ("max", [5, 4]),
     ("min", [-7, -3]), ("umax", [-7, -3]), ("umin", [5, 4])],
)  # fmt: skip
def test_what_an_atomic_leaves(how: str, wanted: list[int]) -> None:
    found = updated(how, np.array([-7, 4], np.int32), np.array([5, -3], np.int32), "i32")
    assert (found.tolist(), found.dtype) == (wanted, np.int32)


def test_an_atomic_sum_is_rounded() -> None:
    old, value = np.array([256.0], np.float32), np.array([1.0], np.float32)
    assert updated("fadd", old, value, "bf16").tolist() == [256.0]
    assert updated("fadd", old, value, "f32").tolist() == [257.0]


# narrow floats, held against torch's conversions

FLOATS = st.floats(width=32)
FINITE = st.floats(-440, 440, width=32)


@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_bf16_rounds_as_torch_does(values: list[float]) -> None:
    theirs = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(rounded(np.array(values, np.float32), "bf16"), theirs)


@pytest.mark.parametrize("kind", NARROW.values(), ids=str)
def test_every_pattern_is_torch_s_number_and_comes_back(kind: torch.dtype) -> None:
    bits = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    values = from_narrow(bits, kind)
    np.testing.assert_array_equal(values, torch.from_numpy(bits.view(f"i{kind.itemsize}")).view(kind).float().numpy())
    finite = np.isfinite(values)
    np.testing.assert_array_equal(to_narrow(values, kind)[finite], bits[finite])


@given(st.lists(FINITE, min_size=1, max_size=20), st.sampled_from(["f8E5M2", "f8E4M3FN"]))
def test_fp8_rounds_as_torch_does(values: list[float], element: str) -> None:
    theirs = torch.tensor(values, dtype=torch.float32).to(NARROW[element]).float().numpy()
    np.testing.assert_array_equal(rounded(np.array(values, np.float32), element), theirs)


@pytest.mark.parametrize(("element", "largest"), [("f8E4M3FN", 448.0), ("f8E5M2", 57344.0)])
def test_fp8_saturates_as_the_hardware_does(element: str, largest: float) -> None:
    ours = rounded(np.array([1e9, -1e9, np.inf, np.nan], np.float32), element)
    np.testing.assert_array_equal(ours, np.array([largest, -largest, largest, np.nan], np.float32))


@given(st.lists(st.floats(-60000, 60000, width=32), min_size=1, max_size=20), st.sampled_from(["bf16", "f16"]))
def test_toward_zero_never_grows_and_is_the_nearest_that_does_not(values: list[float], element: str) -> None:
    exact = np.array(values, np.float32)
    found = cut(exact, element)
    assert (np.abs(found) <= np.abs(exact)).all()
    above = from_bits(to_bits(found, element).view(np.uint16) + np.uint16(1), element)
    assert (np.abs(above.astype(np.float32)) > np.abs(exact)).all()
