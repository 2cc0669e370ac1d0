"""``flock`` on one file that many share or one has alone, across processes and containers.

Two locks of the kernel lie on one open file: ``flock``, whose side is the lock itself, and a write lock on the file's
first byte (``F_OFD_SETLK``, fcntl(2)) through which all pass on the way in. Who waits to have the file alone
keeps that byte, so that no other comes in meanwhile, and waits only for those that are in. The system lets go of
both when the holder ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable

POLL_S = 0.01
"""Seconds between two attempts: ``flock`` has no time limit of its own."""

_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux, in native alignment: type, whence, start, length, process."""


class LockBusy(Exception):
    """Others did not let go in time. ``shared``: none of them has the file alone."""

    shared = False


class TwoSidedLock:
    """One holder's place at a file that is open as ``handle``, which is closed at the end."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def acquire(
        self, alone: bool, patience_s: float, waiting: Callable[[float], None], *, inside: bool = False
    ) -> bool:
        """Wait for one side; False where the file system has no locks. :class:`LockBusy` after ``patience_s`` seconds.

        ``waiting`` is called with the seconds that it has taken so far. ``inside``: this process shares the file
        already, and must not wait behind one that waits for it to leave.
        """
        end = time.monotonic() + patience_s
        side = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        try:
            entered = None if inside else _poll(lambda: _enter(self._handle), end, patience_s, waiting)
            found = _poll(lambda: _flock(self._handle, side), end, patience_s, waiting)
            if entered:
                _pass(self._handle, fcntl.F_UNLCK)
        except BaseException as exc:
            if isinstance(exc, LockBusy):
                exc.shared = alone and bool(_flock(self._handle, fcntl.LOCK_SH))
            self.release()
            raise
        return bool(found)

    def release(self) -> None:
        """Let go. A process that was forked meanwhile has the descriptor, too, so closing it would not do."""
        with contextlib.suppress(OSError):
            _pass(self._handle, fcntl.F_UNLCK)
        with contextlib.suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)


def _poll(
    attempt: Callable[[], bool | None], end: float, patience_s: float, waiting: Callable[[float], None]
) -> bool | None:
    """What an attempt gives that isn't False."""
    while (found := attempt()) is False:
        left = end - time.monotonic()
        if left <= 0:
            raise LockBusy
        waiting(patience_s - left)
        time.sleep(min(POLL_S, left))
    return found


def _enter(handle: int) -> bool | None:
    """Whether the first byte is ours now; None where it can't be had: the file can't be written, or has no such lock.
    Then all is as it should be, but who waits to have the file alone may wait long."""
    try:
        _pass(handle, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _pass(handle: int, kind: int) -> None:
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0))


def _flock(handle: int, side: int) -> bool | None:
    """Whether the side is ours now; None if there is none to be had."""
    try:
        fcntl.flock(handle, side | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
