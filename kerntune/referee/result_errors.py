"""How wrong a result is: against float64, with a limit that knows the dtype, the stock operator and lengths of sums.

The error of a right kernel comes of rounding: of the result to its dtype, of sums in the accumulator's type. For a sum
of n random terms in any order its standard deviation is at most about the root of n / 2 roundings of the result
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.5 and 2.8). What the stock operator of
the same dtype is off by on the same numbers is added: it knows cancellation, steep functions and chains of operators. A
result is wrong if its root mean square error, or any one element's error, is beyond a fixed multiple of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace

from kerntune.base.frames import StrictMessage
from kerntune.base.recording import View
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.result_numbers import LARGEST, ROUNDOFF, SMALLEST, numbers, numbers_of, rms_of, taken, told_apart
from kerntune.referee.rounding_limits import (
    CHAIN,
    CUT,
    FEW,
    QUANTILES,
    RMS_FACTOR,
    ROUNDING_RMS,
    are_cut,
    half_wrong,
    longest_sum,
    off_by,
    off_in_rows,
    quantiles_wrong,
    roundings_of,
    sampled,
    stock_with_sums,
    sums_of,
)
from kerntune.referee.tasks import ExpectedResult, OperatorChain

WORST_FACTOR = 6.0
"""And one element's error this many times the stock operator's worst beyond rounding to the dtype: among a million
errors of one size, the largest is five standard deviations off."""


TYPICAL = 0.73
"""What elements are off by, in deviations of drawn roundings: :data:`ROUNDING_RMS` is 0.73 of what is drawn. Half of
normal errors are below 0.67 of theirs, and a tenth above 1.64."""


EXTREME_FACTOR = 4.0
"""For extreme contents, quantiles of the error may be this many times what :data:`RMS_FACTOR` is before elsewhere."""

MOST_CANCELLED = 4096.0
"""And of few elements the size may be so many times theirs: random terms cancel by more once in 5,000 contents. A
steep or periodic function of huge numbers is moved by any amount."""

COARSE = 2.0**-8
"""A rounding of bfloat16: what is left out is off by more."""

LEFT_OUT = 0.5
"""An element from which a part is left out is off by as much of itself, where the reference's cancel."""

EXTREME_QUANTILES = (0.5, 0.75, 0.9)

GROSS, GROSS_SHARE = 0.25, 0.01
"""And no more than that share of the elements, and twice what the stock operator has, may be off by a fourth: of
themselves, or of the usual size where they are less than a fourth of it. A row is left out, or isn't zero. Of fewer
than a hundred elements that is none."""

ELEMENT_FACTOR = 3.0
"""Roundings of its own size that an element may be off by beside: small elements are not excused by large ones."""

UNKNOWN = OperatorChain()
"""Nothing is known of a reference's operators."""


NEAREST = 1.125
"""And one of float16 or bfloat16, where the reference adds or multiplies once: that is rounded to the nearest."""

BINS = 16
"""Groups by size, in each of which half of the elements of 16 bits may be off by as much as the stock operator's there:
where it rounds inside, those that it has right are no excuse for others."""


INSIGNIFICANT = 0.1
"""A result whose allowed error is more than this share of its own size is no evidence: zeros would nearly do."""

FORMAT_MARGIN = 1.5
"""Unless it is at most so many times what rounding to the dtype alone allows: of float8_e5m2, that is 0.105."""


class ResultError(StrictMessage, frozen=True):
    """One result of one seed. Root mean square and largest errors, each beside what is allowed, relative to the
    result's own root mean square ``size``. ``wrong`` says what is wrong, if anything."""

    result: int
    dtype: str
    rms: float = 0.0
    rms_allowed: float = 0.0
    worst: float = 0.0
    worst_allowed: float = 0.0
    size: float = 0.0
    wrong: str = ""
    unwritten: bool = False
    by_products: bool = False
    """Whether the limit is that of products whose operands are rounded (:mod:`.product_operands`)."""

    @property
    def significant(self) -> bool:
        """Whether such a result says anything."""
        if self.dtype not in FLOAT_FORMATS:
            return True
        own_rounding = FORMAT_MARGIN * RMS_FACTOR * ROUNDING_RMS * ROUNDOFF[self.dtype]
        return self.size > 0 and self.rms_allowed <= max(INSIGNIFICANT, own_rounding)


