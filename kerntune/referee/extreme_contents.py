"""Extreme contents: where a sum of squares cancels, an epsilon counts, an exponential overflows, small weights show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import TensorInput
from kerntune.referee.content_forms import ENDS, GRIDS, LARGE_RANGE, ODD, sparse_centre
from kerntune.referee.content_rows import (
    LEAST_PARTS,
    OF_MANY,
    OF_ROWS,
    fill_parts,
    fill_rows,
    in_order,
    rows_of_zeros,
    sort_rows,
    zero_places,
)

END_EXPONENTS = {True: 100, False: 12}
"""What powers of two are beside these, of dtypes of a large range and of others."""

SPARSE = 64
"""One of so many elements is as declared, and of long rows so many of each; the others are 2**10 times nearer to zero,
or to what is nearest to it, or that number itself."""

HOLES = 256
"""One of so many elements is NaN or infinite, or one."""

FEW_VALUES = 3
"""Different numbers where they are few."""

DEVIATIONS = {
    "tiny": (-12.0, -12.0),
    "broad": (2.0, 3.0),
    "wide": (6.0, 7.0),
    "huge": (20.0, 20.0),
    "vast": (80.0, 80.0),
    "sparse": (0.0, 0.0),
    "lone": (0.0, 0.0),
}
"""Logarithms of the least and the largest, to base 2."""

VAST_DOUBLES = 600.0
"""The same of ``vast`` numbers of float64: their squares are beyond its range, as those of others are beyond float32's.
"""

SPREAD_BINADES = 12
"""So many binades, between ``wide`` numbers and the largest, ``huge`` ones have deviations from."""


def in_bands(numbers: np.ndarray, given: TensorInput, seed: int, chance: np.random.Generator) -> Any:
    """Rows, or pieces of a single one, that are moved far up or down, or stretched, as far as the dtype reaches. A few
    are tiny, and at least one is zeros, the same of all inputs that have as many; of several rows so are some columns
    and planes, or some are one number each."""
    rows = numbers.reshape(-1, given.shape[-1] if len(given.shape) > 1 else SPARSE if numbers.size % SPARSE == 0 else 1)
    far = 2.0**20 if given.dtype in LARGE_RANGE else 2.0**7
    scales, moves = np.array([1.0, 1.0, 1.0, 2.0**7, far]), np.array([FAR, -FAR, -DEEP[0], 0.0, 0.0])
    kinds = chance.integers(0, len(scales), len(rows))[:, None]
    small = chance.choice([0.0, 2.0**-12, *[1.0] * 62], len(rows))[:, None]
    zeros = rows_of_zeros(len(rows), seed)[0] if len(rows) >= LEAST_PARTS else chance.integers(len(rows))
    found = rows + moves[kinds]
    found *= scales[kinds]
    few = np.flatnonzero(small < 1)
    found[few] = rows[few] * small[few]
    if chance.integers(2):
        fill_rows(found, given.columns, chance, OF_MANY)
    elif numbers.size > given.columns:
        fill_parts(found.reshape(-1), given.shape, chance, by=0.0)
    found[zeros] = 0.0
    return found.reshape(-1)


def full_places(shape: Sequence[int], chance: np.random.Generator) -> np.ndarray:
    """Which elements are as declared among others near one number: one in each piece of a length, the first and the
    last: whatever is left out, at an end or of the length of two pieces, has one."""
    count, length = math.prod(shape), max(SPARSE, shape[-1] // SPARSE if shape else 0)
    begins = np.arange(0, count, length)
    found = np.zeros(count, bool)
    found[np.minimum(begins + chance.integers(0, length, len(begins)), count - 1)] = True
    found[[0, -1]] = True
    return found


def _at_ends(numbers: np.ndarray, nearest: float, form: str) -> tuple[float, float]:
    """What is first and last of numbers that are ``sparse`` or ``lone``: the least and the largest, in either order, so
    that each is at one end alone, where a maximum may leave it out. Where one of them is ``nearest``, which counts
    little, a ``lone`` one has the other at both ends."""
    ends = float(numbers.min()), float(numbers.max())
    by_size = sorted(ends, key=lambda x: abs(x - nearest))
    if form == "sparse":
        return ends
    return ends[::-1] if 2 * abs(by_size[0] - nearest) > abs(by_size[1] - nearest) else (by_size[1], by_size[1])


MOST_PIECES = 1024
"""Rows with a piece of one number; masks of one content."""


def few_numbers(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """Three of the numbers, the least and the largest that may be among them; in half of the rows one alone, and in the
    others one at the begin or the end, as a length is where the rest is the other flag. Most of a single row is one, of
    flags a fourth. Half of the rows of a mask have the same piece: tiles before it are masked, or those behind it."""
    values = np.concatenate([[int(given.low), int(given.high)], chance.choice(numbers, FEW_VALUES - 2)])
    found = chance.choice(values, numbers.size).reshape(-1, given.columns)
    order, half = chance.permutation(len(found)), -(-len(found) // 2)
    if len(found) > 1:
        found[order[:half]] = values[np.arange(half) % len(values)][:, None]
        for turn, row in enumerate(order[half : half + MOST_PIECES]):
            length = int(chance.integers(1, max(2, found.shape[1])))
            own, rest = np.split(found[row], [length]) if turn % 2 else np.split(found[row], [-length])[::-1]
            own[:] = value = values[turn // 2 % len(values)]
            if given.dtype == "bool" and turn % 8 < 4:  # a length, or what is behind it
                rest[:] = 1 - value
    else:
        length = numbers.size // 4 if given.dtype == "bool" else numbers.size * 7 // 8
        begin = int(chance.integers(0, numbers.size - length + 1))
        found[0, begin : begin + length] = chance.choice(values)
    if given.dtype == "bool":
        for matrix in _masks(found, given):
            matrix[_halves_of(len(matrix), chance)[0]] = _in_piece(matrix.shape[1], chance)
    return found.reshape(-1)


LEAST_MASK = 16
"""Rows from which flags may be a mask."""


def _masks(rows: np.ndarray, given: TensorInput) -> list[np.ndarray]:
    """The matrices of flags, each its rows; those of few rows together, as those of one that is the same for many."""
    own = given.shape[-2] if len(given.shape) > 1 and given.shape[-2] >= LEAST_MASK else len(rows)
    return list(rows.reshape(-1, own, rows.shape[1])[:MOST_PIECES]) if own >= LEAST_MASK else []


def _halves_of(count: int, chance: np.random.Generator) -> list[slice]:
    """The first and the last half of so many rows, in a drawn order."""
    halves = [slice(0, count // 2), slice(count // 2, count)]
    return halves[:: int(chance.choice((1, -1)))]


def _in_piece(columns: int, chance: np.random.Generator) -> Any:
    """Which of a row's columns are in its second quarter, or in its third."""
    return np.arange(columns) * 4 // columns == chance.integers(1, 3)


