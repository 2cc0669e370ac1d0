"""Errors over all contents together: bias, few elements, inputs that hardly change."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from kerntune.base.recording import View
from kerntune.referee import errors_together
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.errors_together import (
    ErrorsTogether,
    ShapeComparison,
    _may_overflow,
    errors_of,
    is_demanded,
    together_of,
    unequal_of,
    wrong_together,
)
from kerntune.referee.result_errors import error_of
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed

CHANCE = np.random.default_rng(11)
POISON = b"\xff\x7f" * 4
EXACT = [CHANCE.standard_normal((16, 40)) * 3 for _ in range(5)]
CASE = parse_line("x: f32[16,40]")
CALL: Any = None


def expected(exact: np.ndarray, stock: np.ndarray) -> ExpectedResult:
    dtype = {"f2": "float16", "f4": "float32"}[stock.dtype.str[1:]]
    strides = tuple(s // stock.itemsize for s in stock.strides)
    return ExpectedResult(dtype, stock.shape, strides, stock.tobytes(), exact.tobytes())


def judged(
    exact: Sequence[np.ndarray], found: Sequence[np.ndarray], stock: Sequence[np.ndarray] | None = None
) -> tuple[list[str], str]:
    """What is wrong with each content, and with all together."""
    stock = stock or [e.astype(found[0].dtype) for e in exact]
    wants = [expected(e, s) for e, s in zip(exact, stock, strict=True)]
    seeds = [ExpectedSeed((), (want,)) for want in wants]
    together = together_of(CASE, seeds)
    one, view = together[0], View(0, wants[0].dtype, wants[0].shape, wants[0].strides)
    each = [
        error_of(0, f.tobytes(), view, w, CASE, POISON, one.size, seen=one.add).wrong
        for f, w in zip(found, wants, strict=True)
    ]
    wrong = list(wrong_together(ShapeComparison(CASE, CALL, together)))
    assert all(e.result == 0 for e in wrong)
    return each, "".join(e.wrong for e in wrong)


def shifted(exact: np.ndarray, units: float, toward_zero: bool = False) -> np.ndarray:
    """Rounded to float16 with a bias of so many half units of the last place, always down or toward zero."""
    half = np.ldexp(2.0**-11, np.frexp(exact)[1] - 1)
    found: np.ndarray = (exact - units * half * (np.sign(exact) if toward_zero else 1)).astype(np.float16)
    return found


def test_rounding_to_nearest_has_no_bias() -> None:
    assert judged(EXACT, [e.astype(np.float16) for e in EXACT]) == ([""] * 5, "")


@pytest.mark.parametrize("toward_zero", [False, True])
def test_a_bias_within_rounding_is_found_by_the_mean(toward_zero: bool) -> None:
    each, together = judged(EXACT, [shifted(e, 0.5, toward_zero) for e in EXACT])
    assert each == [""] * 5
    assert f"smaller{' in magnitude' * toward_zero} by 0.5" in together
    assert judged(EXACT, [shifted(e, 0.05, toward_zero) for e in EXACT])[1] == ""


def test_what_contents_have_in_common_is_undecided_until_there_are_many() -> None:
    """All numbers of a content are too small by the same, between nothing and 0.6 half units."""

    def biases(count: int, factor: float) -> ErrorsTogether:
        chance = np.random.default_rng(7)
        exact = [chance.standard_normal((16, 40)) * 3 for _ in range(count)]
        stock = [e.astype(np.float16) for e in exact]
        one = ErrorsTogether([expected(e, s) for e, s in zip(exact, stock, strict=True)])
        for i, (e, s) in enumerate(zip(exact, stock, strict=True)):
            found = shifted(e, factor * (i % 5) / 4, toward_zero=True).astype(float)
            one.add("float16", found, e, s.astype(float), 1, False)
        return one

    few, many, none = biases(5, 0.6), biases(53, 0.6), biases(5, 0.1)
    assert (few.wrong(), few.undecided) == ("", True)
    assert (many.undecided, "smaller in magnitude by" in many.wrong()) == (False, True)
    assert (none.wrong(), none.undecided) == ("", False)
    assert not ErrorsTogether([expected(EXACT[0], EXACT[0].astype("f2"))]).undecided


def test_the_stock_operators_own_bias_is_none_of_the_candidates() -> None:
    found = [shifted(e, 0.5) for e in EXACT]
    assert judged(EXACT, found, found) == ([""] * 5, "")


@pytest.mark.parametrize("axis", [(16, 1), (1, 40), (1, 1)], ids=["rows", "columns", "contents"])
def test_errors_of_one_cause_are_no_bias(axis: tuple[int, int]) -> None:
    """A factor that is rounded to the result's dtype once for each row, column, or content. Of eleven contents."""
    exact = [CHANCE.standard_normal((16, 40)) * 3 for _ in range(11)]
    for _ in range(20):
        factors = [1 + CHANCE.uniform(-1, 1, axis) * 2.0**-11 for _ in exact]
        found = [(e * f).astype(np.float16) for e, f in zip(exact, factors, strict=True)]
        assert judged(exact, found)[1] == ""


