"""Numbers in two pieces of memory, held against each other on the host and, by the same rules, through torch."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kerntune.gpu import compare
from kerntune.gpu.compare import DeviceBytes, compare_bytes, compare_pieces
from kerntune.gpu.memory import encode_floats
from kerntune.tuning.verification import TOLERANCE

POISONS = (0x7F, 0x7B)


COUNT = 16
NUMBERS = np.arange(1, COUNT + 1).astype("f4")
FLOAT_TYPES = sorted(TOLERANCE)
HOST, TORCH = "host", "torch"


def piece(data: bytes) -> Any:
    """As the device gives it: bytes from an offset on."""
    whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return lambda offset, size: whole[offset : offset + size]


def difference(expected: bytes, actual: bytes, dtype: str, way: str = HOST, tolerance: float | None = None) -> str:
    """In words; empty where they agree."""
    allowed = TOLERANCE.get(dtype, 0.0) if tolerance is None else tolerance
    if way == HOST:
        found = compare_bytes(expected, actual, dtype, allowed)
    else:
        found = compare_pieces(piece(expected), piece(actual), len(expected), dtype, allowed)
    return "" if found is None else str(found)


@pytest.fixture(params=[HOST, TORCH])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways, torch's in chunks of four float64."""
    monkeypatch.setattr(compare, "CHUNK", 32)
    return str(request.param)


def off_by(dtype: str, share: float, way: str) -> str:
    """One element off by ``share`` of the tolerance that the largest element allows."""
    numbers = np.full(COUNT, 64.0).astype("f8" if dtype == "float64" else "f4")
    wrong = numbers.copy()
    wrong[3] += 64 * TOLERANCE[dtype] * share
    return difference(encode_floats(numbers, dtype), encode_floats(wrong, dtype), dtype, way)


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("share", [0.5, -0.5])
def test_rounding_is_no_difference(way: str, dtype: str, share: float) -> None:
    assert off_by(dtype, share, way) == ""


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("share", [2.0, -2.0, 1000.0])
def test_wrong_numbers_are(way: str, dtype: str, share: float) -> None:
    assert "1 of 16 elements, first at 3" in off_by(dtype, share, way)


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("poison", POISONS)
def test_poison_is_far_from_every_usual_number(way: str, dtype: str, poison: int) -> None:
    good = encode_floats(NUMBERS, dtype)
    assert "16 of 16" in difference(good, bytes([poison]) * len(good), dtype, way)


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("poison", POISONS)
def test_poison_that_both_leave_does_not_widen_the_tolerance(way: str, dtype: str, poison: int) -> None:
    good = encode_floats(NUMBERS, dtype)
    half = len(good) // 2
    left = bytes([poison]) * half
    wrong = encode_floats(NUMBERS + 3, dtype)
    assert difference(good[:half] + left, good[:half] + left, dtype, way) == ""
    assert "8 of 16" in difference(good[:half] + left, wrong[:half] + left, dtype, way)


def test_small_elements_are_held_to_the_largest(way: str) -> None:
    """Cancellation leaves a small number with a large relative error; that isn't the config's fault."""
    before, after = (np.array([1000.0, x], "f4").tobytes() for x in (1e-6, 5e-6))
    assert difference(before, after, "float32", way) == ""


@pytest.mark.parametrize(
    ("before", "after", "agree"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (1.0, np.nan, False),
        (np.nan, 1.0, False),
        (1.0, np.inf, False),
        (np.inf, 1.0, False),
        (0.0, -0.0, True),
    ],
)
def test_numbers_that_are_none(way: str, before: float, after: float, agree: bool) -> None:
    a, b = (np.array([x, 2.0], "f4").tobytes() for x in (before, after))
    assert (difference(a, b, "float32", way) == "") is agree


def test_huge_garbage_does_not_widen_the_tolerance(way: str) -> None:
    before, after = (np.array([1e35, x], "f4").tobytes() for x in (1.0, 2.0))
    assert difference(before, after, "float32", way) != ""


@pytest.mark.parametrize("dtype", ["int32", "bool", "float8_e4m3fn"])
def test_other_types_agree_to_the_bit(way: str, dtype: str) -> None:
    assert difference(b"abcdefgh", b"abcdefgh", dtype, way) == ""
    assert difference(b"abcdefgh", b"abcdefgX", dtype, way) == "1 of 8 bytes"


def test_memory_need_not_hold_whole_elements(way: str) -> None:
    """A float view into a workspace of 10 bytes: the storage's dtype is the view's, its size is its own."""
    before, after = struct.pack("<ff", 1.0, 2.0) + b"\0\0", struct.pack("<ff", 1.0, 9.0) + b"\0\0"
    assert "1 of 2 elements, first at 1: 9, not 2" in difference(before, after, "float32", way)


@given(
    dtype=st.sampled_from([*FLOAT_TYPES, "int16"]),
    values=st.lists(st.tuples(st.floats(-100, 100), st.sampled_from([0.0, 0.0, 1e-6, 0.5, 40.0])), min_size=1),
)
def test_both_ways_say_the_same(dtype: str, values: list[tuple[float, float]]) -> None:
    kind = "f8" if dtype == "float64" else "f4"
    before = np.array([v for v, _ in values], kind)
    after = before + np.array([e for _, e in values], kind)
    wire = "float32" if dtype == "int16" else dtype
    a, b = encode_floats(before, wire), encode_floats(after, wire)
    assert difference(a, b, dtype, HOST) == difference(a, b, dtype, TORCH)


def test_memory_is_handed_over_by_the_cuda_array_interface() -> None:
    """Version 3 (numba.readthedocs.io): a pointer that may be written, bytes without gaps."""
    told = {"shape": (5,), "typestr": "|u1", "data": (256, False), "version": 3, "strides": None}
    assert DeviceBytes(256, 5).__cuda_array_interface__ == told
