"""What rounding explains of a result's errors: of sums, and by quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.result_numbers import ROUNDOFF, SMALLEST, told_apart

RMS_FACTOR = 2.0
"""A result's root mean square error may be this many times what that explains. Other orders of sums and approximations
of functions in ``benchmarks/judge`` stay within it; a float16 accumulator of 512 terms in steps of 16 is off by four
times as much."""

WORST_FACTOR = 6.0
"""And one element's error this many times the stock operator's worst beyond rounding to the dtype: among a million
errors of one size, the largest is five standard deviations off."""

ELEMENT_FACTOR = 3.0
"""Roundings of its own size that an element may be off by beside: small elements are not excused by large ones."""

NEAREST = 1.125
"""And one of float16 or bfloat16, where the reference adds or multiplies once: that is rounded to the nearest."""

COARSE = 2.0**-8
"""A rounding of bfloat16: what is left out is off by more."""

GROSS, GROSS_SHARE = 0.25, 0.01
"""And no more than that share of the elements, and twice what the stock operator has, may be off by a fourth: of
themselves, or of the usual size where they are less than a fourth of it. A row is left out, or isn't zero. Of fewer
than a hundred elements that is none."""

MOST_SUMS = 32.0
"""What is added for sums is at most so many times what the stock operator, or rounding, is off by: the length of a sum
is a guess by the inputs' sizes, and a long vector needn't be summed. A sum of 1,000 terms has the root of 1,000."""

FEW = 64
"""Of fewer elements the stock operator may be right by chance, and there is no typical one: those of all contents are
taken together."""

FEW_SUMS = 3.0
"""So of fewer elements so many times :data:`MOST_SUMS` are added, and at least so many roundings as a sum in parts of
:data:`PART` terms has, whose partial sums are added one after the other."""

PART = 1024

CHAIN = 4.0
"""Roundings of functions and chains of operations that are allowed beside; an element that follows from few numbers has
no others. Exponentials and quotients of the hardware are off by two units of the last place each."""

CUT = 3
"""Bits of float32 that no right kernel leaves out of all elements. Errors of that size are within :data:`CHAIN`."""

QUANTILES = (0.75, 0.9, 0.98)
"""Beside the median: less than half of the elements may not be anything either."""

SETTLED, LATER = 1024, 1.25
"""Of fewer elements a quantile is a matter of chance: it is compared with one of the stock operator's that is so many
standard deviations of its rank later, and with none where there is none. Beside an equal of its own, a bfloat16 result
of 96 normal elements was wrong in 10 % of contents, and is in one of 1,000; thrice its errors are found in 80 %."""

WEIGHT = 2.0
"""Roundings of a softmax's weight beside those of its argument: of an exponential and a quotient."""

ROUNDING_RMS = 0.42
"""Root mean square of rounding to nearest, in units of half of the last place of 1: numbers are spread over a binade,
and errors over half a unit of theirs."""

SAMPLED = 1 << 20
"""Of more elements quantiles are those of so many, drawn at random: they are within 0.1 % of all elements' rank; and
the mean error is that of so many in a row."""


