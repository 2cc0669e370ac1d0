"""Which rows, columns and planes of extreme contents are of one kind: zeros, one number, or in order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LEAST_PARTS = 4
"""Where there are fewer rows, columns or planes, none of them is of a kind for its sake alone."""

OF_MANY = 64
"""One of so many columns is zeros, or one; of large inputs so many rows are one number."""

OF_ROWS = 16
"""One of so many rows is one number, or zeros in all inputs, or one."""

STEPS = 8
"""Numbers of such rows are whole multiples of a fourth, at most so many: their sums and squares are exact."""


def zero_places(shape: Sequence[int], chance: np.random.Generator) -> np.ndarray:
    """A quarter of the rows, or of a single row a quarter in one piece; one of 16 elements elsewhere; some columns, and
    one part of other dimensions: what is divided by the norm of a plane, or along any dimension, has one of zeros."""
    columns, count = shape[-1] if shape else 1, math.prod(shape)
    zero = chance.random(count) < 1 / 16
    if count == columns:
        at = int(chance.integers(0, count - count // 4 + 1))
        zero[at : at + count // 4] = True
    else:
        rows = zero.reshape(-1, columns)
        rows[chance.permutation(len(rows))[: max(1, len(rows) // 4)]] = True
        fill_parts(zero, shape, chance, by=1.0)
    return np.flatnonzero(zero)


def fill_parts(flat: np.ndarray, shape: Sequence[int], chance: np.random.Generator, by: float) -> None:
    """Some columns of the elements of a tensor become one number, and so do all that have one index of a dimension
    between the first and the last, and one of the planes that two or more of the last dimensions are, where there are
    enough of them."""
    for axis in range(1, len(shape)):
        if shape[axis] < LEAST_PARTS:
            continue
        last = axis == len(shape) - 1
        chosen = chance.permutation(shape[axis])[: max(1, shape[axis] // OF_MANY) if last else 1]
        flat.reshape(-1, shape[axis], math.prod(shape[axis + 1 :]))[:, chosen] = by
    for axis in range(1, len(shape) - 1):
        if (parts := math.prod(shape[:axis])) >= LEAST_PARTS:
            flat.reshape(parts, -1)[chance.integers(parts)] = by


def fill_rows(numbers: np.ndarray, columns: int, chance: np.random.Generator, of: int) -> None:
    """One of so many rows becomes one number, or one, of either sign: nothing is between its least and its largest."""
    rows = numbers.reshape(-1, columns)
    if len(rows) < LEAST_PARTS or columns == 1:
        return
    chosen = chance.permutation(len(rows))[: max(1, len(rows) // of)]
    sizes, signs = chance.integers(1, STEPS, len(chosen), endpoint=True), chance.choice((1, -1), len(chosen))
    rows[chosen] = (signs * sizes / 4)[:, None]


def rows_of_zeros(count: int, seed: int) -> np.ndarray:
    """Which of so many rows are zeros in all inputs that have as many: where all are, their sum is, too. The first and
    the last aren't."""
    return np.random.default_rng(seed).permutation(max(0, count - 2))[: max(1, count // OF_ROWS)] + 1


def sort_rows(numbers: np.ndarray, columns: int, chance: np.random.Generator) -> None:
    """A fourth of the rows go up, and a fourth down: their running maximum, or minimum, is another at each element."""
    rows = numbers.reshape(-1, columns)
    order, part = chance.permutation(len(rows)), len(rows) // LEAST_PARTS
    for chosen, step in ((order[:part], 1), (order[part : 2 * part], -1)):
        rows[chosen] = np.sort(rows[chosen], axis=1)[:, ::step]


def in_order(rows: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Numbers in order along each row: up, down, and in half of the rows from anywhere on, so that what is left out of
    rows has their largest or smallest."""
    rows = np.sort(rows, axis=1)
    rows[1::2] = rows[1::2, ::-1]
    for row in chance.permutation(len(rows))[: len(rows) // 2]:
        rows[row] = np.roll(rows[row], int(chance.integers(rows.shape[1])))
    return rows.reshape(-1)