def test_float32_results_may_be_biased() -> None:
    """Functions of the hardware are, by less than a sum is off by."""
    found = [(e * (1 + 2.0**-24)).astype(np.float32) for e in EXACT]
    assert judged(EXACT, found) == ([""] * 5, "")


def test_few_elements_have_quantiles_over_all_contents() -> None:
    exact = [np.exp(8 * CHANCE.standard_normal(40)) for _ in range(5)]
    found = [np.where(e < np.quantile(e, 0.35), 0, e).astype(np.float32) for e in exact]
    each, together = judged(exact, found)
    assert each == [""] * 5
    assert "of its elements are off by" in together
    assert judged(exact, [e.astype(np.float32) for e in exact])[1] == ""


def test_the_usual_size_is_the_median_over_contents() -> None:
    results = [expected(np.full(4, x), np.full(4, x, np.float32)) for x in (1.0, -2.0, 1e9, np.inf, 3.0)]
    assert ErrorsTogether(results).size == 2.0


def test_a_single_result_that_nearly_cancels_may_be_off_by_what_others_are() -> None:
    """Of five sums of 4,096 terms one is nearly zero: its error is the others'."""
    exact = [np.array([x]) for x in (60.0, -80.0, 0.001, 50.0, -70.0)]
    found = [(e + 50 * 2.0**-24 * 20).astype(np.float32) for e in exact]
    assert judged(exact, found) == ([""] * 5, "")
    alone, _ = judged(exact[2:3], found[2:3])
    assert alone != [""]


def test_the_tail_of_a_long_sum_may_not_be_left_out() -> None:
    """24 of 1,048,600 terms; a sum in parts of 1,024 terms is right, wherever its errors come from."""
    case = parse_line("x: f32[1048600]")
    exact = np.array([3e5])
    want, view = expected(exact, exact.astype(np.float32)), View(0, "float32", (1,), (1,))
    for off, wrong in ((6.9, True), (3e5 * 2.0**-24 * 32, False)):
        found = (exact + off).astype(np.float32)
        assert bool(error_of(0, found.tobytes(), view, want, case, POISON, 3e5).wrong) == wrong


def left(call: Any, seeds: Sequence[ExpectedSeed], of: int, *stored: np.ndarray) -> list[str]:
    """What is wrong with a replay of one of these seeds that left this in its storages."""
    case = parse_line("x: f32[4096]")
    found = errors_of(
        ShapeComparison(case, call, together_of(case, seeds)), seeds[of], POISON, [x.tobytes() for x in stored], ()
    )
    return [e.wrong for e in found]


def test_a_result_is_held_against_its_usual_size() -> None:
    """See above: the same sums as results of a replay."""
    exact = [np.array([x]) for x in (60.0, -80.0, 0.001, 50.0, -70.0)]
    seeds = [ExpectedSeed((b"",), (expected(e, e.astype(np.float32)),)) for e in exact]
    call = SimpleNamespace(wanted=(1,), results=(View(1, "float32", (1,), (1,)),), inputs=(None,))
    off = (exact[2] + 50 * 2.0**-24 * 20).astype(np.float32)
    assert left(call, seeds, 2, off) == [""]
    assert left(call, seeds[2:3], 0, off) != [""]


def test_an_input_that_a_reference_changes_for_other_seeds_may_be_rounded() -> None:
    """One step is less than half of its last place; a candidate may round it otherwise, and not more than that."""
    before, after = np.ones(4096, np.float32), np.full(4096, 2.0, np.float32)
    changed = ExpectedSeed((before.tobytes(),), (), (expected(after.astype(np.float64), after),))
    kept = ExpectedSeed((before.tobytes(),), (), (None,))
    call = SimpleNamespace(wanted=(0,), results=(), inputs=(0,))
    rounded = before.copy()
    rounded[::7] = np.nextafter(np.float32(1), np.float32(2))
    assert left(call, [changed, kept], 1, rounded) == [""]
    assert "of 4,096 elements are off" in left(call, [changed, kept], 1, after)[0]
    assert left(call, [kept, kept], 1, rounded) == ["it changes input x"]


