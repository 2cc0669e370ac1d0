"""Temporary folders that no run leaves for long: those of a run that was killed go when the next one makes its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "kerntune-"
"""All their names begin so."""

LOCK = ".kerntune-lock"
"""Held by the process that made the folder for as long as it lives. The system lets go of it however that ends, and in
other containers on the same disk too, where a process's number says nothing."""


class TemporaryFolder:
    """A new folder in the system's place for temporary files (``TMPDIR``), until :meth:`remove`. ``OSError`` where none
    can be made."""

    def __init__(self, kind: str) -> None:
        _sweep_once()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        self._lock: int | None = _lock(self.folder)

    def remove(self) -> None:
        """Remove it with all that is in it. What can't be removed stays, silently."""
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


def sweep(place: Path) -> list[Path]:
    """Remove the folders in ``place`` that nobody holds any more; which these were."""
    return [folder for folder in place.glob(f"{PREFIX}*") if remove_abandoned(folder)]


def remove_abandoned(folder: Path, tries: int = 1) -> bool:
    """Remove a folder that a :class:`TemporaryFolder` has made and that nobody holds any more; whether it was one. More
    ``tries`` are for a folder in which a file may be made meanwhile."""
    with contextlib.suppress(OSError):
        if folder.name.startswith(PREFIX) and _is_ours(folder) and _let_go(folder / LOCK):
            for _ in range(tries):
                shutil.rmtree(folder, ignore_errors=True)
                if not folder.exists():
                    break
            return True
    return False


_swept: set[str] = set()


def _sweep_once() -> None:
    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        sweep(Path(place))


def _lock(folder: Path) -> int | None:
    """Held before it has its name: a sweep never sees it free. None on a disk that has no locks, which isn't swept."""
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


def _let_go(lock: Path) -> bool:
    handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
