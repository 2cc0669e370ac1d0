"""Errors of results: what rounding explains passes, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from kerntune.base.device import Target
from kerntune.base.recording import Recording, View
from kerntune.referee import element_errors, hostile_recording, result_errors, result_numbers, rounding_limits
from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.element_errors import ElementErrors, Elements, ResultError
from kerntune.referee.errors_together import ErrorsTogether
from kerntune.referee.extreme_errors import extreme_error, overflow_of
from kerntune.referee.hostile_recording import CheckedCall
from kerntune.referee.reference_evidence import hardly_varies
from kerntune.referee.result_errors import error_of
from kerntune.referee.result_numbers import LARGEST, ROUNDOFF, SMALLEST, taken, told_apart
from kerntune.referee.rounding_limits import GROSS, longest_sum
from kerntune.referee.tasks import ExpectedResult, OperatorChain

POISON = b"\xff\x7f" * 4
CASE = parse_line("a: f16[32,512]; b: f16[512,16]")
CHANCE = np.random.default_rng(5)
A = CHANCE.standard_normal((32, 512)).astype(np.float16)
B = CHANCE.standard_normal((512, 16)).astype(np.float16)
EXACT = A.astype(np.float64) @ B.astype(np.float64)
STOCK = EXACT.astype(np.float16)


def expected(wide: np.ndarray | None = EXACT, native: np.ndarray = STOCK) -> ExpectedResult:
    dtype = {"f2": "float16", "f4": "float32", "f8": "float64", "i4": "int32"}[native.dtype.str[1:]]
    strides = tuple(s // native.itemsize for s in native.strides)
    data = None if wide is None else wide.tobytes()
    return ExpectedResult(dtype, native.shape, strides, native.tobytes(), data)


def error(found: np.ndarray, want: ExpectedResult | None = None) -> ResultError:
    want = want or expected()
    view = View(0, want.dtype, want.shape, want.strides)
    return error_of(0, found.tobytes(), view, want, CASE, POISON)


def test_the_stock_result_and_another_order_of_sums_are_right() -> None:
    assert error(STOCK).wrong == ""
    parts = sum(A[:, k : k + 32].astype(np.float32) @ B[k : k + 32].astype(np.float32) for k in range(0, 512, 32))
    found = error(np.asarray(parts).astype(np.float16))
    assert found.wrong == ""
    assert 0 < found.rms < found.rms_allowed < 0.001


def test_beside_a_result_without_float64_both_sides_may_be_off() -> None:
    """Sums of 4,096 terms from either end: as far apart as both errors together."""
    x = (np.random.default_rng(2).standard_normal((256, 4096)) + 0.5).astype(np.float32)
    one, other = (np.add.accumulate(rows, axis=1)[:, -1] for rows in (x, x[:, ::-1]))
    case = parse_line("x: f32[256,4096]")
    view = View(0, "float32", (256,), (1,))
    found = error_of(0, other.tobytes(), view, expected(None, one), case, POISON)
    assert found.wrong == ""
    assert 0.1 * found.worst_allowed < found.worst < 0.6 * found.worst_allowed


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (1e-6, False), (1e-2, True)])
def test_a_result_may_be_one_number(off: float, wrong: bool, known: bool) -> None:
    exact = np.float64(1.5)
    want = ExpectedResult("float32", (), (), np.float32(exact).tobytes(), exact.tobytes() if known else None)
    found = error_of(0, np.float32(exact + off).tobytes(), View(0, "float32", (), ()), want, CASE, POISON)
    assert bool(found.wrong) is wrong


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("lone", [False, True])
@pytest.mark.parametrize("extreme", [0.0, 4.0])
def test_a_result_without_float64_is_looked_at_in_float64(dtype: str, lone: bool, extreme: float) -> None:
    """Squares of its own dtype's numbers may be infinite."""
    stock = torch.linspace(1, 2, 4096, dtype=torch.float64).mul(2.0 ** (13 if dtype == "float16" else 120))
    stock, found = (x.to(getattr(torch, dtype)) for x in (stock, stock * 1.25))
    bits = torch.int32 if dtype == "float32" else torch.int16
    want = ExpectedResult(dtype, (4096,), (1,), stock.view(bits).numpy().tobytes())
    data, view = found.view(bits).numpy().tobytes(), View(0, dtype, (4096,), (1,))
    case = parse_line("x: f32[4096]")
    right, wrong = (error_of(0, x, view, want, case, POISON, extreme=extreme, lone=lone) for x in (want.native, data))
    size = float(stock.double().square().mean().sqrt())
    assert (right.wrong, right.size, wrong.size) == ("", pytest.approx(size), pytest.approx(size))
    assert wrong.wrong
    if not (lone or extreme):
        off = float((found.double() - stock.double()).square().mean().sqrt())
        assert wrong.rms == pytest.approx(off / size)


def test_a_narrower_accumulator_is_wrong() -> None:
    acc = np.zeros((32, 16), np.float16)
    for k in range(0, 512, 16):
        acc = acc + (A[:, k : k + 16].astype(np.float32) @ B[k : k + 16].astype(np.float32)).astype(np.float16)
    assert error(acc).wrong


def test_rounding_to_the_farther_neighbour_is_wrong_though_no_element_is_off_by_much() -> None:
    away = np.where(EXACT > STOCK, np.float16(np.inf), np.float16(-np.inf))
    told = "its error is 0.00057 of its size; 0.00042 is what rounding explains"
    assert error(np.nextafter(STOCK, away)).wrong == told


def test_one_wrong_element_is_found_and_named() -> None:
    wrong = STOCK.copy()
    wrong[3, 5] += np.float16(2)
    assert error(wrong).wrong == (
        "1 of 512 elements are off by more than rounding explains, the most at [3, 5]: -23.5156, not -25.5215"
    )


@pytest.mark.parametrize(("units", "told"), [(2.0, True), (20.0, False)])
def test_a_reference_that_rounds_less_inside_is_named(units: float, told: bool) -> None:
    """As one that computes attention in float32, beside a kernel that rounds its weights to float16."""
    noise = np.random.default_rng(4).uniform(-1, 1, EXACT.shape) * units * 2.0**-11 * np.sqrt(np.mean(EXACT**2))
    found = error((EXACT + noise).astype(np.float16)).wrong
    assert "off by more than rounding explains" in found
    assert ("roundings to float16 inside would explain it" in found) == told


def test_the_most_wrong_element_is_named_by_its_place_beside_nan() -> None:
    """And where the stock operator is finite but float64 isn't, nothing is compared."""
    ones = np.ones((3, 21), np.float32)
    ones[0, 0] = np.nan
    wide = ones.astype(np.float64)
    wide[1, 0] = np.inf
    found = ones.copy()
    found[1, 0], found[2, 19], found[2, 20] = 7.0, 1.5, 2.0
    assert error(found, expected(wide, ones)).wrong == (
        "2 of 63 elements are off by more than rounding explains, the most at [2, 20]: 2, not 1"
    )
    found[2, 19:] = 1
    assert error(found, expected(wide, ones)).wrong == ""


def test_small_elements_are_not_excused_by_large_ones() -> None:
    exact = np.exp(CHANCE.standard_normal((32, 16)) * 3)
    stock = exact.astype(np.float32).astype(np.float16)
    want = expected(stock.astype(np.float64), stock)
    assert error(stock, want).wrong == ""
    small = stock < stock.max() * 2**-9
    assert 0.2 < small.mean() < 0.95
    assert "off by more" in error(np.where(small, np.float16(0), stock), want).wrong


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_wildcards_are_wrong(value: float) -> None:
    assert error(np.full_like(STOCK, value)).wrong
    one = STOCK.copy()
    one[0, 0] = value
    assert error(one).wrong


def test_infinities_and_nan_must_be_where_the_reference_has_them() -> None:
    native = STOCK.copy()
    native[0, 0], native[1, 1] = np.nan, np.inf
    want = expected(EXACT, native)
    assert error(native, want).wrong == ""
    for at, value in (((0, 0), 0.0), ((1, 1), -np.inf), ((1, 1), np.nan), ((2, 2), np.nan)):
        other = native.copy()
        other[at] = value
        assert error(other, want) == ResultError(
            0, "float16", size=1.0,
            wrong="1 elements are infinite or NaN where they must not be, or the other way round, first at "
            f"{list(at)}: {value:.6g}",
        )  # fmt: skip
    nothing = np.full(3, np.nan, np.float16)
    assert error(nothing, expected(None, nothing)) == ResultError(0, "float16")