def unequal(content: bytes, view: View, expected: ExpectedResult) -> str:
    """How many elements of a view in a storage's bytes are others than those expected, and the first; empty if none is.
    Zeros of either sign are equal, and NaN is NaN."""
    bits = taken(content, view)
    native = np.frombuffer(expected.native, bits.dtype).reshape(bits.shape)
    found, stock = numbers(bits, view.dtype), numbers(native, view.dtype)
    odd = found != stock
    if view.dtype in FLOAT_FORMATS:
        odd &= ~(np.isnan(found) & np.isnan(stock))
    return _different(odd, found, stock)


def _different(odd: np.ndarray, found: np.ndarray, wanted: np.ndarray) -> str:
    if not odd.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(odd)[0])
    one, other = found[at], wanted[at]
    if found.dtype.kind == "f":
        one, other = told_apart(float(one), float(other), 6)
    return f"{int(odd.sum()):,} of {odd.size:,} elements differ, the first at {list(at)}: {one}, not {other}"


def error_of(
    number: int, content: bytes, view: View, expected: ExpectedResult, case: CaseInputs, poison: bytes,
    usual: float = 0.0, extreme: float = 0.0, seen: Callable[..., None] | None = None, lone: bool = False,
    odd: bool = False, by_products: bool = False,
) -> ResultError:  # fmt: skip
    """How a result in a replay's storage differs from the expected one. ``usual`` is the size that the result has in
    most contents; ``extreme``: how wide limits are for inputs of extreme numbers, 0 for usual ones. What is compared
    goes to ``seen``, too: dtype, elements found, expected and of the stock operator, terms of sums, whether extreme.
    ``lone``: an input is one number but for a few elements. ``odd``: it has infinities or NaN, of which the result has
    none. ``by_products``: the stock operator is that of products of 16 bits."""
    bits = taken(content, view)
    native = np.frombuffer(expected.native, f"<u{ITEM_BYTES[expected.dtype]}").reshape(expected.shape)
    untouched = bool(bits.size) and _untouched(bits, len(content), view, poison)
    found = None
    by_chance = (
        untouched and bits.nbytes < len(poison) and view.dtype == expected.dtype and bool((bits == native).all())
    )
    if not untouched or by_chance or not any(poison):  # zeros may have been written, and may be right
        found = _compared(number, bits, native, view, expected, case, usual, extreme, seen, lone, odd, by_products)
    if found is None or (untouched and found.wrong):
        return ResultError(number, view.dtype, wrong="nothing of it is written", unwritten=True)
    return found


