"""What a user sees of many jobs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from typing import TextIO

from kerntune.base.formatting import visible
from kerntune.tuning.many.outcome import Ended, KeyOutcome

BAR = 24
"""Columns."""

EVERY_S = 10.0
"""Seconds between two lines where there is no terminal."""

AGAIN_S = 0.1
"""Seconds between two pictures of the bar."""


class KeyProgress:
    """How many of ``total`` jobs are done; errors are printed as they come."""

    def __init__(self, total: int, stream: TextIO | None = None, clock: float | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total, self._counts = total, Counter[Ended]()
        self._begin = time.monotonic() if clock is None else clock
        self._shown = -EVERY_S
        self._terminal = self._stream.isatty()

    def tell(self, outcome: KeyOutcome) -> None:
        """One more is done."""
        self._counts[outcome.ended] += 1
        if outcome.error:
            self._print(f"kerntune: {outcome.error}")
        now = time.monotonic() - self._begin
        done = self._counts.total() == self._total
        if done or now - self._shown >= (AGAIN_S if self._terminal else EVERY_S):
            self._shown = now
            self._show(outcome, now)

    def close(self) -> None:
        """Leave the bar's line."""
        if self._terminal and self._counts:
            self._stream.write("\n")
            self._stream.flush()

    def line(self, seconds: float) -> str:
        """``12 of 64 keys: 9 tuned, 2 stored before, 1 failed; 3 min left``."""
        done = self._counts.total()
        parts = [f"{self._counts[ended]} {WORDS[ended]}" for ended in Ended if self._counts[ended]]
        left = f"; {_duration(seconds / done * (self._total - done))} left" if 0 < done < self._total else ""
        return f"{done} of {self._total} keys: {', '.join(parts) or 'none done'}{left}"

    def _show(self, outcome: KeyOutcome, seconds: float) -> None:
        text = self.line(seconds)
        if not self._terminal:
            self._print(f"kerntune: {text} (last: {outcome.kernel})")
            return
        full = BAR * self._counts.total() // max(self._total, 1)
        width = shutil.get_terminal_size().columns - 1
        shown = visible(f"[{'#' * full}{'.' * (BAR - full)}] {text}  {outcome.kernel}")
        self._stream.write("\r\x1b[K" + shown[:width])
        self._stream.flush()

    def _print(self, text: str) -> None:
        shown = visible(text)
        self._stream.write(f"\r\x1b[K{shown}\n" if self._terminal else f"{shown}\n")
        self._stream.flush()


WORDS = {
    Ended.TUNED: "tuned",
    Ended.STORED: "stored before",
    Ended.NOTHING: "with nothing to tune",
    Ended.FAILED: "failed",
    Ended.LOST: "lost",
}


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