def test_what_nothing_has_written_is_seen() -> None:
    poison = np.resize(np.frombuffer(POISON, np.uint8), STOCK.nbytes).view(np.float16).reshape(STOCK.shape)
    found = error(poison)
    assert found.unwritten
    assert found.wrong
    half = STOCK.copy()
    half[16:] = poison[16:]
    assert error(half).wrong
    assert not error(half).unwritten


def test_a_single_flag_may_be_what_memory_held() -> None:
    want = ExpectedResult("bool", (1,), (1,), b"\x01")
    for held, wrong in ((b"\x01\x3f", False), (b"\x07\x3f", True)):
        assert error_of(0, held[:1], View(0, "bool", (1,), (1,)), want, CASE, held * 4).unwritten == wrong


def test_whole_numbers_must_be_equal() -> None:
    native = np.arange(12, dtype=np.int32)
    want = expected(None, native)
    assert error(native, want).wrong == ""
    other = native.copy()
    other[4] += 1
    assert error(native, want) == ResultError(0, "int32", size=1.0)
    wrong = "1 of 12 elements differ, the first at [4]: 5, not 4"
    assert error(other, want) == ResultError(0, "int32", size=1.0, wrong=wrong)


def test_a_result_that_zeros_would_nearly_be_says_nothing() -> None:
    noisy = (EXACT + 0.3 * EXACT.std() * CHANCE.standard_normal(EXACT.shape)).astype(np.float16)
    assert not error(noisy, expected(EXACT, noisy)).significant
    assert error(STOCK).significant


def test_where_the_reference_has_zeros_only_zeros_are_right() -> None:
    zeros = np.zeros((4, 4), np.float32)
    want = expected(zeros.astype(np.float64), zeros)
    assert error(zeros, want).wrong == ""
    told = "elements up to 1e-20 where the reference has zeros"
    assert error(zeros + np.float32(1e-20), want) == ResultError(0, "float32", wrong=told)


def test_strided_results_are_taken_from_their_places() -> None:
    memory = np.arange(24, dtype=np.uint16)
    found = taken(memory.tobytes(), View(0, "float16", (2, 3), (8, 2), offset_bytes=4))
    assert found.tolist() == [[2, 4, 6], [10, 12, 14]]
    backwards = taken(memory.tobytes(), View(0, "float16", (3,), (-1,), offset_bytes=4))
    assert backwards.tolist() == [2, 1, 0]
    assert taken(bytes([1, 2, 3]), View(0, "int8", (), (), offset_bytes=2)).tolist() == 3
    assert taken(bytes([1, 2, 3]), View(0, "int8", (1, 2), (9, 2))).tolist() == [[1, 3]]
    assert taken(b"", View(0, "float64", (2, 0), (0, 1))).shape == (2, 0)


def test_the_longest_sum_is_the_largest_dimension_or_the_ratio() -> None:
    assert longest_sum(CASE, (32, 16)) == 512
    assert longest_sum(CASE, (1,)) == longest_sum(CASE, (0, 7)) == 32 * 512
    assert longest_sum(parse_line("x: f32[1]"), (2,)) == longest_sum(CaseInputs("", (), ()), (3,)) == 1


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_roundings_are_torchs(dtype: str) -> None:
    """The smallest number is the last place of the smallest normal one."""
    info = torch.finfo(getattr(torch, dtype))
    assert LARGEST.get(dtype, info.max) == info.max
    assert ROUNDOFF[dtype] == info.eps / 2
    assert SMALLEST[dtype] == (2.0**-1074 if dtype == "float64" else info.smallest_normal * info.eps)


@pytest.mark.parametrize(("count", "sums"), [(63, 64 * 0.42), (64, 32 * 0.42)])
def test_what_is_allowed_by_hand(count: int, sums: float) -> None:
    """Of a float32 result of ones that the stock operator has right, in units of half a last place: twice the rounding
    and the sums of 4,096 terms, 64 roundings; for one element six times the sums and three roundings. With 64 elements
    sums are at most 32 times the rounding, with fewer 96 times."""
    ones, unit = np.ones(count, np.float32), 2.0**-24
    want = expected(ones.astype(np.float64), ones)
    for off, wrong in ((0, False), (2 * (0.42 + sums) * 0.8, False), (2 * (0.42 + sums) * 1.3, True)):
        found = error_of(
            0, (ones * np.float32(1 + off * unit)).tobytes(), View(0, "float32", (count,), (1,)), want,
            parse_line("x: f32[4096]"), POISON,
        )  # fmt: skip
        assert found.rms_allowed == pytest.approx(2 * (0.42 + sums) * unit)
        assert found.worst_allowed == pytest.approx((6 * sums + 3) * unit)
        assert bool(found.wrong) == wrong


@pytest.mark.parametrize(("allowed", "size", "dtype", "significant"), [
    (0.1, 1.0, "float32", True), (0.101, 1.0, "float32", False), (0.0, 0.0, "float32", False),
    (9.0, 0.0, "int32", True),
    (0.157, 1.0, "float8_e5m2", True), (0.158, 1.0, "float8_e5m2", False), (0.0, 1e-9, "float16", True),
])  # fmt: skip
def test_which_results_say_something(allowed: float, size: float, dtype: str, significant: bool) -> None:
    """A tenth of its size may be allowed, or one and a half times what rounding to the dtype alone is."""
    assert ResultError(0, dtype, rms_allowed=allowed, size=size).significant is significant


UNIT = 2.0**-24
"""Half of the last place of 1 in float32, in which sums are added up."""

HALF, DOUBLE = 2.0**-11, 2.0**-53


@pytest.mark.parametrize(
    ("dtype", "value", "off", "count", "terms", "alone", "rms_allowed", "worst_allowed"),
    [
        ("f4", 1.0, 0, 63, 4096, False, 2 * (0.42 + 26.88) * UNIT, (6 * 26.88 + 3) * UNIT),
        ("f4", 2.0, 0, 63, 4096, False, 2 * (0.42 + 26.88) * UNIT, (6 * 26.88 + 3) * UNIT),
        ("f4", 1.0, 0, 63, 1024, False, 2 * (0.42 + 13.44) * UNIT, (6 * 13.44 + 3) * UNIT),
        ("f4", 1.0, 0, 63, 64, False, 2 * (0.42 + 4) * UNIT, (6 * 4 + 3) * UNIT),
        ("f4", 1.0, 0, 63, 9, False, 2 * (0.42 + 3) * UNIT, (6 * 3 + 3) * UNIT),
        ("f4", 1.0, 0, 63, 1 << 20, False, 2 * (0.42 + 40.32) * UNIT, (6 * 40.32 + 3) * UNIT),
        ("f4", 1.0, 0, 63, 4096, True, 2 * (0.42 + 2 * 26.88) * UNIT, (6 * 2 * 26.88 + 3) * UNIT),
        ("f4", 1.0, 8, 63, 1, False, 2 * (8 / 63**0.5 + 1) * UNIT, (6 * (7 + 1) + 3) * UNIT),
        ("f4", 1.0, 32, 64, 1 << 20, False, 2 * (4 + 32 * 4) * UNIT, (6 * (31 + 32 * 4) + 3) * UNIT),
        ("f4", 1.0, 32, 64, 4096, False, 2 * (4 + 0.42 * 2048**0.5) * UNIT, (6 * (31 + 0.42 * 2048**0.5) + 3) * UNIT),
        ("f8", 1.0, 0, 63, 16, False, 2 * (0.42 + 4) * DOUBLE, (6 * 4 + 3) * DOUBLE),
        ("f2", 2.0**-24, 0, 63, 1, False, 2 * (0.5 / 3**0.5 + UNIT), 6 * UNIT + 3 * 0.5),
    ],
)
def test_what_the_stock_operator_is_off_by_is_allowed(
    dtype: str, value: float, off: int, count: int, terms: int, alone: bool, rms_allowed: float, worst_allowed: float
) -> None:
    """Of equal elements; the stock operator's first one is off by so many units. Of numbers below the smallest
    normal one half of the last place is rounding."""
    exact = np.full(count, value)
    stock = exact.astype(dtype)
    stock[0] += off * UNIT
    want = expected(None if alone else exact, stock)
    view = View(0, want.dtype, (count,), (1,))
    found = error_of(0, exact.astype(dtype).tobytes(), view, want, parse_line(f"x: f32[{terms}]"), POISON)
    assert (found.rms_allowed, found.worst_allowed) == pytest.approx((rms_allowed, worst_allowed), rel=1e-6)


@pytest.mark.parametrize(("off", "wrong"), [(164, False), (166, True)])
def test_one_element_may_be_off_by_what_is_allowed(off: int, wrong: bool) -> None:
    """By 164.3 units, see above."""
    exact = np.ones(63)
    found = exact.astype("f4")
    found[7] += off * UNIT
    case, view = parse_line("x: f32[4096]"), View(0, "float32", (63,), (1,))
    assert bool(error_of(0, found.tobytes(), view, expected(exact, exact.astype("f4")), case, POISON).wrong) is wrong


