"""Elements that a reference leaves as ``torch.empty`` has given them, or that have any order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.msgpack import encode as encoded
from msgspec.structs import replace

from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import contents_of, parse_line
from kerntune.referee.errors_together import is_demanded
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.open_elements import FILLS, in_any_order, much_unwritten, not_compared, unwritten
from kerntune.referee.reference_operators import filled
from kerntune.referee.reference_results import answer
from kerntune.referee.result_numbers import numbers_of
from kerntune.referee.tasks import ExpectedSeed, ExpectTask


def made(fill: int, run: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    with filled(fill):
        return [torch.zeros(3), run()]


def half(dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty(2, 8, dtype=dtype)
    out[0] = torch.ones(8).to(dtype)
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int32", "uint8", "bool"])
def test_elements_that_nothing_writes_are_found(dtype: str) -> None:
    def run() -> torch.Tensor:
        return half(getattr(torch, dtype))

    none, some = unwritten(made(FILLS[0], run), iter([made(FILLS[1], run)]))
    assert not none.any()
    assert some.tolist() == [[False] * 8, [True] * 8]
    assert much_unwritten([none, some]) == ""
    some[0, 1:] = True
    told = "it leaves 15 of 16 elements of result 1 as torch.empty gave them, the first at [0, 1], "
    assert much_unwritten([none, some]).startswith(told)


@pytest.mark.parametrize(
    "run",
    [
        lambda: torch.full((8,), -1), lambda: torch.full((8,), 255, dtype=torch.uint8), lambda: torch.empty(0, 4),
        lambda: torch.full((8,), float("nan")), lambda: torch.empty(8).copy_(torch.arange(8.0)),
        lambda: torch.tensor(-1),
    ],
)  # fmt: skip
def test_numbers_that_are_written_may_be_any(run: Callable[[], torch.Tensor]) -> None:
    assert not any(mask.any() for mask in unwritten(made(FILLS[0], run), iter([made(FILLS[1], run)])))


def test_what_is_added_to_unwritten_memory_is_found_too() -> None:
    def run() -> torch.Tensor:
        return torch.empty(4) + 1

    assert unwritten(made(FILLS[0], run), iter([made(FILLS[1], run)]))[1].all()


KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def rows_kernel(x, lengths, o, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    own = at < tl.load(lengths + row)
    tl.store(o + row * BLOCK + at, tl.load(x + row * BLOCK + at, mask=own) * 2, mask=own)

def padded(x, lengths):
    o = torch.empty_like(x)
    rows_kernel[(4,)](x, lengths, o, BLOCK=16)
    return o

@triton.jit
def places_kernel(x, lengths, o, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(x + at) > 0
    rank = tl.cumsum(own.to(tl.int32), 0)
    base = tl.atomic_add(count, tl.sum(own.to(tl.int32), 0))
    tl.store(o + base + rank - 1, at, mask=own)

def places(x, lengths):
    o, count = torch.full((64,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    places_kernel[(4,)](x, lengths, o, count, BLOCK=16)
    return o

@triton.jit
def largest_kernel(x, lengths, o, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value, index = tl.max(tl.load(x + row * BLOCK + at), 0, return_indices=True)
    tl.store(o + row, value)

def largest(x, lengths):
    o = torch.empty(4)
    largest_kernel[(4,)](x, lengths, o, BLOCK=16)
    return o

def zeroed(x, lengths):
    o = torch.zeros_like(x)
    rows_kernel[(4,)](x, lengths, o, BLOCK=16)
    return o
"""


def expected(tmp_path: Path, name: str, lengths: str, form: str = "", **words: Any) -> tuple[ExpectedSeed, ...]:
    (tmp_path / "old.py").write_text(KERNELS)
    case = parse_line(f"x: f32[4,16]; lengths: i32[4] {lengths}")
    contents = tuple(tuple(contents_of(case.tensors, seed, (form, ""))) for seed in range(3))
    source = UserCallable(str(tmp_path / "old.py"), name, FUNCTION)
    found = answer(encoded(ExpectTask(source, case, (0, 1, 2), contents, **words)))
    assert found.refused is None
    return found.seeds


def test_padding_that_a_kernel_leaves_is_not_compared(tmp_path: Path) -> None:
    """It is whatever memory held. Where nearly all is, a content demands nothing."""
    seeds = expected(tmp_path, "padded", "= [3, 16, 1, 16]", usual=3)
    padding = [at >= length for length in (3, 16, 1, 16) for at in range(16)]
    for seed in seeds:
        (result,) = seed.results
        assert list(result.open or b"") == padding
        exact, stock = numbers_of(result), numbers_of(replace(result, wide=None))
        assert np.array_equal(np.isnan(exact), padding)
        assert np.array_equal(exact, stock, equal_nan=True)
    told = "28 of 64 elements of result 0 aren't compared: the reference leaves them unwritten, or has equal numbers "
    assert [text.startswith(told) for text in not_compared(seeds)] == [True]
    case = parse_line("x: f32[4,16]; lengths: i32[4] < 9")
    assert [(s.undefined, is_demanded(case, s, ())) for s in seeds] == [("", True)] * 3
    seeds = expected(tmp_path, "padded", "= [3, 1, 1, 1]", usual=2)
    told = "it leaves 58 of 64 elements of result 0"
    assert [s.undefined.partition(" as ")[0] for s in seeds] == [told, told, ""]
    assert [is_demanded(case, s, ()) for s in seeds] == [False, False, True]


@pytest.mark.parametrize(("name", "lengths"), [("padded", "= [16, 16, 16, 16]"), ("zeroed", "= [3, 16, 1, 16]")])
def test_what_is_written_is_demanded(tmp_path: Path, name: str, lengths: str) -> None:
    seeds = expected(tmp_path, name, lengths)
    case = parse_line("x: f32[4,16]; lengths: i32[4] < 9")
    assert [(s.undefined, is_demanded(case, s, ())) for s in seeds] == [("", True)] * 3


def test_after_its_time_no_further_content_is_begun(tmp_path: Path) -> None:
    assert len(expected(tmp_path, "zeroed", "< 9", seconds=1e-9)) == 1


def test_results_in_any_order_say_so(tmp_path: Path) -> None:
    """Such as places that programs draw by an atomic counter; of the first contents alone."""
    seeds = expected(tmp_path, "places", "< 9")
    assert ["are others where its programs run in another order" in s.undefined for s in seeds] == [True, True, False]


@pytest.mark.parametrize(("form", "told"), [("", False), ("huge", False), ("holes", True)])
def test_a_maximum_with_its_index_is_not_defined_beside_nan(tmp_path: Path, form: str, told: bool) -> None:
    seeds = expected(tmp_path, "largest", "< 9", form)
    assert [bool(s.undefined) for s in seeds] == [told] * 3


def test_sums_in_another_order_are_the_same_results() -> None:
    x = torch.randn(100, generator=torch.Generator().manual_seed(1))
    assert in_any_order([x, torch.tensor([3])], [x + 1e-6, torch.tensor([3])]) == ""
    assert in_any_order([x, torch.tensor([3])], [x, torch.tensor([4])])
    assert in_any_order([x], [torch.where(x == x[3], torch.nan, x)])
    assert in_any_order([x], [torch.where(x == x[3], 0.1, x)])
