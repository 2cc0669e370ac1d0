"""Whether what a reference computes is evidence, and where it lies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kerntune.base.recording import View
from kerntune.referee.case_inputs import UNREAD
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.reference_evidence import always_equal, in_buffers, restored_input, unvaried
from kerntune.referee.result_numbers import numbers_of
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed, ReplayAnswer


def unvaried_input(line: str, *contents: bytes, changed: bool = False, content: str = "", alike: bool = False) -> str:
    case = parse_line(line)
    tensors = tuple(replace(t, content=content or t.content, alike=alike) for t in case.tensors)
    after = ExpectedResult("float32", (1,), (1,), bytes(4)) if changed else None
    seeds = [ExpectedSeed((one,), (), (after if i == 1 else None,)) for i, one in enumerate(contents)]
    return unvaried(replace(case, tensors=tensors), seeds)


OUT = View(1, "float32", (600,), (1,))


@pytest.mark.parametrize(
    ("view", "content", "dtype", "of", "input"),
    [
        (OUT, UNREAD, "float32", None, 1), (OUT, UNREAD, "float64", None, 1), (OUT, "normal", "float32", None, None),
        (OUT, UNREAD, "float32", 0, 0), (replace(OUT, storage=2), UNREAD, "float32", None, None),
    ],
)  # fmt: skip
def test_a_result_may_lie_in_memory_that_the_task_hands_out(
    view: View, content: str, dtype: str, of: int | None, input: int | None
) -> None:
    """It has that memory's dtype then: the reference's own is rounded to it."""
    case = parse_line("x: f32[600]; y: f32[600]")
    case = replace(case, tensors=(case.tensors[0], replace(case.tensors[1], content=content)))
    call: Any = SimpleNamespace(inputs=(0, 1), results=(view,))
    exact = np.random.default_rng(3).standard_normal(600)
    native = exact.astype({"float32": "f4", "float64": "f8"}[dtype])
    want = ExpectedResult(dtype, (600,), (1,), native.tobytes(), exact.tobytes(), of)
    (found,) = in_buffers(call, case, ExpectedSeed((), (want,))).results
    assert found == replace(want, dtype="float32", native=exact.astype("f4").tobytes(), input=input)


def test_an_exact_result_stays_exact_in_memory_of_fewer_bits() -> None:
    """Its numbers are those of the reference's dtype."""
    case, exact = parse_line("x: f32[600]; y: f16[600]"), np.random.default_rng(1).standard_normal(600).astype("f4")
    case = replace(case, tensors=(case.tensors[0], replace(case.tensors[1], content=UNREAD)))
    call: Any = SimpleNamespace(inputs=(0, 1), results=(replace(OUT, dtype="float16"),))
    want = ExpectedResult("float32", (600,), (1,), exact.tobytes(), b"")
    (found,) = in_buffers(call, case, ExpectedSeed((), (want,))).results
    assert found.native == exact.astype("f2").tobytes()
    assert numbers_of(found).tolist() == numbers_of(want).tolist() == exact.astype("f8").tolist()
    assert numbers_of(replace(found, wide=None)).tolist() == exact.astype("f2").astype("f8").tolist()


def test_one_number_may_lie_there_without_a_dimension() -> None:
    case = parse_line("x: f32[600]; y: f32[1]")
    case = replace(case, tensors=(case.tensors[0], replace(case.tensors[1], content=UNREAD)))
    call: Any = SimpleNamespace(inputs=(0, 1), results=(View(1, "float32", (), ()),))
    want = ExpectedResult("float32", (), (), bytes(4), bytes(8))
    assert in_buffers(call, case, ExpectedSeed((), (want,))).results == (replace(want, input=1),)


