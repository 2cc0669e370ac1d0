"""Locks of files: whether they work in a folder, files to lock, and one that many share or one has alone.

On some network file systems locks do nothing, or are refused.

Two locks of the kernel lie on one open file that many share or one has alone, across processes and containers:
``flock``, whose side is the lock itself, and a write lock on the file's first byte (``F_OFD_SETLK``, fcntl(2))
through which all pass on the way in. Who waits to have the file alone keeps that byte, so that no other comes in
meanwhile, and waits only for those that are in. The system lets go of both when the holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path


@lru_cache(maxsize=64)
def locks_work(folder: Path) -> bool:
    """Whether ``flock`` in this folder keeps a second holder out; asked once a process. A folder that can't be written
    counts as one where it does: taking a lock there raises an error."""
    path = folder / f"kerntune-probe-{secrets.token_hex(6)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with (
            open(os.open(path, flags, 0o600), "rb") as first,
            open(os.open(path, flags, 0o600), "rb") as second,
        ):
            one, other = first.fileno(), second.fileno()
            return bool(_try_flock(one, fcntl.LOCK_EX)) and not _try_flock(other, fcntl.LOCK_EX)
    except OSError:
        return True
    finally:
        with suppress(OSError):
            os.unlink(path)


def open_lock_file(path: str | os.PathLike[str]) -> int:
    """A descriptor of a file to lock, which any user may. ``OSError`` where there can be none.

    An existing file is opened without ``O_CREAT``: in a folder such as ``/tmp`` the system refuses that for a file of
    another user (``fs.protected_regular``, proc_sys_fs(5)).
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(2):
        try:
            return os.open(path, os.O_RDWR | flags)
        except PermissionError:
            return os.open(path, os.O_RDONLY | flags)
        except FileNotFoundError:
            with suppress(FileExistsError):
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
                with suppress(OSError):
                    os.fchmod(handle, 0o666)  # whatever the umask says
                return handle
    return os.open(path, os.O_RDWR | flags)


def locked_file(path: str | os.PathLike[str]) -> int | None:
    """A descriptor that holds the lock of the file that has this name now; None if another holder has it. ``OSError``
    where it can't be opened or locked. :func:`let_go` of it afterwards."""
    while True:
        handle = open_lock_file(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_ino == os.stat(path).st_ino:
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass  # it has been removed meanwhile: the name is free
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def let_go(handle: int) -> None:
    """Unlock and close it. A process that was forked meanwhile has the descriptor, too, so closing it would not do."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


LOCK_POLL_S = 0.01
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
            # None where the first byte can't be had: the file can't be written, or has no such lock. Then all is as it
            # should be, but who waits to have the file alone may wait long.
            first = partial(_tried, lambda: _lock_first_byte(self._handle, fcntl.F_WRLCK))
            entered = None if inside else _poll_lock(first, end, patience_s, waiting)
            found = _poll_lock(lambda: _try_flock(self._handle, side), end, patience_s, waiting)
            if entered:
                _lock_first_byte(self._handle, fcntl.F_UNLCK)
        except BaseException as exc:
            if isinstance(exc, LockBusy):
                exc.shared = alone and bool(_try_flock(self._handle, fcntl.LOCK_SH))
            self.release()
            raise
        return bool(found)

    def release(self) -> None:
        """Let go of both."""
        with suppress(OSError):
            _lock_first_byte(self._handle, fcntl.F_UNLCK)
        let_go(self._handle)


def _poll_lock(
    attempt: Callable[[], bool | None], end: float, patience_s: float, waiting: Callable[[float], None]
) -> bool | None:
    """What an attempt gives that isn't False."""
    while (found := attempt()) is False:
        left = end - time.monotonic()
        if left <= 0:
            raise LockBusy
        waiting(patience_s - left)
        time.sleep(min(LOCK_POLL_S, left))
    return found


def _lock_first_byte(handle: int, kind: int) -> None:
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0))


def _try_flock(handle: int, side: int) -> bool | None:
    return _tried(lambda: fcntl.flock(handle, side | fcntl.LOCK_NB))


def _tried(lock: Callable[[], object]) -> bool | None:
    try:
        lock()
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
