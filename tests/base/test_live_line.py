"""The line that says what goes on while nothing else is printed."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kerntune.base import live_line
from kerntune.base.live_line import ERASE, HidingStream, LiveLine, count_text, duration

EVERY_S = 30.0
PATIENCE_S = 0.8
TICK_S = 0.4


class Screen:
    """Keeps what is written; the clock is moved by hand."""

    def __init__(self) -> None:
        self.text, self.now, self.at = "", 100.0, 0

    def write(self, text: str) -> None:
        self.text += text

    def taken(self) -> str:
        text, self.text = self.text, ""
        return text


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def line(screen: Screen) -> Iterator[LiveLine]:
    yield from opened(screen, in_place=True)


@pytest.fixture
def log(screen: Screen) -> Iterator[LiveLine]:
    yield from opened(screen, in_place=False)


def opened(screen: Screen, **words: Any) -> Iterator[LiveLine]:
    """A line whose thread does nothing: the tests tick."""
    made = LiveLine(screen.write, column=lambda: screen.at, width=lambda: 40, clock=lambda: screen.now, **words)
    made._beat = lambda: None  # type: ignore[method-assign]
    yield made.start()
    made.close()


def test_it_waits_and_then_rewrites_itself(screen: Screen, line: LiveLine) -> None:
    line.tell("compiling")
    screen.now += PATIENCE_S / 2
    line.tick()
    assert screen.taken() == "", "most steps are done by then"
    screen.now += PATIENCE_S
    line.tick()
    assert screen.taken() == f"{ERASE}compiling (1 s)"
    screen.now += TICK_S
    line.tell("timing")
    line.tick()
    assert screen.taken() == f"{ERASE}timing (0 s)", "what is new counts from its own begin"
    line.hide()
    assert screen.taken() == ERASE
    line.hide()
    line.tick()
    assert screen.taken() == "", "after other output it waits again"


def test_the_cursor_goes_back_to_where_it_was(screen: Screen, line: LiveLine) -> None:
    screen.at = 12
    line.tell("compiling")
    screen.now += 2.0
    line.tick()
    screen.at = 0  # the line itself is none of pytest's
    line.tick()
    line.hide()
    assert screen.taken() == f"\n{ERASE}compiling (2 s){ERASE}compiling (2 s){ERASE}\x1b[A\x1b[13G"


def test_a_long_text_leaves_room_for_the_seconds(screen: Screen, line: LiveLine) -> None:
    line.tell("x" * 80)
    screen.now += 100.0
    line.tick()
    shown = screen.taken().removeprefix(ERASE)
    assert len(shown) == 39, "the last column stays free: some terminals break the line there"
    assert shown.endswith("x (2 min)")


def test_elsewhere_it_is_a_line_now_and_then(screen: Screen, log: LiveLine) -> None:
    log.tell("compiling\x1b[2J")
    screen.now += EVERY_S - 1
    log.tick()
    assert screen.taken() == ""
    screen.now += 1
    log.tick()
    log.tick()
    assert screen.taken() == "compiling\\u001b[2J (30 s)\n"
    screen.at, screen.now = 5, screen.now + EVERY_S
    log.tick()
    assert screen.taken() == "\ncompiling\\u001b[2J (60 s)\n"
    log.hide()
    assert screen.taken() == ""


def test_other_output_comes_first(screen: Screen, line: LiveLine) -> None:
    out = io.StringIO()
    stream = HidingStream(out, line)
    line.tell("compiling")
    screen.now += 2.0
    line.tick()
    stream.write("a test passed\n")
    assert screen.taken().endswith(ERASE)
    assert out.getvalue() == "a test passed\n"
    assert stream.getvalue() == out.getvalue()  # type: ignore[operator]


def test_nothing_is_shown_while_someone_types(screen: Screen, line: LiveLine) -> None:
    line.tell("compiling")
    line.pause(True)
    screen.now += 10.0
    line.tick()
    assert screen.taken() == ""
    line.pause(False)
    screen.now += 1.0
    line.tick()
    assert "compiling" in screen.taken()


def test_the_last_that_was_opened_is_shown_alone(screen: Screen, line: LiveLine) -> None:
    inner = Screen()
    for second in opened(inner, in_place=True):
        live_line.tell("inside")
        line.tell("outside")
        screen.now = inner.now = 200.0
        line.tick()
        second.tick()
        assert (screen.taken(), "inside" in inner.taken()) == ("", True)
    line.tick()
    assert "outside" in screen.taken()


def test_without_one_nothing_is_told() -> None:
    live_line.tell("nothing")
    live_line.hide()


def test_a_fork_leaves_it_alone(screen: Screen, line: LiveLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that holds the lock may not be there."""
    line.tell("compiling")
    screen.now += 2.0
    line.tick()
    screen.taken()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    line.hide()
    assert screen.taken() == ""


def test_a_thread_shows_it(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "TICK_S", 0.001)
    made = LiveLine(screen.write, in_place=True, clock=lambda: screen.now)
    made.tell("compiling")
    screen.now += 5.0
    made.start()
    end = time.monotonic() + 20
    while "compiling (5 s)" not in screen.text and time.monotonic() < end:
        time.sleep(0.001)
    made.close()
    assert "compiling (5 s)" in screen.text
    assert screen.text.endswith(ERASE)


@pytest.mark.parametrize(
    ("done", "text"),
    [(0, "0 of 9 tests"), (2, "2 of 9 tests"), (3, "3 of 9 tests, 20 s left"), (9, "9 of 9 tests")],
)
def test_an_estimate_is_made_of_three(done: int, text: str) -> None:
    assert count_text(done, 9, "tests", 10.0) == text


@pytest.mark.parametrize(("seconds", "text"), [(89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
