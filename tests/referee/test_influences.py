"""Whether a result follows from what each input adds, where that is less than a rounding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from kerntune.base.recording import View
from kerntune.referee import influences
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import bytes_of, contents_of, parse_line
from kerntune.referee.element_errors import ResultError
from kerntune.referee.influences import FURTHER_ON, unfollowed, with_influences
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.replay_comparer import ReplayComparer
from kerntune.referee.result_numbers import numbers
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed, ReplayAnswer

COUNT, SHAPE = 4096, (4096,)
CASE = parse_line("p: bf16[4096] uniform(1, 2); h: bf16[4096] normal(0, 1)")
VIEW = View(0, "bfloat16", SHAPE, (1,))


def gated(p: np.ndarray, h: np.ndarray, share: Any = 1.0) -> np.ndarray:
    """The branch adds about half a rounding."""
    return p + share * 0.005 * np.tanh(h)


def run(contents: Any) -> list[Any]:
    return [torch.from_numpy(gated(*(numbers(np.frombuffer(x, "<u2"), "bfloat16") for x in contents)))]


def expected_of(contents: tuple[bytes, ...], stock_share: float) -> ExpectedSeed:
    given = [numbers(np.frombuffer(x, "<u2"), "bfloat16") for x in contents]
    stock = bytes_of(gated(*given, stock_share), "bfloat16")
    result = ExpectedResult("bfloat16", SHAPE, (1,), stock, gated(*given).tobytes())
    return ExpectedSeed(contents, tuple(with_influences(CASE, contents, [result], run)))


def told(share: Any, stock_share: float = 1.0, changed: bool = False, count: int = 5) -> list[tuple[int, str]]:
    seeds = [expected_of(contents_of(CASE.tensors, seed, ()), stock_share) for seed in range(count)]
    call: Any = SimpleNamespace(results=(VIEW,), wanted=(0,), inputs=(None, None))
    if changed:
        seeds = [ExpectedSeed(s.contents, (), (s.results[0], None)) for s in seeds]
        call = SimpleNamespace(results=(), wanted=(0,), inputs=(0, None))
    given = [[numbers(np.frombuffer(x, "<u2"), "bfloat16") for x in s.contents] for s in seeds]
    left = [(bytes_of(gated(*one, share), "bfloat16"),) for one in given]
    return [(e.result, e.wrong.partition(";")[0]) for e in unfollowed(CASE, call, seeds, left, 2)]


@pytest.mark.parametrize(("share", "missing"), [(1.0, ""), (0.95, ""), (0.0, "100%"), (2.0, "100%")])
@pytest.mark.parametrize("changed", [False, True])
def test_what_an_input_adds_must_be_there(share: float, missing: str, changed: bool) -> None:
    found = told(share, changed=changed)
    assert [number for number, _ in found] == [-1 if changed else 0] * bool(missing)
    for _, text in found:
        off = float(text.removeprefix("of what input h adds to it, ").partition("%")[0])
        assert abs(off - float(missing.rstrip("%"))) < 12
        assert text.endswith("is left out or too much")


class GatedComparer(ReplayComparer):
    """Of a candidate that leaves the branch out, or not."""

    def __init__(self, share: float) -> None:
        super().__init__(None, UserCallable("r.py", "f", FUNCTION), False, 1.0)  # type: ignore[arg-type]
        self.share = share

    def _results(self, case: Any, call: Any, forms: Any, usual: int, deadline: float, contents: Any) -> Any:
        seeds = tuple(expected_of(contents_of(CASE.tensors, seed, ()), 1.0) for seed in range(5))
        given = [[numbers(np.frombuffer(x, "<u2"), "bfloat16") for x in s.contents] for s in seeds]
        answers = [ReplayAnswer((bytes_of(gated(*one, self.share), "bfloat16"),)) for one in given]
        return seeds, [b"\xf1\x7f" * 4] * 5, answers, [()] * 5, 0

    def _of_many(self, *_: Any) -> tuple[ResultError, ...]:
        return ()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_element_is_wrong_where_a_branch_is_left_out_but_all_are(share: float) -> None:
    none = (None, None)
    call: Any = SimpleNamespace(
        wanted=(0,), results=(VIEW,), inputs=none, contents=lambda given: none, again=None, operators=(),
        recording=None, ignored=lambda case: [],
    )  # fmt: skip
    found = GatedComparer(share).compare(CASE, call, [()] * 5, 0.0)
    assert not any(e.wrong for e in found.errors)
    assert ["of what input h adds to it" in e.wrong for e in found.wrong] == [True] * (share == 0)


def test_where_the_stock_operator_loses_it_nobody_must_have_it() -> None:
    assert told(0.0, stock_share=0.0) == []
    assert told(1.0, stock_share=0.0) == [], "who has it is right"


@pytest.mark.parametrize(("last", "missing"), [(0.91, "in piece 1"), (0.5, ""), (1.0, None)])
def test_what_an_input_adds_must_be_in_each_piece(last: float, missing: str | None) -> None:
    """The last 9 % of a result are less than a fifth of it."""
    (*found, _) = (*told(np.where(np.arange(4096) < 4096 * last, 1.0, 0.0)), None)  # type: ignore[arg-type]
    assert [missing in text for _, text in found if missing is not None] == [True] * (missing is not None)


def test_of_many_elements_a_piece_is_looked_at_and_of_many_inputs_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fourth of all, at equal steps; where they are too large, of a reference that takes no time."""
    monkeypatch.setattr(influences, "SAMPLED", 1024)
    seeds = [expected_of(contents_of(CASE.tensors, seed, ()), 1.0) for seed in range(9)]
    pieces = [influences._piece(seed.results[0]) for seed in seeds]
    assert {piece.start for piece in pieces} == {*range(4)}
    assert {piece.step for piece in pieces} == {4}
    assert all(told(np.arange(4096) < 4096 * end / 16) for end in (14, 15)), "the end is in each"
    for share, wrong in ((0.0, True), (1.0, False)):
        assert bool(told(share)) == wrong
    contents = contents_of(CASE.tensors, 1, ())
    result = expected_of(contents, 1.0).results[0]
    monkeypatch.setattr(influences, "MOST_INPUTS", 1)
    assert {*map(tuple, (with_influences(CASE, contents, [result], run)[0].influences for _ in range(20)))} == {
        (0,),
        (1,),
    }
    monkeypatch.setattr(influences, "MOST_BYTES", 1)
    for seconds, count in ((0.05, 1), (0.2, 0)):
        fresh = msgspec.structs.replace(result, influences={})
        assert len(with_influences(CASE, contents, [fresh], run, seconds)[0].influences) == count


