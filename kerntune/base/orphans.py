"""Ends a worker process, and all that it has started, when its parent has ended, in whatever way."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from pathlib import Path

ENDING_MS = 1000
"""A process that holds much memory takes some of this to end."""

TRIES = 20
"""Attempts to remove a folder: the process may be making a file in it meanwhile."""


def end_with_parent(pipe: int, parent: int = 0, folder: str = "") -> threading.Thread:
    """From now on, end this process group once the other end of ``pipe`` is closed, or process ``parent`` has ended,
    which a forked copy of the parent that still holds the pipe doesn't hide. ``folder`` is removed before if it is
    a :class:`kerntune.base.temporary_folders.TemporaryFolder` that no process holds any more.

    The thread that waits for it is returned: a process that has met the end of its pipe joins it, and is ended. A
    signal at the parent's death (``PR_SET_PDEATHSIG``) would come as soon as the parent's *thread* has ended that
    started this process.
    """
    thread = threading.Thread(target=_wait, args=(pipe, parent, folder), name="kerntune-parent", daemon=True)
    thread.start()
    return thread


def _wait(pipe: int, parent: int, folder: str) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # hang-ups are always reported, data is not wanted here
    watched = process_end(parent)
    if watched is not None:
        poll.register(watched, select.POLLIN)
    poll.poll()
    if folder:
        _wait_for(watched)
        from kerntune.base.temporary_folders import remove_abandoned

        remove_abandoned(Path(folder), TRIES)
    os.killpg(0, signal.SIGKILL)


def _wait_for(end: int | None) -> None:
    """Until the process has ended whose :func:`process_end` this is, but not for long: one that is just ending closes
    its pipe before it lets go of its folders, one that goes on removes them itself."""
    if end is not None:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.poll(ENDING_MS)


def process_end(pid: int) -> int | None:
    """A descriptor that can be read once process ``pid`` has ended; None for 0 and where the system has none (Linux
    before 5.3, a sandbox that forbids it, a process that has ended already)."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid) if pid else None
    return None
