"""What a replay left, result by result; and what the errors of one result say over all contents together.

Rounding to nearest is right in the mean: elements that are all a little too small, by less than any one's rounding, are
found by the mean of many. Results of few elements have quantiles over all contents alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from kerntune.base.frames import StrictMessage
from kerntune.base.recording import View
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import UNREAD, CaseInputs, TensorInput
from kerntune.referee.content_forms import (
    CANCELLING,
    EXTREMES,
    FINITE_ALONE,
    GRIDS,
    ODD,
    OF_ALIKE,
    OF_MADE,
    OF_WHOLE,
    sparse_centre,
)
from kerntune.referee.element_errors import ResultError
from kerntune.referee.extreme_errors import EXTREME_FACTOR, overflow_of
from kerntune.referee.hostile_recording import CheckedCall
from kerntune.referee.open_elements import as_promised, repeated
from kerntune.referee.result_errors import error_of, unequal
from kerntune.referee.result_numbers import ROUNDOFF, SMALLEST, numbers_of, rms_of, same_bytes, taken, told_apart
from kerntune.referee.rounding_limits import FEW, GROSS_SHARE, RMS_FACTOR, SAMPLED, quantiles_wrong, sums_of
from kerntune.referee.tasks import BytesLike, ExpectedResult, ExpectedSeed, ReplayAnswer

BlockMeans = tuple[float, "np.ndarray", "np.ndarray"]
BIAS = 0.1
"""Mean error, in units of half of each element's last place, that is no bias yet. Rounding to nearest has none (ties go
to even); cutting off has 1, an increase of bfloat16 results by 0.2 % has 0.7."""

BIAS_ERRORS = 4.0
"""And so many standard errors of that mean, as means of blocks have it."""

STUDENT = (637.0, 31.6, 12.9, 8.61, 6.87, 5.96, 5.41, 5.04, 4.78, 4.59)
"""Of the means of contents, so many: Student's t of 1 to 10 degrees of freedom is beyond that once in a thousand. A
number that is rounded once in each content, as a norm is, moves all elements alike."""

BIAS_BLOCKS = 16
"""Standard errors are taken from means of so many blocks a content ("batch means": Law, Simulation Modeling and
Analysis, 5th edition, section 9.5), since errors within a row or a column may have one cause, as a rounded sum has."""

COUNTER = "num_batches_tracked"
"""The end of a parameter's name that torch's batch norms count calls in: no kernel does that, so it isn't compared."""


