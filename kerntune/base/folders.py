"""Temporary folders and files, what killed processes have left of them, and folders that can't be written in.

The next run that makes a temporary folder removes those of runs that were killed. Files of single writes lie beside the
files that they were for, and are removed when they are old.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

PREFIX = "kerntune-"
"""The prefix of all their names."""

LOCK = ".kerntune-lock"
"""Locked by the process that made the folder until it ends. The system releases the lock however the process ends.
Unlike a process id, a lock is valid across containers that share a disk."""

TRIES = 20
"""Attempts to remove a folder: an orphaned worker may be making a file in it meanwhile, and its lock goes first."""


class TemporaryFolder:
    """A new folder in the system's folder for temporary files (``TMPDIR``), until :meth:`remove`. ``OSError`` where
    none can be made."""

    def __init__(self, kind: str) -> None:
        place = tempfile.gettempdir()
        if place not in _swept:
            _swept.add(place)
            sweep(Path(place))
        unlocked = Path(tempfile.mkdtemp(prefix=f".{PREFIX}{kind}-"))
        self._lock = _lock(unlocked)
        self.folder = unlocked.rename(unlocked.with_name(unlocked.name[1:]))  # only now :func:`sweep` sees it

    def remove(self) -> None:
        """Remove the folder with everything in it. Files that can't be removed are left without an error."""
        lock, self._lock = self._lock, None
        _remove(self.folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """A new folder for as long as the context is open."""
    scratch = TemporaryFolder(kind)
    try:
        yield scratch.folder
    finally:
        scratch.remove()


def sweep(place: Path) -> list[Path]:
    """Remove the folders in ``place`` that no process locks any more, and return them; also old ones of processes that
    were killed before they had locked them."""
    with suppress(OSError):
        for folder in place.glob(f".{PREFIX}*"):
            if _is_ours(folder) and time.time() - folder.stat().st_mtime > OLD_S:
                _remove(folder)
    return [folder for folder in place.glob(f"{PREFIX}*") if _removed(folder)]


def _removed(folder: Path) -> bool:
    """Remove a folder of a process that is gone; whether it was one."""
    with suppress(OSError):
        if not _is_ours(folder):
            return False
        # BlockingIOError if the process isn't gone
        with open(os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for _ in range(TRIES):
                _remove(folder)
                if not folder.exists():
                    break
            return True
    return False


def _remove(folder: Path) -> None:
    """Remove the lock last: who is killed meanwhile leaves what the next process knows for a folder to be swept."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            elif entry.name != LOCK:
                with suppress(OSError):
                    entry.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a stranger may have filled, as far as that is possible, without an error.

    However deep it is: the folders of a folder are moved up before it is removed, so nothing recurses, no path becomes
    too long, and no link is followed.
    """
    waiting, moved = [str(folder)], 0
    while waiting:
        within = waiting.pop()
        with suppress(OSError):
            os.chmod(within, stat.S_IRWXU)
            for entry in list(os.scandir(within)):
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    with suppress(OSError, NotImplementedError):  # who moves one must be able to write in it
                        os.chmod(entry.path, stat.S_IRWXU, follow_symlinks=False)
                    moved += 1
                    aside = f"{folder}.{moved}"
                    os.rename(entry.path, aside)
                    if stat.S_ISDIR(os.lstat(aside).st_mode):  # what fills the folder can't reach it any more
                        waiting.append(aside)
                    else:
                        os.unlink(aside)
            os.rmdir(within)


_swept: set[str] = set()


def _lock(folder: Path) -> int | None:
    """Lock a new folder. None on a disk without locks; folders there aren't swept."""
    path = folder / LOCK
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        path.unlink()
        return None
    return handle


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid()


def why_unwritable(folder: Path) -> str:
    """Why no file can be written in a folder, which need not exist yet; empty if one can. A folder and a file are made
    and removed: what permissions say isn't all that file systems refuse."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    made: list[Path] = []
    try:
        for place in reversed(missing):
            place.mkdir()
            made.append(place)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as exc:
        return f"{exc.strerror or exc}: {exc.filename or folder}"
    finally:
        for place in reversed(made):
            with suppress(OSError):  # another process has put something there meanwhile
                place.rmdir()


def file_in_the_way(folder: Path) -> Path | None:
    """The file where a folder, or one of those above it, would have to be; None if there is none."""
    for place in (folder, *folder.parents):
        if place.is_dir():
            return None
        if place.exists():
            return place
    return None


OLD_S = 86_400.0
"""A write takes milliseconds. What is a day old has no writer any more, on whatever machine: a shared folder says
nothing of the processes of others."""

SUFFIX = ".kerntune-unfinished"
"""Ends the name of every temporary file, so that no file of a user's or of another program is taken for one."""

_LEFT = re.compile(rf"\..+\.[0-9a-f]{{12}}{re.escape(SUFFIX)}", re.DOTALL)

MAX_PREFIX = 160
"""Bytes of a file's name that its temporary file has as well; most file systems end at 255."""


def temporary_name(name: str) -> str:
    """A new name beside a file's, for what is going to be renamed to it."""
    prefix = name.encode(errors="surrogateescape")[:MAX_PREFIX].decode(errors="ignore")
    return f".{prefix}.{secrets.token_hex(6)}{SUFFIX}"


@lru_cache(maxsize=4096)
def sweep_once(folder: Path) -> None:
    """Remove old ones from a folder that holds nothing but kerntune's files, once a process. Never fatal."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if _LEFT.fullmatch(name):
                with suppress(OSError):
                    found = os.lstat(folder / name)
                    if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > OLD_S:
                        os.unlink(folder / name)