def test_one_content_tells_nothing() -> None:
    assert told(0.0, count=1) == []


def test_an_input_adds_what_another_would_not() -> None:
    case = parse_line("x: f32[100]; i: i32[100] < 9; y: f32[2]")
    contents = contents_of(case.tensors, 1, ())
    seen = list[int]()

    def doubled(others: Any) -> list[Any]:
        seen.append(next(k for k, (a, b) in enumerate(zip(contents, others, strict=True)) if a != b))
        if seen[-1] == 2:
            raise ValueError("it takes these alone")
        return [torch.from_numpy(2 * np.frombuffer(others[0], "<f4").astype(np.float64)), None]

    x = np.frombuffer(contents[0], "<f4").astype(np.float64)
    result = ExpectedResult("float32", (100,), (1,), bytes(400), (2 * x).tobytes())
    one, none = with_influences(case, contents, [result, None], doubled)
    assert seen == [0, 2], "whole numbers stay"
    assert none is None
    assert list(one.influences) == [0]
    added = np.frombuffer(one.influences[0], "<f4")
    assert np.allclose(added, 2 * (x - np.roll(x, -FURTHER_ON)), atol=1e-6)
    few = ExpectedResult("float32", (9,), (1,), bytes(36), bytes(72))
    assert with_influences(case, contents, [few], doubled)[0].influences == {}
