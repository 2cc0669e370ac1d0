"""Formats of numbers in memory: their bit patterns against numpy's and torch's, and what is counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from kerntune.gpu.number_formats import (
    BITS,
    FLOAT_FORMATS,
    INTEGER_FORMATS,
    NOWHERE,
    ElementCounts,
    NumberFormat,
    count_differences,
    element_text,
    format_of,
    typical_magnitude,
    values,
)


@pytest.mark.parametrize("kind", FLOAT_FORMATS.values(), ids=lambda kind: kind.name)
def test_float_formats_are_torchs(kind: NumberFormat) -> None:
    dtype = getattr(torch, kind.name)
    largest = torch.tensor([torch.finfo(dtype).max], dtype=dtype).view(torch.uint8)
    assert (dtype.itemsize, bytes(largest.tolist())) == (kind.width, kind.finite.to_bytes(kind.width, "little"))
    above = [n.to_bytes(kind.width, "little") for n in (kind.nan - 1, kind.nan)]
    smaller, nan = (float(torch.tensor(list(data), dtype=torch.uint8).view(dtype)) for data in above)
    assert (math.isnan(smaller), math.isnan(nan)) == (False, True)
    assert (kind.is_float, kind.magnitude) == (True, (1 << (8 * kind.width - 1)) - 1)
    assert kind.poison == int("7f" * kind.width, 16)


def test_widths_of_whole_numbers() -> None:
    assert {name: kind.width for name, kind in INTEGER_FORMATS.items()} == {
        "int8": 1, "uint8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    }  # fmt: skip
    assert not any(kind.is_float for kind in (*INTEGER_FORMATS.values(), BITS))


@pytest.mark.parametrize("kind", FLOAT_FORMATS.values(), ids=lambda kind: kind.name)
def test_values_of_bits_are_torchs(kind: NumberFormat) -> None:
    patterns = np.random.default_rng(3).integers(0, 256, 256 * kind.width, dtype=np.uint8)
    if kind.width == 1:
        patterns = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(patterns.copy()).view(getattr(torch, kind.name)).to(torch.float64).numpy()
    ours = values(patterns.view(f"<u{kind.width}").astype(np.uint64), kind)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtypes", "name"),
    [({"float16"}, "float16"), ({"int64"}, "int64"), ({"float16", "int64"}, "bytes"), (set(), "bytes"),
     ({"complex64"}, "bytes")],
)  # fmt: skip
def test_memory_with_several_dtypes_is_bits(dtypes: set[str], name: str) -> None:
    assert format_of(dtypes).name == name


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("float64", np.float64(0.1).tobytes(), "0.10000000000000001"),
        ("float32", np.float32(0.1).tobytes(), "0.100000001"),
        ("float16", np.float16(0.1).tobytes(), "0.099976"), ("float8_e5m2", b"\x3d", "1.25"),
        ("float32", np.float32(np.nan).tobytes(), "nan"), ("int8", b"\xfd", "-3"), ("uint8", b"\xfd", "253"),
        ("int32", (-7).to_bytes(4, "little", signed=True), "-7"), ("bool", b"\x01", "1"), ("none", b"\x0f\xff", "0x0f"),
    ],
)  # fmt: skip
def test_elements_for_people(name: str, data: bytes, text: str) -> None:
    assert element_text(data, format_of({name})) == text


@pytest.mark.parametrize(
    ("numbers", "typical"),
    [([1.0, -3.0, 2.0], 2.0), ([np.nan, np.inf, -5.0], 5.0), ([np.nan], None), ([], None), ([0.0, 0.0, 9.0], 0.0)],
)
def test_the_typical_magnitude_is_the_median_of_finite_numbers(numbers: list[float], typical: float | None) -> None:
    """A part of an element at the end doesn't count."""
    data = np.asarray(numbers, np.float32).tobytes()
    assert typical_magnitude(data + b"\0\0", FLOAT_FORMATS["float32"]) == typical


F32 = FLOAT_FORMATS["float32"]
POISON = float(np.frombuffer(b"\x7f" * 4, np.float32)[0])


def counted(a: list[float], b: list[float], varies: Any = None, poisoned: bool = True, **words: Any) -> ElementCounts:
    sides = (np.asarray(side, np.float32).tobytes() for side in (a, b))
    return count_differences(*sides, varies, F32, poisoned, **words)


@pytest.mark.parametrize(
    ("a", "b", "words", "found"),
    [
        ([1, 2], [1, 2], {}, ElementCounts()),
        ([1, 2, 4], [1, 3, 5], {}, ElementCounts(2, first=1, ulp=1 << 22, relative=1 / 3)),
        ([1, 2, 4], [1, 3, 5], {"wanted": 1 << 22}, ElementCounts(2, first=1, worst=1, ulp=1 << 22, relative=1 / 3)),
        ([1, 2, 4], [1, 3, 5], {"varies": b"\0\1\0"},
         ElementCounts(1, varying=1, first=2, ulp=1 << 21, relative=0.2)),
        ([1, POISON], [POISON, 2], {}, ElementCounts(2, 1, 1, first=0)),
        ([1, POISON], [POISON, POISON], {"poisoned": False},
         ElementCounts(1, first=0, ulp=0x7F7F7F7F - 0x3F800000, relative=1.0)),
        ([1, np.nan, np.inf], [np.inf, np.nan, -np.inf], {}, ElementCounts(2, nonfinite=2, first=0)),
        ([0.0, 1], [-0.0, -1], {}, ElementCounts(2, first=0, ulp=2 * 0x3F800000, relative=2.0)),
    ],
)  # fmt: skip
def test_what_is_counted(a: Any, b: Any, words: Any, found: ElementCounts) -> None:
    ours = counted(a, b, **words)
    assert ours._replace(relative=0.0) == found._replace(relative=0.0)
    assert ours.relative == pytest.approx(found.relative)


def test_counts_of_pieces_are_those_of_the_whole() -> None:
    a, b = [1.0, 2, 3, 4, np.nan, 6, POISON, 8], [1.0, 2, 3, 5, 5, 9, 7, 8]
    varies = bytes([0, 0, 0, 0, 0, 0, 0, 1])
    whole = counted(a, b, varies, wanted=1 << 21)
    for at in range(1, 8):
        first, later = (counted(a[s], b[s], varies[s], wanted=1 << 21) for s in (slice(0, at), slice(at, 8)))
        assert first.with_later(later, at) == whole
    assert ElementCounts().with_later(ElementCounts(), 5) == ElementCounts()
    assert whole.worst != NOWHERE


def test_counts_begin_with_nothing_that_differs_anywhere() -> None:
    assert ElementCounts() == (0, 0, 0, 0, 0, NOWHERE, NOWHERE, 0, 0.0)


@pytest.mark.parametrize(
    ("first", "other", "places"),
    [
        ((NOWHERE, NOWHERE), (NOWHERE, NOWHERE), (NOWHERE, NOWHERE)), ((NOWHERE, NOWHERE), (2, 3), (102, 103)),
        ((1, 4), (NOWHERE, NOWHERE), (1, 4)),
    ],
)  # fmt: skip
def test_places_in_a_later_piece_come_after_those_of_the_first(
    first: tuple[int, int], other: tuple[int, int], places: tuple[int, int]
) -> None:
    made = [ElementCounts(first=a, worst=b, ulp=int(b != NOWHERE)) for a, b in (first, other)]
    found = made[0].with_later(made[1], 100)
    assert (found.first, found.worst) == places
