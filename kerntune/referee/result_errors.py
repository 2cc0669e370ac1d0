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

from kerntune.base.recording import View
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.element_errors import ElementErrors, Elements, ResultError, not_finite, rounded_by
from kerntune.referee.extreme_errors import extreme_error, lone_error
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.result_numbers import (
    ROUNDOFF,
    SMALLEST,
    in_place,
    numbers,
    numbers_of,
    rms_of,
    taken,
    told_apart,
    widened,
)
from kerntune.referee.rounding_limits import (
    CHAIN,
    COARSE,
    CUT,
    ELEMENT_FACTOR,
    FEW,
    GROSS,
    GROSS_SHARE,
    NEAREST,
    RMS_FACTOR,
    ROUNDING_RMS,
    WORST_FACTOR,
    are_cut,
    half_wrong,
    longest_sum,
    off_by,
    off_in_rows,
    quantiles_wrong,
    roundings_of,
    stock_with_sums,
    sums_of,
)
from kerntune.referee.tasks import BytesLike, ExpectedResult, OperatorChain

TYPICAL = 0.73
"""What elements are off by, in deviations of drawn roundings: :data:`ROUNDING_RMS` is 0.73 of what is drawn. Half of
normal errors are below 0.67 of theirs, and a tenth above 1.64."""

UNKNOWN = OperatorChain()
"""Nothing is known of a reference's operators."""

BINS = 16
"""Groups by size, in each of which half of the elements of 16 bits may be off by as much as the stock operator's there:
where it rounds inside, those that it has right are no excuse for others."""


def unequal(content: BytesLike, view: View, expected: ExpectedResult) -> str:
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
    number: int, content: BytesLike, view: View, expected: ExpectedResult, case: CaseInputs, poison: bytes,
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
    same = view.dtype == expected.dtype and np.array_equal(bits, native)
    fine = ROUNDOFF[view.dtype] <= ROUNDOFF["float32"]
    if same and (extreme or lone) and not (extreme and odd) and (fine or seen is None):
        sizes = np.abs(numbers_of(expected))  # nothing is off by more than the reference
        return ResultError(number, view.dtype, size=rms_of(sizes[np.isfinite(sizes)]))
    kind = numbers if extreme or lone or expected.deviation is not None else in_place
    stock = kind(native, view.dtype)
    found = stock if same else kind(bits, view.dtype)
    exact = None if expected.wide is None else numbers_of(expected).reshape(expected.shape)
    terms = longest_sum(case, view.shape)
    moved = deviation = None
    if expected.moved is not None:
        with np.errstate(invalid="ignore"):  # where both are infinite
            moved = np.abs(
                np.frombuffer(expected.moved, "<f8").reshape(expected.shape) - (stock if exact is None else exact)
            )
    if extreme and odd and not np.isfinite(found).all():
        return not_finite(number, view.dtype, found, ~np.isfinite(found))
    if exact is not None and expected.deviation is not None:
        deviation = np.frombuffer(expected.deviation, "<f8").reshape(expected.shape)
    if lone and not extreme:
        return lone_error(number, view.dtype, found, stock if exact is None else exact, stock, by_products, deviation)
    if exact is not None and deviation is not None:
        if _is_explained(found, exact, deviation):
            return ResultError(number, view.dtype, size=rms_of(np.abs(exact)))
        spread = np.abs(np.random.default_rng().standard_normal(exact.shape))
        stock = off_by(stock, exact, TYPICAL * spread * deviation)
    if extreme:
        wide = all(ROUNDOFF.get(t.dtype, 0.0) <= ROUNDOFF["float32"] for t in case.tensors)
        gross = COARSE if expected.chain.pointwise and wide else GROSS
        most = 0.0 if odd else GROSS_SHARE  # beside infinities are usual numbers, of which none is off so far
        of = number, view.dtype, found, exact, stock, terms, usual, extreme, seen, moved, deviation, gross, most
        return extreme_error(*of)
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


