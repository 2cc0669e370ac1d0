"""Races of calls: what a disturbed reading, rising clocks and slow candidates do to the winner and to the times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.choices.deciding import _settle, race_calls
from kerntune.tuning.race import Trial

Spend = Callable[[float], None]


class Device:
    """Calls that take so many nanoseconds each. The host pauses at the begin of the slot of number ``pause``; clocks
    are ``cold`` times slower at first, and rise over a thousand calls."""

    def __init__(self, gpu: Any, spend: Spend, *, pause: int = -1, cold: float = 1.0) -> None:
        self.gpu, self.spend, self.pause, self.cold = gpu, spend, pause, cold
        self.slots = self.calls = 0
        self.paused = True

    def restore(self) -> None:
        self.paused = self.slots != self.pause
        self.slots += 1

    def call(self, ns: float) -> Callable[[], None]:
        def one() -> None:
            factor = 1 + (self.cold - 1) * max(0.0, 1 - self.calls / 1000)
            self.spend(ns * factor + (0 if self.paused else 4e5))
            self.paused = True
            self.calls += 1

        return one

    def race(self, *ns: float, incumbent: int | None = None) -> tuple[int, dict[int, float]]:
        calls = {i: self.call(one) for i, one in enumerate(ns)}
        return race_calls(self.gpu, calls, self.restore, incumbent)


def test_a_pause_of_the_host_in_any_slot_decides_nothing(this_gpu: FakeBackend, spend: Spend) -> None:
    quiet = Device(this_gpu.gpu, spend)
    assert quiet.race(9900.0, 9000.0, 20000.0)[0] == 1
    lost = [k for k in range(quiet.slots) if Device(this_gpu.gpu, spend, pause=k).race(9900.0, 9000.0, 20000.0)[0] != 1]
    assert lost == []


def test_clocks_that_rise_decide_nothing(this_gpu: FakeBackend, spend: Spend) -> None:
    winner, times = Device(this_gpu.gpu, spend, cold=2.0).race(9000.0, 9300.0, 12000.0, 30000.0)
    assert winner == 0
    assert [times[i] for i in range(3)] == pytest.approx([9000.0, 9300.0, 12000.0], rel=0.02)
    assert times[3] == pytest.approx(30000.0, rel=0.1), "only estimated"


def test_the_winners_time_is_the_least(this_gpu: FakeBackend, spend: Spend) -> None:
    for k in range(60):
        winner, times = Device(this_gpu.gpu, spend, cold=1.5, pause=k).race(10000.0, 11000.0, 14000.0, 17000.0)
        assert winner == min(times, key=lambda i: times[i])


def test_a_tie_goes_to_the_incumbent(this_gpu: FakeBackend, spend: Spend) -> None:
    assert Device(this_gpu.gpu, spend).race(1000.0, 1001.0, 1002.0, incumbent=2)[0] == 2
    assert Device(this_gpu.gpu, spend).race(1002.0, 1001.0, 1000.0)[0] == 0


def test_nothing_lies_between_the_race_and_the_call(spend: Spend) -> None:
    """What the race itself does on the host would be part of every time."""
    callers: list[str] = []

    def one(x: torch.Tensor, *, n: int = 1) -> torch.Tensor:
        callers.append(sys._getframe(1).f_code.co_name)
        spend(100.0)
        return x * n

    def other(x: torch.Tensor, *, n: int = 1) -> torch.Tensor:
        spend(1000.0)
        return x * n

    kerntune.choice([one, other], key=["x"])(lambda x, *, n=1: None)(torch.ones(3), n=2)
    assert "_calls_in_turn" in callers
    assert "_call" not in callers[5:-1]


def test_the_time_of_one_that_dropped_out_is_held_against_the_winners_of_then() -> None:
    """Clocks rose afterwards: it was a fifth slower, and would be now."""
    nothing: Any = None
    winner, other = (Trial(i, nothing, nothing) for i in range(2))
    winner.times, other.times, winner.settled = [10.0, 10.0, 5.0, 5.0, 5.0], [12.0, 12.0], 5.0
    _settle(other, winner)
    assert other.time_ns == pytest.approx(6.0)