@pytest.mark.parametrize("known", [True, False])
def test_a_large_element_may_be_off_by_what_its_partial_sums_are(known: bool) -> None:
    """A sum of 4,096 random terms may be off by 19 units of its size; an element eight times as large by eight times as
    much, as that of a running product is. Without float64 so may the other side."""
    exact = np.ones(4096)
    exact[7] = 8.0
    size, sums = (1 + 63 / 4096) ** 0.5, 0.42 * 2048**0.5
    each = (1 if known else 2) * 8 / size
    view, case = View(0, "float32", (4096,), (1,)), parse_line("x: f32[4096]")
    want = expected(exact if known else None, exact.astype("f4"))

    def wrong(off: float) -> bool:
        found = exact.astype("f4")
        found[7] += off * UNIT
        return bool(error_of(0, found.tobytes(), view, want, case, POISON).wrong)

    most = 6 * size * each * min(sums, 32 * 0.42) + 3 * 8
    assert (wrong(most - 16), wrong(most + 16)) == (False, True)


@pytest.mark.parametrize(
    ("count", "magnitude", "own", "sums", "allowed"),
    [
        (64, 1.0, 0.0, 0.0, 2 * 0.42 * HALF),
        (64, 5.0, 0.0, 0.0, 2 * 0.42 * HALF),
        (64, 1.0, 2.0**-10, 2.0**-12, 2 * (2.0**-10 + 2.0**-12)),
        (64, 1.0, 2.0**-10, 1.0, 2 * 33 * 2.0**-10),
        (64, 1.0, 0.0, 1.0, 2 * 0.42 * (HALF + 32 * UNIT)),
        (64, 2.0**-13 * 1.01, 0.0, 0.0, 2 * 0.42 * HALF),
        (64, 2.0**-13, 0.0, 0.0, 1e9),
        (63, 1.0, 0.0, 0.0, 1e9),
    ],
)
def test_what_a_typical_element_may_be_off_by(
    count: int, magnitude: float, own: float, sums: float, allowed: float
) -> None:
    """Of float16, relative to its size. Elements up to 2**-13 have fewer digits, and of fewer than 64 none is
    typical."""

    def told(off: float) -> str:
        errors = (np.full(count, off * magnitude), np.full(count, own * magnitude))
        return rounding_limits.quantiles_wrong(*errors, np.full(count, magnitude), sums, "float16")

    assert told(0.98 * allowed) == ""
    words = f"half of its elements are off by {1.02 * allowed:.2g} of their size; {allowed:.2g} is what rounding"
    assert told(1.02 * allowed) == (f"{words} explains" if allowed < 1 else "")


@pytest.mark.parametrize(
    ("off", "told"),
    [(8, ""), (10, "half of its elements are off by 6e-07 of their size; 5.3e-07 is what rounding explains")],
)
def test_beside_a_large_element_others_may_be_off_by_what_sums_explain(off: int, told: str) -> None:
    """Of sums of 16 terms: 2 * (0.42 + 4) units of their own size."""
    exact = np.ones(65)
    exact[0] = 1000
    stock = exact.astype("f4")
    found = stock + np.float32(off * UNIT)
    case, view = parse_line("x: f32[16]"), View(0, "float32", (65,), (1,))
    assert error_of(0, found.tobytes(), view, expected(exact, stock), case, POISON).wrong == told


