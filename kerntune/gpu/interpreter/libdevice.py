"""Functions of NVIDIA's libdevice, by numpy and torch. Triton's interpreter has none: its stubs return None (#8825)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from kerntune.errors import InterpreterLimit

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
    "round": lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
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