def held(
    line: str, want: np.ndarray, found: np.ndarray, form: str, usual: np.ndarray | None = None, settled: bool = False,
    sound: bool = False, others: bytes | None = None,
) -> str:  # fmt: skip
    """What is wrong with a result where the first input is of a form."""
    case = parse_line(line)
    results = [
        ExpectedResult(str(x.dtype), x.shape, (1,), x.tobytes(), settled=settled, sound=sound, others=others)
        for x in (want, want if usual is None else usual)
    ]
    seeds = [ExpectedSeed(tuple(b"" for _ in case.tensors), (r,)) for r in results]
    view = View(0, str(want.dtype), want.shape, (1,))
    call: Any = SimpleNamespace(wanted=(0,), results=(view,), inputs=(None,) * len(case.tensors))
    forms = (form, *("" for _ in case.tensors[1:]))
    together = together_of(case, seeds[1:])
    return "".join(
        e.wrong for e in errors_of(ShapeComparison(case, call, together), seeds[0], POISON, [found.tobytes()], forms)
    )


NUMBERS = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
WHOLE = np.arange(100, dtype=np.int32)
LARGEST = np.full(100, np.finfo("f4").max, np.float32)
EIGHT_BITS = (View(0, "float8_e4m3fn", (100,), (1,)),)
VIEWS = tuple(View(i, "float32", (1000,), (1,)) for i in (0, 1))
ONE_OFF = np.where(np.arange(1000) == 7, NUMBERS + np.float32(1), NUMBERS)


def test_an_input_that_lies_otherwise_is_compared_in_its_own_order() -> None:
    """Here the reference leaves it as it is, elsewhere it changes it."""
    given = parse_line("x: f32[20,50]").tensors[0]
    case = parse_line("x: f32[20,50]")
    case = msgspec.structs.replace(case, tensors=(msgspec.structs.replace(given, strides=(1, 20)),))
    usual = ExpectedResult("float32", (20, 50), (1, 20), NUMBERS.tobytes())
    call: Any = SimpleNamespace(wanted=(0,), results=(), inputs=(0,))
    together = together_of(case, [ExpectedSeed((NUMBERS.tobytes(),), (), (usual,))])
    seed = ExpectedSeed((NUMBERS.tobytes(),), (), (None,))
    for after, wrong in ((np.nextafter(NUMBERS, np.float32(9)), False), (ONE_OFF, True)):
        found = list(errors_of(ShapeComparison(case, call, together), seed, POISON, [after.tobytes()], ()))
        assert [bool(e.wrong) for e in found] == [wrong]


@pytest.mark.parametrize(("form", "wrong"), [("few", True), ("full", True), ("least", True), ("lone", False)])
def test_whole_numbers_that_do_not_follow_from_floats_are_demanded(form: str, wrong: bool) -> None:
    told = held("i: i32[9] < 5; x: f32[9]", WHOLE, WHOLE + (WHOLE == 3), form, settled=True)
    assert bool(told) == wrong


BYTES = np.arange(1000).astype(np.int8)


@pytest.mark.parametrize("form", ["up", "far", "huge", "broad", "none", "few", "full", "arranged"])
@pytest.mark.parametrize(
    ("share", "sound", "known", "wrong"),
    [(10, True, 1000, True), (10, False, 1000, False), (200, True, 1000, False), (10, True, 15, False)],
)
def test_whole_numbers_that_follow_from_floats_are_mostly_right(
    form: str, share: int, sound: bool, known: int, wrong: bool
) -> None:
    """Bytes that wrap; but no ties, nor a few that roundings decide, or as many as these."""
    line = "i: i32[9] < 5; x: f32[9]" if form in ("few", "full", "arranged") else "x: f32[9]"
    others = np.stack([BYTES, BYTES + (np.arange(1000) % known == 3)]).astype(np.int8).tobytes()
    told = held(line, BYTES, BYTES + (np.arange(1000) % share == 0).astype(np.int8), form, sound=sound, others=others)
    assert bool(told) == wrong
    few = BYTES[:60]
    assert not held(line, few, few + np.int8(1), form, sound=True)


