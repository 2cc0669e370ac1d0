"""Arithmetic of float32 and float64 that rounds in a named direction, or once for a product and a sum.

PTX ISA, "Rounding Modifiers": ``rn`` is to nearest even, ``rz`` toward zero, ``rd`` downwards (``.rm``), ``ru`` upwards
(``.rp``). Libdevice's functions have these as the ends of their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

ARITHMETIC = re.compile(r"__nv_[fd]?(add|sub|mul|div|rcp|sqrt|rsqrt|fmaf?)_(rn|rd|ru|rz)")
"""``__nv_fdiv_rn``, ``__nv_dsqrt_ru``, ``__nv_fmaf_rz``; older versions have no ``f`` or ``d``."""

TO_WHOLE = re.compile(r"__nv_(?:float|double)2(int|uint|ll|ull)_(rn|rd|ru|rz)")
TO_FLOAT = re.compile(r"__nv_(int|uint|ll|ull)2(float|double)_(rn|rd|ru|rz)")
NARROWER = re.compile(r"__nv_double2float_(rn|rd|ru|rz)")

WHOLE = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}

TO_INTEGER: dict[str, Callable[..., Any]] = {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}

SPLIT = 2.0**27 + 1
"""Parts a float64 into two of 26 bits (Dekker, A floating-point technique for extending the available precision)."""

SPLITTABLE = 2.0**-450, 2.0**450
"""Of numbers between these the parts of products neither overflow nor vanish."""


def function_of(symbol: str) -> Callable[..., np.ndarray] | None:
    """What such a function of libdevice computes, by its name; None for others."""
    if found := ARITHMETIC.fullmatch(symbol):
        name, mode = found.groups()
        return lambda *values: _arithmetic(name.removesuffix("f"), mode, values)
    if found := TO_WHOLE.fullmatch(symbol):
        name, mode = found.groups()
        kind = np.dtype(WHOLE[name])
        return lambda x: saturated(TO_INTEGER[mode](x), kind).view(f"i{kind.itemsize}")
    if found := TO_FLOAT.fullmatch(symbol):
        name, to, mode = found.groups()
        target = np.float32 if to == "float" else np.float64
        return lambda x: _of_whole(x.view(WHOLE[name]), target, mode)
    if found := NARROWER.fullmatch(symbol):
        mode = found[1]
        return lambda x: _toward(mode, x.astype(np.float32), np.sign(x - x.astype(np.float32)))
    return None


def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``x * y + z``, rounded once to nearest. Of what is narrower it is in float64, for rounding to that."""
    if x.dtype != np.float64:
        return _odd_sum(x.astype(np.float64) * y, z.astype(np.float64))
    x, y, z = np.broadcast_arrays(x, y, z)
    plain = x * y + z
    least, most = SPLITTABLE
    fit = [np.abs(x), np.abs(y), np.abs(x * y)]
    usual = (np.minimum.reduce(fit) > least) & (np.maximum.reduce([*fit, np.abs(z)]) < most)
    product, rest = _product(x, y)
    low, lower = _sum(z, rest)
    high, middle = _sum(product, low)
    return np.asarray(np.where(usual, high + _odd_sum(lower, middle), plain))


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A sum and what its rounding has lost (Knuth's TwoSum)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """A product and what its rounding has lost (Dekker's TwoProduct)."""
    (high, low), (top, bottom) = _parts(a), _parts(b)
    product = a * b
    return product, ((high * top - product) + high * bottom + low * top) + low * bottom


def _parts(a: Any) -> tuple[Any, Any]:
    wide = a * SPLIT
    high = wide - (wide - a)
    return high, a - high


def _odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A sum of float64 that is the odd one of its neighbours where it isn't exact, so that rounding it again to fewer
    bits gives what rounding once does (Boldo and Melquiond, Emulation of FMA and correctly rounded sums)."""
    total, lost = _sum(a, b)
    total = np.array(total)
    moved = np.isfinite(total) & np.isfinite(lost) & (lost != 0) & (total.view(np.int64) & 1 == 0)
    return np.asarray(np.where(moved, np.nextafter(total, np.where(lost > 0, np.inf, -np.inf)), total))


