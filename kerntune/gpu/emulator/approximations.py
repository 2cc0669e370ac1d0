"""Fast functions of libdevice, with errors as large as NVIDIA says that they may be.

CUDA C++ Programming Guide, "Mathematical Functions", "Intrinsic Functions": the maximum errors of ``__sinf`` and the
others, which ``__nv_fast_sinf`` and its like are. Outside of [-pi, pi] it says "larger" of sine and cosine; PTX ISA
(``sin.approx``) has 2**-20.5 up to 2 pi and 2**-14.7 up to 100 pi, which ``abs(x) * 2**-23`` meets at both ends.
Exponentials are computed as libdevice and Triton's own ``exp`` compute them: a rounded product and ``ex2.approx``. The
guide's bound for ``__expf``, 2 + floor(abs(1.173 * x)) units, is of both. Triton's own division of float32 is PTX's
``div.full.f32``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from kerntune.gpu.emulator.rounding_modes import fused

Bound = Callable[..., np.ndarray]


def _ulps(count: object) -> Bound:
    """A bound in units of the result's last place; ``count`` is a number or a function of the arguments."""

    def bound(exact: np.ndarray, *values: np.ndarray) -> np.ndarray:
        many = count(*values) if callable(count) else count
        unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126))) - 23)
        return np.asarray(many * unit)

    return bound


