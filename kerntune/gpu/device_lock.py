"""One measuring process per device, whatever project it works on: a lock by the device's UUID."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import filelock

from kerntune.errors import MeasurementError

NOTICE_S = 10.0
"""Seconds of waiting after which a process says what it waits for."""

_BEFORE, _AFTER = "kerntune-", ".lock"
_MODE = 0o666
"""Other users measure on the device as well."""


def folder() -> Path:
    """Where the locks are."""
    return Path(tempfile.gettempdir())


def lock_of(uuid: str) -> filelock.BaseFileLock:
    """A device's lock, not taken yet."""
    return filelock.FileLock(folder() / f"{_BEFORE}{uuid}{_AFTER}", mode=_MODE)


def held_by_others() -> list[str]:
    """UUIDs of the devices that another process measures on now. OSError if no lock can be made."""
    known = [p.name.removeprefix(_BEFORE).removesuffix(_AFTER) for p in folder().glob(f"{_BEFORE}*{_AFTER}")]
    held = []
    for uuid in sorted({*known, "doctor"}):
        try:
            with lock_of(uuid).acquire(timeout=0):
                pass
        except filelock.Timeout:
            held.append(uuid)
    return held


@contextlib.contextmanager
def hold(uuid: str, name: str, patience_s: float) -> Iterator[None]:
    """Hold the device's lock; :class:`MeasurementError` if another process doesn't end within ``patience_s``."""
    lock = lock_of(uuid)
    try:
        _acquire(lock, name, patience_s)
    except filelock.Timeout as exc:
        raise MeasurementError(f"{name} is measured on by another process: {exc.lock_file}") from exc
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: filelock.BaseFileLock, name: str, patience_s: float) -> None:
    try:
        lock.acquire(timeout=min(patience_s, NOTICE_S))
    except filelock.Timeout:
        if patience_s <= NOTICE_S:
            raise
        warnings.warn(f"waiting for {name}: another process measures on it ({lock.lock_file})", stacklevel=2)
        lock.acquire(timeout=patience_s - NOTICE_S)