class ErrorsTogether:
    """What the errors of one result say over all contents together. ``expected`` are the reference's results."""

    def __init__(self, expected: Sequence[ExpectedResult]) -> None:
        self.size = 0.0
        """The result's usual root mean square: the median over contents."""

        self._few: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._blocks: list[list[tuple[BlockMeans, float]]] = []  # errors, and in magnitude, with the stock operator's
        self.dtype, self._terms = "", 1
        self.kept: list[Callable[[], ResultError]] = []
        """Of an input that the reference changes: how wrong it would be as it was, by content."""

        if expected[0].dtype in FLOAT_FORMATS:
            step = slice(None, None, max(1, math.prod(expected[0].shape) // SAMPLED))
            wide = [np.abs(numbers_of(one, step)) for one in expected]
            self.size = float(np.median([rms_of(x[np.isfinite(x)]) for x in wide]))

    def add(
        self, dtype: str, found: np.ndarray, exact: np.ndarray, stock: np.ndarray, terms: int, extreme: bool
    ) -> None:
        """The finite elements of one content. What extreme numbers do to few elements says nothing of others."""
        self.dtype, self._terms = dtype, terms
        first = int(np.random.default_rng().integers(0, max(1, found.size - SAMPLED + 1)))
        found, exact, stock = (x.reshape(-1)[first : first + SAMPLED] for x in (found, exact, stock))
        if found.size < FEW and not extreme:
            self._few.append((np.abs(found - exact), np.abs(stock - exact), np.abs(exact)))
        if ROUNDOFF[dtype] > ROUNDOFF["float32"]:
            full = np.abs(exact) > SMALLEST[dtype] / ROUNDOFF[dtype]
            unit = np.ldexp(ROUNDOFF[dtype], np.frexp(exact)[1] - 1)
            with np.errstate(all="ignore"):  # numbers that aren't full, and those far beyond four units
                errors, own = (np.where(full, np.clip((x - exact) / unit, -4, 4), 0.0) for x in (found, stock))
            if np.count_nonzero(full) >= FEW and np.median(np.abs(own[full])) <= 1:
                signs = np.sign(exact)
                self._blocks.append([(block_means(errors * x), float((own * x).mean())) for x in (1.0, signs)])

    def wrong(self) -> str:
        """What is wrong with all contents together; empty if nothing is."""
        if self._few:
            error, own, magnitude = (np.concatenate(x) for x in zip(*self._few, strict=True))
            if told := quantiles_wrong(error, own, magnitude, sums_of(self.dtype, self._terms), self.dtype):
                return told
        for what, mean, explained, chance in self._biases():
            if abs(mean) > explained + chance:
                which = what if mean > 0 else what.replace("larger", "smaller")
                off, most_off = told_apart(abs(mean), explained + chance)
                return (
                    f"its elements are {which} by {off} half units of the last place in the mean; {most_off} is what "
                    "rounding explains"
                )
        return ""

    @property
    def undecided(self) -> bool:
        """Whether more contents may tell: a mean error is more than rounding explains, but may have come by chance."""
        return any(explained < abs(mean) <= explained + chance for _, mean, explained, chance in self._biases())

    def _biases(self) -> Iterator[tuple[str, float, float, float]]:
        """A direction, the mean error in it, what the stock operator and rounding explain, and how far it may be from
        its own by chance."""
        if len(self._blocks) < 2:
            return
        for what, each in zip(("larger", "larger in magnitude"), zip(*self._blocks, strict=True), strict=True):
            mean, chance = mean_of_blocks([found for found, _ in each])
            yield what, mean, abs(float(np.mean([stock for _, stock in each]))) + BIAS, chance


def block_means(errors: np.ndarray) -> BlockMeans:
    """The mean of one content's errors, and those of its blocks of rows and of columns."""
    cut = errors[: errors.size // BIAS_BLOCKS * BIAS_BLOCKS]
    return float(errors.mean()), cut.reshape(BIAS_BLOCKS, -1).mean(1), cut.reshape(-1, BIAS_BLOCKS).mean(0)


def mean_of_blocks(contents: Sequence[BlockMeans]) -> tuple[float, float]:
    """The mean over contents, and how far it may be from its own by chance: the most of what blocks of rows, blocks of
    columns, and contents say."""
    kinds = [np.hstack(each) for each in zip(*contents, strict=True)]
    factors = (STUDENT[min(len(contents) - 1, len(STUDENT)) - 1], BIAS_ERRORS, BIAS_ERRORS)
    chances = [f * float(np.std(x, ddof=1)) / math.sqrt(len(x)) for f, x in zip(factors, kinds, strict=True)]
    return float(np.mean(kinds[0])), max(chances)


def left_of(call: CheckedCall, expected: ExpectedSeed, answer: ReplayAnswer) -> tuple[BytesLike, ...]:
    """What each wanted storage held after a replay."""
    given = call.contents(expected.contents)
    pairs = zip(call.wanted, answer.contents, strict=True)
    return tuple(given[i] or b"" if after is None else after for i, after in pairs)


def together_of(case: CaseInputs, seeds: Sequence[ExpectedSeed]) -> dict[int, ErrorsTogether]:
    """For each result by its number, and for each input that the reference changes by -1 minus its number."""
    found = {
        n: ErrorsTogether(list(results)) for n, results in enumerate(zip(*(s.results for s in seeds), strict=True))
    }
    for index in range(len(case.tensors)):
        left = [s.changed[index] for s in seeds if index < len(s.changed)]
        if changed := [x for x in left if x is not None]:
            found[-1 - index] = ErrorsTogether(changed)
    return found


class ShapeComparison(StrictMessage, frozen=True):
    """What all replays of one shape are compared by: its inputs, the candidate's call, and errors over all contents."""

    case: CaseInputs
    call: CheckedCall
    together: Mapping[int, ErrorsTogether]


def errors_of(
    of: ShapeComparison, expected: ExpectedSeed, poison: bytes, left_in: Sequence[BytesLike], forms: Sequence[str],
    again: bool = False,
) -> Iterator[ResultError]:  # fmt: skip
    """The errors of what one replay left in the wanted storages. ``forms`` says which inputs are extreme numbers,
    ``again`` whether errors over all contents have this replay's."""
    case, call = of.case, of.call
    if not is_demanded(case, expected, forms):
        return
    after_of, extreme = as_promised(call, expected, left_in), _factor(case.tensors, forms)
    held = dict(zip(call.wanted, left_in, strict=True))
    for number, (view, want) in enumerate(zip(call.results, expected.results, strict=True)):
        eight_bits = _may_overflow(want, forms) and not _odd(forms)
        if any(forms) and not eight_bits and not (_demands(case, want, forms) and _is_known(want, forms)):
            continue
        if eight_bits or _is_finite_alone(want, forms):
            yield _told(overflow_of(number, after_of[view.storage], view, want), case.tensors, forms)
            continue
        if told := repeated(held[view.storage], view, want):
            yield _told(ResultError(number, want.dtype, size=1.0, wrong=told), case.tensors, forms)
            continue
        one = of.together[number]
        found = _error_of(
            number, after_of[view.storage], view, want, case, poison, one.size, extreme, None if again else one.add,
            "lone" in forms, _odd(forms),
        )  # fmt: skip
        if found.wrong and _mostly_right(case, want, forms):
            found = _mostly(found, after_of[view.storage], view, want)
        yield _told(found, case.tensors, forms)
    for index, (given, storage) in enumerate(zip(case.tensors, call.inputs, strict=True)):
        left = expected.changed[index] if index < len(expected.changed) else None
        left = None if given.name.endswith(COUNTER) else left
        if storage is None:  # no launch reaches it, or so the recording says
            if left is not None:
                text = f"it leaves input {given.name} as it is, which the reference changes"
                yield ResultError(-1, given.dtype, size=1.0, wrong=text)
            continue
        after, before = after_of[storage], expected.contents[index]
        if left is None and (same_bytes(after, before) or given.content == UNREAD or given.name.endswith(COUNTER)):
            continue
        changes = of.together.get(-1 - index)
        if left is None and changes is None:
            yield ResultError(-1, given.dtype, size=1.0, wrong=f"it changes input {given.name}")
            continue
        view, size = View(storage, given.dtype, given.shape, given.strides), changes.size if changes else 0.0
        native = taken(before, view).tobytes()  # which rounding may have changed
        want = left or ExpectedResult(given.dtype, given.shape, given.strides, native)
        if any(forms) and not (_demands(case, want, forms) and _is_known(want, forms)):
            continue
        if changes and not any(forms) and not again:
            changes.kept.append(partial(error_of, -1, before, view, want, case, poison, size))
        own = (r for r, v in zip(expected.results, call.results, strict=True) if (r.input, v) == (index, view))
        if left is not None and any(same_bytes(r.native, left.native) for r in own):  # a result, which was looked at
            continue
        seen = changes.add if changes and not again else None
        found = (
            overflow_of(-1, after, view, want)
            if _is_finite_alone(want, forms)
            else _error_of(-1, after, view, want, case, poison, size, extreme, seen, "lone" in forms, _odd(forms))
        )
        text = f"input {given.name}, which the reference changes: {found.wrong}" if found.wrong else ""
        yield _told(replace(found, wrong=text), case.tensors, forms)


BY_PRODUCTS = "operands of products rounded to 16 bits, as tensor cores take them, are allowed for"
"""What is said where limits are due to that."""


def _error_of(
    number: int, content: BytesLike, view: View, want: ExpectedResult, case: CaseInputs, poison: bytes, usual: float,
    extreme: float, seen: Callable[..., None] | None, lone: bool, odd: bool,
) -> ResultError:  # fmt: skip
    """The error; of what is wrong beside the reference as it is, beside its products of rounded operands."""
    known = list[tuple[Any, ...]]()

    def error(one: ExpectedResult, by_products: bool) -> ResultError:
        known.clear()
        where = content, view, one, case, poison
        return error_of(number, *where, usual, extreme, lambda *x: known.append(x), lone, odd, by_products)

    found = error(want, False)
    if found.wrong and want.by_products is not None and not found.unwritten:
        wide = want.wide or numbers_of(want).tobytes()
        other = error(replace(want, native=want.by_products, wide=wide), True)
        text = f"{other.wrong}; {BY_PRODUCTS}" if other.wrong else ""
        found = replace(other, wrong=text, by_products=True)
    if seen is not None:
        for each in known:
            seen(*each)
    return found


def looked_at(
    case: CaseInputs, call: CheckedCall, expected: ExpectedSeed
) -> Iterator[tuple[int, View, ExpectedResult]]:
    """Where the candidate leaves what the reference computes: results by number, changed inputs by -1 minus theirs."""
    yield from ((number, *pair) for number, pair in enumerate(zip(call.results, expected.results, strict=True)))
    for index, changed in enumerate(expected.changed):
        given, place = case.tensors[index], call.inputs[index]
        if place is not None and changed is not None:
            yield -1 - index, View(place, given.dtype, given.shape, given.strides), changed


def unequal_of(
    of: ShapeComparison, expected: ExpectedSeed, left_in: Sequence[BytesLike], forms: Sequence[str], exact: str = "grid"
) -> Iterator[ResultError]:
    """What differs at all, where all that the reference does is ``exact``. With NaN or infinities floats count where
    they are ``kept`` alone, for else what is left of these isn't promised."""
    case, after_of = of.case, as_promised(of.call, expected, left_in)
    for number, view, want in looked_at(case, of.call, expected):
        wrong = unequal(after_of[view.storage], view, want)
        if wrong and not (_odd(forms) and exact != "kept" and want.dtype in FLOAT_FORMATS):
            yield _told(ResultError(max(number, -1), want.dtype, size=1.0, wrong=wrong), case.tensors, forms)


def is_demanded(case: CaseInputs, expected: ExpectedSeed, forms: Sequence[str]) -> bool:
    """Whether a content demands anything: nothing where the reference's results aren't defined; NaN and infinities
    of results in which it replaces all of them."""
    found = expected.computed
    if expected.undefined:
        return False
    return not _odd(forms) or any(_demands(case, one, forms) and _finite(one) for one in found)


def _odd(forms: Sequence[str]) -> bool:
    return any(form in ODD for form in forms)


def _is_known(want: ExpectedResult, forms: Sequence[str]) -> bool:
    """Whether a result counts as far as it must be finite."""
    return not {*ODD, *OF_MADE, OF_ALIKE} & {*forms} or _finite(want)


def wrong_together(of: ShapeComparison) -> Iterator[ResultError]:
    """What is wrong with results over all contents."""
    for number, one in of.together.items():
        if told := one.wrong():
            name = "" if number >= 0 else f"input {of.case.tensors[-1 - number].name}, which the reference changes: "
            yield ResultError(max(number, -1), one.dtype, size=1.0, wrong=name + told)


def hardly_changed(of: ShapeComparison) -> str:
    """The input that the reference changes by less than what it may be off by: as it was, it would be right."""
    known = ((of.case.tensors[-1 - n].name, one.kept) for n, one in of.together.items() if one.kept)
    names = (name for name, kept in known if not any(error().wrong for error in kept))
    return next((f"input {name} changes by less than what it may be off by" for name in names), "")


def _factor(tensors: Sequence[TensorInput], forms: Sequence[str]) -> float:
    """How wide limits are: 0 of usual numbers, though whole ones are few; else wider, but for numbers near zero, which
    don't cancel."""
    of = list(zip(tensors, forms, strict=True)) if forms else []
    if "lone" in forms or all(not form or (form in OF_WHOLE and t.dtype != "bool") for t, form in of):
        return 0.0
    mild = {"", *OF_WHOLE, *ODD}
    near = all(form in mild or (form == "sparse" and sparse_centre(t) == 0) for t, form in of)
    return RMS_FACTOR if near else EXTREME_FACTOR


TIED = frozenset((
    "up", "down", "far", "broad", "huge", "round", "paired", "none", "sparse", "lone", "ordered", *FINITE_ALONE, *ODD,
))  # fmt: skip
"""Forms by which whole numbers may follow from ties, or be too large."""

WITHIN_EIGHT_BITS = frozenset(("", "tiny", "broad", "sparse", "lone", "alike"))
"""Forms of numbers that aren't larger than usual ones, so that few become the largest of 8 bits."""


FEW_AT_END = 1 / 16
"""Of elements no more than this share are the largest where numbers are scaled to the dtype's range."""


def _may_overflow(want: ExpectedResult, forms: Sequence[str]) -> bool:
    """Whether a result of 8 bits may be its largest number in most elements, or NaN, as the reference's is in some."""
    if not want.dtype.startswith("float8") or {*forms} <= WITHIN_EIGHT_BITS:
        return False
    at_end = (np.frombuffer(want.native, np.uint8) & 0x7F) >= FLOAT_FORMATS[want.dtype].finite
    return bool(np.count_nonzero(at_end) > FEW_AT_END * at_end.size)


def _demands(case: CaseInputs, want: ExpectedResult, forms: Sequence[str]) -> bool:
    """Whole numbers may follow from ties, which numbers far from zero, zeros and masked rows make, or from what NaN is
    compared with, or be too large; what is too large for an 8-bit float is its largest number, or NaN: of numbers that
    may be it is demanded alone that they are some."""
    if want.dtype not in FLOAT_FORMATS:
        floats = any(t.dtype in FLOAT_FORMATS for t in case.tensors) and not want.settled
        ties = TIED | ({*OF_WHOLE} if floats else set())
        return not (ties - (MOSTLY if want.sound else set())) & {*forms}
    if {"ties", "far", *GRIDS} & {*forms}:
        return False
    narrow = ROUNDOFF[want.dtype] > ROUNDOFF["float32"]  # beside it, what a sum of such numbers cancels is nothing
    return not _may_overflow(want, forms) and (narrow or "ordered" not in forms)


MOSTLY = frozenset(("up", "down", "far", "huge", "broad", "none", *OF_WHOLE))
"""Extreme contents of which whole numbers that follow from floats must mostly be right, if they are sound: also those
that follow from rows of zeros."""


def _mostly_right(case: CaseInputs, want: ExpectedResult, forms: Sequence[str]) -> bool:
    """Whether that is demanded alone."""
    floats = any(t.dtype in FLOAT_FORMATS for t in case.tensors)
    return bool(MOSTLY & {*forms}) and want.dtype not in FLOAT_FORMATS and floats and not want.settled


def _mostly(found: ResultError, content: BytesLike, view: View, want: ExpectedResult) -> ResultError:
    """What is wrong, if that is no small share of the elements, and beyond twice those that roundings decide."""
    bits = taken(content, view)
    native = np.frombuffer(want.native, bits.dtype).reshape(bits.shape)
    ends = np.frombuffer(want.others or bytes(want.native) * 2, bits.dtype).reshape(2, *bits.shape)
    decided = (ends != native).any(0)
    few = np.count_nonzero(bits != native) <= max(GROSS_SHARE * bits.size, 2 * np.count_nonzero(decided))
    return replace(found, wrong="") if few or bits.size < FEW else found


def _is_finite_alone(want: ExpectedResult, forms: Sequence[str]) -> bool:
    """Whether it is demanded alone that what is finite in the reference is."""
    unknown = want.wide is None and want.dtype in FLOAT_FORMATS
    return bool({*FINITE_ALONE} & {*forms} or (unknown and {*CANCELLING} & {*forms}))


def _finite(result: ExpectedResult) -> bool:
    return bool(np.isfinite(numbers_of(result)).all())


def _told(error: ResultError, tensors: Sequence[TensorInput], forms: Sequence[str]) -> ResultError:
    """With the inputs that are extreme."""
    if not error.wrong or not any(forms):
        return error
    where = ", ".join(f"{t.name} {EXTREMES[form]}" for t, form in zip(tensors, forms, strict=True) if form)
    return replace(error, wrong=f"{error.wrong}; there {where}")
