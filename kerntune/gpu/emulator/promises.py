"""Promises that a kernel makes to the compiler (``tl.assume``, ``tl.multiple_of`` and the like): false ones show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kerntune.errors import KernelFault


def promised(value: np.ndarray, hints: Mapping[str, tuple[int, ...]], step: int, used: np.ndarray | None) -> np.ndarray:
    """A value as the compiler may take it: where ``contiguity`` or ``constancy`` is promised, it follows from the first
    element of each group. ``step`` is the distance of neighbours, more than 1 of pointers; elements that aren't
    ``used`` are undefined, and need keep nothing.

    :class:`KernelFault` where the first of a contiguous group isn't divisible (Triton's ``AxisInfo``: divisibility is
    that of "the first element of all groups of contiguous elements"): the hardware faults on such an access.
    """
    shape = value.shape
    value = np.atleast_1d(value)
    for axis in range(value.ndim):
        near, same = (_hint(hints, word, axis) for word in ("contiguity", "constancy"))
        index = np.arange(value.shape[axis])
        if same > 1:
            value = np.take(value, index // same * same, axis)
        if near > 1:
            along = (index % near).reshape([-1 if i == axis else 1 for i in range(value.ndim)])
            value = np.take(value, index // near * near, axis) + (along * step).astype(value.dtype)
        divisor = _hint(hints, "divisibility", axis)
        if divisor > 1:
            first = _first_of_groups(value, axis, near, step)
            if used is not None:
                first &= np.atleast_1d(used)
            wrong = first & (value % divisor != 0)
            if wrong.any():
                raise KernelFault(f"it says that {int(value[wrong][0])} is a multiple of {divisor} (tl.multiple_of)")
    return value.reshape(shape)


def _hint(hints: Mapping[str, tuple[int, ...]], word: str, axis: int) -> int:
    numbers = hints.get(word, ())
    return numbers[axis] if axis < len(numbers) else 1


def _first_of_groups(value: np.ndarray, axis: int, near: int, step: int) -> np.ndarray:
    """Where groups begin: of the promised length, or else wherever a number doesn't follow the one before."""
    along = np.moveaxis(value, axis, 0)
    first = np.ones(along.shape, np.bool_)
    if near > 1:
        first[np.arange(len(along)) % near != 0] = False
    else:
        first[1:] = along[1:] - along[:-1] != step
    return np.moveaxis(first, 0, axis)