FEW_ROWS = 8
"""One of so many rows of a mask has one flag alone, elsewhere than where the others have some; of less than 32 rows
every second."""


def arranged_flags(given: TensorInput, chance: np.random.Generator) -> Any:
    """Of a mask half of the rows have the same piece, but for a few with one flag somewhere; the other half is the
    opposite of such. A large one begins with causal rows of two documents. Of a vector one of many flags in the first
    half is another, and in the second."""
    columns = given.columns
    found = np.zeros((math.prod(given.shape) // columns, columns), bool)
    if not (masks := _masks(found, given)):
        rare = full_places(given.shape, chance).reshape(-1)
        half = _halves_of(rare.size, chance)[0]
        rare[half] = ~rare[half]
        return rare
    for matrix in masks:
        if len(matrix) >= FEW_ROWS * LEAST_MASK:
            first, matrix = np.split(matrix, [len(matrix) // 3])
            at = np.arange(len(first))[:, None] * columns // len(first)
            document = 2 * at >= columns
            first[:] = (np.arange(columns) <= at) & (2 * np.arange(columns) >= columns * document)
        for half, opposite in zip(_halves_of(len(matrix), chance), (False, True), strict=True):
            rows = matrix[half]
            rows[:] = _in_piece(columns, chance)
            few = chance.permutation(len(rows))[: -(-len(rows) // (FEW_ROWS if len(rows) >= 2 * LEAST_MASK else 2))]
            rows[few] = False
            rows[few, chance.integers(0, columns, len(few))] = True
            rows ^= opposite
    return found.reshape(-1)


def furthest_numbers(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """Numbers at the end of their range that is further from zero, at either where both are as far: three, or of two
    one."""
    low, high = int(given.low), int(given.high)
    top = high > -low or (high == -low and bool(chance.integers(2)))
    inward = chance.integers(0, _count_at_end(low, high), numbers.size)
    return high - inward if top else low + inward


def nearest_numbers(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """As many that are nearest to zero."""
    low, high = int(given.low), int(given.high)
    middle = min(max(0, low), high)
    near = [x for x in sorted(range(middle - 2, middle + 3), key=abs) if low <= x <= high]
    return chance.choice(near[: _count_at_end(low, high)], numbers.size)


def powers_and_beside(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """Powers of two or of ten, of either sign, and the numbers beside them, as far as they may be; else the numbers."""
    powers = ([1 << k for k in range(63)], [10**k for k in range(19)])
    near = [[sign * x + beside for x in of for sign in (1, -1) for beside in (-1, 0, 1)] for of in powers]
    each = [[x for x in sorted({*of}) if int(given.low) <= x <= int(given.high)] for of in near]
    found = [chance.choice(of, numbers.size) for of in each if of] or [numbers]
    return np.where(chance.random(numbers.size) < 0.5, found[0], found[-1])


LEAST_PIECE = 16
"""Numbers of a piece that are arranged in one way."""


def arranged_numbers(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """Rows, or up to four pieces of short ones together, a fourth of each kind: ascending, with several of each
    number; ascending, the least ones behind the largest; descending; and one number after the other, the first one
    behind the last."""
    if given.dtype == "bool":
        return arranged_flags(given, chance)
    low, high, found = int(given.low), int(given.high), numbers.copy()
    count = numbers.size // given.columns if given.columns > LEAST_PIECE else 1
    count = min(4, max(1, numbers.size // LEAST_PIECE)) if count == 1 else count
    rows = found[: numbers.size // count * count].reshape(count, -1)
    width, kinds = rows.shape[1], chance.permutation(4)
    of = [rows[kind::4] for kind in kinds]
    several = chance.integers(0, min(width, max(2, width // 8)), of[0].shape)
    of[0][:] = np.sort(np.take_along_axis(of[0], several, 1), 1)
    begins = chance.integers(0, width // 4 + 1, (len(of[1]), 1))
    of[1][:] = np.take_along_axis(np.sort(of[1], 1), (begins + np.arange(width)) % width, 1)
    of[2][:] = np.sort(of[2], 1)[:, ::-1]
    of[3][:] = low + (of[3][:, :1] - low + np.arange(width)) % (high - low + 1)
    return found


WHOLE_NUMBERS = {
    "few": few_numbers,
    "full": furthest_numbers,
    "least": nearest_numbers,
    "powers": powers_and_beside,
    "arranged": arranged_numbers,
}
"""How :data:`OF_WHOLE` are drawn."""


def _count_at_end(low: int, high: int) -> int:
    return 1 if high - low == 1 else min(FEW_VALUES, high - low + 1)


def close_numbers(given: TensorInput, seed: int, chance: np.random.Generator) -> Any:
    """Eight neighbours in the dtype, the same for all inputs that are drawn alike. The lowest bit of its infinity's
    pattern is that of its exponent."""
    share, infinity = np.random.default_rng(seed).random(), FLOAT_FORMATS[given.dtype].nan - 1
    first = given.low + (given.high - given.low) * share if given.content == "uniform" else given.low + given.high
    step = max(2.0 ** (math.frexp(first)[1] - (infinity & -infinity).bit_length()), 2.0**-1022)
    return (round(first / step) + chance.integers(0, 8, math.prod(given.shape))) * step


ROUND = 16
"""How far from zero ``round`` numbers are: where functions have borders, and between usual numbers and wide ones."""

SIZES = {"float16": (-14.0, 15.9), "float8_e4m3fn": (-6.0, 8.7), "float8_e5m2": (-14.0, 15.7)}
"""Logarithms of the least and the largest of ``scaled`` numbers, to base 2; of other dtypes -100 and 100."""


def with_known(numbers: np.ndarray, known: Sequence[float], chance: np.random.Generator) -> np.ndarray:
    """Numbers, one in eight of which is known, where any is."""
    places = np.flatnonzero(chance.random(numbers.size) < (1 / 8 if known else 0))
    numbers[places] = chance.choice(known, len(places)) if known else 0
    return numbers


def of_many_sizes(numbers: np.ndarray, given: TensorInput, chance: np.random.Generator) -> Any:
    """Numbers whose rows, or elements where rows are few, have deviations that are spread over
    :data:`SPREAD_BINADES`. That of all of them stays."""
    columns = given.columns if numbers.size >= 8 * given.columns else 1
    sizes = np.exp2(-chance.permutation(np.linspace(0, SPREAD_BINADES, numbers.size // columns)))
    sizes /= math.sqrt(np.mean(sizes * sizes))
    return (numbers.reshape(-1, columns) * sizes[:, None]).reshape(-1)


def round_numbers(given: TensorInput, known: Sequence[float], chance: np.random.Generator) -> Any:
    """Whole numbers and halves, or known ones. Zeros have either sign."""
    count = math.prod(given.shape)
    step, far = chance.choice((1.0, 0.5), count), chance.choice((ROUND / 2, ROUND), count)
    return with_known(np.round(chance.uniform(-1, 1, count) * far / step) * step, known, chance)


def scaled_numbers(given: TensorInput, known: Sequence[float], chance: np.random.Generator) -> Any:
    """Numbers of all sizes and both signs, or known ones; in half of the rows of one sign and nearly one size,
    which lie at equal distances: few rows have each end of the range, too."""
    least, most = SIZES.get(given.dtype, (-100.0, 100.0))
    columns = given.columns
    rows = np.zeros((math.prod(given.shape) // columns, columns))
    sizes, signs = chance.uniform(least, most, rows.shape), chance.choice((1.0, -1.0), rows.shape)
    one = chance.permutation(len(rows))[: len(rows) // 2]
    spread = (np.arange(len(one))[:, None] + chance.random((len(one), 1))) / max(len(one), 1)
    sizes[one] = np.maximum(least + (most - least) * spread - chance.random((len(one), columns)), least)
    signs[one] = np.where((np.arange(len(one)) + chance.integers(2)) % 2, 1.0, -1.0)[:, None]
    return with_known((signs * 2.0**sizes).reshape(-1), known, chance)


def paired_numbers(numbers: np.ndarray, given: TensorInput, seed: int, chance: np.random.Generator) -> Any:
    """Numbers of which a fourth are what all inputs have that are declared alike, and a fourth zeros of either sign, or
    ends of the range: rows, or elements where rows are few."""
    alike = np.random.default_rng(seed)
    columns = given.shape[-1] if numbers.size >= 8 * (given.shape or (numbers.size,))[-1] else 1
    kinds = np.repeat(alike.integers(0, 4, numbers.size // columns), columns)
    if given.content == "uniform":
        shared, ends = alike.uniform(given.low, given.high, numbers.size), [given.low, given.high]
    else:
        deviation = 2 ** alike.uniform(-1, 1) if given.varied else given.high
        shared = alike.standard_normal(numbers.size) * deviation + given.low
        ends = [0.0, -0.0] if given.low == 0 else []
    found = np.where(kinds == 0, shared, numbers)
    return np.where(kinds == 1, chance.choice(ends, numbers.size), found) if ends else found


def numbers_at_ends(numbers: np.ndarray, given: TensorInput, form: str, chance: np.random.Generator) -> Any:
    """Zeros, infinities and powers of two, those that may be declared; else the numbers."""
    power = 2.0 ** END_EXPONENTS[given.dtype in LARGE_RANGE]
    ends = [sign * x for x in (0.0, 1 / power, power, *[math.inf] * (form == "ends")) for sign in (1, -1)]
    if given.content == "uniform":
        ends = [x for x in ends if given.low <= x <= given.high]
    elif not given.varied:
        ends = ends[: 2 if given.low == 0 else 0]
    return chance.choice(ends, numbers.size) if ends else numbers


def multiples(numbers: np.ndarray, seed: int, chance: np.random.Generator) -> Any:
    """Whole multiples of numbers that all inputs have, half of them these themselves: a quotient is nearly whole."""
    one = np.random.default_rng(seed).uniform(0.5, 2, numbers.size).astype(np.float32).astype(np.float64)
    return one * np.where(chance.random(numbers.size) < 0.5, 1, chance.integers(1, 100, numbers.size))


FINEST = 8
"""Binary places of the finest step of a grid; a number's own step is drawn between that and 1."""

DEEP = (256.0, 512.0)
"""How far below zero the mean of ``deep`` numbers is: float32's exponential is zero below -104, so that a maximum that
begins at zero leaves a sum of zeros."""

FAR = 64.0
"""How far from zero grids are ``above`` and ``below``, for numbers that vary."""


def on_grid(numbers: np.ndarray, given: TensorInput, form: str, chance: np.random.Generator) -> Any:
    """Numbers rounded to few bits, of a size that is common where they are. Zeros have either sign."""
    spread = abs(given.high) if given.content == "normal" else (given.high - given.low) / 4
    unit = 1.0 if given.varied else 2.0 ** math.floor(math.log2(spread))
    step = unit * 2.0 ** -chance.integers(0, FINEST + 1, numbers.shape)
    found = np.round(numbers / step) * step
    if given.content == "uniform":
        inside = np.clip(found, np.ceil(given.low / step) * step, np.floor(given.high / step) * step)
        found = np.where(found == inside, found, inside)
    return found + {"above": FAR, "below": -FAR}.get(form, 0.0) if given.varied and form != "grid" else found


def mean_and_deviation(given: TensorInput, form: str, chance: np.random.Generator) -> tuple[float, float]:
    """Of normal numbers. Where these vary, a deviation is between 0.5 and 2, a mean between -0.5 and 0.5 times that."""
    deviation = 2 ** chance.uniform(-1, 1) if given.varied else given.high
    mean = chance.uniform(-0.5, 0.5) * deviation if given.varied else given.low
    if form in DEVIATIONS:
        half = (form, given.dtype) == ("huge", "float16")
        doubles = (form, given.dtype) == ("vast", "float64")
        power = 12.0 if half else VAST_DOUBLES if doubles else chance.uniform(*DEVIATIONS[form])
        deviation, mean = 2**power, 0.0
    if form in ("up", "down"):
        mean = chance.uniform(32, 64) * deviation * (1 if form == "up" else -1)
    if form == "far":
        mean = 1024 * deviation * chance.choice((1, -1))
    if form == "deep":
        mean = -chance.uniform(*DEEP)
    return mean, deviation


def in_form(
    numbers: Any, given: TensorInput, form: str, seed: int, known: Sequence[float], chance: np.random.Generator
) -> Any:
    """Numbers that were drawn for an input in a form: a key of :data:`EXTREMES`, or empty for usual ones. ``known`` are
    numbers of other inputs, or of the call."""
    count = numbers.size
    if given.content == "integers" and form in WHOLE_NUMBERS:
        numbers = WHOLE_NUMBERS[form](numbers, given, chance)
        numbers = with_known(numbers, known, chance) if form == "powers" else numbers
    if form == "ties":
        numbers = chance.choice(numbers[:FEW_VALUES], count)
    if form == "banded":
        numbers = in_bands(numbers, given, seed, chance)
    if form == "close":
        numbers = close_numbers(given, seed, chance)
    if form == "multiples" and given.varied:
        numbers = multiples(numbers, seed, chance)
    elif form in ENDS:
        numbers = numbers_at_ends(numbers, given, form, chance)
    if form in GRIDS:
        numbers = on_grid(numbers, given, form, chance)
    if form == "broad":
        sort_rows(numbers, given.columns, chance)
        zeros = zero_places(given.shape, chance)
        numbers[zeros] = chance.choice((0.0, -0.0), len(zeros))
    if form == "none":
        numbers = np.zeros(count)
    if form == "huge" and given.dtype in LARGE_RANGE:
        numbers = of_many_sizes(numbers, given, chance)
    if form == "round":
        numbers = round_numbers(given, known, chance)
        fill_rows(numbers, given.columns, chance, OF_ROWS)
    if form == "scaled" and given.varied:
        numbers = scaled_numbers(given, known, chance)
    if form == "paired":
        numbers = paired_numbers(numbers, given, seed, chance)
    if form in ODD:
        places = chance.choice(count, 1 if form == "hole" else max(1, count // HOLES), replace=False)
        odd = {"holes": (np.nan,), "infinite": (-np.inf, np.inf)}.get(form, (np.nan, -np.inf, np.inf))
        numbers[places] = chance.choice(odd, len(places))
    if form in ("sparse", "lone"):
        nearest = sparse_centre(given)
        numbers[[0, -1]] = _at_ends(numbers, nearest, form)
        others = numbers[~(few := full_places(given.shape, chance))]
        numbers[~few] = nearest + (others - nearest) * (2.0**-10 if form == "sparse" else 0.0)
        if form == "sparse" and given.varied and numbers.size >= LEAST_PARTS * given.columns:
            numbers.reshape(-1, given.columns)[rows_of_zeros(numbers.size // given.columns, seed)] = 0.0
    if form == "alike":
        rows = numbers.reshape(-1, given.columns)
        rows[(np.arange(len(rows) // 2) + chance.integers(len(rows))) % len(rows)] = rows[0]
    if form == "ordered":
        numbers = in_order(numbers.reshape(-1, given.columns), chance)
    return numbers