def difference_of(
    case: CaseInputs, call: CheckedCall, before: Mapping[int, BytesLike], after: Mapping[int, BytesLike]
) -> str:
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
            first, second = in_place(one, view.dtype), in_place(other, view.dtype)
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
    same = found is stock
    found, stock = np.atleast_1d(found, stock)
    alone, exact = exact is None, widened(stock) if exact is None else np.atleast_1d(exact)
    moved = None if moved is None else np.atleast_1d(moved)
    finite = np.isfinite(stock)
    odd = finite != np.isfinite(found)
    if not finite.all():
        odd |= ~finite & ~((found == stock) | (np.isnan(found) & np.isnan(stock)))
    if odd.any():
        return not_finite(number, dtype, found, odd)
    if not finite.any():
        return ResultError(number, dtype)
    finite &= np.isfinite(exact)
    count = found.size
    if not finite.all():
        found, exact, stock = (x[finite] for x in (found, exact, stock))
        moved = None if moved is None else moved[finite]
    found = stock if same else found
    if seen is not None:
        seen(dtype, found, exact, stock, terms, False)
    elements, half = Elements(found, exact, stock, moved), SMALLEST[dtype] / 2
    rms, own, size, worst, beyond_rounding = elements.sizes(ROUNDOFF[dtype], half)
    if size == 0:
        wrong = f"elements up to {worst:.3g} where the reference has zeros" if worst else ""
        return ResultError(number, dtype, size=0.0, wrong=wrong)
    sums = roundings_of(dtype, terms, elements.size, own / size) * size
    if elements.size < FEW:  # which may nearly cancel by chance
        sums *= max(1.0, usual / size)
    sums *= 2 if alone else 1
    each, known, factor = sums_of(dtype, terms), chain.roundings is not None and not alone, ELEMENT_FACTOR
    if known:
        each = (chain.roundings or 0.0) * ROUNDOFF["float64" if dtype == "float64" else "float32"]
        sums = min(sums, each * size)
        factor = NEAREST if chain.roundings == 0 and dtype in ("float16", "bfloat16") else factor
    rounding = math.hypot(ROUNDING_RMS * ROUNDOFF[dtype] * size, 3**-0.5 * half)
    rms_allowed = RMS_FACTOR * stock_with_sums(max(own, rounding), sums, known)

    def allowed(x: ElementErrors) -> np.ndarray:
        most = rounded_by(x.magnitude, ROUNDOFF[dtype], half)
        most *= factor
        larger = x.magnitude * (sums / size)
        np.maximum(larger, sums, out=larger)  # as its partial sums are
        if moved is not None and not alone:  # by which each is known to be moved, the others' roundings are no excuse
            beside = np.maximum(GROSS * x.magnitude, WORST_FACTOR * (x.own + larger))
        larger += beyond_rounding
        larger *= WORST_FACTOR
        most += larger
        return most if moved is None or alone else np.minimum(most, beside)

    worst_allowed, beyond, furthest = elements.beyond(allowed)
    wrong = ""
    if beyond:
        place = [int(i) for i in np.argwhere(finite)[furthest]]
        value, wanted = told_apart(float(found.flat[furthest]), float(exact.flat[furthest]), 6)
        wrong = (
            f"{beyond:,} of {count:,} elements are off by more than rounding explains, the most at "
            f"{place}: {value}, not {wanted}"
        )
        if ROUNDOFF["float32"] < ROUNDOFF[dtype] and worst <= WORST_FACTOR * ROUNDOFF[dtype] * size:
            wrong += f"; roundings to {dtype} inside would explain it: a reference that has these, too, allows them"
    elif rms > rms_allowed:
        off, most_off = told_apart(rms / size, rms_allowed / size)
        wrong = f"its error is {off} of its size; {most_off} is what rounding explains"
    elif told := quantiles_wrong(*(some := elements.some()), each, dtype, known):
        wrong = told
    elif dtype == "float32" and not alone and rms > RMS_FACTOR * own and are_cut(found, stock):
        wrong = f"all of its elements are cut by {CUT} bits or more, and off by more than the reference's"
    elif chain.pointwise and not alone and ROUNDOFF["float32"] < ROUNDOFF[dtype]:
        groups = np.array_split(np.argsort(some.magnitude), BINS)
        parts = (ElementErrors(*(x[group] for x in some)) for group in groups)
        told_of = (half_wrong(*part, each, dtype) for part in parts)
        wrong = next(filter(None, told_of), "")
    return ResultError(number, dtype, rms / size, rms_allowed / size, worst / size, worst_allowed / size, size, wrong)