def _arithmetic(name: str, mode: str, values: Sequence[np.ndarray]) -> np.ndarray:
    values = [np.asarray(v) for v in values]
    kind = values[0].dtype
    if name == "rsqrt":
        return np.asarray((1 / np.sqrt(values[0].astype(np.float64))).astype(kind))
    if name == "rcp":
        name, values = "div", [np.ones((), kind), *values]
    nearest = np.asarray(NEAREST[name](*values)).astype(kind)
    if mode == "rn":
        return nearest
    if kind == np.float64:
        return _toward(mode, nearest, _sides(name, nearest, values))
    return _toward(mode, nearest, np.sign(IN_FLOAT64[name](*(v.astype(np.float64) for v in values)) - nearest))


NEAREST: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt, "fma": fused,
}  # fmt: skip

IN_FLOAT64: dict[str, Callable[..., Any]] = {
    **NEAREST,
    "add": _odd_sum,
    "sub": lambda a, b: _odd_sum(a, -b),
    "fma": lambda a, b, c: _odd_sum(a * b, c),
}
"""Of float32: on the same side of each float32 as what is exact. Quotients and roots of numbers of 24 bits are ones of
24 bits, or further from these than float64 rounds."""

BESIDE: dict[str, Callable[..., Fraction]] = {
    "add": lambda found, a, b: a + b - found,
    "sub": lambda found, a, b: a - b - found,
    "mul": lambda found, a, b: a * b - found,
    "div": lambda found, a, b: a / b - found,
    "sqrt": lambda found, a: a - found**2,
    "fma": lambda found, a, b, c: a * b + c - found,
}
"""A number above 0 where the exact result is above what is found."""


def _sides(name: str, nearest: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
    """Of float64, element by element: 1 where the exact result is above the nearest number, -1 where it is below."""
    spread = np.broadcast_arrays(nearest, *values)
    sides = np.zeros(nearest.shape)
    for at in np.ndindex(nearest.shape):
        found, *given = (float(v[at]) for v in spread)
        if not all(map(math.isfinite, given)) or math.isnan(found) or (name == "div" and given[1] == 0):
            continue
        exact = map(Fraction, given)
        sides[at] = -math.copysign(1, found) if math.isinf(found) else _sign(BESIDE[name](Fraction(found), *exact))
    return sides


def _sign(number: Fraction | int) -> int:
    return (number > 0) - (number < 0)


def _toward(mode: str, nearest: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Results to nearest as those of a direction."""
    one = nearest.dtype.type
    positive = np.where(nearest == 0, sides, nearest) > 0
    down = (sides < 0) & ((mode == "rd") | ((mode == "rz") & positive))
    up = (sides > 0) & ((mode == "ru") | ((mode == "rz") & ~positive))
    moved = np.where(down, np.nextafter(nearest, one(-np.inf)), nearest)
    return np.asarray(np.where(up, np.nextafter(nearest, one(np.inf)), moved))


def saturated(rounded: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Whole numbers of a type, the nearest one of those beyond it, 0 of NaN (PTX ISA, ``cvt``)."""
    low, high = (0, 1) if kind == np.bool_ else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    top, bottom = rounded >= float(high), rounded <= float(low)
    made = np.where(top | bottom | np.isnan(rounded), 0, rounded).astype(kind)
    return np.asarray(np.where(top, kind.type(high), np.where(bottom, kind.type(low), made)).astype(kind))


def _of_whole(numbers: np.ndarray, target: Any, mode: str) -> np.ndarray:
    nearest = np.asarray(numbers.astype(target))
    sides = [_sign(int(n) - int(found)) for n, found in zip(numbers.flat, nearest.flat, strict=True)]
    return _toward(mode, nearest, np.array(sides).reshape(nearest.shape))