def _compared(
    number: int, bits: np.ndarray, native: np.ndarray, view: View, expected: ExpectedResult, case: CaseInputs,
    usual: float, extreme: float, seen: Callable[..., None] | None, lone: bool, odd: bool, by_products: bool,
) -> ResultError:  # fmt: skip
    """What is written, beside what is expected."""
    if view.dtype not in FLOAT_FORMATS:
        wrong = _different(bits != native, numbers(bits, view.dtype), numbers(native, view.dtype))
        return ResultError(number, view.dtype, size=1.0, wrong=wrong)
    stock = numbers(native, view.dtype)
    exact = None if expected.wide is None else numbers_of(expected).reshape(expected.shape)
    found, terms = numbers(bits, view.dtype), longest_sum(case, view.shape)
    moved = deviation = None
    if expected.moved is not None:
        with np.errstate(invalid="ignore"):  # where both are infinite
            moved = np.abs(
                np.frombuffer(expected.moved, "<f8").reshape(expected.shape) - (stock if exact is None else exact)
            )
    if extreme and odd and not np.isfinite(found).all():
        return _not_finite(number, view.dtype, found, ~np.isfinite(found))
    if exact is not None and expected.deviation is not None:
        deviation = np.frombuffer(expected.deviation, "<f8").reshape(expected.shape)
    if lone and not extreme:
        return _lone_error(number, view.dtype, found, stock if exact is None else exact, stock, by_products, deviation)
    if exact is not None and deviation is not None:
        if _is_explained(found, exact, deviation):
            return ResultError(number, view.dtype, size=rms_of(np.abs(exact)))
        spread = np.abs(np.random.default_rng().standard_normal(exact.shape))
        stock = off_by(stock, exact, TYPICAL * spread * deviation)
    if extreme:
        wide = all(ROUNDOFF.get(t.dtype, 0.0) <= ROUNDOFF["float32"] for t in case.tensors)
        gross = COARSE if expected.chain.pointwise and wide else GROSS
        of = number, view.dtype, found, exact, stock, terms, usual, extreme, seen, moved, deviation, gross
        return _extreme_error(*of)
    terms = terms if moved is None or exact is None else int(CHAIN**2)
    one = _float_error(number, view.dtype, found, exact, stock, terms, usual, seen, moved, expected.chain)
    if expected.chain.weights and exact is not None and view.dtype == "float32" and not one.wrong:
        one = replace(one, wrong=off_in_rows(found, exact, numbers(native, view.dtype)))
    return one


def _is_explained(found: np.ndarray, exact: np.ndarray, deviation: np.ndarray) -> bool:
    """Whether none of few elements is off by more than :data:`WORST_FACTOR` times what roundings inside of the
    reference move it by: their terms may cancel by chance."""
    with np.errstate(invalid="ignore"):
        return found.size < FEW and bool((np.abs(found - exact) <= WORST_FACTOR * deviation).all())


def difference_of(case: CaseInputs, call: CheckedCall, before: Mapping[int, bytes], after: Mapping[int, bytes]) -> str:
    """How two executions of one content differ by more than rounding, by what each left in some storages; empty if
    they don't. Sums in another order differ by rounding."""
    views = [(f"result {number}", view) for number, view in enumerate(call.results)]
    for given, storage in zip(case.tensors, call.inputs, strict=True):
        if storage is not None:
            views.append((f"input {given.name}", View(storage, given.dtype, given.shape, given.strides)))
    for what, view in (x for x in views if x[1].storage in before):
        one, other = (taken(content[view.storage], view) for content in (before, after))
        if np.array_equal(one, other):
            continue
        wrong = "its elements are others"
        if view.dtype in FLOAT_FORMATS:
            first, second = numbers(one, view.dtype), numbers(other, view.dtype)
            wrong = _float_error(0, view.dtype, second, None, first, longest_sum(case, view.shape)).wrong
        if wrong:
            return f"{what} is another than before: {wrong}"
    return ""