@pytest.mark.parametrize(("content", "free"), [(UNREAD, True), ("author", False)])
def test_what_the_reference_returns_in_memory_for_results_may_be_elsewhere(content: str, free: bool) -> None:
    """It need not be there, too."""
    case = parse_line("x: f32[600]; y: f32[600]")
    case = replace(case, tensors=(case.tensors[0], replace(case.tensors[1], content=content)))
    call: Any = SimpleNamespace(inputs=(0, 1), results=(replace(OUT, storage=2),))
    want = ExpectedResult("float32", (600,), (1,), bytes(2400), bytes(4800), 1)
    found = in_buffers(call, case, ExpectedSeed((), (want,), (None, want)))
    assert (found.results[0].input, found.changed[1]) == ((None, None) if free else (1, want))


@pytest.mark.parametrize(("dtype", "shape"), [("int32", (600,)), ("float32", (20, 31))])
def test_a_result_of_another_kind_lies_in_no_such_memory(dtype: str, shape: tuple[int, ...]) -> None:
    case = parse_line("x: f32[600]; y: f32[600]")
    case = replace(case, tensors=(case.tensors[0], replace(case.tensors[1], content=UNREAD)))
    call: Any = SimpleNamespace(inputs=(0, 1), results=(OUT,))
    want = ExpectedResult(dtype, shape, (1,) * len(shape), bytes(2400))
    (found,) = in_buffers(call, case, ExpectedSeed((), (want,))).results
    assert (found.dtype, found.shape, found.native) == (want.dtype, want.shape, want.native)


def test_an_input_that_is_one_number_is_no_evidence() -> None:
    ones, twos = (np.full(4, n, "<f4").tobytes() for n in (1, 2))
    assert "input b is one number in every content" in unvaried_input("b: f32[4]", ones, ones)
    assert unvaried_input("b: f32[4]", ones, twos) == ""
    assert unvaried_input("b: f32[4]", ones, ones, content="author", alike=True) == "", "another shape has others"
    mixed = ones[:8] + twos[:8]
    assert unvaried_input("b: f32[4]", mixed, mixed) == ""
    assert unvaried_input("b: f32[4]", ones, ones, changed=True) == ""


@pytest.mark.parametrize(
    ("content", "size", "named"), [("fixed", 4, 0), ("author", 4, 1), ("author", 1, 0), ("zeros", 1, 1)]
)
def test_numbers_that_may_be_the_same_in_every_content(content: str, size: int, named: int) -> None:
    """Those that are known when recording are told otherwise; of the author's single ones are settings."""
    ones = np.ones(size, "<f4").tobytes()
    assert bool(unvaried_input(f"b: f32[{size}]", ones, ones, content=content)) == named


def test_what_the_task_makes_alike_each_time_is_told() -> None:
    case = parse_line("x: f32[2]; m: i32[2] < 9; w: f32[2]")
    case = replace(case, tensors=tuple(replace(t, content="author") for t in case.tensors), parameters={"w": 2})
    seeds = [ExpectedSeed((bytes([n] * 8), bytes(8), bytes(8)), ()) for n in range(3)]
    assert always_equal(case, seeds) == ("input m has the same numbers in every content, so a candidate may know them",)
    assert always_equal(case, seeds[:1]) == always_equal(parse_line("x: f32[2]; m: i32[2] < 9; w: f32[2]"), seeds) == ()


@pytest.mark.parametrize(
    ("content", "changes", "wrong"),
    [("normal", False, True), ("author", False, True), ("normal", True, False), ("zeros", False, False),
     (UNREAD, False, False)],
)  # fmt: skip
def test_an_input_may_not_be_others_between_launches(content: str, changes: bool, wrong: bool) -> None:
    """Unless the reference changes it, too; or it has nothing but locks, or memory for results."""
    case = parse_line("x: f32[600]; y: f32[600]")
    case = replace(case, tensors=(case.tensors[0], replace(case.tensors[1], content=content)))
    after = ExpectedResult("float32", (600,), (1,), b"")
    seeds = [ExpectedSeed((), (), (None, None)), ExpectedSeed((), (), (None, after if changes else None))]
    told = "it changes input y between its launches, and restores it" * wrong
    call: Any = SimpleNamespace(inputs=(0, 1))
    assert restored_input(case, call, seeds, ReplayAnswer(restored=(1,))) == told
    assert restored_input(case, call, seeds, ReplayAnswer()) == ""
