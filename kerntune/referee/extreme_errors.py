"""How wrong a result of extreme inputs is: limits are wider there, and elements may be anything where it overflows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from kerntune.base.recording import View
from kerntune.referee.element_errors import ResultError, not_finite
from kerntune.referee.result_numbers import LARGEST, ROUNDOFF, SMALLEST, numbers, numbers_of, rms_of, taken, told_apart
from kerntune.referee.rounding_limits import (
    COARSE,
    ELEMENT_FACTOR,
    FEW,
    GROSS,
    QUANTILES,
    RMS_FACTOR,
    WORST_FACTOR,
    drawn,
    roundings_of,
    sums_of,
)
from kerntune.referee.tasks import BytesLike, ExpectedResult

EXTREME_FACTOR = 4.0
"""For extreme contents, quantiles of the error may be this many times what :data:`RMS_FACTOR` is before elsewhere."""

MOST_CANCELLED = 4096.0
"""And of few elements the size may be so many times theirs: random terms cancel by more once in 5,000 contents. A
steep or periodic function of huge numbers is moved by any amount."""

LEFT_OUT = 0.5
"""An element from which a part is left out is off by as much of itself, where the reference's cancel."""

EXTREME_QUANTILES = (0.5, 0.75, 0.9)


def extreme_error(
    number: int, dtype: str, found: np.ndarray, exact: np.ndarray | None, stock: np.ndarray, terms: int, usual: float,
    factor: float, seen: Callable[..., None] | None, moved: np.ndarray | None, deviation: np.ndarray | None,
    gross: float, most: float,
) -> ResultError:  # fmt: skip
    """Of extreme inputs. Where the reference isn't finite in its dtype, or in float64, nothing is demanded: it may
    overflow inside. Nor is it beyond half of the largest number, where either side's rounding decides. What is small
    beside the ``usual`` size may be off by what a sum explains of that, as 1 + erf(x) is for large negative x. Of
    numbers near zero sums are small, but constants aren't: exp(x) - 1 is off by a rounding of 1, which is 0.5 to 0.7
    usually, and 0.17 where an LSTM has tanh(x) as 2 sigmoid(2 x) - 1. Few elements may cancel by chance; by how much
    they are ``moved`` where each input is a rounding off tells the size that a sum of such terms has: 100 terms of
    deviation 2**20 sum up to 2**18 at times. ``most``: the share of elements that may be off by ``gross``."""
    alone, exact = exact is None, stock if exact is None else exact
    moved, explained = (np.zeros_like(exact) if x is None else x for x in (moved, deviation))
    finite = np.isfinite(stock) & np.isfinite(exact) & (np.abs(exact) <= LARGEST.get(dtype, math.inf) / 2)
    odd = finite & ~np.isfinite(found)
    if odd.any():
        return not_finite(number, dtype, found, odd)
    if not finite.any():
        return ResultError(number, dtype)
    if not finite.all():
        found, exact, stock, moved, explained = (x[finite] for x in (found, exact, stock, moved, explained))
    if seen is not None:
        seen(dtype, found, exact, stock, terms, True)
    error, own, magnitude = np.abs(found - exact), np.abs(stock - exact), np.abs(exact)
    if alone:
        own = np.nan_to_num(moved, nan=0.0, posinf=0.0)
    size, half = max(rms_of(magnitude), SMALLEST[dtype]), SMALLEST[dtype] / 2
    where = drawn(error.size)
    some = [x.reshape(-1)[where] for x in (error, own, magnitude, WORST_FACTOR * explained)]
    spread = 0.0
    if error.size < FEW and not alone:
        spread = rms_of(np.nan_to_num(moved, nan=0.0, posinf=0.0)) / ROUNDOFF["float32"]
        spread = min(spread, MOST_CANCELLED * size)
    if error.size < FEW:
        kinds = [("its error is", rms_of(error), rms_of(own), size)]
    else:
        each = [np.quantile(x, EXTREME_QUANTILES) for x in some[:3]]
        names = [f"{1 - share:.0%} of its elements are off by" for share in EXTREME_QUANTILES]
        kinds = list(zip(names, *(map(float, x) for x in each), strict=True))
    for name, off, stocks, large in kinds:
        beside = max(large, spread, usual if factor > RMS_FACTOR else 0.0)
        share = stocks / max(large, half, SMALLEST["float64"])  # half of that one is none
        sums = roundings_of(dtype, terms, error.size, share, random=False) * beside
        constants = WORST_FACTOR * sums_of(dtype, 1) * usual
        allowed = factor * (max(stocks, ROUNDOFF[dtype] * large, half) + sums) + constants
        if off > allowed:
            told, most_off = told_apart(off, allowed)
            wrong = f"{name} {told} where {large:.2g} is the size; {most_off} is what rounding explains"
            return ResultError(number, dtype, off / size, allowed / size, size=size, wrong=wrong)
    least = np.maximum(np.maximum(gross * np.where(some[2] > gross * size, some[2], size), some[3]), allowed)
    far_off, own_off = (int(np.count_nonzero(x > least)) for x in some[:2])
    if error.size >= FEW and far_off > max(most * some[0].size, 2 * own_off):
        least_told = "a fourth" if gross == GROSS else f"{gross:.1%}"
        wrong = f"{far_off:,} of {some[0].size:,} elements are off by more than {least_told} of their size"
        return ResultError(number, dtype, size=size, wrong=wrong)
    return ResultError(number, dtype, size=size)


