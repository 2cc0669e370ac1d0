"""How long Python's threads wait for each other while a call is tuned."""

from __future__ import annotations

import os
import sys
import threading

SWITCH = "KERNTUNE_SWITCH_INTERVAL"
"""Environment variable for processes whose switch interval must stay: with ``0`` it does."""

SWITCH_SECONDS = 0.0005
"""Python's threads wait 5 ms for each other by default, and a tuning takes hundreds of short turns: cold tuning of
three kernels of 12 configs takes 0.82 of the time so (scripted GPU, two busy cores; 95 % interval 0.68 to 0.96)."""


class QuickSwitches:
    """While a call is tuned, threads that start processes, read answers and hash files have their turns sooner. After
    the last of several tunings the interval is as it was, unless the program has set another one meanwhile."""

    def __init__(self) -> None:
        self._lock, self._users, self._usual, self._quick = threading.Lock(), 0, 0.0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._usual = sys.getswitchinterval()
                if self._usual > SWITCH_SECONDS and os.environ.get(SWITCH) != "0":
                    sys.setswitchinterval(SWITCH_SECONDS)
                self._quick = sys.getswitchinterval()
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and sys.getswitchinterval() == self._quick != self._usual:
                sys.setswitchinterval(self._usual)


QUICK_SWITCHES = QuickSwitches()
"""One for the whole process."""
