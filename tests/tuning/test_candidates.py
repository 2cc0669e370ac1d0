"""Waiting for compilations: which candidates are stragglers, how long the tuner waits for them, and which are left."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.tuning import candidates as module
from kerntune.tuning.candidates import Prospects

LATER = 60.0


class Coming:
    """Results that are there after so many pauses."""

    def __init__(self, pauses: float = math.inf) -> None:
        self.pauses, self.waited = pauses, list[float]()

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return len(self.waited) > self.pauses


def prospects(candidates: int, queued: int = 0) -> Prospects:
    capture: Any = SimpleNamespace(compiler=SimpleNamespace(farm=SimpleNamespace(queued=queued)))
    found = Prospects(capture, None, None)  # type: ignore[arg-type]
    found.probes = dict.fromkeys(range(candidates))  # type: ignore[arg-type]
    return found


def left(one: Prospects, number: int, coming: Any) -> bool:
    return one._left(set(range(number)), coming)


def test_a_share_may_be_left_once_patience_ends() -> None:
    one = prospects(16)
    one.pause = lambda: 0.0
    assert left(one, 4, Coming())
    assert one.stragglers is not None
    assert one.stragglers.indices == {0, 1, 2, 3}


def test_nobody_is_left_before_it_ends() -> None:
    one, pauses = prospects(16), list[int]()
    one.pause = lambda: pauses.append(1) or time.monotonic() + LATER  # type: ignore[func-returns-value]
    assert not left(one, 4, Coming(pauses=3))
    assert (len(pauses), one.stragglers) == (3, None)


def test_who_comes_at_the_last_moment_is_not_left() -> None:
    one = prospects(16)
    one.pause = lambda: 0.0
    assert not left(one, 1, Coming(pauses=1))


@pytest.mark.parametrize(("candidates", "late", "told"), [(16, 5, False), (8, 3, True), (4, 4, True)])
def test_more_than_the_share_are_waited_for(candidates: int, late: int, told: bool) -> None:
    """Few of a short list leave time for a race of the others all the same."""
    one, pauses = prospects(candidates), list[int]()
    one.pause = lambda: pauses.append(1) or 0.0  # type: ignore[func-returns-value]
    assert not left(one, late, Coming(pauses=4))
    assert bool(pauses) == told


def test_jobs_that_wait_for_a_processor_are_no_stragglers() -> None:
    one = prospects(16, queued=1)
    one.pause = lambda: pytest.fail("no turn")
    assert not left(one, 1, Coming(pauses=2))


def test_a_pause_is_short_once_patience_has_ended() -> None:
    one, coming = prospects(16), Coming()
    one.pause = lambda: time.monotonic() - 1.0
    assert left(one, 2, coming)
    assert coming.waited[:1] == [module.QUIET_SECONDS]
    again = Coming()
    assert left(one, 1, again)
    assert again.waited[0] == module.LEAST_SECONDS


def test_those_who_were_left_are_the_callers_or_ended() -> None:
    stopped: list[int] = []

    one = prospects(16)
    one.pause = lambda: 0.0
    for take in (True, False):
        coming: Any = Coming()
        assert left(one, 1, coming)
        coming.stop = lambda: stopped.append(1)
        taken = one.take_stragglers() if take else None
        one.close()
        assert (taken is not None) == take
        assert one.stragglers is None
    assert stopped == [1]
