"""Errors of results: what rounding explains passes, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kerntune.base.recording import View
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.hostile_recording import checked
from kerntune.referee.result_errors import (
    ROUNDOFF,
    SMALLEST,
    ResultError,
    difference_of,
    error_of,
    hardly_varies,
    longest_sum,
    taken,
)
from kerntune.referee.tasks import ExpectedResult
from tests.referee import recordings

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
    found = error(np.nextafter(STOCK, away))
    assert found.wrong == "its error is 0.00057 of its size; 0.00042 is what rounding explains"


def test_one_wrong_element_is_found_and_named() -> None:
    wrong = STOCK.copy()
    wrong[3, 5] += np.float16(2)
    wrong[7, 1] -= np.float16(1)
    found = error(wrong)
    assert found.wrong == (
        "2 of 512 elements are off by more than rounding explains, the most at [3, 5]: -23.5156, not -25.5215"
    )
    assert (found.rms, found.worst, found.size) == pytest.approx((4.3737e-3, 8.8464e-2, 22.674), rel=1e-4)


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
        assert error(other, want).wrong == (
            "1 elements are infinite or NaN where they must not be, or the other way round, first at "
            f"{list(at)}: {value:g}"
        )
    other[4, 4], want = np.nan, expected(EXACT, np.full_like(native, np.nan))
    assert error(want_of(want), want) == ResultError(0, "float16")
    assert error(other).wrong.startswith("4 elements are infinite or NaN")


def want_of(want: ExpectedResult) -> np.ndarray:
    return np.frombuffer(want.native, np.float16).reshape(want.shape)


def test_an_element_that_is_infinite_is_left_out_of_the_places_that_are_told() -> None:
    native = STOCK.copy()
    native[0, 0] = np.inf
    other = native.copy()
    other[3, 5] += np.float16(2)
    assert (
        "1 of 512 elements are off by more than rounding explains, the most at [3, 5]"
        in error(other, expected(EXACT, native)).wrong
    )


def test_what_nothing_has_written_is_seen() -> None:
    poison = np.resize(np.frombuffer(POISON, np.uint8), STOCK.nbytes).view(np.float16).reshape(STOCK.shape)
    found = error(poison)
    assert found == ResultError(0, "float16", wrong="nothing of it is written", unwritten=True)
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
    assert error(zeros + np.float32(1e-20), want).wrong == "elements up to 1e-20 where the reference has zeros"


def test_strided_results_are_taken_from_their_places() -> None:
    memory = np.arange(24, dtype=np.uint16)
    found = taken(memory.tobytes(), View(0, "float16", (2, 3), (8, 2), offset_bytes=4))
    assert found.tolist() == [[2, 4, 6], [10, 12, 14]]


def test_the_longest_sum_is_the_largest_dimension_or_the_ratio() -> None:
    assert longest_sum(CASE, (32, 16)) == 512
    assert longest_sum(CASE, (1,)) == 32 * 512
    assert longest_sum(CASE, (0, 9)) == 32 * 512
    assert longest_sum(CASE, (32, 8)) == 512


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_roundings_are_torchs(dtype: str) -> None:
    """The smallest number is the last place of the smallest normal one."""
    info = torch.finfo(getattr(torch, dtype))
    assert ROUNDOFF[dtype] == info.eps / 2
    assert SMALLEST[dtype] == (2.0**-1074 if dtype == "float64" else info.smallest_normal * info.eps)


@pytest.mark.parametrize(("count", "sums"), [(63, 64.0), (64, 32 * 0.42)])
def test_what_is_allowed_by_hand(count: int, sums: float) -> None:
    """Of a float32 result of ones that the stock operator has right, in units of half a last place: twice the rounding
    and the sums of 4,096 terms; for one element six times the sums and three roundings. With 64 elements sums are at
    most 32 times the rounding."""
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
    assert hardly_varies(whole) == "result 0 is the same number everywhere"
    assert hardly_varies([[expected(None, np.array([n], np.int32))] for n in (1, 1)]) == (
        "result 0 is the same for all inputs"
    )
    assert hardly_varies([[expected(None, np.array([n], np.int32))] for n in (1, 2)]) == ""
    assert hardly_varies([[expected(None, np.arange(9, dtype=np.int32))]]) == "", "one seed shows no variation"
    far = np.arange(5000.0)
    assert hardly_varies(results(far, np.where(far == 4500, 0, far))) == "", "beyond the first 4,096"
    nothing = [[expected(None, np.zeros(0, np.int32)), *each] for each in results(varying[0], varying[0])]
    assert hardly_varies(nothing) == "result 1 is the same for all inputs"
    unit = 2.0**-24
    for off, told in ((3.9, "result 0 is the same number everywhere"), (4.1, "")):
        assert hardly_varies(results(np.array([1.0, 1 + off * unit]))) == told, "four roundings"


@pytest.mark.parametrize(
    ("storage", "change", "told"),
    [
        (2, lambda x: x, ""),
        (2, lambda x: x * np.float32(1 + 2.0**-23), ""),
        (2, lambda x: x + np.float32(1), "result 0 is another than before: 600 of 600 elements are off by"),
        (0, lambda x: x * np.float32(2), "input x is another than before: "),
        (1, lambda x: x * np.float32(2), "input y is another than before: "),
    ],
)
def test_two_executions_differ_by_rounding_at_most(storage: int, change: Any, told: str) -> None:
    before = {storage: CHANCE.standard_normal(600).astype(np.float32)}
    after = {storage: change(before[storage])}
    sides = [{i: x.tobytes() for i, x in side.items()} for side in (before, after)]
    found = difference_of(recordings.CASE, checked(recordings.CALL, recordings.CASE, recordings.TARGET), *sides)
    assert found.startswith(told)
    assert bool(found) is bool(told)


def test_whole_numbers_of_two_executions_are_equal() -> None:
    call = checked(recordings.view(2, dtype="int32"), recordings.CASE, recordings.TARGET)
    sides = [{2: bytes(2400)}, {2: bytes(2396) + b"\1\0\0\0"}]
    assert difference_of(recordings.CASE, call, *sides) == "result 0 is another than before: its elements are others"


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
    assert long_error(np.where(steep < np.quantile(steep, 0.6), 0, steep), steep).wrong == (
        "half of its elements are off by 1 of their size; 1.7e-06 is what rounding explains"
    )


def test_a_long_vector_is_no_long_sum() -> None:
    exact = CHANCE.standard_normal(262144)
    narrow = (exact.astype(np.float32).view(np.uint32) + 0x100 & 0xFFFFFE00).view(np.float32)
    assert long_error(narrow, exact).wrong


def test_rounding_to_the_narrowest_format_alone_says_something() -> None:
    assert ResultError(0, "float8_e5m2", rms_allowed=0.105, size=1.0).significant
    assert not ResultError(0, "float8_e5m2", rms_allowed=0.17, size=1.0).significant
    assert not ResultError(0, "float8_e4m3fn", rms_allowed=0.105, size=1.0).significant
    assert not ResultError(0, "float16", rms_allowed=0.105, size=1.0).significant
