"""What a candidate wrote, held against what the first one did: kernels in Python on host memory."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from host_gpu import HostGpu, Kernel
from samples import H100, artifacts_of, binary, launch, recording

from kerntune.launch import Loader, Program
from kerntune.memory import Memory, encode_floats, make_source
from kerntune.recording import Param, Recording, Storage, Stored, View, Zeros
from kerntune.verify import POISON, TOLERANCE, disagreement, outputs_of

COUNT = 16
NUMBERS = np.arange(1, COUNT + 1).astype("f4")
FLOAT_TYPES = sorted(TOLERANCE)


def plan(reads: tuple[int, ...] = (0,), writes: tuple[int, ...] = (1,), dtype: str = "float32") -> Recording:
    size = len(encode_floats(NUMBERS, dtype)) if dtype in TOLERANCE else COUNT
    return recording(
        launches=(
            launch(
                params=(Param("x", f"*{dtype}", view=0), Param("y", f"*{dtype}", view=1)), reads=reads, writes=writes
            ),
        ),
        storages=(
            Storage(size, dtype, Stored("in"), read=0 in reads, written=0 in writes),
            Storage(size, dtype, Zeros(), read=1 in reads, written=1 in writes),
        ),
        views=(View(0, dtype, (COUNT,), (1,)), View(1, dtype, (COUNT,), (1,))),
    )


def program(kernel: Kernel, a: Recording | None = None) -> Program:
    a = a or plan()
    gpu: Any = HostGpu(H100, kernels={"code": kernel})
    data = NUMBERS.tobytes()
    sources = [make_source(gpu, s, data if isinstance(s.content, Stored) else None) for s in a.storages]
    memory = Memory(gpu, a.storages, sources)
    return Program(Loader(gpu), a, memory, artifacts_of())


def double(pointers: list[bytearray]) -> None:
    x, y = pointers
    y[:] = (np.frombuffer(x, "f4") * 2).tobytes()


def halfway(pointers: list[bytearray]) -> None:
    x, y = pointers
    y[: len(y) // 2] = (np.frombuffer(x, "f4") * 2).tobytes()[: len(y) // 2]


def accumulate(pointers: list[bytearray]) -> None:
    x, y = pointers
    y[:] = (np.frombuffer(x, "f4") + np.frombuffer(y, "f4")).tobytes()


def test_outputs_are_what_was_written() -> None:
    assert outputs_of(program(double)) == {1: (NUMBERS * 2).tobytes()}


def test_a_program_is_as_before_after_it_was_looked_at() -> None:
    made = program(accumulate, plan(reads=(0, 1)))
    first = outputs_of(made)
    assert outputs_of(made) == first
    assert made.gpu.read(made.memory.buffer(0, 1)) == bytes(4 * COUNT)


def test_what_is_read_first_is_not_poisoned() -> None:
    assert outputs_of(program(accumulate, plan(reads=(0, 1)))) == {1: NUMBERS.tobytes()}


def test_what_is_not_written_is_poison() -> None:
    found = outputs_of(program(halfway))[1]
    assert found[2 * COUNT :] == bytes([POISON]) * (2 * COUNT)
    text = disagreement(plan(), outputs_of(program(double)), {1: found})
    assert text is not None
    assert "8 of 16 elements, first at 8" in text
    assert "into storage 1" in text


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_poison_is_far_from_every_usual_number(dtype: str) -> None:
    good = encode_floats(NUMBERS, dtype)
    assert disagreement(plan(dtype=dtype), {1: good}, {1: bytes([POISON]) * len(good)}) is not None


def off_by(dtype: str, share: float, atomics: bool = False) -> str | None:
    """One element off by ``share`` of the tolerance that the largest element allows."""
    kind = "f8" if dtype == "float64" else "f4"
    numbers = np.full(COUNT, 64.0).astype(kind)
    wrong = numbers.copy()
    wrong[3] += 64 * TOLERANCE[dtype] * share
    a = plan(dtype=dtype)
    a = msgspec.structs.replace(a, launches=(msgspec.structs.replace(a.launches[0], float_atomics=atomics),))
    return disagreement(a, {1: encode_floats(numbers, dtype)}, {1: encode_floats(wrong, dtype)})


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_rounding_is_no_disagreement(dtype: str) -> None:
    assert off_by(dtype, 0.5) is None
    assert off_by(dtype, -0.5) is None


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize("share", [2.0, -2.0, 1000.0])
def test_wrong_numbers_are(dtype: str, share: float) -> None:
    text = off_by(dtype, share)
    assert text is not None
    assert "1 of 16 elements, first at 3" in text
    assert f"dtype {dtype}" in text


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
def test_atomics_may_be_ten_times_as_far_off(dtype: str) -> None:
    assert off_by(dtype, 5.0, atomics=True) is None
    assert off_by(dtype, 20.0, atomics=True) is not None


def test_small_elements_are_held_to_the_largest() -> None:
    """Cancellation leaves a small number with a large relative error; that isn't the config's fault."""
    before = np.array([1000.0, 1e-6], "f4")
    after = np.array([1000.0, 5e-6], "f4")
    assert disagreement(plan(), {1: before.tobytes()}, {1: after.tobytes()}) is None


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
def test_numbers_that_are_none(before: float, after: float, agree: bool) -> None:
    a = np.array([before, 2.0], "f4").tobytes()
    b = np.array([after, 2.0], "f4").tobytes()
    assert (disagreement(plan(), {1: a}, {1: b}) is None) is agree


def test_huge_garbage_does_not_widen_the_tolerance() -> None:
    before = np.array([1e35, 1.0], "f4").tobytes()
    after = np.array([1e35, 2.0], "f4").tobytes()
    assert disagreement(plan(), {1: before}, {1: after}) is not None


@pytest.mark.parametrize("dtype", ["int32", "bool", "float8_e4m3fn"])
def test_other_types_agree_to_the_bit(dtype: str) -> None:
    a = plan(dtype=dtype)
    assert disagreement(a, {1: b"abcdefgh"}, {1: b"abcdefgh"}) is None
    text = disagreement(a, {1: b"abcdefgh"}, {1: b"abcdefgX"})
    assert text is not None
    assert f"1 of 8 bytes, dtype {dtype}" in text


def test_a_missing_or_shorter_output_is_named() -> None:
    for actual in ({}, {1: b""}):
        text = disagreement(plan(), {1: b"1234"}, actual)
        assert text is not None
        assert "0 bytes instead of 4" in text


def test_the_first_storage_that_differs_is_named() -> None:
    good, bad = struct.pack("<f", 1.0), struct.pack("<f", 9.0)
    expected = {0: good, 1: good}
    assert disagreement(plan(), expected, dict(expected)) is None
    text = disagreement(plan(), expected, {0: good, 1: bad})
    assert text is not None
    assert "storage 1" in text
    assert "first at 0: 9" in text


def test_a_storage_need_not_hold_whole_elements() -> None:
    """A float view into a workspace of 10 bytes: the storage's dtype is the view's, its size is its own."""
    before, after = struct.pack("<ff", 1.0, 2.0) + b"\0\0", struct.pack("<ff", 1.0, 9.0) + b"\0\0"
    assert disagreement(plan(), {1: before}, {1: after}) is not None


def test_programs_of_other_binaries_are_refused_by_name() -> None:
    """The loader of these tests is the real one: an unreplayable binary has to say why."""
    from kerntune.errors import ReplayError

    a = msgspec.structs.replace(plan(), binaries=(binary(unreplayable="it prints"),))
    with pytest.raises(ReplayError, match="add_kernel: it prints"):
        program(double, a)
