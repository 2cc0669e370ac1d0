"""Ends a worker process, and all that it has started, when its parent has ended, in whatever way."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from pathlib import Path

TRIES = 20
"""Attempts to remove a folder: the process may be making a file in it meanwhile."""


def end_with_parent(pipe: int, parent: int = 0, folder: str = "") -> None:
    """From now on, end this process group once the other end of ``pipe`` is closed, or process ``parent`` has ended,
    which a forked copy of the parent that still holds the pipe doesn't hide. ``folder`` is removed before.

    A thread waits for it, since a signal at the parent's death (``PR_SET_PDEATHSIG``) comes as soon as the parent's
    *thread* has ended that started this process.
    """
    threading.Thread(target=_wait, args=(pipe, parent, folder), name="kerntune-parent", daemon=True).start()


def _wait(pipe: int, parent: int, folder: str) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # hang-ups are always reported, data is not wanted here
    watched = process_end(parent)
    if watched is not None:
        poll.register(watched, select.POLLIN)
    poll.poll()
    if folder:
        _remove(Path(folder))
    os.killpg(0, signal.SIGKILL)


def process_end(pid: int) -> int | None:
    """A descriptor that can be read once process ``pid`` has ended; None for 0 and where the system has none (Linux
    before 5.3, a sandbox that forbids it, a process that has ended already)."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid) if pid else None
    return None


def _remove(folder: Path) -> None:
    import shutil

    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
