"""What never ends is ended, and nothing else is."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kerntune.gpu.interpreter.launches import Overdue, TimeLimit


def for_ever() -> None:
    while True:
        pass


def swallowing() -> None:
    """Code that catches every Exception, and tries again."""
    while True:
        try:
            for_ever()
        except Exception:
            continue


@pytest.mark.parametrize("body", [for_ever, swallowing])
def test_python_code_that_never_ends_is_ended(body: Any) -> None:
    with pytest.raises(Overdue), TimeLimit(0.05):
        body()


def test_another_threads_code_too() -> None:
    ended: list[BaseException] = []

    def run() -> None:
        try:
            with TimeLimit(0.05):
                for_ever()
        except Overdue as exc:
            ended.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert len(ended) == 1


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_what_ends_in_time_goes_on(seconds: float) -> None:
    before = threading.active_count()
    with TimeLimit(seconds):
        found = sum(range(100))
    assert found == 4950
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(60)
    assert threading.active_count() <= before


def test_an_error_of_the_code_stays() -> None:
    with pytest.raises(ZeroDivisionError), TimeLimit(3600.0):
        _ = 1 // 0


def test_time_that_is_over_in_a_call_into_c_is_told_at_its_end() -> None:
    """And not in code after the context."""
    with pytest.raises(Overdue), TimeLimit(0.05):
        time.sleep(0.3)
    time.sleep(0.01)
