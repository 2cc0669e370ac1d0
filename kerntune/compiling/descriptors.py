"""What a forked process leaves of its parent's descriptors."""

from __future__ import annotations

import contextlib
import os

MOST = 1 << 20
"""Linux's own limit of a process's descriptors (``fs.nr_open``), where the limit asked for is none or absurd."""


def close_from(low: int, kept: int = -1) -> None:
    """Close every descriptor from ``low`` on but ``kept``: who holds a pipe's other end keeps its reader waiting.

    Their numbers stay taken, by the null device: objects of the parent that end later close them, and would close
    what this process has opened since under the same number.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        taken = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no /proc: the numbers are not known
        limit = os.sysconf("SC_OPEN_MAX")
        os.close(nothing)
        for begin, end in ((low, kept), (max(low, kept + 1), limit if 0 < limit < MOST else MOST)):
            os.closerange(begin, end)
        return
    for number in taken:
        if number >= low and number not in (kept, nothing):
            with contextlib.suppress(OSError):  # the listing's own
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
