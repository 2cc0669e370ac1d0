"""The line that says what goes on: when it is shown, what it takes off the screen, and which of several."""

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


class Screen:
    """What was written, at a time and a column that tests set."""

    def __init__(self) -> None:
        self.now, self.column, self.lines, self._written = 0.0, 0, 0, list[str]()

    def line(self, in_place: bool = True, width: int = 40) -> LiveLine:
        """A line on it that is shown from now on."""

        def after() -> None:
            self.lines += 1

        return LiveLine(
            self._written.append, in_place=in_place, column=lambda: self.column, after_line=after,
            width=lambda: width, clock=lambda: self.now,
        ).start()  # fmt: skip

    def taken(self) -> str:
        """What was written since it was asked before."""
        text = "".join(self._written)
        self._written.clear()
        return text

    def at(self, line: LiveLine, now: float) -> str:
        """What a tick writes at that time."""
        self.now = now
        self.taken()
        line.tick()
        return self.taken()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """The threads of its lines do nothing: the tests tick."""
    monkeypatch.setattr(live_line, "TICK_S", 1e6)
    yield Screen()
    for line in list(live_line._STACK):
        line.close()


def test_it_is_shown_in_place_once_nothing_was_written_for_a_while(screen: Screen) -> None:
    line = screen.line()
    assert screen.at(line, 100.0) == "", "nothing is told"
    screen.now = 0.0
    line.hide()
    line.tell("compiling")
    assert screen.at(line, PATIENCE_S - 0.01) == "", "most steps are done by then"
    assert screen.at(line, PATIENCE_S) == f"{ERASE}compiling ({duration(PATIENCE_S)})"
    line.tell("compiling")
    assert screen.at(line, 9.0) == f"{ERASE}compiling (9 s)", "the same thing goes on"
    line.tell("timing")
    assert screen.at(line, 9.0) == f"{ERASE}timing (0 s)", "what is new counts from its own begin"


@pytest.mark.parametrize(("column", "before", "back"), [(0, "", ""), (5, "\n", "\x1b[A\x1b[6G")])
def test_what_it_took_is_given_back(screen: Screen, column: int, before: str, back: str) -> None:
    line, screen.column = screen.line(), column
    line.tell("timing")
    assert screen.at(line, 50.0) == f"{before}{ERASE}timing (50 s)"
    screen.column = 17
    assert screen.at(line, 50.0) == f"{ERASE}timing (50 s)", "its own line is none of the other output"
    for expected in (ERASE + back, ""):
        line.hide()
        assert screen.taken() == expected
    assert [bool(screen.at(line, 50.0 + s)) for s in (PATIENCE_S - 0.01, PATIENCE_S + 0.01)] == [False, True]


@pytest.mark.parametrize(("width", "shown"), [(40, "tuning matmul"), (13, "tuning"), (6, ""), (3, "")])
def test_it_fits_the_screen(screen: Screen, width: int, shown: str) -> None:
    """The last column stays free: some terminals break the line there."""
    line = screen.line(width=width)
    line.tell("tuning matmul")
    assert screen.at(line, 9.0) == f"{ERASE}{shown} (9 s)"


def test_elsewhere_it_is_a_line_now_and_then(screen: Screen) -> None:
    line = screen.line(in_place=False)
    line.tell("timing\x1b[2J")
    assert screen.at(line, EVERY_S - 0.01) == ""
    assert screen.at(line, EVERY_S) == f"timing\\u001b[2J ({duration(EVERY_S)})\n"
    assert screen.at(line, 2 * EVERY_S - 0.01) == ""
    screen.column = 3
    assert screen.at(line, 2 * EVERY_S) == f"\ntiming\\u001b[2J ({duration(2 * EVERY_S)})\n"
    line.hide()
    assert (screen.taken(), screen.lines) == ("", 2)


def test_of_several_the_last_is_shown(screen: Screen) -> None:
    first = screen.line()
    first.tell("run")
    assert screen.at(first, 50.0)
    second = screen.line()
    assert screen.taken() == ERASE, "the first one is taken away"
    live_line.tell("case")
    assert screen.at(first, 99.0) == ""
    assert screen.at(second, 99.0).startswith(f"{ERASE}case (")
    live_line.hide()
    assert screen.taken() == ERASE
    second.close()
    assert screen.at(first, 150.0).startswith(f"{ERASE}run (")
    first.close()
    first.close()
    live_line.tell("nobody")
    live_line.hide()
    assert live_line._STACK == []


def test_nothing_is_shown_while_someone_types(screen: Screen) -> None:
    line = screen.line()
    line.tell("timing")
    assert screen.at(line, 50.0)
    line.pause(True)
    assert (screen.taken(), screen.at(line, 150.0)) == (ERASE, "")
    line.pause(False)
    assert screen.at(line, 250.0)


def test_a_stream_hides_it_before_it_writes(screen: Screen) -> None:
    line, stream = screen.line(), io.StringIO()
    line.tell("timing")
    screen.at(line, 50.0)
    hiding: Any = HidingStream(stream, line)
    assert (hiding.write("text"), screen.taken(), hiding.getvalue()) == (4, ERASE, "text")


def test_a_fork_leaves_it_alone(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that holds the lock may not be there."""
    line = screen.line()
    line.tell("timing")
    assert screen.at(line, 50.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    line.hide()
    assert screen.taken() == ""


def test_a_thread_shows_it(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "TICK_S", 0.001)
    line = screen.line()
    line.tell("timing")
    screen.now, shown, end = 5.0, "", time.monotonic() + 20
    while "timing (5 s)" not in shown and time.monotonic() < end:
        time.sleep(0.001)
        shown += screen.taken()
    line.close()
    assert "timing (5 s)" in shown
    assert screen.taken().endswith(ERASE)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (150, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (9000, "2.5 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("done", "text"),
    [(0, "0 of 64 tests"), (2, "2 of 64 tests"), (3, "3 of 64 tests, 3 min left"), (64, "64 of 64 tests")],
)
def test_an_estimate_is_made_from_the_third_on(done: int, text: str) -> None:
    assert count_text(done, 64, "tests", 3.0 * done) == text
