"""Files to lock, and whether locks work in a folder: on some network file systems they do nothing, or are refused."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=64)
def locks_work(folder: Path) -> bool:
    """Whether ``flock`` in this folder keeps a second holder out; asked once a process. A folder that can't be written
    counts as one where it does: taking a lock there raises an error."""
    path = folder / f"kerntune-probe-{secrets.token_hex(6)}"
    try:
        with _opened(path) as first, _opened(path) as second:
            return _holds(first) and not _holds(second)
    except OSError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _holds(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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
            with contextlib.suppress(FileExistsError):
                return _new_file(path, flags)
    return os.open(path, os.O_RDWR | flags)


def _new_file(path: str | os.PathLike[str], flags: int) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
    with contextlib.suppress(OSError):
        os.fchmod(handle, 0o666)  # whatever the umask says
    return handle
