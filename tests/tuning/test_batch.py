"""Waiting for compilations: which candidates are stragglers, until when they are waited for, and when they are left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from kerntune.tuning import candidates as module
from kerntune.tuning.candidates import BatchWait, wait_for_all

LATER = 60.0


class Coming:
    """Results that are there after so many pauses."""

    def __init__(self, pauses: float = math.inf) -> None:
        self.pauses, self.waited = pauses, list[float]()

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return len(self.waited) > self.pauses


def waiting(candidates: int, pause: Callable[[], Any] = wait_for_all, queued: int = 0) -> BatchWait:
    return BatchWait(candidates, lambda: queued, pause)


def gives_up(one: BatchWait, missing: int, coming: Any) -> bool:
    return one.gives_up(missing, coming)


def test_a_share_may_be_left_once_patience_ends() -> None:
    assert gives_up(waiting(16, lambda: 0.0), 4, Coming())


def test_none_is_left_before_it_ends() -> None:
    pauses = list[int]()
    one = waiting(16, lambda: pauses.append(1) or time.monotonic() + LATER)  # type: ignore[func-returns-value]
    assert not gives_up(one, 4, Coming(pauses=3))
    assert len(pauses) == 3


def test_without_a_pause_all_are_waited_for() -> None:
    assert not gives_up(waiting(16), 1, Coming(pauses=5))


def test_a_result_of_the_last_moment_is_not_left() -> None:
    assert not gives_up(waiting(16, lambda: 0.0), 1, Coming(pauses=1))


@pytest.mark.parametrize(("candidates", "late", "told"), [(16, 5, False), (8, 3, True), (4, 4, True)])
def test_more_than_the_share_are_waited_for(candidates: int, late: int, told: bool) -> None:
    """Few of a short list leave time for a race of the others all the same."""
    pauses = list[int]()
    one = waiting(candidates, lambda: pauses.append(1) or 0.0)  # type: ignore[func-returns-value]
    assert not gives_up(one, late, Coming(pauses=4))
    assert bool(pauses) == told


def test_jobs_that_wait_for_a_processor_are_no_stragglers() -> None:
    assert not gives_up(waiting(16, lambda: pytest.fail("no turn"), queued=1), 1, Coming(pauses=2))


def test_a_pause_is_short_once_patience_has_ended() -> None:
    one, coming = waiting(16, lambda: time.monotonic() - 1.0), Coming()
    assert gives_up(one, 2, coming)
    assert coming.waited[:1] == [module.QUIET_SECONDS]
    again = Coming()
    assert gives_up(one, 1, again)
    assert again.waited[0] == module.LEAST_SECONDS
