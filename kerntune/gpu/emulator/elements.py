"""Elements of TTIR's types as numpy arrays, and their elementwise operations with the rounding of each type.

``bf16`` and 8-bit floats are kept as float32 that holds a number of that type; every operation rounds its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.approximations import BOUNDS, approximated
from kerntune.gpu.emulator.libdevice import FAST, PREFIX, elementwise
from kerntune.gpu.emulator.rounding_modes import fused, saturated

INTEGERS = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64}
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
NARROW = {
    "bf16": torch.bfloat16,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}
"""MLIR's words, and torch's types of the same formats (OCP "8-bit Floating Point Specification")."""

BYTES: dict[str, int] = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "f16": 2,
    "f32": 4,
    "f64": 8,
    "ptr": 8,
    **{element: kind.itemsize for element, kind in NARROW.items()},
}


def numpy_of(element: str) -> Any:
    """What values of an element type are kept in."""
    if element in INTEGERS:
        return INTEGERS[element]
    if element in FLOATS:
        return FLOATS[element]
    if element in NARROW:
        return np.float32
    if element in ("ptr", "desc"):
        return np.int64
    raise InterpreterLimit(f"values of type {element} can't be emulated")


def bytes_of(element: str) -> int:
    """The size of an element in memory."""
    if element not in BYTES:
        raise InterpreterLimit(f"values of type {element} can't be emulated")
    return BYTES[element]


def rounded(values: Any, element: str) -> np.ndarray:
    """Numbers as those of an element type, to nearest even; 8-bit floats saturate."""
    array = np.asarray(values).astype(numpy_of(element))
    return from_bits(to_bits(array, element), element) if element in NARROW else array


def cut(values: np.ndarray, element: str) -> np.ndarray:
    """Numbers as those of a float type, toward zero: one step back where rounding went away from it, for patterns of
    one sign are ordered like integers."""
    nearest = rounded(values, element)
    bits = unsigned(to_bits(nearest, element))
    larger = np.abs(nearest) > np.abs(values)
    return from_bits(np.where(larger, bits - bits.dtype.type(1), bits), element)


def to_narrow(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """Numbers of float32 as bit patterns of bfloat16 or of an 8-bit float, to nearest even.

    8-bit floats saturate as the hardware's conversions do (PTX ISA, ``cvt.satfinite``): no finite value, and no
    infinity, becomes one.
    """
    if kind is torch.bfloat16:
        bits = values.view(np.uint32)
        nearest = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
        return np.asarray(np.where(np.isnan(values), np.uint32(0x7FFF), nearest), np.uint16)
    most = torch.finfo(kind).max
    clamped = torch.from_numpy(np.array(values)).clamp(-most, most)  # keeps NaN
    return np.asarray(clamped.to(kind).view(torch.uint8).numpy())


def from_narrow(bits: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """The numbers behind such patterns as float32, exactly."""
    if kind is torch.bfloat16:
        return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    found = torch.from_numpy(np.array(bits.view(np.uint8))).view(kind)
    return np.asarray(found.to(torch.float32).numpy())


def to_bits(values: np.ndarray, element: str) -> np.ndarray:
    """Values as they lie in memory: an array of numpy's own type of that size."""
    if element in NARROW:
        return to_narrow(np.asarray(values, np.float32), NARROW[element])
    return np.asarray(values, numpy_of(element))


def from_bits(bits: np.ndarray, element: str) -> np.ndarray:
    """The inverse of :func:`to_bits`; ``bits`` may have any type of the element's size."""
    if element in NARROW:
        return from_narrow(bits, NARROW[element])
    if element == "i1":
        return np.asarray(bits.view(np.uint8) != 0)
    return bits.view(numpy_of(element))


