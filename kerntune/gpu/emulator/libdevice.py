"""Functions of NVIDIA's libdevice and of AMD's device libraries, by numpy and torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.rounding_modes import function_of, fused

PREFIX = "__nv_"
FAST = "fast_"
"""Approximations to some ulp (libdevice user's guide); here they are exact."""

NAMES = re.compile(rf"(?:{PREFIX}|__ocml_|__ockl_|__triton_hip_)?(?:{FAST})?(\w+?)(?:_[fu](?:32|64))?")
"""``__nv_fast_expf``, ``__ocml_exp_f32``."""


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
    **dict.fromkeys(("fabs", "iabs", "llabs"), np.abs),
    **dict.fromkeys(("pow", "powi", "pown"), np.power),
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    **dict.fromkeys(("nearbyint", "llrint"), np.rint),
    "round": lambda x: np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fdivide": np.divide,
    "fma": fused,
    "tgamma": _by_torch(lambda x: torch.exp(torch.lgamma(x)) * torch.where((x < 0) & (torch.floor(x) % 2 != 0), -1, 1)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    **dict.fromkeys(("finite", "isfinite"), np.isfinite),
    "signbit": np.signbit,
    **dict.fromkeys(("popc", "popcount"), _bits(lambda v, width: v.bit_count())),
    "clz": _bits(lambda v, width: width - v.bit_length()),
    "ffs": _bits(lambda v, width: (v & -v).bit_length()),
}  # fmt: skip


def elementwise(symbol: str) -> Callable[..., Any]:
    """A function on arrays that computes what, for example, ``__nv_tanhf`` does. :class:`InterpreterLimit` for a
    function that isn't listed here."""
    rounding = function_of(symbol)
    if rounding is not None:
        return rounding
    for name in _spellings(symbol):
        if name in FUNCTIONS:
            return FUNCTIONS[name]
    raise InterpreterLimit(f"the kernel calls {symbol}, which kerntune has no CPU function for")


def _spellings(symbol: str) -> list[str]:
    """``__nv_fast_expf`` is ``exp`` in float32, ``__nv_isnand``, ``__nv_popcll``, ``__nv_fdiv_rn`` and
    ``__nv_fmaf_rn`` contain their types as well."""
    found = NAMES.fullmatch(symbol)
    name = found[1] if found else symbol
    rounded = [name[1:], name.replace("f_rn", "_rn")] if name.startswith("f") and name.endswith("_rn") else []
    return [name, *(name[: -len(end)] for end in ("f", "d", "ll", "l") if name.endswith(end)), *rounded]
