"""Closes the descriptors that a forked process has inherited from its parent."""

from __future__ import annotations

import contextlib
import os

MOST = 1 << 20
"""Linux's own limit of a process's descriptors (``fs.nr_open``), where the process's own limit is none or absurd."""


def close_from(low: int, kept: int = -1) -> None:
    """Close every descriptor from ``low`` on but ``kept``: a pipe whose other end is open keeps its reader waiting.

    Their numbers stay taken, by the null device: objects of the parent that end later close them, and would close
    files that this process has opened since under the same number.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        taken = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # without /proc the numbers are not known
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