@pytest.mark.parametrize(
    ("line", "want", "found", "form", "wrong"),
    [
        ("i: i32[9] < 5", WHOLE, WHOLE + (WHOLE == 3), "few", True),  # a counter that overflows
        ("i: i32[9] < 5; x: f32[9]", WHOLE, WHOLE + (WHOLE == 3), "few", False),  # whose order ties decide
        ("i: i32[9] < 5; x: f32[9]", NUMBERS, ONE_OFF, "few", True),  # two that should be added up
        ("m: bool[9]", NUMBERS, ONE_OFF, "few", False),
        ("m: bool[9]", NUMBERS, NUMBERS * np.float32(np.nan), "few", True),  # a row that is masked as a whole
        ("m: bool[9]", NUMBERS * np.float32(np.nan), NUMBERS, "few", False),
        ("x: f32[9]", NUMBERS, np.where(ONE_OFF == NUMBERS, NUMBERS, np.float32(np.nan)), "holes", True),
        ("x: f32[9]", np.where(ONE_OFF == NUMBERS, NUMBERS, np.float32(np.nan)), NUMBERS * 2, "holes", False),
        ("x: f32[9]", WHOLE, WHOLE + 1, "holes", False),
        ("x: f32[9]", NUMBERS, np.where(ONE_OFF == NUMBERS, NUMBERS, np.float32(np.inf)), "infinite", True),
        ("x: f32[9]", np.where(ONE_OFF == NUMBERS, NUMBERS, np.float32(np.inf)), NUMBERS * 2, "infinite", False),
        ("x: f32[9]", LARGEST, LARGEST + np.float32(np.inf), "infinite", True),  # which is replaced
        ("x: f32[9]", LARGEST, LARGEST + np.float32(np.inf), "wide", False),
        ("x: f32[9]", WHOLE, WHOLE + 1, "huge", False),
        ("x: f32[9]", WHOLE, WHOLE + 1, "vast", False),
        ("x: f32[9]", NUMBERS, NUMBERS * 2, "vast", False),  # both may have overflowed inside
        ("x: f32[9]", NUMBERS, ONE_OFF * np.float32(np.inf), "vast", True),
        ("x: f32[9]", NUMBERS * np.float32(np.inf), NUMBERS * np.float32(np.nan), "vast", False),
        ("x: f32[9]", LARGEST, LARGEST + np.float32(np.inf), "vast", False),
        ("x: f32[9]", NUMBERS, ONE_OFF * np.float32(np.inf), "banded", True),
        ("x: f32[9]", NUMBERS, NUMBERS * 2, "up", False),  # without float64 nobody knows what cancels
        ("x: f32[9]", NUMBERS, ONE_OFF * np.float32(np.inf), "up", True),
        ("x: f32[9]", NUMBERS, NUMBERS * 2, "wide", True),
        ("x: f32[9]", WHOLE, WHOLE + 1, "grid", True),
        ("x: f32[9]", NUMBERS, NUMBERS * 2, "grid", False),
        ("x: f32[9]", WHOLE, WHOLE + 1, "ties", True),
        ("x: f32[9]", NUMBERS, NUMBERS * 2, "ties", False),
        ("x: f32[9]", WHOLE, WHOLE + 1, "lone", False),
        ("x: f32[9]", NUMBERS, ONE_OFF, "lone", True),
        ("x: f32[9]", NUMBERS, NUMBERS * np.float32(1.003), "lone", False),
        ("x: f16[9]", WHOLE, WHOLE + 1, "ordered", False),
        ("x: f16[9]", NUMBERS.astype("f2"), NUMBERS.astype("f2") * np.float16(1.02), "ordered", True),
        ("x: f16[9]", NUMBERS, NUMBERS * np.float32(1.02), "ordered", False),  # their sums may have cancelled
    ],
)  # fmt: skip
def test_what_few_numbers_and_nan_demand(line: str, want: Any, found: Any, form: str, wrong: bool) -> None:
    told = held(line, want, found, form)
    assert bool(told) == wrong
    assert not wrong or "; there" in told


@pytest.mark.parametrize(
    ("form", "want", "demanded"),
    [
        ("holes", NUMBERS, True), ("holes", NUMBERS * np.float32(np.nan), False), ("holes", WHOLE, False),
        ("infinite", NUMBERS, True), ("infinite", WHOLE, False), ("", WHOLE, True), ("wide", WHOLE, True),
        ("up", WHOLE, True),
    ],
)  # fmt: skip
def test_what_demands_nothing_is_not_replayed(form: str, want: Any, demanded: bool) -> None:
    """No order among NaN is promised, and a kernel that follows it may fault."""
    seed = ExpectedSeed((b"",), (ExpectedResult(str(want.dtype), want.shape, (1,), want.tobytes()),))
    assert is_demanded(parse_line("x: f32[9]"), seed, (form,) if form else ()) == demanded


