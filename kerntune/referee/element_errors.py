"""What each element of a result is off by.

Elements are looked at in blocks, and in place: for large results, new pages of memory take longer than all that is
computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kerntune.base.frames import StrictMessage
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.result_numbers import ROUNDOFF, rms_of
from kerntune.referee.rounding_limits import RMS_FACTOR, ROUNDING_RMS, drawn

BLOCK = 1 << 22
"""Elements of a block, whose arrays are used again. Of smaller ones threads wait longer for Python's lock than for what
is computed: eight threads on two cores look at 2**23 elements each in 2.2 s, with blocks of 2**20 in 4.2 s."""

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


def not_finite(number: int, dtype: str, found: np.ndarray, odd: np.ndarray) -> ResultError:
    """The error of a result in which ``odd`` elements are."""
    at = tuple(int(i) for i in np.argwhere(odd)[0])
    wrong = f"{int(odd.sum()):,} elements are infinite or NaN where they must not be, or the other way round"
    return ResultError(number, dtype, size=1.0, wrong=f"{wrong}, first at {list(at)}: {found[at]:.6g}")


class ElementErrors(NamedTuple):
    """Of some elements, in float64, not below zero: what a candidate is off by, and the stock operator, and sizes."""

    error: np.ndarray
    own: np.ndarray
    magnitude: np.ndarray


class ErrorSizes(NamedTuple):
    """Of all elements: root mean squares, the largest error, and the most that the stock operator is off by beyond a
    rounding of an element."""

    rms: float
    own: float
    size: float
    worst: float
    beyond_rounding: float


class Elements:
    """A result's elements: those found, the exact ones in float64, and the stock operator's, which may be the very
    same. ``moved``: how far a rounding of the inputs moves each, by which the stock operator is off at least."""

    def __init__(self, found: np.ndarray, exact: np.ndarray, stock: np.ndarray, moved: np.ndarray | None) -> None:
        self._same = found is stock
        self._found, self._exact, self._stock = (x.reshape(-1) for x in (found, exact, stock))
        self._moved = None if moved is None else moved.reshape(-1)
        self.size = exact.size

    def blocks(self) -> Iterator[ElementErrors]:
        """All of them."""
        for first in range(0, self.size, BLOCK):
            yield self._at(slice(first, first + BLOCK))

    def some(self) -> ElementErrors:
        """All, or as many that are drawn."""
        return self._at(drawn(self.size))

    def _at(self, where: slice | np.ndarray) -> ElementErrors:
        exact = self._exact[where]
        error = self._found[where] - exact
        np.abs(error, out=error)
        own = error
        if not self._same:
            own = self._stock[where] - exact
            np.abs(own, out=own)
        if self._moved is not None:
            own = np.fmax(own, self._moved[where])
        return ElementErrors(error, own, np.abs(exact))

    def sizes(self, roundoff: float, half: float) -> ErrorSizes:
        """Where an element's rounding is ``roundoff`` of it, and ``half`` at least."""
        if not self.size:
            return ErrorSizes(0.0, 0.0, 0.0, 0.0, 0.0)
        each = list[tuple[Any, ...]]()
        for x in self.blocks():
            off = rms_of(x.error)
            three = off, off if x.own is x.error else rms_of(x.own), rms_of(x.magnitude)
            beyond = _most_beyond(x.own, rounded_by(x.magnitude, roundoff, half))
            each.append((x.error.size, *three, x.error.max(), beyond))
        counts, *roots, worst, most = zip(*each, strict=True)
        rms, own, size = (_rms_together(x, counts) for x in roots)
        return ErrorSizes(rms, own, size, float(max(worst)), max(0.0, float(max(most))))

    def beyond(self, allowed: Callable[[ElementErrors], np.ndarray]) -> tuple[float, int, int]:
        """The most that is ``allowed`` of any, how many are off by more than that, and which by the most more. A larger
        element is allowed as much at least; none is off by more than the stock operator where it is the same."""
        if self._same and self._moved is None:
            largest = np.array([max(float(self._exact.max()), -float(self._exact.min()))])
            return float(allowed(ElementErrors(largest, largest, largest))[0]), 0, 0
        most, count, furthest, at = 0.0, 0, -math.inf, 0
        for first, x in zip(range(0, self.size, BLOCK), self.blocks(), strict=True):
            limit = allowed(x)
            most = max(most, float(limit.max()))
            if odd := int(np.count_nonzero(x.error > limit)):
                count, off = count + odd, x.error - limit
                one = int(np.argmax(off))
                if off[one] > furthest:
                    furthest, at = float(off[one]), first + one
        return most, count, at


def rounded_by(magnitude: np.ndarray, roundoff: float, half: float) -> np.ndarray:
    """The rounding of each element."""
    found = magnitude * roundoff
    return np.maximum(found, half, out=found)


def _most_beyond(own: np.ndarray, rounded: np.ndarray) -> float:
    return float(np.subtract(own, rounded, out=rounded).max())


def _rms_together(each: tuple[float, ...], counts: tuple[int, ...]) -> float:
    """The root mean square of blocks of so many elements, by their own."""
    if (most := max(each)) in (0.0, math.inf):
        return most
    return most * math.sqrt(sum(n * (x / most) ** 2 for x, n in zip(each, counts, strict=True)) / sum(counts))
