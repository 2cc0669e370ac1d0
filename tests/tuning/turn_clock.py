"""A clock for processes that wait for each other's winners: no test waits in fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kerntune.tuning import agreement
from kerntune.tuning.agreement import Limits

LIMITS = Limits(idle_s=0.0, busy_s=30.0, wait_s=120.0, poll_s=0.0, ask_s=0.0)


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which turns are waited for, within :data:`LIMITS`."""
    found = Clock()
    monkeypatch.setattr(agreement, "time", found)
    monkeypatch.setattr(agreement, "LIMITS", LIMITS)
    return found


class Clock:
    """Time passes where something sleeps; ``meanwhile`` is what others do in that time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: list[tuple[float, Callable[[], Any]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1.0)
        for due, act in [one for one in self.meanwhile if one[0] <= self.now]:
            self.meanwhile.remove((due, act))
            act()
