"""Floats that numpy lacks, and functions of NVIDIA's libdevice, by numpy and torch.

Triton's interpreter keeps such floats as bit patterns; here they become float32 and back. It adds, compares and
multiplies the patterns of bfloat16 as integers (triton#4972), truncates where the hardware rounds to nearest even,
and carries wrongly into the exponent of 8-bit floats. Its stubs of libdevice return None (#8825).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from kerntune.errors import InterpreterLimit

NARROW = {
    "bf16": torch.bfloat16,
    "fp8e5": torch.float8_e5m2,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
"""Triton's narrow floats as torch's (OCP "8-bit Floating Point Specification"; the last two are AMD's)."""

PLAIN = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def is_narrow(dtype: Any) -> bool:
    """Whether values of this Triton type are kept as bit patterns."""
    return bool(dtype.scalar.is_bf16() or dtype.scalar.is_fp8())


def is_fp8(dtype: Any) -> bool:
    """Whether this Triton type is an 8-bit float."""
    return bool(dtype.scalar.is_fp8())


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


def decode(data: np.ndarray, dtype: Any) -> np.ndarray:
    """The values behind bit patterns as float32, exactly; other types' values as they are."""
    stored = np.uint16 if dtype.scalar.is_bf16() else np.uint8
    return from_narrow(data, _kind(dtype.scalar)) if is_narrow(dtype) and data.dtype == stored else data


def encode(values: np.ndarray, dtype: Any, *, toward_zero: bool = False) -> np.ndarray:
    """Numbers in a Triton float type, to nearest even or toward zero, as its bit patterns (:func:`to_narrow`) or in
    numpy's own type."""
    scalar = dtype.scalar
    wide = np.asarray(values) if scalar.is_fp64() or scalar.is_fp16() else _float32(np.asarray(values))
    bits = to_narrow(wide, _kind(scalar)) if is_narrow(dtype) else np.asarray(wide.astype(PLAIN[scalar.name]))
    return _cut(bits, wide, scalar) if toward_zero else bits


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _cut(bits: np.ndarray, exact: np.ndarray, scalar: Any) -> np.ndarray:
    """One step back toward zero where rounding went away from it: patterns of one sign are ordered like integers."""
    pattern = bits if bits.dtype.kind == "u" else bits.view(f"u{bits.itemsize}")
    larger = np.abs(decode(bits, scalar)) > np.abs(exact)
    return np.asarray(np.where(larger, pattern - pattern.dtype.type(1), pattern), pattern.dtype).view(bits.dtype)


def _kind(scalar: Any) -> torch.dtype:
    if scalar.name not in NARROW:
        raise InterpreterLimit(f"{scalar.name} is a format that torch doesn't know, so it can't be checked here")
    return NARROW[scalar.name]


def numpy_type(dtype: Any) -> Any:
    """The numpy type that the interpreter keeps values of a Triton type in."""
    from triton.runtime import interpreter

    return interpreter._get_np_dtype(dtype)


def word_type(word: str) -> Any:
    """Triton's type for a scalar's type name in a signature: ``fp32``, ``i64``, ``u1``."""
    return tl.int1 if word in ("u1", "i1") else tl.str_to_ty(word, None)


PREFIX = "__nv_"
FAST = "fast_"
"""Approximations to some ulp (libdevice user's guide); here they are exact, which a test's tolerance must cover."""


def _by_torch(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
    def call(*values: np.ndarray) -> np.ndarray:
        return np.asarray(function(*(torch.from_numpy(np.array(v)) for v in values)).numpy())

    return call


def _bits(count: Callable[[int, int], int]) -> Callable[[np.ndarray], np.ndarray]:
    def call(values: np.ndarray) -> np.ndarray:
        width = values.dtype.itemsize * 8
        counted = np.vectorize(lambda v: count(int(v) & ((1 << width) - 1), width), otypes=[np.int32])
        return np.asarray(counted(values))

    return call


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in (
            "cbrt", "ceil", "copysign", "cos", "cosh", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "fmod",
            "hypot", "log", "log10", "log1p", "log2", "rint", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "abs",
        )
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")},
    **{name: _by_torch(getattr(torch, name)) for name in ("erf", "erfc", "erfinv", "lgamma")},
    "fabs": np.abs,
    "llabs": np.abs,
    "pow": np.power,
    "powi": np.power,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "nearbyint": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp_rn": lambda x: 1 / x,
    "div_rn": np.divide,
    "fdivide": np.divide,
    "mul_rn": np.multiply,
    "add_rn": np.add,
    "sub_rn": np.subtract,
    "sqrt_rn": np.sqrt,
    "fma": lambda x, y, z: np.float64(x) * y + z,
    "fma_rn": lambda x, y, z: np.float64(x) * y + z,
    "tgamma": _by_torch(lambda x: torch.exp(torch.lgamma(x)) * torch.where((x < 0) & (torch.floor(x) % 2 != 0), -1, 1)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "signbit": np.signbit,
    "popc": _bits(lambda v, width: v.bit_count()),
    "clz": _bits(lambda v, width: width - v.bit_length()),
    "ffs": _bits(lambda v, width: (v & -v).bit_length()),
}  # fmt: skip


def elementwise(symbol: str) -> Callable[..., Any]:
    """A function on arrays that computes what, for example, ``__nv_tanhf`` does. :class:`InterpreterLimit` for a
    function that isn't listed here."""
    for name in _spellings(symbol):
        if name in FUNCTIONS:
            return FUNCTIONS[name]
    raise InterpreterLimit(f"the kernel calls {symbol}, which kerntune has no CPU function for")


def _spellings(symbol: str) -> list[str]:
    """``__nv_fast_expf`` is ``exp`` in float32, ``__nv_isnand`` and ``__nv_popcll`` contain their types as well."""
    name = symbol.removeprefix(PREFIX).removeprefix(FAST)
    shorter = [name[: -len(end)] for end in ("f", "d", "ll", "l") if name.endswith(end)]
    return [name, *shorter]


def resolve(value: Any, semantic: Callable[[], Any]) -> Any:
    """The replacement of a value from a kernel's module when that is interpreted: ``tl`` functions that were imported
    by name and libdevice's get the interpreter, stubs become libdevice's; every other value is unchanged."""
    from triton.language.extra import libdevice as stubs
    from triton.language.extra.cuda import libdevice

    if getattr(value, "__module__", None) == stubs.__name__ and callable(value):
        value = vars(libdevice).get(value.__name__, value)
    if tl.core.is_builtin(value):
        return _with_interpreter(value, semantic)
    return value


def _with_interpreter(builtin: Any, semantic: Callable[[], Any]) -> Any:
    @functools.wraps(builtin)
    def call(*args: Any, **kwargs: Any) -> Any:
        return builtin(*args, **{**kwargs, "_semantic": kwargs.get("_semantic") or semantic()})

    return call


def modules() -> tuple[Any, ...]:
    """The modules whose functions kernels call as ``libdevice.tanh``."""
    from triton.language.extra import libdevice as stubs
    from triton.language.extra.cuda import libdevice

    return stubs, libdevice
