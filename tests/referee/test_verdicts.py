"""The verdict from numbers: every word, borders, mixed shapes."""

from __future__ import annotations

import math

import msgspec
import pytest

from kerntune.base.stats import Estimate
from kerntune.referee.reasons import Reason
from kerntune.referee.verdicts import (
    EXIT_CODES,
    CandidateVerdict,
    ShapeResult,
    Word,
    below_roofline,
    together,
    word_of_change,
)


def change(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 0.999)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.5, -0.011, Word.FASTER),
        (-0.5, -0.01, Word.UNDECIDED),  # the whole interval has to be beyond 1 %
        (-0.5, 0.0, Word.UNDECIDED),
        (-0.01, 0.01, Word.SAME),
        (-0.009, 0.011, Word.UNDECIDED),
        (0.01, 0.5, Word.UNDECIDED),
        (0.011, 0.5, Word.SLOWER),
        (-1.0, -0.5, Word.UNDECIDED),  # no time at all
        (-0.2, -0.3, Word.UNDECIDED),  # an interval that isn't ordered
        (math.nan, -0.5, Word.UNDECIDED),
        (-0.5, math.nan, Word.UNDECIDED),
        (0.5, math.inf, Word.UNDECIDED),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, word: Word) -> None:
    assert word_of_change(change(low, high)) is word


def shapes(*words: Word) -> list[ShapeResult]:
    return [ShapeResult(str(i), word) for i, word in enumerate(words)]


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ((Word.FASTER, Word.FASTER), Word.FASTER),
        ((Word.FASTER, Word.SAME), Word.UNDECIDED),
        ((Word.FASTER, Word.SLOWER), Word.UNDECIDED),
        ((Word.FASTER, Word.UNTIMED), Word.UNTIMED),
        ((Word.FASTER, Word.WRONG, Word.REFUSED), Word.WRONG),
        ((Word.FASTER, Word.REFUSED), Word.REFUSED),
        ((Word.SAME, Word.SAME), Word.SAME),
        ((), Word.REFUSED),
    ],
)
def test_shapes_together(words: tuple[Word, ...], word: Word) -> None:
    assert together(shapes(*words)) is word


def test_faster_alone_exits_with_zero_and_no_code_is_the_judges_own() -> None:
    assert [w for w, code in EXIT_CODES.items() if code == 0] == [Word.FASTER]
    assert {word.value: code for word, code in EXIT_CODES.items()} == {
        "FASTER": 0, "SAME": 3, "SLOWER": 4, "UNDECIDED": 5, "UNTIMED": 6, "WRONG": 7, "REFUSED": 8
    }  # fmt: skip


@pytest.mark.parametrize(("ns", "below"), [(899.0, True), (900.0, False), (None, False)])
def test_a_tenth_below_the_roofline_is_allowed(ns: float | None, below: bool) -> None:
    assert below_roofline(ns, 1000, 1e9) is below


def test_no_roofline_without_a_bandwidth() -> None:
    assert not below_roofline(1.0, 1000, None)
    assert not below_roofline(1.0, 0, 1e9)


def test_a_speed_up_is_the_reciprocal_with_its_ends_in_order() -> None:
    speedup = ShapeResult("x", Word.FASTER, change=change(-0.6, -0.4)).speedup
    assert speedup is not None
    assert speedup == pytest.approx((2.0, 1 / 0.6, 1 / 0.4))


def test_a_verdicts_reason_is_the_first_refused_shapes() -> None:
    refused = [ShapeResult("b", Word.REFUSED, reason=reason) for reason in (Reason.FAULT, Reason.ANSWER)]
    verdict = CandidateVerdict(Word.REFUSED, "a", "b", (*shapes(Word.FASTER), *refused))
    assert verdict.reason is Reason.FAULT
    assert CandidateVerdict(Word.FASTER, "a", "b", (*shapes(Word.FASTER),)).reason is None


def test_what_is_not_said_of_a_shape_or_verdict_is_nothing() -> None:
    astuple = msgspec.structs.astuple
    assert astuple(ShapeResult("x", Word.SAME))[2:] == (
        (), None, "", None, None, None, None, (), 0, None, ()
    )  # fmt: skip
    assert astuple(CandidateVerdict(Word.SAME, "a", "b", ()))[4:] == (True, "none", "", ())


def test_every_reason_is_told() -> None:
    assert all(reason.told for reason in Reason)