def _logarithm(near_one: float, ulps: int) -> Bound:
    """Absolute between 0.5 and 2, in units of the last place outside."""

    def bound(exact: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.where((x >= 0.5) & (x <= 2), near_one, _ulps(ulps)(exact, x))

    return bound


def _wave(near: float) -> Bound:
    return lambda exact, x: np.where(np.abs(x) <= np.pi, near, np.minimum(np.abs(x) * 2.0**-23, 1.0))


def _tangent(exact: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of a quotient of sine and cosine."""
    cosine = np.cos(x)
    of_sine, of_cosine = BOUNDS["sinf"](exact, x), BOUNDS["cosf"](exact, x)
    return np.asarray(of_sine / np.abs(cosine) + of_cosine * np.abs(np.sin(x)) / cosine**2)


def _power(exact: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of ``exp2(y * log2(x))``, with two units of the last place for ``exp2``."""
    logarithm = np.log2(np.abs(x))
    relative = np.log(2.0) * np.abs(y) * BOUNDS["log2f"](logarithm, np.abs(x))
    return np.asarray(np.abs(exact) * relative + _ulps(2)(exact))


BOUNDS: Mapping[str, Bound] = {
    "sinf": _wave(2.0**-21.41),
    "cosf": _wave(2.0**-21.19),
    "tanf": _tangent,
    "expf": _ulps(2),
    "exp10f": _ulps(2),
    "logf": _logarithm(2.0**-21.41, 3),
    "log2f": _logarithm(2.0**-22, 2),
    "log10f": _logarithm(2.0**-24, 3),
    "powf": _power,
    "fdividef": _ulps(2),
}
"""By the name after ``__nv_fast_``, the largest absolute error of a result; of exponentials that of ``ex2.approx.f32``
(PTX ISA, ``ex2``)."""

FACTORS = {"expf": np.float32(np.log2(np.e)), "exp10f": np.float32(np.log2(10))}
"""Exponentials, and what their argument is multiplied by."""

LEAST_NORMAL = 2.0**-126
"""Of smaller results of ``ex2.approx.ftz.f32`` nothing is left; of 0 it is 1 (PTX ISA, ``ex2``)."""


def approximated(name: str, function: Callable[..., np.ndarray], *values: np.ndarray) -> np.ndarray:
    """Results of the function with an error that follows from the arguments' bits, evenly between the bounds; none of
    infinities (PTX ISA, ``ex2.approx`` and ``lg2.approx``)."""
    wide = [np.asarray(v, np.float64) for v in values]
    if name in FACTORS:
        function, wide = np.exp2, [np.asarray(np.asarray(values[0], np.float32) * FACTORS[name], np.float64)]
    exact = np.asarray(function(*wide))
    bits = np.zeros(exact.shape, np.uint32)
    for value in values:
        bits = (bits ^ np.asarray(value, np.float32).view(np.uint32)) * np.uint32(2654435761)
    share = (bits >> np.uint32(8)).astype(np.float64) / 2.0**23 - 1
    found = exact + share * BOUNDS[name](exact, *wide)
    if name == "fdividef":
        found = np.where(np.abs(wide[1]) > 2.0**126, 0.0, found)
    if name in FACTORS:
        found = np.where(found < LEAST_NORMAL, 0.0, np.where(wide[0] == 0, 1.0, found))
    sure = math.prod((np.isfinite(x) for x in wide), start=np.isfinite(exact))
    return np.where(sure, found, exact)


ROUNDED_OFF = np.uint64((1 << 29) - 1)
"""Bits of a float64's mantissa that float32 hasn't."""

UNSURE = 0.25
"""A reciprocal that is rounded by more, in units of the last place, may be the one on the other side: then a quotient
is off by 2 at most."""

FEW_BITS = np.uint64((1 << 45) - 1)
"""Where these bits of a divisor's mantissa are zeros, its reciprocal is the nearest one: so are powers of two exact."""


def _drawn_by(numbers: np.ndarray) -> np.ndarray:
    """Whether what float32 numbers give is rounded to the other side: for half of them, by their bits."""
    return np.asarray((numbers.view(np.uint32) * np.uint32(2654435761)) >> np.uint32(31) == 1)


def root(x: np.ndarray) -> np.ndarray:
    """Float32 roots as ``sqrt.approx.ftz.f32`` may compute them, which Triton's ``sqrt`` is: within a unit of the last
    place (PTX ISA, ``sqrt``), to which side follows from the number's bits. Subnormal numbers count as zeros."""
    numbers = np.asarray(x, np.float32)
    exact = np.sqrt(np.where(np.abs(numbers) < LEAST_NORMAL, np.copysign(0.0, numbers), numbers.astype(np.float64)))
    near = exact.astype(np.float32)
    other = np.nextafter(near, np.where(exact > near, np.inf, -np.inf).astype(np.float32))
    unsure = np.abs(exact - near) > UNSURE * np.abs(other.astype(np.float64) - near)
    return np.asarray(np.where(unsure & _drawn_by(numbers), other, near))


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What a quotient that is rounded and cut leaves of ``a``, rounded once: so NVPTX computes ``frem`` of LLVM, in
    float32 at least."""
    kind = np.result_type(a, b, np.float32)
    a, b = (np.asarray(x, kind) for x in (a, b))
    return np.where(np.isinf(b), a, fused(-np.trunc(a / b), b, a))


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Float32 divided as ``div.full.f32`` does: by a reciprocal, whose rounding follows from the divisor's bits, and a
    product. That is off by 2 units of the last place at most (PTX ISA, ``div``), and ``x / x`` may be below 1."""
    divisor = np.asarray(b, np.float64)
    bits, exact = divisor.view(np.uint64), np.asarray(1 / divisor)
    pattern = exact.view(np.uint64)
    lost = (pattern & ROUNDED_OFF).astype(np.float64) / 2.0**29
    other = (np.minimum(lost, 1 - lost) > UNSURE) & (bits & FEW_BITS != 0) & _drawn_by(np.asarray(b, np.float32))
    up = (lost > 0.5) != other
    whole = (pattern & ~ROUNDED_OFF) + up.astype(np.uint64) * (ROUNDED_OFF + np.uint64(1))
    reciprocal = np.where(np.isfinite(exact), whole.view(np.float64), exact)
    return np.asarray(np.asarray(a, np.float64) * reciprocal).astype(np.float32)
