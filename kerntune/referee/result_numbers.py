"""The numbers of a result: what its bytes hold, and how fine its dtype is."""

from __future__ import annotations

import math

import numpy as np

from kerntune.base.recording import View
from kerntune.gpu.compare import FLOATS
from kerntune.gpu.memory import INTEGERS
from kerntune.gpu.number_formats import FLOAT_FORMATS, values
from kerntune.referee.hostile_recording import ITEM_BYTES
from kerntune.referee.tasks import BytesLike, ExpectedResult

ROUNDOFF = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3,
}  # fmt: skip
"""Half of a unit in the last place of 1, by dtype: the relative error of rounding to nearest."""

SMALLEST = {
    "float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133,
    "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16,
}  # fmt: skip
"""The smallest number above zero, by dtype."""

LARGEST = {
    "float16": 65504.0, "bfloat16": 2.0**127 * (2 - 2.0**-7), "float32": 2.0**127 * (2 - 2.0**-23),
    "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0,
}  # fmt: skip
"""The largest number, of dtypes in which extreme contents may overflow."""

DIGITS = 17
"""Decimal digits that tell any two numbers of float64 apart."""


def same_bytes(one: BytesLike, other: BytesLike) -> bool:
    """Whether these are the same. A memoryview compares itself one by one, and no other thread runs meanwhile."""
    return np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))


def bytes_at(raw: np.ndarray, view: View) -> np.ndarray:
    """The bytes of each element of a view, which lie in a storage's."""
    item = ITEM_BYTES[view.dtype]
    strides = (*(s * item for s in view.strides), 1)
    return np.lib.stride_tricks.as_strided(raw[view.offset_bytes :], (*view.shape, item), strides)


def taken(content: BytesLike, view: View) -> np.ndarray:
    """The elements of a view in a storage's bytes, as unsigned integers of their size, dense."""
    item = ITEM_BYTES[view.dtype]
    if 0 in view.shape:
        return np.zeros(view.shape, f"u{item}")
    found = bytes_at(np.frombuffer(content, np.uint8), view)
    return np.ascontiguousarray(found).view(f"<u{item}").reshape(view.shape)


def numbers(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Elements as float64; whole numbers as they are."""
    found = in_place(bits, dtype)
    return widened(found) if dtype in FLOAT_FORMATS else found


def widened(found: np.ndarray) -> np.ndarray:
    """Floats as float64. numpy warns of a signaling NaN, which any bytes may be."""
    with np.errstate(invalid="ignore"):
        return found.astype("<f8")


def in_place(bits: np.ndarray, dtype: str) -> np.ndarray:
    """The same in no more memory than the elements have, where numpy has such floats, or few more bits."""
    if dtype in FLOATS or dtype not in FLOAT_FORMATS:
        return np.asarray(bits.view(FLOATS.get(dtype) or INTEGERS[dtype]))
    if dtype == "bfloat16":
        return np.asarray((bits.astype("<u4") << np.uint32(16)).view("<f4"))
    return values(bits.astype(np.uint64), FLOAT_FORMATS[dtype])


def told_apart(one: float, other: float, digits: int = 2) -> tuple[str, str]:
    """Two numbers as texts with so many digits, or as many more as make them differ."""
    while digits < DIGITS and f"{one:.{digits}g}" == f"{other:.{digits}g}":
        digits += 1
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


SQUARABLE = 2.0**-400
"""Down to here, and up to its reciprocal, the squares of 2**64 numbers, and those of numbers 2**52 times as small, are
float64's own."""


def rms_of(x: np.ndarray) -> float:
    """Root mean square of numbers from 0 on. Where one is infinite, so is that."""
    top = float(np.max(x, initial=0.0))
    if not 0 < top < math.inf:
        return max(0.0, top)
    flat, power = x.reshape(-1), 1.0
    if not SQUARABLE < top < 1 / SQUARABLE:
        flat, power = flat / top, top
    return power * math.sqrt(float(np.dot(flat, flat)) / flat.size)


ALL = slice(None)


def numbers_of(result: ExpectedResult, which: slice = ALL) -> np.ndarray:
    """A reference's result, in float64 where it was computed so; of its elements some or all."""
    if result.wide:
        return np.frombuffer(result.wide, "<f8")[which]
    bits = np.frombuffer(result.native, f"<u{ITEM_BYTES[result.dtype]}")[which]
    return numbers(bits, result.dtype).astype(np.float64, copy=False)
