"""Files that are locked: one holder, many that share, and file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles import raising

from kerntune.base import locks
from kerntune.base.locks import LockBusy, TwoSidedLock, let_go, locked_file, locks_work, open_lock_file


def refusing(code: int, real: Callable[..., Any] = fcntl.flock, unless: int = fcntl.LOCK_UN) -> Callable[..., Any]:
    def flock(handle: int, how: int) -> None:
        if how != unless:
            raise OSError(code, os.strerror(code))
        real(handle, how)

    return flock


def test_whether_a_folder_has_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locks_work.__wrapped__(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda handle, how: None)
    assert not locks_work.__wrapped__(tmp_path), "a second holder comes in"
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    assert not locks_work.__wrapped__(tmp_path), "none is given"
    assert locks_work.__wrapped__(tmp_path / "none"), "the error comes from taking one"
    assert os.listdir(tmp_path) == []


def test_a_lock_file_may_be_locked_by_any_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask says; one that can't be written is opened to read."""
    path, before = tmp_path / "lock", os.umask(0o077)
    try:
        os.close(open_lock_file(path))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666
    asked: list[int] = []
    opened = os.open

    def refuse(name: Any, flags: int, *mode: int) -> int:
        asked.append(flags)
        if flags & os.O_RDWR:
            raise PermissionError
        return opened(name, flags, *mode)

    monkeypatch.setattr(os, "open", refuse)
    os.close(open_lock_file(path))
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    assert asked == [os.O_RDWR | flags, os.O_RDONLY | flags]


def test_a_lock_file_that_another_makes_first_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "lock", os.open
    asked: list[bool] = []

    def race(name: Any, flags: int, *mode: int) -> int:
        asked.append(bool(flags & os.O_EXCL))
        if flags & os.O_EXCL:
            os.close(opened(name, os.O_CREAT | os.O_WRONLY, 0o600))
        return opened(name, flags, *mode)

    monkeypatch.setattr(os, "open", race)
    os.close(open_lock_file(path))
    assert asked == [False, True, False]


def test_a_link_is_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="Too many levels"):
        open_lock_file(tmp_path / "link")


def test_one_has_a_locked_file_and_lets_go_of_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = locked_file(path)
    assert first is not None
    assert locked_file(path) is None
    child = os.dup(first)  # as a fork has it
    let_go(first)
    second = locked_file(path)
    assert second is not None
    let_go(second)
    os.close(child)


@pytest.mark.parametrize("gone", ["removed", "replaced"])
def test_a_file_that_has_lost_its_name_is_not_the_one_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    path, flock = tmp_path / "lock", fcntl.flock
    names = iter([True])

    def locked(handle: int, how: int) -> None:
        flock(handle, how)
        if next(names, False):
            path.rename(tmp_path / "old")
            if gone == "replaced":
                path.touch()

    monkeypatch.setattr(fcntl, "flock", locked)
    found = locked_file(path)
    assert found is not None
    assert os.fstat(found).st_ino == path.stat().st_ino
    let_go(found)


def test_a_file_system_without_locks_is_an_error_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=os.strerror(errno.ENOLCK)):
        locked_file(tmp_path / "lock")
    assert len(os.listdir("/proc/self/fd")) == before


# many that share, or one alone


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 100.0, list[float]()
        monkeypatch.setattr(locks.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(locks.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(round(seconds, 6))


def side(path: Path) -> TwoSidedLock:
    return TwoSidedLock(open_lock_file(path))


def never(seconds: float) -> None:
    pytest.fail("it waits")


def test_many_share_and_one_has_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, path = Clock(monkeypatch), tmp_path / "lock"
    one, other, alone = side(path), side(path), side(path)
    assert one.acquire(False, 1.0, never)
    assert other.acquire(False, 1.0, never)
    waited: list[float] = []
    with pytest.raises(LockBusy) as busy:
        alone.acquire(True, 0.025, waited.append)
    assert busy.value.shared, "those that have it share it"
    assert clock.slept == [0.01, 0.01, 0.005]
    assert waited == pytest.approx([0.0, 0.01, 0.02])
    one.release()
    other.release()
    last = side(path)
    assert last.acquire(True, 1.0, never)
    for wanted in (True, False):
        with pytest.raises(LockBusy) as busy:
            side(path).acquire(wanted, 0.0, never)
        assert not busy.value.shared, "one has it alone"
    last.release()


def test_nobody_comes_in_while_one_waits_to_have_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But who is inside already goes on."""
    Clock(monkeypatch)
    path = tmp_path / "lock"
    inside, waiting, new = side(path), side(path), side(path)
    assert inside.acquire(False, 1.0, never)
    seen: list[str] = []

    def meanwhile(seconds: float) -> None:
        with pytest.raises(LockBusy):
            new.acquire(False, 0.0, never)
        more = side(path)
        assert more.acquire(False, 0.0, never, inside=True)
        more.release()
        inside.release()
        seen.append("left")

    assert waiting.acquire(True, 1.0, meanwhile)
    assert seen == ["left"]
    waiting.release()


@pytest.mark.parametrize(("error", "found"), [(errno.ENOLCK, False), (errno.EWOULDBLOCK, None)])
def test_a_side_that_is_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, found: bool | None
) -> None:
    """Where there are no locks at all, nobody waits."""
    Clock(monkeypatch)
    one = side(tmp_path / "lock")
    monkeypatch.setattr(fcntl, "flock", refusing(error))
    if found is None:
        with pytest.raises(LockBusy):
            one.acquire(False, 0.0, never)
    else:
        assert one.acquire(False, 1.0, never) is found
        one.release()


def test_without_a_lock_of_the_first_byte_the_side_alone_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "fcntl", raising(OSError(errno.EINVAL, "no such lock")))
    one = side(tmp_path / "lock")
    assert one.acquire(True, 0.0, never)
    one.release()
