"""The device's lock: one measuring process, whatever its folder for temporary files is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from source_path import source_path

from kerntune.base.locks import LockBusy, TwoSidedLock, locks_work, open_lock_file
from kerntune.errors import MeasurementError
from kerntune.gpu import device_lock, host_gpus
from kerntune.gpu.device_lock import hold, lock_file, share, share_suspendable, sharing_suspended
from kerntune.gpu.probe import has_cuda

SOURCE = Path(__file__).parents[2]
NAME, UUID = "NVIDIA H200", "0123-45"

HOLDER = """
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch
from kerntune.gpu import device_lock
device_lock.device_node = lambda uuid: Path(sys.argv[2]) if sys.argv[2] else None
with device_lock.hold(sys.argv[1], "NVIDIA H200", 5.0):
    print("held", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; there are no nodes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with_node(monkeypatch, None)
    for known in (locks_work, device_lock._warn_unlocked):
        known.cache_clear()
    yield tmp_path
    locks_work.cache_clear()


def with_node(monkeypatch: pytest.MonkeyPatch, node: str | None) -> None:
    monkeypatch.setattr(device_lock, "device_node", lambda uuid: None if node is None else Path(node))


@contextlib.contextmanager
def held_elsewhere(place: Path, node: str = "") -> Iterator[None]:
    """A process holds the device meanwhile, with its own folder for temporary files."""
    other = another(place, node)
    try:
        yield
    finally:
        other.communicate("\n")


def another(place: Path, node: str = "") -> subprocess.Popen[str]:
    """A process that holds the device, with its own folder for temporary files."""
    place.mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": source_path(SOURCE)}
    one = subprocess.Popen([sys.executable, "-c", HOLDER, UUID, node], stdin=-1, stdout=-1, text=True, env=env)
    assert one.stdout is not None
    assert one.stdout.readline() == "held\n"
    return one


def test_one_at_a_time_across_folders_for_temporary_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A character device stands for the GPU's node, which has no other locks."""
    with_node(monkeypatch, "/dev/full")
    told = "NVIDIA H200 is measured on by another process: /dev/full"
    with held_elsewhere(place / "other", "/dev/full"), pytest.raises(MeasurementError, match=told):
        hold(UUID, NAME, 0.1).__enter__()
    with hold(UUID, NAME, 5.0):
        pass


def test_without_a_node_the_folder_s_lock_holds(place: Path) -> None:
    with held_elsewhere(place), pytest.raises(MeasurementError, match=rf"{UUID}\.lock"):
        hold(UUID, NAME, 0.1).__enter__()


@pytest.mark.parametrize("node", ["/nowhere/nvidia0", "a file"])
def test_a_node_that_can_not_be_opened_is_done_without(place: Path, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "a file").touch()
    with_node(monkeypatch, str(place / node))
    with hold(UUID, NAME, 1.0):
        assert (place / f"kerntune-{UUID}.lock").exists()


def test_a_fork_that_lives_on_does_not_keep_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    with_node(monkeypatch, "/dev/zero")
    read, write = os.pipe()
    with hold(UUID, NAME, 1.0):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    try:
        handle = os.open("/dev/zero", os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    finally:
        os.close(write)
        os.waitpid(child, 0)
        os.close(read)


def test_waiting_is_told(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr(device_lock, "NOTICE_S", 0.05)
    with_node(monkeypatch, "/dev/random")
    told = pytest.warns(UserWarning, match="waiting for NVIDIA H200.*/dev/random")
    with held_elsewhere(place / "other", "/dev/random"), told, pytest.raises(MeasurementError):
        hold(UUID, NAME, 0.3).__enter__()


# two sides; a second open file stands for another process


def other_one() -> TwoSidedLock:
    return TwoSidedLock(open_lock_file(lock_file(UUID)))


def ignored(seconds: float) -> None:
    """Nothing is said of waiting."""


def waiting(lock: TwoSidedLock) -> threading.Thread:
    """A thread that waits by now to measure; it has the device at its end."""
    waits = threading.Event()
    writer = threading.Thread(target=lambda: lock.acquire(True, 60.0, lambda s: waits.set()))
    writer.start()
    assert waits.wait(60.0)
    return writer


def shared_by_another() -> TwoSidedLock:
    lock = other_one()
    assert lock.acquire(False, 5.0, ignored)
    return lock


def test_what_does_not_measure_shares_the_device() -> None:
    other = shared_by_another()
    with share(UUID, NAME, 0.0):
        pass
    with pytest.raises(MeasurementError, match="NVIDIA H200 is shared by another process"), hold(UUID, NAME, 0.05):
        pass
    other.release()
    with hold(UUID, NAME, 0.0):
        pass


def test_measuring_keeps_others_out() -> None:
    other = other_one()
    assert other.acquire(True, 5.0, ignored)
    with pytest.raises(MeasurementError, match="measured on by another process"), share(UUID, NAME, 0.05):
        pass
    other.release()
    with hold(UUID, NAME, 0.0), pytest.raises(LockBusy):
        other_one().acquire(False, 0.0, ignored)


@pytest.mark.parametrize("inside", [False, True])
def test_who_waits_to_measure_comes_before_later_ones(inside: bool) -> None:
    """Else runs that overlap would keep it waiting for ever. Who is in already may go on: it is waited for."""
    first, second, third = shared_by_another(), other_one(), other_one()
    writer = waiting(second)
    if inside:
        assert third.acquire(False, 0.0, ignored, inside=True)
        third.release()
    else:
        with pytest.raises(LockBusy):
            third.acquire(False, 0.05, ignored)
    first.release()
    writer.join(60.0)
    assert not writer.is_alive()
    second.release()


def test_a_thread_that_shares_is_refused_at_once_when_it_wants_to_measure() -> None:
    """Two that both do so would wait for each other."""
    with share(UUID, NAME, 0.0):
        with pytest.raises(MeasurementError, match="this thread shares a GPU: it can't have NVIDIA H200 alone"):
            hold(UUID, NAME, 60.0).__enter__()
        with pytest.raises(LockBusy):
            other_one().acquire(True, 0.0, ignored)
    with hold(UUID, NAME, 0.0), share(UUID, NAME, 0.0):
        pass


def test_a_test_s_side_gives_way_to_its_own_measuring_and_comes_back() -> None:
    with share_suspendable(UUID, NAME, 0.0):
        with share(UUID, NAME, 0.0), share_suspendable(UUID, NAME, 0.0):
            pass
        with hold(UUID, NAME, 0.0), pytest.raises(LockBusy):
            other_one().acquire(False, 0.0, ignored)
        with pytest.raises(LockBusy):
            other_one().acquire(True, 0.0, ignored)
    assert other_one().acquire(True, 0.0, ignored)


def test_a_process_that_a_test_waits_for_does_not_wait_for_the_test(place: Path) -> None:
    """A test of several ranks starts them, and each may tune. Others that wait for the test keep none of them out."""
    measures = other_one()
    with share_suspendable(UUID, NAME, 0.0):
        writer = waiting(measures)
        with held_elsewhere(place):
            pass
        assert writer.is_alive()
    writer.join(60.0)
    measures.release()


@pytest.mark.parametrize(("error", "patience"), [(KeyboardInterrupt, 0.0), (ValueError, 0.25)])
def test_an_interrupted_measurement_waits_for_nobody_at_its_end(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], patience: float
) -> None:
    """Who waited for the device has it by then, for as long as a tuning takes."""
    measures, given, writers = other_one(), list[float](), list[threading.Thread]()
    acquire = TwoSidedLock.acquire

    def noted(lock: TwoSidedLock, alone: bool, patience_s: float, *more: Any, **words: Any) -> bool:
        given.append(patience_s)
        return acquire(lock, alone, patience_s, *more, **words)

    def interrupted() -> None:
        writers.append(waiting(measures))
        monkeypatch.setattr(TwoSidedLock, "acquire", noted)
        raise error

    with pytest.raises(error), share_suspendable(UUID, NAME, 0.25), hold(UUID, NAME, 0.0):
        interrupted()
    writers[0].join(60.0)
    measures.release()
    assert given == [pytest.approx(patience, abs=0.05)]


@pytest.mark.parametrize("before", ["", "1 of-a-parent"])
def test_what_a_test_starts_is_told_all_gpus_that_it_shares(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setattr(device_lock, "_of_parents", {})
    monkeypatch.delenv(device_lock.SHARED, raising=False)
    if before:
        monkeypatch.setenv(device_lock.SHARED, before)
    with share_suspendable(UUID, NAME, 0.0), share_suspendable("another", NAME, 0.0):
        assert os.environ[device_lock.SHARED] == f"{os.getpid()} {UUID} another"
        with sharing_suspended():
            assert os.environ.get(device_lock.SHARED, "") == before
        assert os.environ[device_lock.SHARED] == f"{os.getpid()} {UUID} another"
    assert os.environ.get(device_lock.SHARED, "") == before


def test_a_test_may_clear_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(device_lock.SHARED, raising=False)
    with share_suspendable(UUID, NAME, 0.0):
        with patch.dict(os.environ, clear=True), hold(UUID, NAME, 0.0):
            assert device_lock.SHARED not in os.environ
        assert os.environ[device_lock.SHARED] == f"{os.getpid()} {UUID}"
    assert device_lock.SHARED not in os.environ


def test_only_what_a_test_starts_shares_with_it(place: Path) -> None:
    with share_suspendable(UUID, NAME, 0.0), hold(UUID, NAME, 0.0):
        assert device_lock.SHARED not in os.environ
    assert device_lock.SHARED not in os.environ
    with held_elsewhere(place), pytest.raises(LockBusy):
        other_one().acquire(False, 0.0, ignored)


def test_a_fork_holds_nothing_of_its_parent_s() -> None:
    with share_suspendable(UUID, NAME, 0.0):
        child = os.fork()
        if child == 0:
            os._exit(int(device_lock._mine(UUID).shares))
        assert os.waitpid(child, 0)[1] == 0
        assert device_lock._mine(UUID).shares


def test_a_killed_holder_holds_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_node(monkeypatch, "/dev/urandom")
    other = another(place / "other", "/dev/urandom")
    other.kill()
    other.communicate()
    with hold(UUID, NAME, 5.0):
        pass


def test_a_file_of_another_user_is_locked_without_writing_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be read at least. Then nobody passes through its first byte, and both sides work as they do."""
    lock_file(UUID).touch()
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *mode, **more: real(path, refuse_writing(flags), *mode, **more))
    with hold(UUID, NAME, 0.0), pytest.raises(LockBusy):
        other_one().acquire(False, 0.0, ignored)
    with share(UUID, NAME, 0.0), share_suspendable(UUID, NAME, 0.0):
        pass


def refuse_writing(flags: int) -> int:
    if flags & os.O_RDWR:
        raise PermissionError
    return flags


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="needs a GPU")
def test_a_gpu_s_node_is_locked_across_folders_for_temporary_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kerntune.gpu.cuda import CudaGpu

    monkeypatch.setattr(device_lock, "device_node", host_gpus.device_node)
    gpu = CudaGpu()
    node = device_lock.device_node(gpu.spec.uuid)
    assert node is not None
    assert node.is_char_device()
    with held_elsewhere(place / "other", str(node)), pytest.raises(MeasurementError, match=str(node)):
        gpu.lock(0.1).__enter__()
    with gpu.lock(5.0):
        pass


# file systems whose locks don't work


def nothing(handle: int, how: int) -> None:
    """Some network file systems say yes to everybody."""


def refused(handle: int, how: int) -> None:
    raise OSError("no locks available")


def held_twice() -> None:
    for _ in range(2):
        with hold(UUID, NAME, 1.0):
            pass


@pytest.mark.parametrize("flock", [nothing, refused])
def test_locks_that_do_nothing_are_told_once(place: Path, monkeypatch: pytest.MonkeyPatch, flock: object) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("kerntune.base.locks.fcntl.flock", flock)
        assert not locks_work(place)
    with pytest.warns(RuntimeWarning, match=f"locks do nothing in {place}.*set TMPDIR") as told:
        held_twice()
    assert len(told) == 1
    assert [p.name for p in place.iterdir()] in ([f"kerntune-{UUID}.lock"], [])


def test_locks_on_a_local_disk_work(place: Path) -> None:
    assert locks_work(place)
    assert list(place.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_blamed_for_its_locks(place: Path) -> None:
    assert locks_work(place / "nowhere")