@pytest.mark.parametrize(("form", "wrong"), [("broad", True), ("up", True), ("holes", False), ("", True)])
def test_numbers_of_eight_bits_are_numbers(form: str, wrong: bool) -> None:
    """As a row of zeros is; what is near the largest may be NaN where inputs are extreme. Where these
    aren't larger than usual no smaller number is another."""
    want = np.array([0x00, 0x38, 0x70, 0x7E] * 25, np.uint8)  # 0, 1, 128, 448 of e4m3
    result = ExpectedResult("float8_e4m3fn", want.shape, (1,), want.tobytes())
    case, call = parse_line("x: f32[9]"), SimpleNamespace(wanted=(0,), results=EIGHT_BITS, inputs=(None,))
    seed = ExpectedSeed((b"",), (result,))
    of = ShapeComparison(case, call, together_of(case, [seed]))  # type: ignore[arg-type]
    for found, told in ((np.where(want == 0, 0x7F, want), wrong), (np.where(want == 0x7E, 0x7F, want), not form)):
        left_there = [found.astype(np.uint8).tobytes()]
        assert any(e.wrong for e in errors_of(of, seed, POISON, left_there, (form,) if form else ())) == told
    left_there = [np.where(want == 0x70, 0, want).astype(np.uint8).tobytes()]
    found = list(errors_of(of, seed, POISON, left_there, (form,) if form else ()))
    assert any(e.wrong for e in found) == (form in ("", "broad"))


def test_nan_that_one_result_passes_on_is_no_excuse_for_another() -> None:
    case, call = parse_line("x: f32[9]"), SimpleNamespace(wanted=(0, 1), results=VIEWS, inputs=(None,))
    odd = NUMBERS * np.float32(np.nan)
    seed = ExpectedSeed((b"",), tuple(ExpectedResult("float32", x.shape, (1,), x.tobytes()) for x in (odd, NUMBERS)))
    of = ShapeComparison(case, call, together_of(case, [seed]))  # type: ignore[arg-type]
    assert is_demanded(case, seed, ("holes",))
    for one, other, wrong in ((NUMBERS, NUMBERS, []), (odd, odd, [1]), (odd, NUMBERS * 2, [1])):
        found = errors_of(of, seed, POISON, [one.tobytes(), other.tobytes()], ("holes",))
        assert [e.result for e in found if e.wrong] == wrong


def test_nan_counts_in_floats_that_are_kept() -> None:
    case, call = parse_line("x: f32[9]"), SimpleNamespace(wanted=(0,), results=VIEWS[:1], inputs=(None,))
    odd = np.where(ONE_OFF == NUMBERS, NUMBERS, np.float32(np.nan))
    seed = ExpectedSeed((b"",), (ExpectedResult("float32", odd.shape, (1,), odd.tobytes()),))
    of = ShapeComparison(case, call, {})  # type: ignore[arg-type]
    for exact, count in (("kept", 1), ("nan", 0)):
        assert len([*unequal_of(of, seed, [NUMBERS.tobytes()], ("holes",), exact)]) == count
        assert not [*unequal_of(of, seed, [odd.tobytes()], ("holes",), exact)]


def test_an_input_that_changes_is_held_to_what_is_left_out_where_it_is_lone() -> None:
    after = ExpectedResult("float32", (1000,), (1,), NUMBERS.tobytes())
    seed = ExpectedSeed((bytes(4000),), (), (after,))
    call: Any = SimpleNamespace(wanted=(0,), results=(), inputs=(0,))
    case = parse_line("x: f32[1000]")
    for found, wrong in ((NUMBERS * np.float32(1.003), False), (ONE_OFF, True)):
        together = together_of(case, [seed])
        each = [*errors_of(ShapeComparison(case, call, together), seed, POISON, [found.tobytes()], ("lone",))]
        assert [bool(e.wrong) for e in each] == [wrong]
        assert together[-1].kept == [], "whether it hardly changes, usual contents say"


