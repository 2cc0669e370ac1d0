"""A line that says what goes on while nothing else is printed, and how many of how many are done.

On a terminal the line is rewritten in place. Elsewhere, as in a CI's log, it is a line now and then. A thread of its
own writes it, so that a count of seconds goes on where a single step takes long.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from threading import Event, RLock, Thread
from typing import TextIO

from kerntune.base.formatting import visible

PATIENCE_S = 0.8
"""Silence in seconds before a terminal shows the line: most steps are done by then, and nothing flickers."""

TICK_S = 0.4
"""Seconds between two pictures of the line."""

EVERY_S = 30.0
"""Seconds of silence before each line where there is no terminal."""

SAMPLES = 3
"""So many have to be done before an estimate is made of the others."""

ERASE = "\r\x1b[K"

_STACK: list[LiveLine] = []
"""Those that are open: the last one is shown alone."""


class LiveLine:
    """The line. ``write`` puts text on the screen at once, ``column`` is where the other output stands in its line.

    Other output calls :meth:`hide` first. ``after_line`` is called after a line of its own where ``in_place`` is false.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        in_place: bool,
        column: Callable[[], int] = lambda: 0,
        after_line: Callable[[], object] = lambda: None,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._in_place = write, in_place
        self._column, self._after_line = column, after_line
        self._width, self._clock = width, clock
        self._text, self._begin, self._quiet = "", clock(), clock()
        self._column_left: int | None = None
        """Where the other output stood when the line was shown; None while it isn't."""

        self._paused, self._ended = False, Event()
        self._lock, self._pid = RLock(), os.getpid()

    def start(self) -> LiveLine:
        """Show it from now on, in the place of one that is open already."""
        hide()
        _STACK.append(self)
        Thread(target=self._beat, name="kerntune-live-line", daemon=True).start()
        return self

    def close(self) -> None:
        """Take it away."""
        self._ended.set()
        self.hide()
        if self in _STACK:
            _STACK.remove(self)

    def tell(self, text: str) -> None:
        """What goes on from now on."""
        if text != self._text:
            self._text, self._begin = text, self._clock()

    def hide(self) -> None:
        """Before other output: take the line off the screen, and wait again before it is shown."""
        if os.getpid() != self._pid:  # a fork has no thread that would let go of the lock
            return
        with self._lock:
            if self._column_left is not None:
                back = f"\x1b[A\x1b[{self._column_left + 1}G" if self._column_left else ""
                self._write(f"{ERASE}{back}")
            self._column_left, self._quiet = None, self._clock()

    def pause(self, paused: bool) -> None:
        """Show nothing while a debugger waits for input."""
        self.hide()
        self._paused = paused

    def tick(self) -> None:
        """Show what goes on, if it is time."""
        with self._lock:
            now = self._clock()
            if self._paused or not self._text or _STACK[-1:] != [self]:
                return
            if self._in_place and (self._column_left is not None or now - self._quiet >= PATIENCE_S):
                if self._column_left is None:
                    self._column_left = self._column()
                    self._write("\n" if self._column_left else "")
                self._write(ERASE + self._line(now, self._width() - 1))
            elif not self._in_place and now - self._quiet >= EVERY_S:
                self._quiet = now
                self._write(("\n" if self._column() else "") + self._line(now) + "\n")
                self._after_line()

    def _line(self, now: float, width: int | None = None) -> str:
        end = f" ({duration(now - self._begin)})"
        return visible(self._text)[: None if width is None else max(width - len(end), 0)] + end

    def _beat(self) -> None:
        while not self._ended.wait(TICK_S):
            self.tick()


class HidingStream:
    """A text stream before whose output the line is hidden."""

    def __init__(self, stream: TextIO, line: LiveLine) -> None:
        self.stream, self._line = stream, line

    def write(self, text: str) -> int:
        """As of the stream."""
        self._line.hide()
        return self.stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def tell(text: str) -> None:
    """What goes on from now on, in the line that is open, if there is one."""
    for line in _STACK[-1:]:
        line.tell(text)


def hide() -> None:
    """Before other output: hide the line that is open, if there is one."""
    for line in _STACK[-1:]:
        line.hide()


def count_text(done: int, total: int, what: str, seconds: float) -> str:
    """``12 of 64 tests, 3 min left``: with an estimate from the third on, by the mean of those that are done."""
    left = f", {duration(seconds / done * (total - done))} left" if SAMPLES <= done < total else ""
    return f"{done} of {total} {what}{left}"


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
