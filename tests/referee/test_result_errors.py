"""Errors of results: what rounding explains passes, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kerntune.base.recording import View
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.result_errors import ROUNDOFF, SMALLEST, ResultError, error_of, hardly_varies, longest_sum, taken
from kerntune.referee.tasks import ExpectedResult

POISON = b"\xff\x7f" * 4
CASE = parse_line("a: f16[32,512]; b: f16[512,16]")
CHANCE = np.random.default_rng(5)
A = CHANCE.standard_normal((32, 512)).astype(np.float16)
B = CHANCE.standard_normal((512, 16)).astype(np.float16)
EXACT = A.astype(np.float64) @ B.astype(np.float64)
STOCK = EXACT.astype(np.float16)


def expected(wide: np.ndarray | None = EXACT, native: np.ndarray = STOCK) -> ExpectedResult:
    dtype = {"f2": "float16", "f4": "float32", "i4": "int32"}[native.dtype.str[1:]]
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


def test_a_narrower_accumulator_is_wrong() -> None:
    acc = np.zeros((32, 16), np.float16)
    for k in range(0, 512, 16):
        acc = acc + (A[:, k : k + 16].astype(np.float32) @ B[k : k + 16].astype(np.float32)).astype(np.float16)
    assert error(acc).wrong


def test_rounding_to_the_farther_neighbour_is_wrong_though_no_element_is_off_by_much() -> None:
    away = np.where(EXACT > STOCK, np.float16(np.inf), np.float16(-np.inf))
    assert "is what rounding explains" in error(np.nextafter(STOCK, away)).wrong


def test_one_wrong_element_is_found_and_named() -> None:
    wrong = STOCK.copy()
    wrong[3, 5] += np.float16(2)
    assert "[3, 5]" in error(wrong).wrong


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
        assert error(other, want).wrong


def test_what_nothing_has_written_is_seen() -> None:
    poison = np.resize(np.frombuffer(POISON, np.uint8), STOCK.nbytes).view(np.float16).reshape(STOCK.shape)
    found = error(poison)
    assert found.unwritten
    assert found.wrong
    half = STOCK.copy()
    half[16:] = poison[16:]
    assert error(half).wrong
    assert not error(half).unwritten


def test_whole_numbers_must_be_equal() -> None:
    native = np.arange(12, dtype=np.int32)
    want = expected(None, native)
    assert error(native, want).wrong == ""
    other = native.copy()
    other[4] += 1
    assert error(other, want).wrong == "1 of 12 elements differ"


def test_a_result_that_zeros_would_nearly_be_says_nothing() -> None:
    noisy = (EXACT + 0.3 * EXACT.std() * CHANCE.standard_normal(EXACT.shape)).astype(np.float16)
    assert not error(noisy, expected(EXACT, noisy)).significant
    assert error(STOCK).significant


def test_where_the_reference_has_zeros_only_zeros_are_right() -> None:
    zeros = np.zeros((4, 4), np.float32)
    want = expected(zeros.astype(np.float64), zeros)
    assert error(zeros, want).wrong == ""
    assert error(zeros + np.float32(1e-20), want).wrong


def test_strided_results_are_taken_from_their_places() -> None:
    memory = np.arange(24, dtype=np.uint16)
    found = taken(memory.tobytes(), View(0, "float16", (2, 3), (8, 2), offset_bytes=4))
    assert found.tolist() == [[2, 4, 6], [10, 12, 14]]


def test_the_longest_sum_is_the_largest_dimension_or_the_ratio() -> None:
    assert longest_sum(CASE, (32, 16)) == 512
    assert longest_sum(CASE, (1,)) == 32 * 512


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_roundings_are_torchs(dtype: str) -> None:
    """The smallest number is the last place of the smallest normal one."""
    info = torch.finfo(getattr(torch, dtype))
    assert ROUNDOFF[dtype] == info.eps / 2
    assert SMALLEST[dtype] == (2.0**-1074 if dtype == "float64" else info.smallest_normal * info.eps)


@pytest.mark.parametrize(("count", "sums"), [(63, 3 * 32 * 0.42), (64, 32 * 0.42)])
def test_what_is_allowed_by_hand(count: int, sums: float) -> None:
    """Of a float32 result of ones that the stock operator has right, in units of half a last place: twice the rounding
    and the sums of 4,096 terms; for one element six times the sums and three roundings. With 64 elements sums are at
    most 32 times the rounding, with fewer 96 times."""
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


def results(*arrays: np.ndarray) -> list[list[ExpectedResult]]:
    return [[expected(a.astype(np.float64), a.astype(np.float32))] for a in arrays]


def test_results_that_hardly_vary_are_no_evidence() -> None:
    varying = [CHANCE.standard_normal(50) for _ in range(3)]
    assert hardly_varies(results(*varying)) == ""
    assert "same number everywhere" in hardly_varies(results(*[np.full(50, 1 / 256)] * 3))
    assert "same for all inputs" in hardly_varies(results(varying[0], varying[0], varying[0]))
    assert "no finite number" in hardly_varies(results(*[np.full(50, np.nan)] * 3))
    whole = [[expected(None, np.full(5, n, np.int32))] for n in (1, 1, 1)]
    assert hardly_varies(whole)


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


def extreme(found: np.ndarray, exact: np.ndarray, stock: np.ndarray | None = None, usual: float = 1.0) -> ResultError:
    want = expected(exact, exact.astype(np.float32) if stock is None else stock)
    view = View(0, want.dtype, want.shape, want.strides)
    return error_of(0, found.astype(stock.dtype if stock is not None else np.float32).tobytes(), view, want, ROWS,
                    POISON, usual, extreme=4.0)  # fmt: skip


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


def test_of_extreme_numbers_a_few_elements_may_be_off() -> None:
    """As a row of an attention is whose two largest scores are nearly equal; but not a tenth of all."""
    exact = CHANCE.standard_normal(1000)
    off = np.where(np.arange(1000) % 50 == 0, 1e-2, 0.0)
    assert extreme(exact + off, exact).wrong == ""
    assert "10% of its elements" in extreme(exact + np.where(np.arange(1000) % 9 == 0, 1e-2, 0), exact).wrong
    assert "50% of its elements" in extreme(exact * (1 + 1e-4), exact).wrong
    assert "its error is" in extreme(exact[:20] * (1 + 1e-3), exact[:20]).wrong
    assert extreme(exact[:20] * (1 + 1e-6), exact[:20]).wrong == ""


def test_of_extreme_numbers_what_is_small_beside_the_usual_may_be_lost() -> None:
    """A gelu by 1 + erf(x) is zero where another is -1e-9."""
    exact = -1e-9 * CHANCE.uniform(1, 2, 256)
    assert extreme(np.zeros(256), exact, usual=0.5).wrong == ""
    assert extreme(np.zeros(256), exact, usual=1e-6).wrong