def longest_sum(case: CaseInputs, shape: Sequence[int]) -> int:
    """How many terms a sum of a result may have, at most about: the largest dimension of any input, or as many inputs
    as there are for each element of the result."""
    sizes = [n for t in case.tensors for n in t.shape]
    count = max(1, math.prod(shape))
    ratio = max((math.prod(t.shape) // count for t in case.tensors), default=1)
    return max([1, ratio, *sizes])


def sums_of(dtype: str, terms: int, random: bool = True) -> float:
    """What a sum of so many terms, one after the other, may be off by at most, relative to the result; and what else
    an element is rounded for on its way. Partial sums of random terms grow as the root of their number, so that half of
    them counts; sums of terms above zero are off by less. All count where terms aren't ``random``, since equal numbers
    may all be rounded in one direction, and where elements are few, of which none is typical."""
    root = math.sqrt(terms / 2 if random else terms)
    unit = ROUNDOFF["float64" if dtype == "float64" else "float32"]
    return min(math.sqrt(terms), max(CHAIN, ROUNDING_RMS * root)) * unit


def stock_with_sums(own: float, sums: float, known: bool) -> float:
    """What the stock operator is off by and what sums explain: that is a part of it where these are known."""
    return max(own, sums) if known else own + sums


def roundings_of(dtype: str, terms: int, count: int, own: float, random: bool = True) -> float:
    """The same beside a stock operator that is off by ``own``. The length of a sum is a guess, so that bounds it."""
    sums, most = sums_of(dtype, terms, random and count >= FEW), _most_sums(own)
    return min(sums, most if count >= FEW else FEW_SUMS * max(most, sums / math.sqrt(PART)))


def _most_sums(own: float) -> float:
    return MOST_SUMS * max(own, ROUNDING_RMS * ROUNDOFF["float32"])


def half_wrong(
    error: np.ndarray, own: np.ndarray, magnitude: np.ndarray, sums: float, dtype: str, known: bool = False
) -> str:
    """Whether half of the elements are off by more than the stock operator's half and ``sums`` of them, if there are
    enough."""
    full = magnitude > SMALLEST[dtype] / ROUNDOFF[dtype]
    if np.count_nonzero(full) < FEW:
        return ""
    relative = own[full] / magnitude[full]
    middle = float(np.quantile(relative, _later(0.5, relative.size)))
    allowed = RMS_FACTOR * stock_with_sums(
        max(middle, ROUNDING_RMS * ROUNDOFF[dtype]), min(sums, _most_sums(middle)), known
    )
    if (typical := float(np.median(error[full] / magnitude[full]))) > allowed:
        off, most_off = told_apart(typical, allowed)
        return f"half of its elements are off by {off} of their size; {most_off} is what rounding explains"
    return ""


def _later(share: float, count: int) -> float:
    return share + (LATER * math.sqrt(share * (1 - share) / count) if count < SETTLED else 0.0)


def off_in_rows(found: np.ndarray, exact: np.ndarray, stock: np.ndarray) -> str:
    """What is wrong with float32 weights whose row's sum is left aside, since all of it are off by that. An exponential
    is off by what half of a rounding of its argument moves it. Of many rows some are looked at."""
    if not exact.ndim or exact.shape[-1] < FEW:
        return ""
    width = exact.shape[-1]
    count, most = exact.size // width, max(1, SAMPLED // width)
    first = int(np.random.default_rng().integers(0, max(1, count - most + 1)))
    found, weights, stock = (x.reshape(-1, width)[first : first + most] for x in (found, exact, stock))
    full = weights > SMALLEST["float32"] / ROUNDOFF["float32"]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (np.where(full, x / weights, np.nan) for x in (found, stock))
        error, own = (np.abs(x / np.nanmedian(x, 1, keepdims=True) - 1)[full] for x in shares)
        moved = np.log(weights.max(1, keepdims=True) / weights)[full] * (ROUNDOFF["float32"] / 2)
    return half_wrong(error, np.maximum(own, moved), np.ones_like(error), WEIGHT * ROUNDOFF["float32"], "float32")


def quantiles_wrong(
    error: np.ndarray, own: np.ndarray, magnitude: np.ndarray, sums: float, dtype: str, known: bool = False
) -> str:
    """The same by quantiles of relative errors: beside a few large elements, a root mean square says nothing of all
    others. Elements that are zero, or have fewer digits than the dtype's, don't count.

    Rounding to nearest is off by at most ``roundoff`` of an element, and evenly spread over an element's last place, so
    the quantile q of its relative errors is at most q times that. Elements that are small since terms cancel may be off
    by what a sum explains of those that aren't; a quarter of the elements is as large as that or larger.
    """
    full = magnitude > SMALLEST[dtype] / ROUNDOFF[dtype]
    if np.count_nonzero(full) < FEW:
        return ""
    error, own, magnitude = (x[full] for x in (error, own, magnitude))
    if told := half_wrong(error, own, magnitude, sums, dtype, known):
        return told
    relative, later = own / magnitude, partial(_later, count=error.size)
    sums = min(sums, _most_sums(float(np.quantile(relative, later(0.5)))))
    cancelled = RMS_FACTOR * sums * float(np.quantile(magnitude, 0.75))
    beyond = np.quantile(np.maximum(error - cancelled, 0.0) / magnitude, QUANTILES)
    for share, found in zip(QUANTILES, beyond, strict=True):
        if later(share) > 1:
            continue
        stock = float(np.quantile(relative, later(share)))
        allowed = RMS_FACTOR * stock_with_sums(max(stock, share * ROUNDOFF[dtype]), sums, known)
        if found > allowed:
            off, most_off = told_apart(found, allowed)
            return (
                f"{1 - share:.0%} of its elements are off by {off} of their size or more; {most_off} is what rounding "
                "explains"
            )
    return ""


def drawn(count: int) -> slice | np.ndarray:
    """Which of so many elements are looked at: all, or as many as there is time for."""
    return slice(None) if count <= SAMPLED else np.random.default_rng().integers(0, count, SAMPLED)


def are_cut(found: np.ndarray, stock: np.ndarray) -> bool:
    """Whether all elements have :data:`CUT` bits that are zero at their end, as numbers of fewer bits have, and most of
    the stock operator's don't."""
    cut, stocks = (x.astype("<f4").view("<u4") % (1 << CUT) == 0 for x in (found, stock))
    return bool(found.size >= FEW and cut.all() and np.count_nonzero(stocks) < found.size / 2)


def off_by(stock: np.ndarray, exact: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The stock operator's elements, off by no less than what roundings inside of the reference move them by."""
    with np.errstate(invalid="ignore"):
        own = stock - exact
        off = exact + np.copysign(np.maximum(np.abs(own), deviation), own)
    return np.where(np.isfinite(off), off, stock)
