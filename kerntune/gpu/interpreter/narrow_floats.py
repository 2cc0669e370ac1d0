"""Floats that numpy lacks: Triton's interpreter keeps them as bit patterns; here they become float32 and back.

The interpreter adds, compares and multiplies the patterns of bfloat16 as integers (triton#4972), truncates where the
hardware rounds to nearest even, and carries wrongly into the exponent of 8-bit floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl

from kerntune.errors import InterpreterLimit

FP8 = {
    "fp8e5": torch.float8_e5m2,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
"""Triton's 8-bit floats as torch's (OCP "8-bit Floating Point Specification"; the last two are AMD's)."""

PLAIN = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def is_narrow(dtype: Any) -> bool:
    """Whether values of this Triton type are kept as bit patterns."""
    return bool(dtype.scalar.is_bf16() or dtype.scalar.is_fp8())


def is_fp8(dtype: Any) -> bool:
    """Whether this Triton type is an 8-bit float."""
    return bool(dtype.scalar.is_fp8())


def decode(data: np.ndarray, dtype: Any) -> np.ndarray:
    """The values behind bit patterns as float32, exactly; other types' values as they are."""
    scalar = dtype.scalar
    if scalar.is_bf16() and data.dtype == np.uint16:
        return (data.astype(np.uint32) << 16).view(np.float32)
    if scalar.is_fp8() and data.dtype == np.uint8:
        bits = torch.from_numpy(np.array(data)).view(_fp8(scalar))
        return np.asarray(bits.to(torch.float32).numpy())
    return data


def encode(values: np.ndarray, dtype: Any, *, toward_zero: bool = False) -> np.ndarray:
    """Numbers in a Triton float type, to nearest even or toward zero, as its bit patterns or in numpy's own type.

    8-bit floats saturate as the hardware's conversions do (PTX ISA, ``cvt.satfinite``): no finite value, and no
    infinity, becomes one.
    """
    scalar = dtype.scalar
    wide = np.asarray(values) if scalar.is_fp64() or scalar.is_fp16() else _float32(np.asarray(values))
    if scalar.is_bf16():
        bits = _bf16(wide)
    elif scalar.is_fp8():
        bits = _saturated(wide, scalar)
    else:
        bits = np.asarray(wide.astype(PLAIN[scalar.name]))
    return _cut(bits, wide, scalar) if toward_zero else bits


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _bf16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    return np.asarray(np.where(np.isnan(values), np.uint32(0x7FFF), rounded), np.uint16)


def _saturated(values: np.ndarray, scalar: Any) -> np.ndarray:
    kind = _fp8(scalar)
    most = torch.finfo(kind).max
    clamped = torch.from_numpy(np.array(values)).clamp(-most, most)  # keeps NaN
    return np.asarray(clamped.to(kind).view(torch.uint8).numpy())


def _cut(bits: np.ndarray, exact: np.ndarray, scalar: Any) -> np.ndarray:
    """One step back toward zero where rounding went away from it: patterns of one sign are ordered like integers."""
    pattern = bits if bits.dtype.kind == "u" else bits.view(f"u{bits.itemsize}")
    larger = np.abs(decode(bits, scalar)) > np.abs(exact)
    return np.asarray(np.where(larger, pattern - pattern.dtype.type(1), pattern), pattern.dtype).view(bits.dtype)


def _fp8(scalar: Any) -> torch.dtype:
    if scalar.name not in FP8:
        raise InterpreterLimit(f"{scalar.name} is a format that torch doesn't know, so it can't be checked here")
    return FP8[scalar.name]


def numpy_type(dtype: Any) -> Any:
    """The numpy type that the interpreter keeps values of a Triton type in."""
    from triton.runtime import interpreter

    return interpreter._get_np_dtype(dtype)


def word_type(word: str) -> Any:
    """Triton's type for a scalar's type name in a signature: ``fp32``, ``i64``, ``u1``."""
    return tl.int1 if word in ("u1", "i1") else tl.str_to_ty(word, None)
