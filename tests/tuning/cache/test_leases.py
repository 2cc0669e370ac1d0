"""Leases: one holder, and a next one when it has let go or is no more."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from doubles import raising

from kerntune.base import locks
from kerntune.base.store_process import RenewRequest
from kerntune.tuning.cache import leases
from kerntune.tuning.cache.leases import FileLease, Lease, StoreLease
from kerntune.tuning.cache.shared_store import SharedWinnerCache, lease_name
from tuning.cache.made import WINNER


def lease(cache: SharedWinnerCache) -> StoreLease:
    return StoreLease(cache.store, WINNER)


def finish(cache: SharedWinnerCache) -> None:
    client: Any = cache.store.client
    client.finish()


def test_a_file_s_lock_has_one_holder(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path, "a"), FileLease(tmp_path, "a")
    assert first.take()
    assert first.take()
    assert not second.take()
    assert FileLease(tmp_path, "b").take()
    first.release()
    assert second.take()
    second.release()
    assert list((tmp_path / "leases").iterdir()) == [tmp_path / "leases" / "b"]


def test_a_lock_that_is_refused_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert leases.locks_work(tmp_path / "leases"), "as far as is known"
    monkeypatch.setattr(locks.fcntl, "flock", raising(OSError(errno.ENOLCK, "no locks")))
    before = os.listdir("/proc/self/fd")
    assert FileLease(tmp_path, "a").take()
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"1" if FileLease(tmp_path, "a").take() else b"0")
        signal.pause()
    assert os.read(reader, 1) == b"1"
    assert not FileLease(tmp_path, "a").take()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert FileLease(tmp_path, "a").take()
    os.close(reader)
    os.close(writer)


def test_where_locks_do_nothing_everybody_tunes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "locks_work", lambda folder: False)
    assert FileLease(tmp_path, "a").take()
    assert FileLease(tmp_path, "a").take()


def test_a_folder_that_can_not_be_made_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = FileLease(tmp_path / "file", "a")
    assert found.take()
    found.release()


def test_a_lease_of_the_store_has_one_holder(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    first, second = lease(here), lease(there)
    assert first.take()
    assert first.take()
    assert not second.take()
    assert first.token == second.token == 1
    first.release(found=False)
    finish(here)
    assert second.take()
    assert second.token == 2


def test_a_lease_is_removed_with_the_winner(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    first = lease(here)
    assert first.take()
    first.release(found=True)
    finish(here)
    client: Any = here.store.client
    assert client.server.files.names() == []
    assert lease(there).take()


def test_a_lease_without_a_sign_of_life_is_taken_over(
    here: SharedWinnerCache, there: SharedWinnerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    first, second = lease(here), lease(there)
    assert first.take()
    assert not second.take()
    now[0] = 11.0
    client: Any = here.store.client
    client.server.files.replace(lease_name(WINNER, 1), b"a sign of life")
    assert not second.take()
    now[0] = 22.0
    assert not second.take()
    now[0] = 23.0
    assert second.take()
    assert second.token == 2


def test_an_earlier_holder_lets_go_of_its_own_number_alone(
    here: SharedWinnerCache, there: SharedWinnerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lease(here), lease(there)
    assert first.take()
    monkeypatch.setattr(leases, "EXPIRY_S", 0.0)
    assert second.take()
    first.release(found=True)
    finish(here)
    client: Any = here.store.client
    assert client.server.files.names() == [lease_name(WINNER, 2)]


def test_a_store_that_is_away_stops_nobody(here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    client: Any = here.store.client
    client.is_away = True
    assert lease(there).take()
    assert lease(here).take()


def test_of_one_machine_one_process_asks_the_store(here: SharedWinnerCache) -> None:
    first, second = (Lease(here.folder, WINNER, here.store) for _ in range(2))
    assert first.take()
    client: Any = here.store.client
    asked = len(client.requests)
    assert not second.take()
    assert len(client.requests) == asked
    first.release(found=False)
    finish(here)
    assert second.take()


def test_a_lease_that_was_let_go_leaves_no_open_file(tmp_path: Path) -> None:
    found = FileLease(tmp_path, "a")
    assert found.take()
    handle = found._handle
    assert handle is not None
    found.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_without_a_store_that_can_be_written_the_file_decides(here: SharedWinnerCache) -> None:
    class ReadOnly:
        is_read_only = True

    store: Any = ReadOnly()
    for number, given in enumerate((None, store)):
        folder = here.folder / str(number)
        first, second = Lease(folder, WINNER, given), Lease(folder, WINNER, given)
        assert (first.take(), second.take()) == (True, False)
        first.release(found=True)
        assert second.take()


def test_who_has_let_go_asks_again(tmp_path: Path, here: SharedWinnerCache, there: SharedWinnerCache) -> None:
    first, second = FileLease(tmp_path, "a"), FileLease(tmp_path, "a")
    assert first.take()
    first.release()
    assert second.take()
    assert not first.take()
    mine, theirs = lease(here), lease(there)
    assert mine.take()
    mine.release(found=False)
    finish(here)
    assert theirs.take()
    assert not mine.take()


def test_a_lock_that_another_has_leaves_no_descriptor(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path, "a"), FileLease(tmp_path, "a")
    assert first.take()
    before = os.listdir("/proc/self/fd")
    assert not second.take()
    assert os.listdir("/proc/self/fd") == before


def test_whether_locks_work_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(leases, "locks_work", lambda folder: bool(asked.append(folder)))
    found = FileLease(tmp_path, "a")
    assert (found.take(), found.take()) == (True, True)
    assert asked == [tmp_path / "leases"]


def test_a_file_that_was_removed_or_replaced_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who held it removes it before another's lock counts: only the file that has the name now does."""
    path, flock, changes = tmp_path / "leases" / "a", locks.fcntl.flock, [path_removed, path_replaced]
    assert leases.locks_work(tmp_path), "as far as is known"

    def late(handle: int, how: int) -> None:
        flock(handle, how)
        if path.exists() and changes:
            changes.pop()(path)

    first = FileLease(tmp_path, "a")
    monkeypatch.setattr(leases, "locks_work", lambda folder: True)
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(locks.fcntl, "flock", late)
    assert first.take()
    assert changes == []
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert first._handle is not None
    assert os.fstat(first._handle).st_ino == path.stat().st_ino
    assert not FileLease(tmp_path, "a").take()


def path_removed(path: Path) -> None:
    path.unlink()


def path_replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("")
    other.replace(path)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "a").symlink_to(tmp_path / "elsewhere")
    assert FileLease(tmp_path, "a").take(), "nobody is stopped"
    assert not (tmp_path / "elsewhere").exists()


def test_a_lease_of_the_store_expires_after_twelve_seconds_by_default(
    here: SharedWinnerCache, there: SharedWinnerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    second = lease(there)
    assert lease(here).take()
    assert not second.take()
    now[0] = 111.9
    assert not second.take()
    now[0] = 112.0
    assert second.take()


def test_a_holder_gives_a_sign_of_life_every_three_seconds(
    here: SharedWinnerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(here.store.client, "tell", told.append)
    assert lease(here).take()
    (renewal,) = told
    assert isinstance(renewal, RenewRequest)
    assert (renewal.name, renewal.seconds) == (lease_name(WINNER, 1), 3.0)


def test_ranks_of_a_run_start_within_a_minute() -> None:
    assert [leases.of_this_run(leases.BEGUN - s) for s in (-100.0, 0.0, 60.0, 60.5)] == [True, True, True, False]