def unsigned(values: np.ndarray) -> np.ndarray:
    """The same bits as numbers without a sign."""
    return values if values.dtype == np.bool_ else values.view(f"u{values.dtype.itemsize}")


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Downwards; by 0 it has all bits, as a GPU's quotient has, and the remainder is the dividend."""
    return np.asarray(np.where(b == 0, ~a.dtype.type(0), np.floor_divide(a, np.where(b == 0, b.dtype.type(1), b))))


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Toward zero."""
    whole, safe = _divided(a, b), np.where(b == 0, b.dtype.type(1), b)
    up = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
    return np.asarray(np.where(up, whole + whole.dtype.type(1), whole))


def _of_unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: np.ndarray) -> np.ndarray:
        result = np.asarray(function(*map(unsigned, values)))
        return result if values[0].dtype == np.bool_ else result.astype(unsigned(values[0]).dtype).view(values[0].dtype)

    return call


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(a ^ b if a.dtype == np.bool_ else a + b)


def _high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.itemsize <= 4:
        wide = unsigned(a).astype(np.uint64) * unsigned(b).astype(np.uint64)
        return np.asarray((wide >> np.uint64(a.dtype.itemsize * 8)).astype(unsigned(a).dtype).view(a.dtype))
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = unsigned(a), unsigned(b)
    x0, x1, y0, y1 = x & low, x >> shift, y & low, y >> shift
    middle = x1 * y0 + ((x0 * y0) >> shift)
    other = x0 * y1 + (middle & low)
    return np.asarray(x1 * y1 + (middle >> shift) + (other >> shift)).view(a.dtype)


def _signed_zeros(found: np.ndarray, a: np.ndarray, b: np.ndarray, turned: Callable[..., Any]) -> np.ndarray:
    """A maximum, or with ``turned`` signs a minimum, for which 0 is above -0 (PTX ISA, ``max``)."""
    zero = (a == b) & (found == 0)
    return np.where(zero, turned(turned(a) + turned(b)), found) if zero.any() else np.asarray(found)


MADE_NAN = {"f32": np.uint32(0x7FFFFFFF).view(np.float32), "f16": np.uint16(0x7FFF).view(np.float16)}
"""What an operation gives that isn't a number (PTX ISA, "Floating Point"; a GPU's float16 has all bits, too)."""

MAKES_NAN = frozenset(
    (
        *(f"arith.{name}f" for name in ("add", "sub", "mul", "div", "rem", "maxnum", "minnum", "maximum", "minimum")),
        *(f"math.{name}" for name in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "fma")),
        "tt.precise_divf", "tt.precise_sqrt",
    )
)  # fmt: skip
"""Elementwise operations whose NaN has these bits, whatever an operand's has."""


def with_made_nan(values: np.ndarray, element: str) -> np.ndarray:
    """An operation's results, with a GPU's own NaN."""
    odd = np.isnan(values)
    return np.where(odd, MADE_NAN[element], values) if odd.any() else values


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "arith.addi": _add,
    "arith.subi": lambda a, b: a ^ b if a.dtype == np.bool_ else a - b,
    "arith.muli": lambda a, b: a & b if a.dtype == np.bool_ else a * b,
    "arith.divsi": _quotient,
    "arith.remsi": lambda a, b: a - _quotient(a, b) * b,
    "arith.divui": _of_unsigned(_divided),
    "arith.remui": _of_unsigned(lambda a, b: a - _divided(a, b) * b),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": _of_unsigned(np.right_shift),
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxui": _of_unsigned(np.maximum),
    "arith.minui": _of_unsigned(np.minimum),
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "arith.maxnumf": lambda a, b: _signed_zeros(np.fmax(a, b), a, b, np.positive),
    "arith.minnumf": lambda a, b: _signed_zeros(np.fmin(a, b), a, b, np.negative),
    "arith.maximumf": lambda a, b: _signed_zeros(np.maximum(a, b), a, b, np.positive),
    "arith.minimumf": lambda a, b: _signed_zeros(np.minimum(a, b), a, b, np.negative),
    "tt.precise_divf": np.divide,
    "tt.mulhiui": _high_product,
    "arith.negf": np.negative,
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.log": np.log,
    "math.log2": np.log2,
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.absf": np.abs,
    "math.absi": np.abs,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.erf": elementwise("__nv_erff"),
    "tt.precise_sqrt": np.sqrt,
    "math.fma": fused,
}
"""Of operands of one type, which the result has as well."""

