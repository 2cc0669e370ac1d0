"""Hints from a call: sizes from its arguments, tile shape and elements per thread from its types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from kerntune.errors import HintError
from kerntune.heuristics.hints import AXES, TileHint
from kerntune.heuristics.sizing import ceil_pow2

SQUARE_ARGUMENTS = 4
"""A 2-D kernel with four arguments that aren't constexprs (in, out, two sizes) is a transposing copy.

torch 2.13, ``codegen/triton_utils.py``, select_tile_hint.
"""

FP8_ELEMENTS_PER_THREAD = {"float8_e5m2": 4, "fp8e5": 4, "f8E5M2": 4, "float8_e4m3fn": 2, "fp8e4nv": 2, "f8E4M3FN": 2}
"""Fewest elements a thread must hold for Triton to convert to or from a type, under torch's, Triton's, MLIR's names.

torch 2.13, ``codegen/triton.py``, to_dtype.
"""


def round_sizes(numels: Mapping[str, int], *, kernel: str = "") -> dict[str, int]:
    """Numbers of elements by axis as size hints: each rounded up to a power of two.

    Raises :class:`~kerntune.errors.HintError` that names the axis for an unknown one, and for a number below 1: an
    empty launch needs no config.
    """
    where = f"kernel {kernel}: " if kernel else ""
    for axis, numel in numels.items():
        if axis not in AXES:
            raise HintError(f"{where}unknown axis {axis!r}: the axes are {', '.join(AXES)}")
        if isinstance(numel, bool) or not isinstance(numel, int) or numel < 1:
            raise HintError(f"{where}axis {axis} has {numel!r} elements: a size hint needs a positive integer")
    return {axis: ceil_pow2(numel) for axis, numel in numels.items()}


def sizes_from_arguments(
    dimensions: Mapping[str, str | Sequence[str]], arguments: Mapping[str, object], *, kernel: str = ""
) -> dict[str, int]:
    """Size hints of a call from the kernel's own arguments.

    ``dimensions`` maps an axis to the argument that is its number of elements, ``{"x": "n_rows", "r0": "n_cols"}``;
    several names are multiplied, ``{"x": ("batch", "rows")}``. Raises :class:`~kerntune.errors.HintError` that names
    axis and argument where one is unknown, missing, no integer, zero or negative.
    """
    numels = {axis: _numel(axis, names, arguments, kernel) for axis, names in dimensions.items()}
    if not numels:
        raise HintError(f"{_kernel(kernel)}no dimensions: name the argument that holds the size of x")
    return round_sizes(numels, kernel=kernel)


def _numel(axis: str, names: str | Sequence[str], arguments: Mapping[str, object], kernel: str) -> int:
    if axis not in AXES:
        raise HintError(f"{_kernel(kernel)}unknown axis {axis!r}: the axes are {', '.join(AXES)}")
    return prod(_value(axis, n, arguments, kernel) for n in ((names,) if isinstance(names, str) else names))


def _value(axis: str, name: str, arguments: Mapping[str, object], kernel: str) -> int:
    if name not in arguments:
        known = ", ".join(arguments) or "none"
        raise HintError(f"{_kernel(kernel)}axis {axis} is to be argument {name!r}, but the call has {known}")
    value = arguments[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise HintError(f"{_kernel(kernel)}axis {axis} is argument {name}={value!r}, which is no positive integer")
    return value


def _kernel(kernel: str) -> str:
    return f"kernel {kernel}: " if kernel else ""


def tile_hint(sizes: Mapping[str, int], arguments: int) -> TileHint:
    """SQUARE for a 2-D kernel with exactly four arguments that aren't constexprs."""
    square = len(sizes) == 2 and arguments == SQUARE_ARGUMENTS
    return TileHint.SQUARE if square else TileHint.DEFAULT


def min_elements_per_thread(conversions: Iterable[tuple[str, str]]) -> int:
    """Fewest elements per thread for the (from, to) type conversions of a kernel: 4 or 2 for the fp8 types, else 0.

    Raises :class:`~kerntune.errors.HintError` for a conversion between two fp8 types, which Triton doesn't have.
    """
    least = 0
    for source, target in conversions:
        counts = [FP8_ELEMENTS_PER_THREAD[t] for t in (source, target) if t in FP8_ELEMENTS_PER_THREAD]
        if source != target and len(set(counts)) == 2:
            raise HintError(f"Triton can't convert {source} to {target}: go through a wider type")
        least = max(least, *counts, 0) if source != target else least
    return least
