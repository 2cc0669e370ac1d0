"""What follows from which of equal numbers comes first isn't compared, and all else is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from kerntune.base.recording import View
from kerntune.referee import open_elements
from kerntune.referee.open_elements import (
    ORDERS,
    as_promised,
    much_tied,
    repeated,
    tied,
    with_open,
    with_others,
)
from kerntune.referee.reference_operators import other_ties
from kerntune.referee.result_numbers import numbers_of
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed
from tests.referee.test_reference_results import expected

TIES = torch.tensor([[1.0, 3.0, 0.0, 3.0, 0.0, 0.0], [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]])


@pytest.mark.parametrize(
    ("run", "first", "last"),
    [
        (lambda: TIES.topk(3), [1, 3, 0], [3, 1, 0]),
        (lambda: TIES.topk(3, largest=False, dim=1), [2, 4, 5], [5, 4, 2]),
        (lambda: TIES.sort(descending=True), [1, 3, 0, 2, 4, 5], [3, 1, 0, 5, 4, 2]),
        (lambda: TIES.t().sort(0), [2, 4, 5, 0, 1, 3], [5, 4, 2, 0, 3, 1]),
        (lambda: TIES.half().sort(stable=True), [2, 4, 5, 0, 1, 3], [2, 4, 5, 0, 1, 3]),
    ],
)
def test_equal_numbers_come_in_other_orders(run: Any, first: list[int], last: list[int]) -> None:
    plain, found = run(), []
    for turn in range(ORDERS):
        with other_ties(turn, 7):
            values, places = run()
        assert torch.equal(values, plain.values)
        found.append(places if places.shape[0] == 2 else places.t())
    assert [x[0].tolist() for x in found[:2]] == [first, last]
    assert sorted(found[2][0].tolist()) == sorted(first) or len(first) == 3
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("run", [lambda: TIES.kthvalue(3, -1, True), lambda: TIES.median(1, True)])
def test_one_of_equal_numbers_in_the_middle_is_any(run: Any) -> None:
    found = set()
    for turn in range(ORDERS):
        with other_ties(turn, 7):
            values, places = run()
        assert torch.equal(values, run().values)
        assert torch.equal(TIES.gather(1, places), values)
        found.add(places[0].item())
    assert len(found) > 1


def test_a_single_number_is_sorted_as_it_is() -> None:
    with other_ties(1, 7):
        assert torch.tensor(3.0).sort().values == 3.0


def of(values: Any, **words: Any) -> ExpectedResult:
    tensor = torch.as_tensor(values)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return ExpectedResult(dtype, tuple(tensor.shape), tensor.stride(), tensor.numpy().tobytes(), **words)


def test_elements_that_are_others_are_open() -> None:
    native = [torch.tensor([1, 2, 3, 4]), torch.tensor([1.0, float("nan")]), torch.tensor([5])]
    results = [of(native[0]), of(native[1]), None]
    one, other = torch.tensor([1, 3, 3, 4]), torch.tensor([2, 2, 3, 4])
    again = [[one, native[1], torch.tensor([6])], [other, native[1], native[2]]]
    masks = tied(native, again)
    found = with_open(results, masks)
    assert found[0].open == bytes([1, 1, 0, 0])
    assert found[1:] == results[1:]
    assert "2 of 4 elements of result 0 follow from which of equal numbers" in much_tied(masks)
    assert much_tied([torch.tensor([True, False, False, False])]) == ""
    (again,) = with_open(found[:1], [torch.tensor([False, False, True, False])])
    assert again.open == bytes([1, 1, 1, 0]), "of both kinds"


def test_float64_has_what_open_elements_have() -> None:
    """Else its other numbers would be taken for what rounding moves."""
    wide = np.array([1.25, 9.0, 3.25])
    one = of(np.array([1.0, 2.0, 3.0], "<f2"), wide=wide.tobytes())
    (found,) = with_open([one], [torch.tensor([False, True, False])])
    assert numbers_of(found).tolist() == [1.25, 2.0, 3.25]


class Call:
    results = (View(5, "int16", (2, 3), (4, 1), 2),)
    inputs = (4, None)
    wanted = (4, 5)


def test_what_is_left_there_is_as_expected() -> None:
    left = (np.array([7, 8], "<i4").tobytes(), np.arange(10, dtype="<i2").tobytes())
    result = of(np.full((2, 3), 60, "<i2"), open=bytes([0, 1, 0, 0, 0, 1]))
    changed = of(np.array([1, 2], "<i4"), open=bytes([1, 0]))
    found = as_promised(Call(), ExpectedSeed((), (result,), (changed, None)), left)  # type: ignore[arg-type]
    assert [*found] == [4, 5]
    same, after = found.values()
    assert np.frombuffer(same, "<i4").tolist() == [1, 8]
    assert np.frombuffer(after, "<i2").tolist() == [0, 1, 60, 3, 4, 5, 6, 60, 8, 9]
    plain = ExpectedSeed((), (of(np.full((2, 3), 60, "<i2")),), (None, None))
    assert tuple(as_promised(Call(), plain, left).values()) == left  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "after"),
    [
        ([5, 7, 1, 7, 0, 2, 2, 9], [5, 1, 7, 7, 0, 9, 2, 2]),
        ([5, 7, 7, 7, 0, 2, 2, 2], [5, 7, 7, 7, 0, 2, 2, 2]),
        ([4, np.nan, 1, 7, 0, 2, 2, 3], [4, 1, 7, np.nan, 0, 3, 2, 2]),
    ],
)
@pytest.mark.parametrize("strides", [(4, 1), (1, 2)])
def test_what_changes_places_alone_is_in_the_order_that_is_expected(
    found: list[float], after: list[float], strides: tuple[int, int]
) -> None:
    """As those of a mask that keeps the largest: it may not keep more of them."""
    expected = of([[5.0, 1, 7, 7], [0, 9, 2, 2]], open=bytes((0, 1, 1, 1, 0, 1, 1, 1)), rearranged=True)
    memory = np.zeros(8, "f4")
    lies = np.lib.stride_tricks.as_strided(memory, (2, 4), [4 * n for n in strides])
    lies[...] = np.array(found).reshape(2, 4)
    memory[...] = np.frombuffer(
        open_elements._replaced(memory.tobytes(), View(0, "float32", (2, 4), strides), expected), "f4"
    )
    assert np.array_equal(lies.flatten(), after, equal_nan=True)


BODY = "w, i = torch.topk(torch.softmax(x, -1), 2); return w, i"


def test_a_reference_says_which_of_its_elements_are_open(tmp_path: Path) -> None:
    x = np.array([[0, 300, 0, -9], [3, 1, 2, 0], [5, 4, 4, 0], [5, 4, 3, 2]], "<f4")
    (seed,) = expected(tmp_path, BODY, "x: f32[4,4]", x).seeds
    assert seed.results[0].open is None
    assert list(seed.results[1].open or b"") == [0, 1, 0, 0, 0, 1, 0, 0]
    assert not seed.results[1].rearranged, "other places are chosen"
    kept = "w, i = x.topk(2); return torch.zeros_like(x).scatter(-1, i, w), x.sort(-1).indices"
    (seed,) = expected(tmp_path, kept, "x: f32[4,4]", x).seeds
    assert [(one.open is None, one.rearranged) for one in seed.results] == [(False, True)] * 2
    (seed,) = expected(tmp_path, "return x.argmax(-1), x.sort(stable=True).indices", "x: f32[4,4]", x).seeds
    assert [one.open for one in seed.results] == [None, None]


@pytest.mark.parametrize(("value", "undefined"), [(np.inf, False), (np.nan, True)])
@pytest.mark.parametrize("body", [BODY, "return x.gather(-1, (x + 1).sort(-1).indices[:, :2])", "return x + x"])
def test_where_nan_is_in_an_order_nothing_is_promised(body: str, value: float, undefined: bool, tmp_path: Path) -> None:
    """A kernel's loop over maxima passes over it, where torch returns its index."""
    x = np.array([[0, 1, 2, 3], [7, 6, 5, 4], [0, 2, 4, value], [9, 8, 7, 6]], "<f4")
    (seed,) = expected(tmp_path, body, "x: f32[4,4]", x).seeds
    assert ("where NaN is in an order" in seed.undefined) is (undefined and "+ x" not in body)