_ORDER: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def compare_integers(predicate: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``arith.cmpi``: but for equality, a predicate begins with ``s`` or ``u`` for the sign."""
    if predicate in _ORDER:
        return np.asarray(_ORDER[predicate](a, b))
    if predicate[0] == "u":
        a, b = unsigned(a), unsigned(b)
    elif a.dtype == np.bool_:  # true is -1
        a, b = -a.astype(np.int8), -b.astype(np.int8)
    return np.asarray(_ORDER[predicate[1:]](a, b))


def compare_floats(predicate: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``arith.cmpf``: a predicate that begins with ``o`` is false, with ``u`` true, where one side is NaN."""
    odd = np.isnan(a) | np.isnan(b)
    if predicate in ("false", "true"):
        return np.full(odd.shape, predicate == "true")
    if predicate in ("ord", "uno"):
        return np.asarray(odd if predicate == "uno" else ~odd)
    found = _ORDER[predicate[1:]](a, b)
    return np.asarray(found | odd if predicate[0] == "u" else found & ~odd)


def converted(name: str, value: np.ndarray, target: str) -> np.ndarray:
    """A conversion of ``arith``; floats to integers saturate as hardware's do, which has none of 8 bits: those are the
    low bits of one of 16 (LLVM's NVPTX keeps them so; PTX ISA, ``cvt``)."""
    if name in ("arith.extui", "arith.uitofp"):
        value = unsigned(value)
    elif value.dtype == np.bool_ and name in ("arith.extsi", "arith.sitofp"):
        value = -value.astype(np.int8)
    if name in ("arith.fptosi", "arith.fptoui"):
        kind = np.dtype(numpy_of(target))
        if kind != np.bool_:
            kind = np.dtype(f"{'u' if name == 'arith.fptoui' else 'i'}{max(kind.itemsize, 2)}")
        made = saturated(np.trunc(value.astype(np.float64)), kind)
        return made.astype(numpy_of(target)) if target == "i8" else made.view(numpy_of(target))
    if name == "arith.trunci" and target == "i1":
        return np.asarray((value & 1) != 0)
    if target in INTEGERS:
        return value.astype(numpy_of(target))
    return rounded(value, target)


def constant(text: str, element: str) -> np.ndarray:
    """The number of an ``arith.constant``, which is one for a whole tensor."""
    word = text.removeprefix("dense<").removesuffix(">") if text.startswith("dense<") else text
    if word in ("true", "false"):
        return np.asarray(word == "true")
    if word.startswith(('"', "[")):
        raise InterpreterLimit("it has a constant with several values")
    if element in INTEGERS:
        number = int(word, 16) if word.startswith("0x") else int(word)
        return np.asarray(number & (1 << 64) - 1, np.uint64).view(np.int64).astype(INTEGERS[element])
    if word.startswith("0x"):
        size = bytes_of(element)
        return from_bits(np.asarray([int(word, 16)], f"u{size}"), element)[0:1].reshape(())
    return rounded(float(word), element)


def extern(symbol: str) -> Callable[..., Any]:
    """A function of libdevice."""
    exact = elementwise(symbol)
    name = symbol.removeprefix(f"{PREFIX}{FAST}")
    if name == symbol:
        return exact
    if name not in BOUNDS:
        raise InterpreterLimit(f"the kernel calls {symbol}, whose error isn't known")
    return lambda *values: approximated(name, exact, *values)


def nearest_tf32(values: np.ndarray) -> np.ndarray:
    """Float32 as descriptors read it with ``round_f32_to_tf32``: 10 bits of mantissa, to nearest even."""
    bits = values.view(np.uint32)
    nearest = (bits + (((bits >> 13) & 1) + np.uint32(0xFFF))) & np.uint32(0xFFFFE000)
    return np.asarray(np.where(np.isfinite(values), nearest, bits).view(np.float32))


def updated(how: str, old: np.ndarray, value: np.ndarray, element: str) -> np.ndarray:
    """What an atomic operation leaves."""
    if how == "exch":
        return value
    if how in ("add", "fadd"):
        return rounded(old + value, element) if how == "fadd" else old + value
    if how in ("umax", "umin"):
        return np.asarray((np.maximum if how == "umax" else np.minimum)(unsigned(old), unsigned(value)).view(old.dtype))
    functions: Mapping[str, Callable[..., Any]] = {
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum,
    }  # fmt: skip
    return np.asarray(functions[how](old, value))
