"""Who of several implementations is right, which slots a race has, and what is said."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import MeasurementError
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.choices import deciding as module
from kerntune.tuning.choices.deciding import Deciding, Decision, _calls_within, _settle, race_calls, warn_left_out
from kerntune.tuning.race import Trial
from kerntune.tuning.verification import Verify

NAMES = "abcd"
DOUBT = (
    "choice mm: as many implementations disagree with a as agree with it, so its result was taken for the right one; "
    "give reference="
)


def deciding(mode: Verify) -> Any:
    """Outcomes are numbers, of which unlike ones differ."""
    made = Deciding.__new__(Deciding)
    made.choice = "mm"
    made.implementations = [SimpleNamespace(name=name) for name in NAMES]  # type: ignore[misc]
    made.verification = SimpleNamespace(mode=mode)  # type: ignore[assignment]
    made.left_out, made.notes, made.errors = {}, [], {}
    made._differs = lambda a, b: None if a == b else f"{b} not {a}"  # type: ignore[assignment, return-value]
    return made


@pytest.mark.parametrize(
    ("mode", "outcomes", "right", "left_out", "notes"),
    [
        (Verify.OFF, {0: 1, 1: 2}, [0, 1], {}, []),
        (Verify.ALL, {0: 1, 1: 1, 2: 1}, [0, 1, 2], {}, []),
        (Verify.ALL, {0: 1, 1: 2, 2: 2}, [1, 2], {0: "1 not 2: another result than 2 of 3 implementations"}, []),
        (Verify.ALL, {0: 1, 1: 2}, [0], {1: "2 not 1: another result than a"}, [DOUBT]),
        (Verify.ALL, {None: 2, 0: 1, 1: 2, 2: 1}, [1], {0: "1 not 2: another result than the reference",
                                                        2: "1 not 2: another result than the reference"}, []),
        (Verify.BITWISE, {0: 1, 1: 2, 2: 2}, [0], {1: "2 not 1: another result than a",
                                                   2: "2 not 1: another result than a"}, []),
        (Verify.BITWISE, {None: 2, 0: 1, 1: 2}, [1], {0: "1 not 2: another result than the reference"}, []),
    ],
)  # fmt: skip
def test_the_reference_decides_else_most_do(mode: Verify, outcomes: Any, right: Any, left_out: Any, notes: Any) -> None:
    one = deciding(mode)
    assert (one._agreeing(outcomes), one.left_out, one.notes) == (right, left_out, notes)


def test_if_all_are_wrong_every_difference_is_told() -> None:
    with pytest.raises(MeasurementError) as told:
        deciding(Verify.ALL)._agreeing({None: 3, 0: 1, 1: 2})
    assert str(told.value) == (
        "choice mm: no implementation leaves what reference= does\n"
        "  a: 1 not 3: another result than the reference\n  b: 2 not 3: another result than the reference"
    )


# the race


class Slots:
    """Calls that take so many nanoseconds; of each slot who was called, and how often."""

    def __init__(self, this_gpu: FakeBackend, spend: Callable[[float], None]) -> None:
        self.gpu: Any = this_gpu.gpu
        self.spend, self.seen = spend, list[list[int]]()

    def race(self, *ns: float, most: int = 100) -> list[tuple[int, int, int]]:
        """Who, calls of a slot, and slots after one another."""
        calls = {i: self.call(i, one) for i, one in enumerate(ns)}
        winner, self.times = race_calls(self.gpu, calls, lambda: self.seen.append([]), None, most)
        assert winner == 0
        return [(slot[0], len(slot), len(list(several))) for slot, several in itertools.groupby(self.seen)]

    def call(self, index: int, ns: float) -> Callable[[], None]:
        def one() -> None:
            self.seen[-1].append(index)
            self.spend(ns)

        return one


@pytest.mark.parametrize(
    ("ns", "slots", "finals"),
    [
        ((5e4, 5.5e4, 6.5e4, 1e6), [
            (0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 2),  # kernels are loaded
            (0, 2, 1), (0, 20, 10),  # clocks rise
            (0, 2, 1), (0, 5, 4), (1, 2, 1), (1, 4, 4), (2, 2, 1), (2, 3, 4), (3, 2, 5),  # estimates
            (0, 20, 1), (1, 20, 1), (2, 20, 2), (1, 20, 1), (0, 20, 2), (1, 20, 1), (2, 20, 1),  # there, back, there
         ], {0, 1}),
        ((5e4, 5.5e4), [
            (0, 1, 2), (1, 1, 2), (0, 2, 1), (0, 20, 10), (0, 2, 1), (0, 5, 4), (1, 2, 1), (1, 4, 4),
            (0, 20, 1), (1, 20, 2), (0, 20, 2), (1, 20, 2),
         ], {0, 1}),
        ((5e4, 1e6), [(0, 1, 2), (1, 1, 2), (0, 2, 1), (0, 20, 10), (0, 2, 1), (0, 5, 4), (1, 2, 5)], set()),
        ((1e3, 3e3), [(0, 1, 2), (1, 1, 2), (0, 2, 1), (0, 100, 12), (0, 2, 1), (0, 10, 4), (1, 2, 1), (1, 10, 4)],
         set()),
    ],
    ids=["all ways out", "two", "one is near", "short"],
)  # fmt: skip
def test_the_slots_of_a_race(
    this_gpu: FakeBackend, spend: Callable[[float], None], ns: tuple[float, ...], slots: Any, finals: set[int]
) -> None:
    device = Slots(this_gpu, spend)
    found = device.race(*ns)
    assert found[: len(slots) - 1] == slots[:-1]
    assert found[len(slots) - 1][:2] == slots[-1][:2]
    assert {(who, calls) for who, calls, _ in found[len(slots) :]} == {(who, 20) for who in finals}
    assert device.times == pytest.approx(dict(enumerate(ns)))


def test_what_counts_on_is_restored_before_each_call(this_gpu: FakeBackend, spend: Callable[[float], None]) -> None:
    assert {calls for _, calls, _ in Slots(this_gpu, spend).race(5e4, 5.5e4, most=1)} == {1}


@pytest.mark.parametrize(
    ("one_ns", "most", "calls"),
    [(0.0, 100, 100), (1e4, 100, 100), (3e5, 100, 3), (5e5, 100, 2), (1e9, 100, 2), (1e9, 1, 1)],
)
def test_calls_of_a_slot_fill_its_time(one_ns: float, most: int, calls: int) -> None:
    assert _calls_within(1e6, one_ns, most) == calls


def test_the_time_of_one_that_was_only_estimated() -> None:
    nothing: Any = None
    winner, other = (Trial(i, nothing, nothing) for i in range(2))
    winner.estimate, other.estimate, winner.settled, winner.times = 10.0, 30.0, 5.0, [5.0]
    _settle(other, winner)
    assert other.time_ns == 15.0
    winner.estimate = 0.0
    _settle(other, winner)
    assert other.time_ns == 30.0, "no share of nothing"


# what is said


def test_each_reason_is_said_once_and_each_note_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_said", set())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for left_out in ({"a": "wrong", "b": "slow"}, {"a": "wrong"}, {"a": "other"}):
            warn_left_out("mm", left_out, ["doubt"])
        warn_left_out("other", {"a": "wrong"}, [])
    assert [str(one.message).removeprefix("choice ") for one in said] == [
        "mm: a is left out for such arguments: wrong", "mm: b is left out for such arguments: slow", "doubt",
        "doubt", "mm: a is left out for such arguments: other", "doubt",
        "other: a is left out for such arguments: wrong",
    ]  # fmt: skip


def test_a_decision_is_told_with_times_the_shortest_first() -> None:
    assert str(Decision("mm", "n=1", "b")) == "choice mm went to b (raced)"
    found = Decision("mm", "n=1", "b", {"a": 3000.0, "b": 1000.0}, {"c": "wrong", "d": "slow"}, "stored")
    assert str(found) == "choice mm went to b (stored); b 1.00 µs; a 3.00 µs; c left out: wrong; d left out: slow"
    assert (Decision("mm", "n=1", "b").notes, Decision("mm", "n=1", "b").seconds) == ((), 0.0)
