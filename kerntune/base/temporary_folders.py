"""Temporary folders, removed even after a run that was killed: the next run that makes a folder removes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "kerntune-"
"""The prefix of all their names."""

LOCK = ".kerntune-lock"
"""Locked by the process that made the folder until it ends. The system releases the lock however the process ends.
Unlike a process id, a lock is valid across containers that share a disk."""


class TemporaryFolder:
    """A new folder in the system's folder for temporary files (``TMPDIR``), until :meth:`remove`. ``OSError`` where
    none can be made."""

    def __init__(self, kind: str) -> None:
        _sweep_once()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self._lock: int | None = _lock(self.folder)

    def remove(self) -> None:
        """Remove the folder with everything in it. Files that can't be removed are left without an error."""
        lock, self._lock = self._lock, None
        shutil.rmtree(self.folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """A new folder for as long as the context is open."""
    scratch = TemporaryFolder(kind)
    try:
        yield scratch.folder
    finally:
        scratch.remove()


def sweep(place: Path, kind: str = "") -> list[Path]:
    """Remove the folders in ``place`` (of one kind, if it is given) that no process locks any more, and return them."""
    return [folder for folder in place.glob(f"{PREFIX}{kind}*") if _removed(folder)]


def kind_of(folder: Path) -> str:
    """The kind that a :class:`TemporaryFolder` of this path was made for; empty if it is none."""
    own = folder.name.startswith(PREFIX)
    return folder.name.removeprefix(PREFIX).rpartition("-")[0] if own else ""


def _removed(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        if _is_ours(folder) and _unlock(folder / LOCK):
            shutil.rmtree(folder, ignore_errors=True)
            return True
    return False


_swept: set[str] = set()


def _sweep_once() -> None:
    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        sweep(Path(place))


def _lock(folder: Path) -> int | None:
    """Lock a folder before it gets its final name, so that :func:`sweep` never finds it unlocked. None on a disk
    without locks; folders there aren't swept."""
    unnamed = folder / f"{LOCK}-new"
    handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    unnamed.rename(folder / LOCK)
    return handle


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid()


def _unlock(lock: Path) -> bool:
    handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