def _untouched(bits: np.ndarray, nbytes: int, view: View, poison: bytes) -> bool:
    """Whether all of a view is poison. One element that isn't mostly says so at once."""
    item = bits.dtype.itemsize
    if bits.flat[0].tobytes() != (poison * 2)[view.offset_bytes % len(poison) :][:item]:
        return False
    raw = poison * -(-nbytes // len(poison))
    return bool((bits == taken(raw[:nbytes], view)).all())


def _float_error(
    number: int, dtype: str, found: np.ndarray, exact: np.ndarray | None, stock: np.ndarray, terms: int,
    usual: float = 0.0, seen: Callable[..., None] | None = None, moved: np.ndarray | None = None,
    chain: OperatorChain = UNKNOWN,
) -> ResultError:  # fmt: skip
    """Where the stock operator gives infinities or NaN, so must the result. Where nothing was computed in float64
    (``exact`` is None), the stock operator's own error isn't known: both sides may be off by what a sum explains. Of
    262,144 float32 sums of 512 terms the largest is off by 1.08 times as much. Elements larger than most may be off by
    more: their partial sums are larger, and of running products each has the roundings of all before it.
    ``moved``: how far a rounding of the inputs moves each element, by which a right result may be off, too; by a fourth
    of itself none is otherwise, however small. What is known of the reference's operators, a ``chain``, says which sums
    there are."""
    found, stock = np.atleast_1d(found, stock)
    alone, exact = exact is None, stock if exact is None else np.atleast_1d(exact)
    moved = None if moved is None else np.atleast_1d(moved)
    finite = np.isfinite(stock)
    odd = finite != np.isfinite(found)
    if not finite.all():
        odd |= ~finite & ~((found == stock) | (np.isnan(found) & np.isnan(stock)))
    if odd.any():
        return _not_finite(number, dtype, found, odd)
    if not finite.any():
        return ResultError(number, dtype)
    finite &= np.isfinite(exact)
    count = found.size
    if not finite.all():
        found, exact, stock = (x[finite] for x in (found, exact, stock))
        moved = None if moved is None else moved[finite]
    if seen is not None:
        seen(dtype, found, exact, stock, terms, False)
    error, own, magnitude = found - exact, stock - exact, np.abs(exact)
    np.abs(error, out=error)  # without another array: for large results, most of the time is its pages'
    np.abs(own, out=own)
    if moved is not None:
        np.fmax(own, moved, out=own)
    size = rms_of(magnitude)
    if size == 0:
        wrong = "" if not error.any() else f"elements up to {error.max():.3g} where the reference has zeros"
        return ResultError(number, dtype, size=0.0, wrong=wrong)
    sums = roundings_of(dtype, terms, error.size, rms_of(own) / size) * size
    if error.size < FEW:  # which may nearly cancel by chance
        sums *= max(1.0, usual / size)
    sums *= 2 if alone else 1
    half, each = SMALLEST[dtype] / 2, sums_of(dtype, terms)
    known, factor = chain.roundings is not None and not alone, ELEMENT_FACTOR
    if known:
        each = (chain.roundings or 0.0) * ROUNDOFF["float64" if dtype == "float64" else "float32"]
        sums = min(sums, each * size)
        factor = NEAREST if chain.roundings == 0 and dtype in ("float16", "bfloat16") else factor
    rounding = math.hypot(ROUNDING_RMS * ROUNDOFF[dtype] * size, 3**-0.5 * half)
    rms_allowed = RMS_FACTOR * stock_with_sums(max(rms_of(own), rounding), sums, known)
    rounded = np.maximum(magnitude * ROUNDOFF[dtype], half)
    beyond_rounding = max(0.0, float(np.subtract(own, rounded).max()))
    worst_allowed = np.multiply(rounded, factor, out=rounded)
    larger = np.maximum(magnitude / size, 1.0)  # as its partial sums are
    worst_allowed += WORST_FACTOR * (beyond_rounding + sums * larger)
    if moved is not None and not alone:  # by which each is known to be moved, the others' roundings are no excuse
        np.minimum(
            worst_allowed, np.maximum(GROSS * magnitude, WORST_FACTOR * (own + sums * larger)), out=worst_allowed
        )
    beyond = error > worst_allowed
    rms, worst = rms_of(error), float(error.max())
    wrong = ""
    if beyond.any():
        most = int(np.argmax(error - worst_allowed))
        place = [int(i) for i in np.argwhere(finite)[most]]
        value, wanted = told_apart(found.flat[most], exact.flat[most], 6)
        wrong = (
            f"{int(beyond.sum()):,} of {count:,} elements are off by more than rounding explains, the most at "
            f"{place}: {value}, not {wanted}"
        )
        if ROUNDOFF["float32"] < ROUNDOFF[dtype] and worst <= WORST_FACTOR * ROUNDOFF[dtype] * size:
            wrong += f"; roundings to {dtype} inside would explain it: a reference that has these, too, allows them"
    elif rms > rms_allowed:
        off, most_off = told_apart(rms / size, rms_allowed / size)
        wrong = f"its error is {off} of its size; {most_off} is what rounding explains"
    elif told := quantiles_wrong(error, own, magnitude, each, dtype, known):
        wrong = told
    elif dtype == "float32" and not alone and rms > RMS_FACTOR * rms_of(own) and are_cut(found, stock):
        wrong = f"all of its elements are cut by {CUT} bits or more, and off by more than the reference's"
    elif chain.pointwise and not alone and ROUNDOFF["float32"] < ROUNDOFF[dtype]:
        one, other, large = (x.reshape(-1) for x in sampled(error, own, magnitude))
        groups = np.array_split(np.argsort(large), BINS)
        told_of = (half_wrong(one[group], other[group], large[group], each, dtype) for group in groups)
        wrong = next(filter(None, told_of), "")
    return ResultError(
        number, dtype, rms / size, rms_allowed / size, worst / size, float(np.max(worst_allowed)) / size, size, wrong
    )


def _not_finite(number: int, dtype: str, found: np.ndarray, odd: np.ndarray) -> ResultError:
    at = tuple(int(i) for i in np.argwhere(odd)[0])
    wrong = f"{int(odd.sum()):,} elements are infinite or NaN where they must not be, or the other way round"
    return ResultError(number, dtype, size=1.0, wrong=f"{wrong}, first at {list(at)}: {found[at]:.6g}")


def _extreme_error(
    number: int, dtype: str, found: np.ndarray, exact: np.ndarray | None, stock: np.ndarray, terms: int, usual: float,
    factor: float, seen: Callable[..., None] | None, moved: np.ndarray | None, deviation: np.ndarray | None,
    gross: float,
) -> ResultError:  # fmt: skip
    """Of extreme inputs. Where the reference isn't finite in its dtype, or in float64, nothing is demanded: it may
    overflow inside. Nor is it beyond half of the largest number, where either side's rounding decides. What is small
    beside the ``usual`` size may be off by what a sum explains of that, as 1 + erf(x) is for large negative x. Of
    numbers near zero sums are small, but constants aren't: exp(x) - 1 is off by a rounding of 1, which is 0.5 to 0.7
    usually, and 0.17 where an LSTM has tanh(x) as 2 sigmoid(2 x) - 1. Few elements may cancel by chance; by how much
    they are ``moved`` where each input is a rounding off tells the size that a sum of such terms has: 100 terms of
    deviation 2**20 sum up to 2**18 at times."""
    alone, exact = exact is None, stock if exact is None else exact
    moved, explained = (np.zeros_like(exact) if x is None else x for x in (moved, deviation))
    finite = np.isfinite(stock) & np.isfinite(exact) & (np.abs(exact) <= LARGEST.get(dtype, math.inf) / 2)
    odd = finite & ~np.isfinite(found)
    if odd.any():
        return _not_finite(number, dtype, found, odd)
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
    some = sampled(error, own, magnitude, WORST_FACTOR * explained)
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
    if error.size >= FEW and far_off > max(GROSS_SHARE * some[0].size, 2 * own_off):
        least_told = "a fourth" if gross == GROSS else f"{gross:.1%}"
        wrong = f"{far_off:,} of {some[0].size:,} elements are off by more than {least_told} of their size"
        return ResultError(number, dtype, size=size, wrong=wrong)
    return ResultError(number, dtype, size=size)


def overflow_of(number: int, content: bytes, view: View, expected: ExpectedResult) -> ResultError:
    """Of vast inputs and the like: whether anything is infinite or NaN that the reference computes well. What overflows
    inside, as squares do, may become anything, also a number."""
    found, stock = numbers(taken(content, view), view.dtype), numbers_of(replace(expected, wide=None))
    exact, found = numbers_of(expected), np.atleast_1d(found)
    with np.errstate(invalid="ignore", over="ignore"):
        well = (np.abs(stock - exact) <= COARSE * np.abs(exact)) & (
            np.abs(exact) <= LARGEST.get(view.dtype, math.inf) / 2
        )
    odd = well.reshape(found.shape) & ~np.isfinite(found)
    return _not_finite(number, view.dtype, found, odd) if odd.any() else ResultError(number, view.dtype)


def _lone_error(
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
        return _not_finite(number, dtype, found, odd)
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
