"""What a forked process closes of its parent's."""

from __future__ import annotations

import os

MOST = 1 << 20
"""Linux's own limit of a process's descriptors (``fs.nr_open``), where the limit asked for is none or absurd."""


def close_from(low: int) -> None:
    """Close every descriptor from ``low`` on: a copy that holds a pipe's other end keeps its reader waiting."""
    limit = os.sysconf("SC_OPEN_MAX")
    os.closerange(low, limit if 0 < limit < MOST else MOST)