@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (5e-8, False), (3e-7, False), (5e-7, True)])
def test_near_zero_constants_may_be_off_by_a_rounding_and_sums_may_not(off: float, wrong: bool) -> None:
    """exp(x) - 1 beside a result that usually is of the size of 1; and tanh(x) as 2 sigmoid(2 x) - 1 beside one that is
    smaller, as of an LSTM. But not what a sum of 2**20 terms explains."""
    near = NUMBERS * np.float32(2.0**-12)
    assert bool(held("x: f32[1048576]", near, near + np.float32(off), "sparse", NUMBERS)) == wrong


def test_of_many_elements_a_piece_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it lies: all of these are biased."""
    monkeypatch.setattr(errors_together, "SAMPLED", 128)
    assert judged(EXACT, [e.astype(np.float16) for e in EXACT])[1] == ""
    assert "smaller by" in judged(EXACT, [shifted(e, 0.7) for e in EXACT])[1]
    one, looked = ErrorsTogether([expected(e, e.astype(np.float16)) for e in EXACT]), list[np.ndarray]()
    assert one.size == pytest.approx(3, rel=0.2)
    monkeypatch.setattr(errors_together, "block_means", looked.append)
    one.add("float16", *(EXACT[0].astype(np.float16).astype(float), EXACT[0], EXACT[0]), 1, False)
    assert [x.size for x in looked] == [128, 128]


def test_elements_that_are_not_full_numbers_have_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of float16 below 2**-3 here: their last place is no longer a share of them."""
    exact = np.concatenate([np.full(64, 3.0), np.full(64, 1e-6)])
    one = ErrorsTogether([expected(exact, exact.astype(np.float16))])
    stock, looked = exact.astype(np.float16).astype(float), list[np.ndarray]()
    monkeypatch.setattr(errors_together, "block_means", looked.append)
    for sign in (1, -1):
        found = sign * (stock + np.concatenate([np.full(64, 2.0**-10), np.full(64, 1e-3)]))
        one.add("float16", found, sign * exact, sign * stock, 1, False)
    larger, in_magnitude, smaller, again = (x.tolist() for x in looked)
    assert larger == in_magnitude == again == [1.0] * 64 + [0.0] * 64
    assert smaller == [-1.0] * 64 + [0.0] * 64


def test_errors_beyond_four_units_count_as_four(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, looked = np.full(64, 3.0), list[np.ndarray]()
    monkeypatch.setattr(errors_together, "block_means", looked.append)
    one = ErrorsTogether([expected(exact, exact.astype(np.float16))])
    one.add("float16", exact + np.where(np.arange(64) < 32, 1.0, -1.0), exact, exact, 1, False)
    assert sorted({*looked[0].tolist()}) == [-4.0, 4.0]
    assert one._blocks[0][0][1] == 0.0  # the stock operator's


@pytest.mark.parametrize(
    ("dtype", "line", "form", "demanded"),
    [
        ("float32", "x: f32[9]", "up", True), ("float8_e4m3fn", "x: f32[9]", "up", False),
        ("float8_e4m3fn", "x: f32[9]", "tiny", True), ("float8_e5m2", "x: f32[9]", "wide", False),
        ("int32", "x: f32[9]", "up", False), ("int32", "x: f32[9]", "down", False),
        ("int32", "x: f32[9]", "broad", False), ("int32", "x: f32[9]", "sparse", False),
        ("int32", "x: f32[9]", "holes", False), ("int32", "x: f32[9]", "few", False),
        ("int32", "i: i32[9] < 5", "few", True), ("int32", "x: f32[9]", "tiny", True),
    ],
)  # fmt: skip
def test_what_extreme_numbers_demand(dtype: str, line: str, form: str, demanded: bool) -> None:
    want = ExpectedResult(dtype, (1,), (1,), b"\x7e")
    assert errors_together._demands(parse_line(line), want, (form,)) is demanded


@pytest.mark.parametrize(("dtype", "largest"), [("float8_e4m3fn", b"\x7e\xff"), ("float8_e5m2", b"\x7b\xfc")])
@pytest.mark.parametrize(
    ("count", "form", "may"), [(18, "wide", False), (20, "wide", True), (300, "tiny", False), (300, "up", True)]
)
def test_eight_bits_are_compared_where_few_are_the_largest(
    dtype: str, largest: bytes, count: int, form: str, may: bool
) -> None:
    """Of a row that is scaled to the dtype's range, one is."""
    want = ExpectedResult(dtype, (600,), (1,), largest * count + b"\x30" * (600 - 2 * count))
    assert _may_overflow(want, ("", form)) == may