@pytest.mark.parametrize("count", [100, 101])
def test_of_many_elements_some_are_drawn(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    class Chance:
        def integers(self, *words: int) -> np.ndarray:
            asked.append(words)
            return np.arange(70)

    monkeypatch.setattr(rounding_limits, "SAMPLED", 100)
    monkeypatch.setattr(np.random, "default_rng", Chance)
    wrong_first, none, one = np.where(np.arange(count) < 40, 1.0, 0.0), np.zeros((1, count)), np.ones((1, count))
    some = Elements(one + wrong_first, one, one, None).some()
    told = rounding_limits.quantiles_wrong(*some, 0.0, "float16")
    assert told.startswith("half") is (count > 100), "most of those that are drawn, of all the smaller part"
    extreme = extreme_error(0, "float16", one + wrong_first, one, one, 1, 1.0, 1.0, None, none, none, GROSS, 0.01)
    assert ("of 70 elements" in extreme.wrong, "50% of its" in extreme.wrong) == (False, count > 100)
    assert asked == [(0, 101, 100)] * 2 * (count > 100)


@pytest.mark.parametrize("moved", [False, True])
def test_errors_are_the_same_in_blocks(moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    exact = chance.standard_normal((7, 11)) * 2.0 ** chance.integers(-30, 30, (7, 11))
    found, stock = (exact * (1 + chance.standard_normal(exact.shape) * off) for off in (2.0**-8, 2.0**-20))
    by = np.abs(chance.standard_normal(exact.shape)) if moved else None
    error, own, size = np.abs(found - exact), np.abs(stock - exact), np.abs(exact)
    own = np.maximum(own, by) if by is not None else own
    assert [x.tolist() for x in Elements(found, exact, stock, by).some()] == [
        x.reshape(-1).tolist() for x in (error, own, size)
    ]
    for block in (1, 5, 77, 1000):
        monkeypatch.setattr(element_errors, "BLOCK", block)
        of = Elements(found, exact, stock, by)
        assert [len(x.error) for x in of.blocks()] == [block] * (77 // block) + [77 % block] * (77 % block > 0)
        roots = [float(np.sqrt(np.mean(x**2))) for x in (error, own, size)]
        beyond = max(0.0, float((own - np.maximum(size * 2.0**-11, 2.0**-25)).max()))
        assert of.sizes(2.0**-11, 2.0**-25) == pytest.approx((*roots, error.max(), beyond))
        odd = error > size * 2.0**-8
        assert of.beyond(lambda x: x.magnitude * 2.0**-8) == (
            pytest.approx(size.max() * 2.0**-8), np.count_nonzero(odd), np.argmax(error - size * 2.0**-8),
        )  # fmt: skip
        assert of.beyond(lambda x: x.error) == (pytest.approx(error.max()), 0, 0)


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("signs", [1.0, -1.0])
def test_elements_that_are_the_stock_operators_own_are_off_by_as_much(
    moved: bool, signs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass, with the same sizes, and the same that is allowed."""
    monkeypatch.setattr(element_errors, "BLOCK", 300)
    chance = np.random.default_rng(5)
    exact = signs * np.abs(chance.standard_normal(1000)) * 10.0 ** chance.integers(-3, 4, 1000)
    stock, by = exact.astype("f4"), np.abs(exact) * 1e-6 if moved else None
    one, other = (Elements(found, exact, stock, by) for found in (stock, stock.copy()))
    assert one.sizes(2.0**-24, 0.0) == other.sizes(2.0**-24, 0.0)

    def allowed(x: ElementErrors) -> np.ndarray:
        most = x.magnitude * 2.0**-22 + 1e-9
        return most if by is None else np.minimum(most, x.own + 1e-12)

    assert one.beyond(allowed) == other.beyond(allowed)
    assert one.beyond(allowed)[1] == 0


def test_there_are_errors_of_no_elements_and_of_vast_ones() -> None:
    none = np.zeros(0)
    assert Elements(none, none, none, None).sizes(1.0, 1.0) == (0.0,) * 5
    vast = np.full(3, 1e300)
    assert Elements(vast, vast, vast, None).sizes(0.5, 0.0) == (0.0, 0.0, pytest.approx(1e300), 0.0, 0.0)


@pytest.mark.parametrize("block", [1, 2, 3])
def test_what_moves_without_bound_is_so_in_any_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_errors, "BLOCK", block)
    one, moved = np.ones(3), np.array([0.0, 1.0, np.inf])
    assert Elements(one, one, one, moved).sizes(1.0, 1.0) == (0.0, np.inf, 1.0, 0.0, np.inf)


@pytest.mark.parametrize(("item", "dtype", "bits"), [(2, "float16", 0x7C01), (2, "bfloat16", 0x7F81),
                                                     (4, "float32", 0x7F800001)])  # fmt: skip
def test_a_signaling_nan_is_nan(item: int, dtype: str, bits: int) -> None:
    """numpy warns of one that is cast."""
    native = np.full(3, bits, f"<u{item}")
    native[1:] = 0
    want = ExpectedResult(dtype, (3,), (1,), native.tobytes())
    beside = msgspec.structs.replace(want, wide=np.array([np.nan, 0.0, 0.0]).tobytes(), deviation=np.ones(3).tobytes())
    for expected_one in (want, beside):
        for found, wrong in ((native, False), (native * 0, True)):
            one = error_of(0, found.tobytes(), View(0, dtype, (3,), (1,)), expected_one, CASE, POISON)
            assert bool(one.wrong) is wrong


@pytest.mark.parametrize(
    ("numbers", "root"),
    [
        ([], 0.0),
        ([0.0, 0.0], 0.0),
        ([3.0, 4.0], 12.5**0.5),
        ([[1e200], [1e200]], 1e200),
        ([1.0, np.inf], np.inf),
        ([0.0, np.nan], 0.0),
    ],
)
def test_root_mean_squares(numbers: list[float], root: float) -> None:
    """Squares of large numbers are no infinities."""
    assert result_numbers.rms_of(np.array(numbers, "f8")) == pytest.approx(root)


@pytest.mark.parametrize(
    ("dtype", "strides", "offset"), [("float32", (2,), 4), ("float64", (1,), 4), ("int8", (3,), 7)]
)
def test_poison_is_known_wherever_a_view_begins(dtype: str, strides: tuple[int, ...], offset: int) -> None:
    poison = bytes(range(1, 9))
    content, view = bytearray(poison * 6), View(0, dtype, (5,), strides, offset)
    want = ExpectedResult(dtype, (5,), (1,), bytes(5 * hostile_recording.ITEM_BYTES[dtype]))

    def unwritten() -> bool:
        return error_of(2, bytes(content), view, want, CASE, poison).unwritten

    told = ResultError(2, dtype, wrong="nothing of it is written", unwritten=True)
    assert error_of(2, bytes(content), view, want, CASE, poison) == told
    for at in (offset, hostile_recording.extent(view)[1] - 1):
        content[at] ^= 128
        assert not unwritten()
        content[at] ^= 128
    assert unwritten()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {}, ""),
        ({1: 1.0, 2: 5}, {1: 1.0 + 2 * UNIT, 2: 5}, ""),
        ({2: 5}, {1: 9.0, 2: 5}, ""),
        ({1: 1.0}, {1: 1.5}, "result 0 is another than before: 64 of 64 elements are off by more than rounding "
         "explains, the most at [0]: 1.5, not 1"),
        ({1: 1.0, 2: 5}, {1: 1.0, 2: 6}, "result 1 is another than before: its elements are others"),
        ({0: 1.0}, {0: 3.0}, "input x is another than before: 64 of 64 elements are off by more than rounding "
         "explains, the most at [0]: 3, not 1"),
    ],
)  # fmt: skip
def test_what_two_executions_leave_may_differ_by_rounding(
    before: dict[int, float], after: dict[int, float], told: str
) -> None:
    """Of results and of inputs; storages that weren't kept are left out. Whole numbers don't round."""
    kinds = ("float32", "float32", "int32")
    results = tuple(View(i, kinds[i], (64,), (1,)) for i in (1, 2))
    call = CheckedCall(Recording(Target.parse("cuda:90"), (), (), (), ()), {}, (0, None), results, (), ())
    case = parse_line("x: f32[64]; y: f32[64]")
    contents = ({i: np.full(64, n, kinds[i]).tobytes() for i, n in side.items()} for side in (before, after))
    assert result_errors.difference_of(case, call, *contents) == told


def test_what_is_not_said_of_an_error_is_nothing() -> None:
    assert msgspec.structs.astuple(ResultError(3, "int8")) == (3, "int8", 0.0, 0.0, 0.0, 0.0, 0.0, "", False, False)


def results(*arrays: np.ndarray) -> list[list[ExpectedResult]]:
    return [[expected(a.astype(np.float64), a.astype(np.float32))] for a in arrays]


EVERYWHERE, ALWAYS = "result 0 is the same number everywhere", "result 0 is the same for all inputs"
NAN = float("nan")


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ([[1.0, 2.0], [3.0, 5.0], [1.0, 2.0]], ""),
        ([[1.0, 2.0]], ""),
        ([[1.0, 1.0 + 4 * UNIT], [5.0, 5.0]], EVERYWHERE),
        ([[1.0, 1.0 + 6 * UNIT], [5.0, 5.0]], ""),
        ([[-1.0, -1.0 - 4 * UNIT], [5.0, 5.0]], EVERYWHERE),
        ([[1.0, 2.0], [1.0 + 4 * UNIT, 2.0]], ALWAYS),
        ([[1.0, 2.0], [1.0 + 6 * UNIT, 2.0]], ""),
        ([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]], ""),
        ([[1.0], [2.0]], ""),
        ([[1.0], [1.0]], ALWAYS),
        ([[NAN, NAN], [NAN, NAN]], "result 0 has no finite number"),
        ([[NAN, NAN], [1.0, 2.0]], ""),
        ([[NAN, 1.0], [NAN, 2.0]], EVERYWHERE),
        ([[NAN, 1.0, np.inf, 2.0], [NAN, 1.0, np.inf, 2.0]], ALWAYS),
        ([[NAN, 1.0, np.inf, 2.0], [NAN, 1.0, -np.inf, 2.0]], ""),
        ([[NAN, 1.0, np.inf, 2.0], [NAN, 1.0, 5.0, 2.0]], ""),
        ([[], []], ""),
    ],
)
def test_results_that_hardly_vary_are_no_evidence(seeds: list[list[float]], told: str) -> None:
    assert hardly_varies(results(*(np.array(one) for one in seeds))) == told


def test_whole_numbers_vary_if_one_does_and_later_results_are_looked_at() -> None:
    def whole(*numbers: int) -> ExpectedResult:
        return expected(None, np.array(numbers, np.int32))

    assert hardly_varies([[whole(1, 2)], [whole(1, 3)]]) == ""
    assert hardly_varies([[whole(1, 2), whole(4, 5)], [whole(1, 3), whole(4, 5)]]) == ALWAYS.replace("0", "1")
    assert hardly_varies([[whole(), whole(4, 4)], [whole(), whole(5, 5)]]) == EVERYWHERE.replace("0", "1")


def test_the_end_of_a_long_result_is_looked_at() -> None:
    one = CHANCE.standard_normal(5000)
    other = one.copy()
    assert hardly_varies(results(one, other)) == ALWAYS
    other[-1] += 1
    assert hardly_varies(results(one, other)) == ""


LONG = parse_line("x: f32[262144]")


def long_error(found: np.ndarray, exact: np.ndarray) -> ResultError:
    view = View(0, "float32", exact.shape, (1,))
    want = expected(exact, exact.astype(np.float32))
    return error_of(0, found.astype(np.float32).tobytes(), view, want, LONG, POISON)


def test_a_few_large_elements_do_not_excuse_all_others() -> None:
    exact = 1 / CHANCE.standard_normal(262144)
    coarse = np.where(np.abs(exact) > 16, exact, np.clip(exact, -99, 99).astype(np.float16))
    assert long_error(exact, exact).wrong == ""
    assert long_error(coarse, exact).wrong
    steep = np.exp(8 * CHANCE.standard_normal(262144))
    assert long_error(steep, steep).wrong == ""
    assert "half of its elements" in long_error(np.where(steep < np.quantile(steep, 0.6), 0, steep), steep).wrong


def test_a_long_vector_is_no_long_sum() -> None:
    exact = CHANCE.standard_normal(262144)
    narrow = (exact.astype(np.float32).view(np.uint32) + 0x100 & 0xFFFFFE00).view(np.float32)
    assert long_error(narrow, exact).wrong


def test_rounding_to_the_narrowest_format_alone_says_something() -> None:
    assert ResultError(0, "float8_e5m2", rms_allowed=0.105, size=1.0).significant
    assert not ResultError(0, "float8_e5m2", rms_allowed=0.17, size=1.0).significant
    assert not ResultError(0, "float8_e4m3fn", rms_allowed=0.105, size=1.0).significant
    assert not ResultError(0, "float16", rms_allowed=0.105, size=1.0).significant


def test_less_than_half_of_the_elements_may_not_be_anything_either() -> None:
    """Small ones are zeros, or a half of all are coarse, beside large ones that excuse each; the median is exact."""
    steep = np.exp(8 * CHANCE.standard_normal(4096))
    small = (steep < np.quantile(steep, 0.6)) & (np.arange(4096) % 20 < 9)
    assert 0.2 < small.mean() < 0.3
    assert "of its elements are off by" in long_error(np.where(small, 0, steep), steep).wrong
    exact = 1 / CHANCE.standard_normal(4096)
    coarse = (np.arange(4096) % 20 < 9) & (np.abs(exact) < 2)
    assert long_error(np.where(coarse, exact.astype(np.float16), exact), exact).wrong


def test_elements_that_cancel_may_be_off_by_what_a_sum_is() -> None:
    """An absolute error beside elements of all sizes down to zero, as sums and 1 + erf(x) have it."""
    exact = CHANCE.standard_normal(4096)
    off = CHANCE.standard_normal(4096) * 2.0**-24
    assert long_error(exact + 4 * off, exact).wrong == ""
    assert long_error(exact + 400 * off, exact).wrong


def test_numbers_below_the_smallest_normal_one_are_rounded_to_nearest() -> None:
    """To a grid of 2**-24 in float16: half of that is the most, and its root mean square is a third of its root."""
    exact = CHANCE.standard_normal(4096) * 4e-6
    stock = exact.astype(np.float16)
    want = expected(stock.astype(np.float64), stock)
    assert error(stock, want).wrong == ""
    assert error((exact + CHANCE.uniform(-0.4, 0.4, 4096) * 2.0**-24).astype(np.float16), want).wrong == ""
    coarse = (exact * 2**20).astype(np.float32).view(np.uint32)
    narrow = ((coarse + 0x80000 & 0xFFF00000).view(np.float32) * 2.0**-20).astype(np.float16)
    assert error(narrow, expected(exact, stock)).wrong


ROWS = parse_line("x: f32[64,512]")


def extreme(
    found: np.ndarray, exact: np.ndarray, stock: np.ndarray | None = None, usual: float = 1.0, factor: float = 4.0
) -> ResultError:
    want = expected(exact, exact.astype(np.float32) if stock is None else stock)
    view = View(0, want.dtype, want.shape, want.strides)
    return error_of(0, found.astype(stock.dtype if stock is not None else np.float32).tobytes(), view, want, ROWS,
                    POISON, usual, extreme=factor)  # fmt: skip


def test_of_extreme_numbers_what_is_finite_must_be_finite() -> None:
    exact = CHANCE.standard_normal(256)
    odd = exact.copy()
    odd[3] = np.nan
    assert "infinite or NaN" in extreme(odd, exact).wrong
    overflowing = exact.astype(np.float32)
    overflowing[3] = np.inf
    assert extreme(odd, exact, overflowing).wrong == ""
    assert extreme(exact, exact, overflowing).wrong == ""
    assert extreme(odd, odd, exact.astype(np.float32)).wrong == ""


def test_of_extreme_numbers_those_near_the_largest_may_overflow() -> None:
    exact = np.array([40000.0, 30000.0, 1.0] * 30)
    stock, found = exact.astype(np.float16), exact.astype(np.float16)
    found[0] = np.inf
    assert extreme(found, exact, stock).wrong == ""
    found[1] = np.inf
    assert "first at [1]" in extreme(found, exact, stock).wrong


def test_of_extreme_numbers_a_few_elements_may_be_off() -> None:
    """As a row of an attention is whose two largest scores are nearly equal; but not a tenth of all."""
    exact = CHANCE.standard_normal(1000)
    off = np.where(np.arange(1000) % 50 == 0, 1e-2, 0.0)
    assert extreme(exact + off, exact).wrong == ""
    assert "10% of its elements" in extreme(exact + np.where(np.arange(1000) % 9 == 0, 1e-2, 0), exact).wrong
    assert "50% of its elements" in extreme(exact * (1 + 1e-4), exact).wrong
    assert "its error is" in extreme(exact[:20] * (1 + 1e-3), exact[:20]).wrong
    assert extreme(exact[:20] * (1 + 1e-6), exact[:20]).wrong == ""


@pytest.mark.parametrize(
    ("share", "left", "stocks", "wrong"),
    [(30, 0.0, 0, True), (30, 0.7, 0, True), (30, 0.8, 0, False), (9, 0.0, 0, False), (30, 0.0, 20, False)],
)
def test_of_extreme_numbers_few_elements_may_be_left_out(share: int, left: float, stocks: int, wrong: bool) -> None:
    """One in a hundred, or twice as many as the stock operator. Others are off by a fourth of their size at most."""
    exact = CHANCE.uniform(1, 2, 1000)
    found, stock = np.where(np.arange(1000) < share, left * exact, exact), np.where(np.arange(1000) < stocks, 0, exact)
    told = extreme(found, exact, stock).wrong
    assert told == ("30 of 1,000 elements are off by more than a fourth of their size" if wrong else "")


@pytest.mark.parametrize("odd", [False, True])
def test_beside_infinities_no_element_may_be_left_out(odd: bool) -> None:
    """Few are infinite, and what follows from them is few elements of the result."""
    exact = CHANCE.uniform(1, 2, 1000)
    off, near = np.where(np.arange(1000) == 7, 0.0, exact), exact + np.where(np.arange(1000) == 7, 0.2, 0.0)
    want = expected(exact, exact.astype(np.float32))
    view = View(0, want.dtype, want.shape, want.strides)
    found = [
        error_of(0, x.astype("<f4").tobytes(), view, want, ROWS, POISON, 1.0, extreme=4.0, odd=odd).wrong
        for x in (off, near)
    ]
    assert found == ["1 of 1,000 elements are off by more than a fourth of their size" if odd else "", ""]


@pytest.mark.parametrize(("share", "off", "wrong"), [(50, 0.5, True), (50, 0.1, False), (200, 0.5, False)])
def test_of_extreme_numbers_few_zeros_may_be_others(share: int, off: float, wrong: bool) -> None:
    """A border that belongs to the other side, by a number as large as others are."""
    exact = CHANCE.standard_normal(1000) * (np.arange(1000) % 2)
    found = np.where(np.arange(1000) % share == 0, off * np.sqrt(np.mean(exact**2)), exact)
    assert bool(extreme(found, exact).wrong) == wrong


@pytest.mark.parametrize(("off", "wrong"), [(2.5, ""), (4.0, ""), (7.0, "10% of its elements")])
def test_errors_of_drawn_roundings_are_spread_as_normal_ones(off: float, wrong: str) -> None:
    """A tenth of them is beyond 1.64 deviations, and of extreme numbers that may be four times as much."""
    exact, many = np.linspace(1, 2, 4000), np.arange(4000) % 8 == 0
    want = msgspec.structs.replace(known(exact, exact.astype("f4")), deviation=np.full(4000, 1e-5).tobytes())
    found = (exact + np.where(many, off * 1e-5, 0)).astype("f4")
    case, view = parse_line("x: f32[4000]"), View(0, "float32", (4000,), (1,))
    told = error_of(0, found.tobytes(), view, want, case, POISON, extreme=4.0).wrong
    assert told.startswith(wrong), told
    assert bool(told) == bool(wrong)


@pytest.mark.parametrize(("deviation", "wrong"), [(0.2, False), (0.1, True)])
def test_of_extreme_numbers_what_six_deviations_explain_is_not_left_out(deviation: float, wrong: bool) -> None:
    """A third of its elements has weights that roundings of far scores decide."""
    exact, some = np.linspace(1, 2, 1000), np.arange(1000) % 20 == 0
    off = np.where(some, deviation, 0.0)
    want = msgspec.structs.replace(known(exact, exact.astype("f4")), deviation=off.tobytes())
    found, view = (exact + some).astype("f4"), View(0, "float32", (1000,), (1,))
    told = error_of(0, found.tobytes(), view, want, parse_line("x: f32[1000]"), POISON, extreme=4.0).wrong
    assert ("off by more than a fourth" in told) == bool(told) == wrong, told


def test_of_extreme_numbers_small_elements_may_be_left_out() -> None:
    """They are what is left of large ones. A fourth of the root mean square isn't small."""
    exact = np.where(np.arange(1000) < 90, 0.23, 1.0) * CHANCE.choice([-1, 1], 1000)
    assert extreme(np.where(np.arange(1000) < 90, 0, exact), exact).wrong == ""
    exact = np.where(np.arange(1000) < 90, 0.25, 1.0)
    assert extreme(np.where(np.arange(1000) < 90, 0, exact), exact).wrong


def test_of_extreme_numbers_what_is_small_beside_the_usual_may_be_lost() -> None:
    """A gelu by 1 + erf(x) is zero where another is -1e-9."""
    exact = -1e-9 * CHANCE.uniform(1, 2, 256)
    assert extreme(np.zeros(256), exact, usual=0.5).wrong == ""
    assert extreme(np.zeros(256), exact, usual=1e-6).wrong


@pytest.mark.parametrize(("off", "right"), [(7.5e-8, True), (1.6e-7, True), (2e-7, False)])
def test_of_numbers_near_zero_six_roundings_of_the_usual_size_are_a_constants(off: float, right: bool) -> None:
    """A tanh by a sigmoid has 1 as a constant, and 0.5 to 0.7 as its usual size; an LSTM's result is smaller."""
    exact = 1e-3 * CHANCE.standard_normal(1000)
    found = extreme(exact + off, exact, exact.astype(np.float32), usual=0.5, factor=2.0)
    assert (found.wrong == "") is right


def test_of_extreme_numbers_a_sum_that_nearly_cancels_is_off_as_its_terms_are() -> None:
    """A hundred terms of deviation 2**20 sum up to 2**15: a sum in float32 is off by 0.5. That they sum up to a
    thousandth of that deviation doesn't happen."""
    terms = np.round(2.0**20 * np.random.default_rng(8).standard_normal(100))
    terms[0] += 2.0**15 - terms.sum()
    exact, view = np.array([terms.sum()]), View(0, "float32", (1,), (1,))
    moved = exact + UNIT * np.sqrt(np.square(terms).sum())
    want = msgspec.structs.replace(known(exact, exact.astype("f4")), moved=moved.tobytes())
    blind = msgspec.structs.replace(want, moved=np.array([np.inf]).tobytes())
    found = np.array([exact[0] + 0.5], "f4")
    steep = msgspec.structs.replace(want, moved=(exact + 1e9).tobytes())
    for given, one, wrong in (
        (found, want, False), (found, blind, True), (found + 60, want, True), (found + 600, steep, True),
    ):  # fmt: skip
        told = error_of(0, given.tobytes(), view, one, parse_line("x: f32[100]"), POISON, 10.0, extreme=2.0).wrong
        assert bool(told) is wrong, told


def test_zeros_that_nothing_has_written_are_right_where_zeros_are() -> None:
    zeros, ones = np.zeros(8, np.float32), np.ones(8, np.float32)
    view = View(0, "float32", (8,), (1,))
    for stock, unwritten in ((zeros, False), (ones, True)):
        found = error_of(0, bytes(32), view, expected(stock.astype(np.float64), stock), CASE, bytes(8))
        assert (found.unwritten, bool(found.wrong)) == (unwritten, unwritten)
    want = expected(np.full(8, 1e-27), np.full(8, 1e-27, np.float32))
    found = error_of(0, bytes(32), view, want, CASE, bytes(8), usual=1.0, extreme=4.0)
    assert (found.unwritten, found.wrong) == (False, ""), "written as zeros"


@pytest.mark.parametrize("count", [8, 1000])
@pytest.mark.parametrize(("found", "right"), [(0.0, True), (1e-300, False)])
def test_an_extreme_content_may_give_zeros_in_float64(count: int, found: float, right: bool) -> None:
    """Half of its smallest number is none."""
    zeros, view = np.zeros(count), View(0, "float64", (count,), (1,))
    given = np.full(count, found).tobytes()
    told = error_of(0, given, view, expected(zeros, zeros), CASE, POISON, extreme=4.0).wrong
    assert (told == "") is right


# elements that follow from few numbers


def known(exact: np.ndarray, stock: np.ndarray) -> ExpectedResult:
    dtype = {"f2": "float16", "f4": "float32"}[stock.dtype.str[1:]]
    return ExpectedResult(dtype, stock.shape, (1,), stock.tobytes(), exact.tobytes())


@pytest.mark.parametrize(("off", "wrong"), [(3.0, False), (9.0, False), (13.0, True)])
def test_an_element_of_few_numbers_has_no_long_sum(off: float, wrong: bool) -> None:
    """Of 4,096 numbers each, five bits less than float32's are off by 13 units; fast functions by three."""
    exact, chance = np.linspace(1, 2, 4096), np.random.default_rng(3)
    found = (exact * (1 + off * 3**0.5 * UNIT * chance.uniform(-1, 1, 4096))).astype("f4")
    want = msgspec.structs.replace(known(exact, exact.astype("f4")), moved=(exact * (1 + UNIT)).tobytes())
    case, view = parse_line("x: f32[4096]"), View(0, "float32", (4096,), (1,))
    told = [
        error_of(0, found.tobytes(), view, one, case, POISON).wrong
        for one in (want, msgspec.structs.replace(want, moved=None))
    ]
    assert [bool(t) for t in told] == [wrong, False]


@pytest.mark.parametrize(
    ("bits", "stocks", "own", "wrong"), [(3, 0, 0.0, True), (2, 0, 0.0, False), (3, 3, 0.0, False), (3, 0, 3.0, False)]
)
def test_no_element_is_cut_by_three_bits(bits: int, stocks: int, own: float, wrong: bool) -> None:
    """Unless the stock operator's are, or are off by as much."""

    def cut(x: np.ndarray, bits: int) -> np.ndarray:
        raw = x.astype("f4").view("u4")
        return (raw + (1 << bits >> 1) >> bits << bits).view("f4")

    exact, chance = np.random.default_rng(3).uniform(1, 2, 4096), np.random.default_rng(4)
    want = known(exact, cut(exact * (1 + own * UNIT * chance.uniform(-1, 1, 4096)), stocks))
    case, view = parse_line("x: f32[4096]"), View(0, "float32", (4096,), (1,))
    told = error_of(0, cut(exact, bits).tobytes(), view, want, case, POISON).wrong
    assert told == (
        "all of its elements are cut by 3 bits or more, and off by more than the reference's" if wrong else ""
    )


def test_what_a_rounding_of_the_inputs_moves_is_allowed() -> None:
    """exp(x) by exp2(x * log2(e)) is off by x roundings; where the reference is infinite, nothing is moved."""
    x = np.linspace(60, 80, 4096)
    exact, stock = np.exp(x), np.exp(x).astype("f4")
    found = np.exp(x * (1 + UNIT)).astype("f4")
    want, case = known(exact, stock), parse_line("x: f32[4096]")
    view = View(0, "float32", (4096,), (1,))
    assert "rounding explains" in error_of(0, found.tobytes(), view, want, case, POISON).wrong
    moved = np.exp(x * (1 - UNIT)).tobytes()
    assert error_of(0, found.tobytes(), view, msgspec.structs.replace(want, moved=moved), case, POISON).wrong == ""
    stock[5] = found[5] = np.inf
    assert (
        error_of(
            0, found.tobytes(), view, msgspec.structs.replace(known(exact, stock), moved=moved), case, POISON
        ).wrong
        == ""
    )


@pytest.mark.parametrize(
    ("off", "deviations", "right"),
    [(300, 51, True), (300, 15, False), (-300, 51, True), (3, 0, True), (np.nan, 9e9, False)],
)
@pytest.mark.parametrize("factor", [0.0, 4.0])
def test_few_elements_may_be_off_by_six_deviations_of_roundings(
    off: float, deviations: float, right: bool, factor: float
) -> None:
    """And as without by what sums explain."""
    exact = np.array([1.0, 2.0])
    want = known(exact, exact.astype("f4"))
    found = (exact * (1 + np.array([off, 0.0]) * (1 + factor) * UNIT)).astype("f4")
    view = View(0, "float32", (2,), (1,))
    beside = msgspec.structs.replace(want, deviation=np.full(2, (1 + factor) * deviations * UNIT).tobytes())
    for one, explained in ((want, abs(off) == 3), (beside, right)):
        told = error_of(0, found.tobytes(), view, one, CASE, POISON, extreme=factor).wrong
        assert (told == "") == explained


@pytest.mark.parametrize(("times", "right"), [(0.8, True), (1.2, False)])
@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_many_elements_are_as_far_off_as_half_of_what_roundings_move_them(
    times: float, right: bool, factor: float
) -> None:
    """1 - tanh(x)**2 has no digit left for large x: what the stock operator is off by there may be less by chance."""
    exact, chance = np.linspace(1, 2, 4096), np.random.default_rng(3)
    deviation = 1e-3 * exact
    found = (exact + times * deviation * chance.choice([-1, 1], 4096)).astype("f4")
    want = known(exact, exact.astype("f4"))
    infinite = np.where(np.arange(4096) == 7, np.inf, deviation)
    case, view = parse_line("x: f32[4096]"), View(0, "float32", (4096,), (1,))
    for off, explained in ((None, False), (deviation, right), (infinite, right)):
        one = msgspec.structs.replace(want, deviation=None if off is None else off.tobytes())
        assert (error_of(0, found.tobytes(), view, one, case, POISON, extreme=factor).wrong == "") == explained


@pytest.mark.parametrize(("off", "right"), [(1.0, True), (5.0, False)])
def test_an_element_that_a_rounding_of_the_inputs_moves_far_may_be_off_by_as_much(off: float, right: bool) -> None:
    exact = np.ones(256)
    want = msgspec.structs.replace(expected(exact, exact.astype("f4")), moved=(exact * 1.5).tobytes())
    assert (error((exact + off * (np.arange(256) == 7)).astype("f4"), want).wrong == "") is right


def test_of_few_numbers_each_no_small_element_is_left_out() -> None:
    """exp(4 x), of which a few are 1e-3 beside 1e6: less than a rounding of those."""
    chance = np.random.default_rng(9)
    x = np.clip(chance.standard_normal(4096), -3, 3).astype("f4").astype("f8")
    exact = np.exp(4 * x)
    moved = np.exp(4 * x * (1 + 2.0**-24)).tobytes()
    want = msgspec.structs.replace(expected(exact, exact.astype("f4")), moved=moved)
    rounded = (exact * (1 + chance.uniform(-4, 4, 4096) * 2.0**-24 * (1 + np.abs(x)))).astype("f4")
    assert error(rounded, want).wrong == ""
    left_out = np.where((np.arange(4096) % 60 == 59) & (x < -0.5) & (x > -1.5), 0, rounded)
    assert error(left_out.astype("f4"), want).wrong


# an input that is one number but for a few elements


def lone(exact: np.ndarray, found: np.ndarray, stock: np.ndarray | None = None) -> str:
    want = known(exact, exact.astype(found.dtype) if stock is None else stock)
    view = View(0, want.dtype, exact.shape, (1,))
    return error_of(0, found.tobytes(), view, want, CASE, POISON, lone=True).wrong


FEW_LARGE = np.where(np.arange(2000) % 64 == 5, np.linspace(1, 2, 2000), 0.0)


def test_of_lone_numbers_what_is_left_out_is_found() -> None:
    assert lone(FEW_LARGE, FEW_LARGE.astype("f4")) == ""
    (at, *_) = np.flatnonzero(FEW_LARGE)
    without = np.where(np.arange(2000) == at, 0.0, FEW_LARGE).astype("f4")
    assert lone(FEW_LARGE, without) == f"an element is 0, not {FEW_LARGE[at]:.6g}"


def test_of_lone_numbers_small_weights_count() -> None:
    """Weights below a thousandth, of which the largest element isn't; the stock operator is off by 5 % of each."""
    weights = 10.0 ** -np.linspace(0, 8, 1000)
    stock = weights * (1 + 0.05 * np.where(np.arange(1000) % 2, 1, -1))
    without = np.where(weights < 1e-3, 0.0, weights)
    assert lone(weights, weights.astype("f4"), stock.astype("f4")) == ""
    told = lone(weights, without.astype("f4"), stock.astype("f4"))
    assert told == "25% of its elements are off by 1 of their size; 0.5 is allowed"
    few = slice(0, 1000, 16)  # 63 of them have no quantiles
    assert lone(weights[few].copy(), without[few].astype("f4"), stock[few].astype("f4")) == ""


@pytest.mark.parametrize(("stocks", "off", "wrong"), [(0.021, 0.19, ""), (0.021, 0.6, "0.5"), (0.01, 0.1, "0.04")])
def test_of_lone_numbers_those_that_cancel_in_the_reference_may_be_off(stocks: float, off: float, wrong: str) -> None:
    """By other roundings than the reference's, of chunks beside a recurrence in bfloat16: 19 % beside 2.1 %."""
    exact = np.where(np.arange(2000) % 3 == 0, 0.005, np.linspace(0.1, 1, 2000))
    signs = np.where(np.arange(2000) % 2, 1, -1) * (exact < 0.1)
    told = lone(exact, (exact * (1 + off * signs)).astype("f4"), (exact * (1 + stocks * signs)).astype("f4"))
    assert told == (wrong and f"25% of its elements are off by {off:g} of their size; {wrong} is allowed")


def test_zeros_of_float64_may_be_tiny_ones() -> None:
    """As relu has of numbers below zero: half of the smallest number is none."""
    exact = np.zeros(100)
    want, view = expected(exact, exact), View(0, "float64", (100,), (1,))
    assert error_of(0, exact.tobytes(), view, want, ROWS, POISON, 1.0, extreme=2.0).wrong == ""


def test_of_lone_numbers_sums_may_be_off() -> None:
    """By a rounding of bfloat16 each; nothing is demanded of what isn't finite in the reference, or has few digits."""
    off = (FEW_LARGE * (1 + 3 * 2.0**-8)).astype("f4")
    assert lone(FEW_LARGE, off) == ""
    nothing = np.full(100, np.nan)
    assert lone(nothing, np.zeros(100, "f4")) == ""
    assert lone(np.where(FEW_LARGE > 0, FEW_LARGE, np.inf), off) == ""
    assert "infinite or NaN" in lone(FEW_LARGE, np.where(FEW_LARGE > 0, np.inf, off))
    tiny = np.full(100, 2.0**-14)
    assert lone(tiny, np.zeros(100, "f2")) == ""
    assert lone(tiny, np.zeros(100, "f4")) != ""


@pytest.mark.parametrize(
    ("deviation", "off", "wrong"),
    [(0.0, 5e-8, True), (1e-8, 2e-7, False), (1e-8, 3e-7, True), (1e-19, 5e-8, True)],
)
def test_of_lone_numbers_what_is_noise_in_float64_shows_nothing(deviation: float, off: float, wrong: bool) -> None:
    """Where all terms cancel, as a softmax's gradient does of equal rows, float64 leaves noise as well."""
    exact, noise = np.linspace(1, 2, 1000), np.arange(1000) < 300
    exact = np.where(noise, 1e-17, exact)
    want = msgspec.structs.replace(
        known(exact, np.where(noise, 0, exact).astype("f4")), deviation=np.full(1000, deviation).tobytes()
    )
    found = np.where(noise, off, exact).astype("f4")
    told = error_of(0, found.tobytes(), View(0, "float32", (1000,), (1,)), want, CASE, POISON, lone=True).wrong
    assert bool(told) is wrong, told


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_of_lone_numbers_zeros_of_which_roundings_move_nothing_stay_finite(odd: float) -> None:
    """As rows of zeros that are divided by their norm."""
    found = np.where(FEW_LARGE == 0, odd, FEW_LARGE).astype("f4")
    for deviation, wrong in ((0.0, True), (np.inf, False)):
        off = np.where(FEW_LARGE == 0, deviation, 0.0)
        want = msgspec.structs.replace(known(FEW_LARGE, FEW_LARGE.astype("f4")), deviation=off.tobytes())
        told = error_of(0, found.tobytes(), View(0, "float32", (2000,), (1,)), want, CASE, POISON, lone=True).wrong
        assert ("infinite or NaN" in told) == wrong


# numbers in texts


@pytest.mark.parametrize(
    ("one", "other", "digits", "told"),
    [
        (0.25723512, 0.25723548, 6, ("0.2572351", "0.2572355")),
        (2.21e-6, 2.19e-6, 2, ("2.21e-06", "2.19e-06")),
        (2.36e-6, 2.14e-6, 2, ("2.4e-06", "2.1e-06")),
        (-1.5, 1.5, 6, ("-1.5", "1.5")),
        (1.0, 1 + 2.0**-52, 2, ("1", "1.0000000000000002")),
        (1.0, float("nan"), 2, ("1", "nan")),
    ],
)
def test_two_numbers_have_as_many_digits_as_make_them_differ(
    one: float, other: float, digits: int, told: tuple[str, str]
) -> None:
    assert told_apart(one, other, digits) == told
    assert told_apart(other, one, digits) == told[::-1]


SPREAD = np.random.default_rng(7).uniform(1, 2, 4096)
NOISE = np.random.default_rng(8).uniform(-1, 1, 4096)


def of_float64(found: np.ndarray, **words: float) -> str:
    exact = SPREAD[: found.size]
    want, view = expected(exact, exact), View(0, "float64", exact.shape, (1,))
    return error_of(0, found.tobytes(), view, want, parse_line("x: f32[16]"), POISON, **words).wrong


def of_bias(off: float) -> str:
    together, exact = ErrorsTogether([expected(SPREAD, SPREAD)]), SPREAD * 64
    for _ in range(5):
        together.add("float16", exact + off * 2.0**-5 * (1 + NOISE), exact, exact, 1, False)
    return together.wrong()


def of_quantiles(off: float, count: int) -> str:
    errors = np.where(np.arange(4096) < count, off * 1e-3, 0.0)
    return rounding_limits.quantiles_wrong(errors, np.zeros(4096), np.ones(4096), 0.0, "float16")


TEXTS: dict[str, Callable[[float], str]] = {
    r"the most at \[4095\]: (\S+), not (\S+)": lambda off: of_float64(SPREAD + off * 1e-13 * (SPREAD[-1] == SPREAD)),
    r"its error is (\S+) of its size; (\S+) is": lambda off: of_float64(SPREAD * (1 + off * 1e-14 * NOISE)),
    r"half of .* off by (\S+) of their size; (\S+) is what": lambda off: of_quantiles(off, 4096),
    r"10% of .* off by (\S+) of their size or more; (\S+) is": lambda off: of_quantiles(off, 500),
    r"its error is (\S+) where .*; (\S+) is": lambda off: of_float64(
        SPREAD[:63] + off * 1e-12 * NOISE[:63], extreme=4.0
    ),
    r"50% of .* by (\S+) where .*; (\S+) is": lambda off: of_float64(SPREAD * (1 + off * 1e-12), extreme=4.0),
    r"25% of .* by (\S+) of their size; (\S+) is allowed": lambda off: of_float64(SPREAD * (1 + off * 0.05), lone=True),
    r"larger by (\S+) half units of .*; (\S+) is": of_bias,
}
"""What is told of an error that grows with a number, whose limit is below 1."""


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_just_beyond_a_limit_has_other_digits_than_it(text: str) -> None:
    right, wrong = 0.0, 1.0
    for _ in range(40):
        middle = (right + wrong) / 2
        right, wrong = (right, middle) if TEXTS[text](middle) else (middle, wrong)
    told = re.search(text, TEXTS[text](wrong))
    assert told is not None, TEXTS[text](wrong)
    assert told[1] != told[2]
    assert float(told[1]) == pytest.approx(float(told[2]), rel=0.02)


def test_vast_numbers_must_be_finite_where_the_reference_computes_them_well() -> None:
    """What has overflowed inside may be anything."""
    native, wide = np.array([0.0, 1.0, np.inf, 3e38], "<f4"), np.array([1.0, 1.0, 1e39, 3e38], "<f8")
    want = ExpectedResult("float32", (4,), (1,), native.tobytes(), wide.tobytes())

    def found(*numbers: float) -> str:
        view = View(0, "float32", (4,), (1,))
        return overflow_of(0, np.array(numbers, "<f4").tobytes(), view, want).wrong

    assert found(np.nan, 7.0, np.nan, np.inf) == ""
    assert found(np.nan, np.inf, np.nan, np.inf).startswith("1 elements are infinite or NaN where they must not be")


@pytest.mark.parametrize(("moved", "wrong"), [(True, False), (False, True)])
def test_without_float64_what_the_inputs_last_places_move_is_allowed(moved: bool, wrong: bool) -> None:
    """Weights in float16 inside of either side: results near zero are off by more than roundings of their own."""
    chance = np.random.default_rng(3)
    weights, values = chance.uniform(0, 1, (64, 50)), chance.standard_normal((50, 64)).astype("f2").astype("f8")
    weights /= weights.sum(1, keepdims=True)
    one, other = ((w.astype("f2").astype("f8") @ values).astype("f2") for w in (weights, weights * (1 + 2.0**-12)))
    want = expected(None, one)
    if moved:
        off = np.where(chance.uniform(size=weights.shape) < 0.25, 2.0**-10 * chance.choice([-1, 1], weights.shape), 0.0)
        want = msgspec.structs.replace(want, moved=((weights * (1 + off)) @ values).tobytes())
    view, case = View(0, "float16", (64, 64), (64, 1)), parse_line("w: f16[64,50]; v: f16[50,64]")
    assert bool(error_of(0, other.tobytes(), view, want, case, POISON).wrong) is wrong


@pytest.mark.parametrize("count", [9, 900])
@pytest.mark.parametrize(("moved", "wrong"), [(True, False), (False, True)])
def test_without_float64_extreme_numbers_may_cancel(moved: bool, wrong: bool, count: int) -> None:
    """Deviations of numbers far from zero are off by their last places."""
    x = (np.random.default_rng(4).standard_normal(count) + 2000).astype("f4").astype("f8")
    one, other = (x - x.mean() + off * 2000 * 2.0**-24 for off in (0, 1))
    want = expected(None, one.astype("f4"))
    if moved:
        want = msgspec.structs.replace(want, moved=(one + 2000 * 2.0**-23 * (np.arange(count) % 2)).tobytes())
    view, case = View(0, "float32", (count,), (1,)), parse_line("x: f32[9]")
    found = error_of(0, other.astype("f4").tobytes(), view, want, case, POISON, usual=1.0, extreme=2.0)
    assert bool(found.wrong) is wrong


def shares_wrong(size: int, factor: float) -> float:
    """In how many of 400 contents a bfloat16 result is wrong by quantiles, with the stock operator's errors inside or
    so many times these."""
    chance, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        exact = chance.normal(size=size)
        found, own = (
            torch.tensor(exact + chance.normal(0, 2**-9 * x, size)).bfloat16().double().numpy() for x in (factor, 1)
        )
        wrong += bool(
            rounding_limits.quantiles_wrong(abs(found - exact), abs(own - exact), abs(exact), 2**-20, "bfloat16")
        )
    return wrong / 400


# what is known of the reference's operators


def of_chain(exact: np.ndarray, stock: np.ndarray, found: np.ndarray, extreme: float = 0.0, **known: Any) -> list[bool]:
    """Whether a result is wrong where that is known, and where it isn't."""
    want = expected(exact, stock)
    view, case = View(0, want.dtype, stock.shape, want.strides), parse_line("x: f32[4096]")
    both = msgspec.structs.replace(want, chain=OperatorChain(**known)), want
    data = found.astype(stock.dtype).tobytes()
    return [bool(error_of(0, data, view, one, case, POISON, 1.0, extreme).wrong) for one in both]


def test_one_product_is_rounded_once() -> None:
    """Neither to 48 bits of 53 nor up or down at random; a small element counts beside others. Twice is right."""
    x = np.random.default_rng(1).standard_normal(4096)
    off = 1 + np.random.default_rng(2).uniform(-1, 1, 4096) * 2.0**-49
    assert of_chain(x, x, x * off, roundings=0.0) == [True, False]
    assert of_chain(x, x, x * (1 + 2.0**-53), roundings=0.0) == [False, False]
    near, place = x.astype("f2"), 2.0 ** (np.frexp(x)[1] - 11)
    drawn = np.floor(x / place + np.random.default_rng(3).random(4096)) * place
    assert of_chain(x, near, drawn, roundings=0.0) == [True, False]
    assert of_chain(x, near, near, roundings=0.0) == [False, False]
    x[7], zero = 1e-8, np.arange(4096) == 7
    assert of_chain(x, x.astype("f4"), np.where(zero, 0.0, x), roundings=0.0) == [True, False]


def test_a_sum_of_known_length_is_off_as_the_stock_operator_s_or_as_its_terms_explain() -> None:
    chance, x = np.random.default_rng(4), np.ones(4096)
    stock, found = (1 + chance.normal(0, off * UNIT, 4096) for off in (19, 60))
    assert of_chain(x, stock.astype("f4"), found, roundings=19.0) == [True, False]
    assert of_chain(x, x.astype("f4"), 1 + chance.normal(0, 7 * UNIT, 4096), roundings=2.0) == [True, False]


def test_elements_that_a_reference_rounds_inside_are_no_excuse_for_others() -> None:
    """Of a function of elements alone."""
    x = np.exp(np.random.default_rng(5).uniform(-7, 0, 4096))
    stock = np.where(x > 0.3, x, x * (1 + 0.1 * np.sin(1e6 * x))).astype("f2")
    assert of_chain(x, stock, x * 1.02, pointwise=True) == [True, False]
    assert of_chain(x, stock, x, pointwise=True) == [False, False]


def test_weights_are_off_as_their_row_s_sum_and_otherwise_as_a_function() -> None:
    chance = np.random.default_rng(6)
    scores = chance.standard_normal((16, 2048))
    x = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    stock = (x * (1 + 20 * UNIT * chance.standard_normal((16, 1)))).astype("f4")
    rows = x * (1 + 20 * UNIT * chance.standard_normal((16, 1)))
    each = x * (1 + 16 * UNIT * chance.standard_normal((16, 2048)))
    assert of_chain(x, stock, rows, weights=True) == [False, False]
    assert of_chain(x, stock, each, weights=True) == [True, False]


def test_of_extreme_numbers_few_elements_of_a_function_may_be_off_by_a_fifth() -> None:
    x = np.random.default_rng(7).uniform(1, 2, 1000)
    few, less = (np.where(np.arange(1000) < share, 0.8 * x, x) for share in (30, 9))
    assert of_chain(x, x.astype("f4"), few, 2.0, pointwise=True) == [True, False]
    assert of_chain(x, x.astype("f4"), less, 2.0, pointwise=True) == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 96, 192, 512, 2048])
def test_of_few_elements_equal_errors_are_no_chance(size: int) -> None:
    assert shares_wrong(size, 1) <= 0.01
    assert shares_wrong(size, 3) >= (0.95 if size > 100 else 0.6)