@pytest.mark.parametrize(("usual", "told"), [(1, "4 of 8 elements of result 1 follow from"), (0, "")])
def test_where_much_is_open_the_reference_says_so(tmp_path: Path, usual: int, told: str) -> None:
    x = np.tile(np.array([[0, 1, 1, 0]], "<f4"), (4, 1))
    x[2:] = [[1, 2, 3, 4], [4, 3, 2, 1]]
    (seed,) = expected(tmp_path, BODY, "x: f32[4,4]", x, usual=usual).seeds
    assert seed.undefined[: len(told) or None] == told


def test_whole_numbers_that_roundings_decide_have_others() -> None:
    given = [of(np.array([3, 4, 5], "i1")), of(np.array([1.0], "<f4")), None, of(np.array([True]))]
    drawn = [torch.tensor([3, 4, x], dtype=torch.int8) for x in (6, 5, 4)]
    runs = [[one, torch.tensor([2.0]), None, torch.tensor([True])] for one in drawn]
    found = with_others(given, runs)
    assert np.frombuffer(found[0].others or b"", "i1").tolist() == [3, 4, 4, 3, 4, 6]
    assert found[1:] == given[1:]
    one = with_others(given[3:], [[torch.tensor([False])], [torch.tensor([True])]])
    assert one[0].others == bytes([0, 1])
    assert with_others(given[:1], [[torch.tensor([3, 4, 6])]]) == given[:1]  # of another dtype


