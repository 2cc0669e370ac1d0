"""Whether all that a reference does is exact: comparisons, choices, powers of two, whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kerntune.referee.torch_operators import COUNTING, DECIDING, MOVING

COMPARING = frozenset((
    "abs", "all", "any", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "count_nonzero", "eq", "ge", "gt",
    "isfinite", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "nan_to_num",
    "ne", "neg",
))  # fmt: skip
"""Operators that say of NaN what IEEE 754 or torch does. Maxima don't, nor do roundings to whole numbers."""

CHOOSING = frozenset((
    "diag_embed", "diagonal_backward", "diagonal_scatter", "fill_diagonal", "masked_fill", "masked_fill_",
    "masked_scatter", "select_backward", "slice_backward", "tril", "triu", "where",
))  # fmt: skip
"""Operators that put zeros beside what they move, which a kernel may multiply by: then NaN are more."""

ARITHMETIC = ("add", "mul", "rsub", "sub")
"""Operators whose results are the nearest numbers."""

KNOWN: Mapping[str, tuple[str, ...]] = {
    "ends": ("erf", "exp", "exp2", "log", "log10", "log2", "logaddexp", "rsqrt", "sigmoid", "sqrt", "tanh"),
    "specks": ("expm1", "hypot", "log1p"),
    "multiples": ("floor_divide",),
}
"""Functions that have known results at zeros and infinities (C, annex F), those that are asked for where numbers near
zero count, and where quotients are nearly whole numbers."""

WIDE = ("torch.float32", "torch.float64")

FINITE = ("grid", "decided", "sized")
"""Numbers (:func:`exact_results`) that are none of NaN and infinities."""


def is_exact(where: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    library, word, overload = name.split(".")
    if library != "aten":
        return False
    if word == "sort":
        return bool(kwargs.get("stable")) and where != "nan"
    if overload == "decimals" or "alpha" in kwargs:
        return False
    if where in KNOWN:
        return word in MOVING or word in KNOWN[where]
    floats = [x for x in args if hasattr(x, "untyped_storage") and x.is_floating_point()]
    if word in COUNTING:
        others = [x for x in args[1:] if not hasattr(x, "is_floating_point")]
        few = where == "grid" and word in ("mul", "add", "sub", "rsub") and _few_bits(word, floats, args, others)
        return not floats or few
    if where not in ("grid", "decided") and word == "_to_copy" and floats:
        dtype = kwargs.get("dtype")
        if dtype is None or dtype.is_floating_point:
            return dtype is None or where == "nan" or bool(dtype.itemsize > 1)
        return dtype != torch.bool and _holds(dtype, floats[0])
    if where == "kept":
        return word == "nan_to_num" or (word in MOVING and word not in CHOOSING)
    return word in MOVING or word in (COMPARING if where == "nan" else DECIDING)


def _holds(dtype: Any, floats: Any) -> bool:
    """Whether whole numbers of a dtype reach to all these: others become what a processor or a GPU makes of them."""
    ends = torch.iinfo(dtype)
    return bool(((floats > ends.min - 1) & (floats < ends.max)).all())


def _few_bits(word: str, floats: Sequence[Any], args: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether one tensor of floats meets one number by which no bit of its few is lost."""
    if len(args) != 2 or len(floats) != 1 or len(others) != 1 or not isinstance(others[0], (int, float)):
        return False
    number, power = float(others[0]), _is_power(others[0])
    few = (number * 256).is_integer() and abs(number) <= 1024
    return (power and word == "mul" and 2**-8 <= abs(number) <= 1024) or (few and str(floats[0].dtype) in WIDE)


def _is_power(number: Any) -> bool:
    """Whether it is a power of two, by which none but the smallest numbers are rounded."""
    return isinstance(number, (int, float)) and abs(float(number)).hex().startswith("0x1.0000000000000p")
