"""One measuring process per device, whatever project it works on: a lock on the device's node, and one by its UUID."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import filelock

from kerntune.base.working_locks import locks_work
from kerntune.errors import MeasurementError

NOTICE_S = 10.0
"""Seconds of waiting after which a process says what it waits for."""

POLL_S = 0.05
"""Seconds between two attempts; filelock's own interval."""

_BEFORE, _AFTER = "kerntune-", ".lock"
_MODE = 0o666
"""Other users measure on the device as well."""


def folder() -> Path:
    """Where the locks by UUID are."""
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
    """Hold the device's locks; :class:`MeasurementError` if another process doesn't end within ``patience_s``.

    The lock on the device's node holds whatever ``TMPDIR`` is, and between containers that are given the same node. The
    one by UUID in the folder for temporary files serves where the node can't be opened. Each process takes the node's
    first. On a file system where locks do nothing, that is reported once.
    """
    end = time.monotonic() + patience_s
    with _node_lock(uuid, name, patience_s) as held:
        if not held and not locks_work(folder()):
            _tell_unlocked(str(folder()), name)
        with _uuid_lock(uuid, name, max(0.0, end - time.monotonic())):
            yield


@lru_cache(maxsize=16)
def _tell_unlocked(place: str, name: str) -> None:
    """Once a process."""
    warnings.warn(
        f"locks do nothing in {place}: another process that measures on {name} at the same time will not be noticed; "
        "set TMPDIR to a folder on a local disk",
        RuntimeWarning,
        stacklevel=2,
    )


@contextlib.contextmanager
def _uuid_lock(uuid: str, name: str, patience_s: float) -> Iterator[None]:
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
        _notice(name, lock.lock_file)
        lock.acquire(timeout=patience_s - NOTICE_S)


def _notice(name: str, place: str | Path) -> None:
    warnings.warn(f"waiting for {name}: another process measures on it ({place})", stacklevel=2)


# the device's node


@contextlib.contextmanager
def _node_lock(uuid: str, name: str, patience_s: float) -> Iterator[bool]:
    """Hold ``flock`` on the device's node, which the driver doesn't lock itself; whether there is one that can be."""
    node = device_node(uuid)
    handle = None if node is None else _opened(node)
    if node is None or handle is None:
        yield False
        return
    try:
        yield _wait_for(handle, node, name, patience_s)
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor, too
        os.close(handle)


def _wait_for(handle: int, node: Path, name: str, patience_s: float) -> bool:
    """Whether the lock is held in the end; False where none is to be had."""
    begin, told = time.monotonic(), False
    while (locked := _locked(handle)) is False:
        waited = time.monotonic() - begin
        if waited >= patience_s:
            raise MeasurementError(f"{name} is measured on by another process: {node}")
        if waited >= NOTICE_S and not told:
            _notice(name, node)
            told = True
        time.sleep(min(POLL_S, patience_s - waited))
    return bool(locked)


def _locked(handle: int) -> bool | None:
    """Whether the lock is held now; None if there is none to be had."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _opened(node: Path) -> int | None:
    try:
        handle = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISCHR(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    return None


@lru_cache(maxsize=16)
def device_node(uuid: str) -> Path | None:
    """The device's node, ``/dev/nvidia0``, as NVML numbers it; None for a MIG instance, which shares its node with
    others, and where NVML doesn't say."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        return Path(f"/dev/nvidia{int(pynvml.nvmlDeviceGetMinorNumber(handle))}")
    except pynvml.NVMLError:
        return None
