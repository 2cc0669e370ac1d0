"""Two pieces of memory held against each other as numbers: where and by how much they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a process for first launches compares nothing, and is there sooner without numpy
    import numpy as np

FLOATS = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}

SENSIBLE = 1e30
"""Larger numbers are leftovers of other work in uninitialised memory, not data."""

SENSIBLE_HALF = 6e4
"""The same for float16, whose largest number is 65504."""


@dataclass(frozen=True)
class Difference:
    """``count`` of ``total`` items differ (``unit``: elements, or bytes of what isn't floating-point).

    ``first`` is the first that does; ``expected`` and ``actual`` are its values, NaN where the unit is bytes.
    """

    count: int
    total: int
    first: int
    expected: float
    actual: float
    unit: str = "elements"

    def __str__(self) -> str:
        share = f"{self.count} of {self.total} {self.unit}"
        if self.unit == "bytes":
            return share
        return f"{share}, first at {self.first}: {self.actual:.6g}, not {self.expected:.6g}"


def is_float(dtype: str) -> bool:
    """Whether memory of a torch dtype is compared with a tolerance; all else has to agree to the bit."""
    return dtype in FLOATS or dtype == "bfloat16"


def sensible(dtype: str) -> float:
    """Larger numbers than this don't widen the tolerance."""
    return SENSIBLE_HALF if dtype == "float16" else SENSIBLE


def decode_floats(data: bytes, dtype: str, wide: bool = True) -> np.ndarray:
    """Bytes of a torch dtype that numpy or a shift can read, as float64 or float32; whole elements only."""
    import numpy as np

    kind = "<f8" if wide else "<f4"
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return (
                (np.frombuffer(whole_elements(data, 2), "<u2").astype("<u4") << 16).view("<f4").astype(kind, copy=False)
            )
        stored = np.dtype(FLOATS[dtype])
        return np.frombuffer(whole_elements(data, stored.itemsize), stored).astype(kind, copy=False)


def compare_bytes(expected: bytes, actual: bytes, dtype: str, tolerance: float) -> Difference | None:
    """How ``actual`` differs from ``expected``, both of ``dtype``; None if they agree.

    Floats may differ by ``tolerance`` times the largest sensible number among the expected: another block size sums in
    another order, and cancellation leaves small numbers with large relative errors.
    """
    if expected == actual:
        return None
    if not is_float(dtype):
        return _bytewise(expected, actual)
    import numpy as np

    a, b = (decode_floats(x, dtype, wide=dtype == "float64") for x in (expected, actual))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    usual = np.abs(a[np.isfinite(a)])
    scale = float(usual[usual < sensible(dtype)].max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        off = ~same & ~(np.abs(a - b) <= tolerance * scale)
    if not off.any():
        return None
    first = int(np.argmax(off))
    return Difference(int(off.sum()), off.size, first, float(a[first]), float(b[first]))


def _bytewise(expected: bytes, actual: bytes) -> Difference:
    import numpy as np

    wrong = np.frombuffer(expected, "u1") != np.frombuffer(actual, "u1")
    nan = float("nan")
    return Difference(int(np.count_nonzero(wrong)), len(expected), int(np.argmax(wrong)), nan, nan, "bytes")


def whole_elements(data: bytes, width: int) -> bytes:
    """Without a part of an element at the end."""
    return data[: len(data) // width * width]