@pytest.mark.parametrize(("found", "as_expected"), [([3, 4, 6], True), ([3, 4, 4], True), ([3, 4, 7], False)])
def test_others_are_right(found: list[int], as_expected: bool) -> None:
    want = of(np.array([3, 4, 5], "i1"), others=bytes([3, 4, 4, 3, 4, 6]))
    call = SimpleNamespace(results=(View(0, "int8", (3,), (1,)),), inputs=(None,), wanted=(0,))
    after = as_promised(call, ExpectedSeed((), (want,), (None,)), [bytes(found)])[0]  # type: ignore[arg-type]
    assert after == (want.native if as_expected else bytes(found))


QUANTIZED = "s = x.abs().amax(-1, keepdim=True) / 127; return (x / s).round().to(torch.int8), s"


@pytest.mark.parametrize(
    ("x", "others"),
    [([3.0, 1.5, 1.0], [[127, 63, 42], [127, 64, 42]]), ([254.0, 101.0, 3.0], [[127, 50, 1], [127, 51, 2]])],
)
def test_half_of_a_step_becomes_either_whole_number(tmp_path: Path, x: list[float], others: list[list[int]]) -> None:
    """Also where the reference has no rounding: to multiply by the inverse does."""
    (seed,) = expected(tmp_path, QUANTIZED, "x: f32[1,3]", np.array([x], "<f4"), draws=16).seeds
    assert np.frombuffer(seed.results[0].others or b"", "i1").reshape(2, 3).tolist() == others
    assert seed.results[1].others is None


@pytest.mark.parametrize(("rows", "open_there", "twice"), [(20, True, True), (8, True, False), (20, False, False)])
def test_an_index_comes_once_whichever_of_equal_numbers_it_is(rows: int, open_there: bool, twice: bool) -> None:
    native = np.tile(np.arange(4), (rows, 1))
    mask = np.ones(native.shape, bool).tobytes() if open_there else None
    want, view = (
        ExpectedResult("int64", (rows, 4), (4, 1), native.tobytes(), open=mask),
        View(0, "int64", (rows, 4), (4, 1)),
    )
    found = native[:, ::-1].copy()
    assert repeated(found.tobytes(), view, want) == ""
    found[3, 0] = found[3, 1]
    assert repeated(found.tobytes(), view, want) == f"1 of {rows} rows have a number twice, the first row 3" * twice
    other = msgspec.structs.replace(want, native=(native // 2).tobytes())
    assert repeated(found.tobytes(), view, other) == ""