def lone_error(
    number: int, dtype: str, found: np.ndarray, exact: np.ndarray, stock: np.ndarray, by_products: bool = False,
    deviation: np.ndarray | None = None,
) -> ResultError:  # fmt: skip
    """Where an input is one number but for a few elements: whether anything is left out, with however small a weight,
    and not by how little sums are off. One number added again and again may be rounded in one direction, and elements
    that all follow from the same few numbers are off alike. Where the reference's own are off by percents of
    themselves, they cancel, and only what is left out shows. So are some of products of 16 bits, though not those that
    are as large as others. What roundings inside move by as much shows nothing."""
    finite = np.isfinite(stock) & np.isfinite(exact)
    if deviation is not None:
        noise = WORST_FACTOR * deviation
        beyond_noise = (np.abs(found - exact) > EXTREME_FACTOR * noise) | (np.isnan(found) & np.isfinite(noise))
        finite &= (noise < LEFT_OUT * np.abs(exact)) | beyond_noise
    if (odd := finite & ~np.isfinite(found)).any():
        return not_finite(number, dtype, found, odd)
    if not finite.any():
        return ResultError(number, dtype)
    found, exact, stock = (x[finite] for x in (found, exact, stock))
    error, own, magnitude = np.abs(found - exact), np.abs(stock - exact), np.abs(exact)
    coarse, least, size = max(ROUNDOFF[dtype], COARSE), SMALLEST[dtype] / ROUNDOFF[dtype], rms_of(magnitude)
    wrong = ""
    if np.count_nonzero(full := magnitude > least) >= FEW:
        sure = error
        if by_products:
            sure = np.maximum(error - RMS_FACTOR * rms_of(own), 0.0)
        relative = [x[full] / magnitude[full] for x in (error, own, sure)]
        for share, off, stocks, surely in zip(QUANTILES, *(np.quantile(x, QUANTILES) for x in relative), strict=True):
            allowed = EXTREME_FACTOR * max(float(stocks), coarse)
            cancel = stocks > EXTREME_FACTOR * coarse or surely <= allowed
            allowed = max(allowed, LEFT_OUT) if cancel else allowed
            if not wrong and off > allowed:
                told, most_off = told_apart(off, allowed)
                wrong = f"{1 - share:.0%} of its elements are off by {told} of their size; {most_off} is allowed"
    explained = max(float(np.max(own)), coarse * size, least)
    beyond = error - ELEMENT_FACTOR * coarse * magnitude - WORST_FACTOR * explained
    if not wrong and (beyond > 0).any():
        most = int(np.argmax(beyond))
        wrong = f"an element is {found[most]:.6g}, not {exact[most]:.6g}"
    return ResultError(number, dtype, size=size, wrong=wrong)


def overflow_of(number: int, content: BytesLike, view: View, expected: ExpectedResult) -> ResultError:
    """Of vast inputs and the like: whether anything is infinite or NaN that the reference computes well. What overflows
    inside, as squares do, may become anything, also a number."""
    found, stock = numbers(taken(content, view), view.dtype), numbers_of(replace(expected, wide=None))
    exact, found = numbers_of(expected), np.atleast_1d(found)
    with np.errstate(invalid="ignore", over="ignore"):
        well = (np.abs(stock - exact) <= COARSE * np.abs(exact)) & (
            np.abs(exact) <= LARGEST.get(view.dtype, math.inf) / 2
        )
    odd = well.reshape(found.shape) & ~np.isfinite(found)
    return not_finite(number, view.dtype, found, odd) if odd.any() else ResultError(number, view.dtype)
