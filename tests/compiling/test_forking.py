"""Forks of this process: what they leave behind, their answers, and when they are made."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import os
import signal
import sys
import threading
import time
import warnings
from functools import lru_cache
from pathlib import Path

import pytest
from triton.runtime import autotuner, cache

from kerntune.compiling import forking, frontend
from kerntune.compiling.forking import may_fork, text_of_fork
from kerntune.compiling.forks import FAULTS
from kerntune.kernels import compat


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.delenv(forking.SWITCH, raising=False)


def test_a_fork_answers_in_its_own_process() -> None:
    answer = text_of_fork(lambda: f"{os.getpid()} {os.getppid()}", 20)
    assert answer is not None
    child, parent = map(int, answer.split())
    assert parent == os.getpid() != child
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_a_long_answer_comes_whole() -> None:
    assert text_of_fork(lambda: "x" * 300_000, 20) == "x" * 300_000


def fails() -> str:
    raise ValueError


def hangs() -> str:
    time.sleep(60)
    return "late"


def dies() -> str:
    os.abort()


@pytest.mark.parametrize("work", [fails, hangs, dies])
def test_a_fork_that_does_not_answer_gives_nothing(work) -> None:
    begin = time.monotonic()
    assert text_of_fork(work, 0.3) is None
    assert time.monotonic() - begin < 20


def test_a_process_that_can_not_be_forked_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise OSError

    monkeypatch.setattr(forking, "fork_process", full)
    before = len(os.listdir("/proc/self/fd"))
    assert text_of_fork(lambda: "x", 20) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_fork_warns_of_no_threads_and_changes_no_filter() -> None:
    """Python 3.12 and later warn of threads, which under ``-W error`` makes ``os.fork()`` fail."""
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(60,))
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            before = list(warnings.filters)
            assert text_of_fork(lambda: "answer", 20) == "answer"
            assert list(warnings.filters) == before
    finally:
        go.set()
        thread.join()


def test_a_fork_never_waits_for_threads_that_it_lacks() -> None:
    """Threads that want Python's lock at the very moment: the child must not hand it to them."""
    interval, stop = sys.getswitchinterval(), threading.Event()
    threads = [threading.Thread(target=lambda: [sum(range(100)) for _ in iter(stop.is_set, True)]) for _ in range(4)]
    sys.setswitchinterval(1e-4)
    for thread in threads:
        thread.start()
    try:
        assert [text_of_fork(lambda: "answer", 20) for _ in range(60)] == ["answer"] * 60
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()


def test_a_fork_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        ctypes.set_errno(errno.EAGAIN)
        return -1

    monkeypatch.setattr(forking, "_FORK", full)
    monkeypatch.setattr(forking, "_CALL", lambda function: function())
    with pytest.raises(BlockingIOError, match="temporarily unavailable"):
        forking.fork_process()


def test_descriptors_handlers_and_tracers_are_left_behind(tmp_path: Path) -> None:
    def look() -> str:
        handlers = sum(callable(signal.getsignal(number)) for number in signal.valid_signals())
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        left = [link for link in links if link != os.devnull]  # the pipe to answer through, and the listing's own
        return f"{handlers} {len(left) <= 2} {sys.gettrace()} {sys.getprofile()} {os.getsid(0) == os.getpid()}"

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with (tmp_path / "file").open("w"):
            assert text_of_fork(look, 20) == "0 True None None True"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_of_crashes_are_left_behind() -> None:
    """faulthandler's and LLVM's are C: ``signal.getsignal`` doesn't know them."""

    def caught() -> str:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return repr([number.name for number in FAULTS if int(lines["SigCgt"], 16) >> (number - 1) & 1])

    was = faulthandler.is_enabled()
    faulthandler.enable()
    try:
        assert text_of_fork(caught, 20) == "[]"
    finally:
        if not was:
            faulthandler.disable()


def test_nothing_is_printed_nor_read(capfd: pytest.CaptureFixture[str]) -> None:
    assert text_of_fork(lambda: (os.write(1, b"noise"), os.write(2, b"noise"), repr(os.read(0, 1)))[2], 20) == "b''"
    assert capfd.readouterr() == ("", "")


def test_forks_are_for_many_cores_and_small_processes(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert may_fork()
    monkeypatch.setattr(forking, "MOST_RESIDENT", 1 << 20)
    assert not may_fork()


def test_forks_can_be_switched_off(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(forking.SWITCH, "0")
    assert not may_fork()


def test_few_cores_fork_nothing(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert not may_fork()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch, large: None) -> list[int]:
    """Triton's files are still to be read; which processes have read them."""
    asked: list[int] = []

    @lru_cache
    def triton_key() -> str:
        asked.append(os.getpid())
        return "of its files"

    for module in (cache, autotuner):
        monkeypatch.setattr(module, "triton_key", triton_key)
    monkeypatch.setattr(frontend, "_hashing", None)
    return asked


def test_a_fork_reads_tritons_files(unread: list[int]) -> None:
    frontend.prepare_hashes().result(20)
    assert cache.triton_key() == autotuner.triton_key() == "of its files"
    assert unread == [], "this process has read none"
    assert compat.triton_key_is_known()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from Python 3.12 on
def test_a_users_fork_reads_them_itself(unread: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was forked while its parent read: the thread that would tell is not its own."""
    go_on = threading.Event()
    monkeypatch.setattr(frontend, "text_of_fork", lambda work, seconds: go_on.wait(20) and None)
    reading = frontend.prepare_hashes()
    child = os.fork()
    if not child:
        go_on.set()
        with contextlib.suppress(BaseException):
            frontend.prepare_hashes().result(10)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not reading.done()
    go_on.set()
    reading.result(20)


def test_this_process_reads_them_where_no_fork_does(unread: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "text_of_fork", lambda work, seconds: None)
    frontend.prepare_hashes().result(20)
    assert cache.triton_key() == "of its files"
    assert unread == [os.getpid()]


def test_what_is_known_stays(unread: list[int]) -> None:
    before = cache.triton_key
    before()
    compat.know_triton_key("other")
    assert cache.triton_key is before


def test_a_fork_finds_what_triton_finds() -> None:
    assert text_of_fork(compat.triton_key, 60) == compat.triton_key()


def test_where_the_size_of_a_process_is_not_known_it_may_be_forked(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(path: str) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(forking, "open", missing, raising=False)
    monkeypatch.setattr(forking, "MOST_RESIDENT", 0)
    assert may_fork()


def test_a_process_of_the_largest_size_may_be_forked(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_resident", lambda: 8 << 30)
    assert may_fork()
    monkeypatch.setattr(forking, "_resident", lambda: (8 << 30) + 1)
    assert not may_fork()


@pytest.mark.parametrize(("cores", "may"), [(3, False), (4, True)])
def test_four_cores_are_the_fewest_that_fork(
    large: None, monkeypatch: pytest.MonkeyPatch, cores: int, may: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert may_fork() is may


def test_the_size_of_this_process_is_in_bytes() -> None:
    """As ``/proc`` gives it in KiB; it may have grown or shrunk by some megabytes between the two."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert forking._resident() == pytest.approx(int(lines["VmRSS"].split()[0]) << 10, abs=64 << 20)


def test_ending_nothing_is_no_signal_to_this_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """``kill(0, SIGKILL)`` would end all processes of the group."""
    killed: list[int] = []
    monkeypatch.setattr(forking.os, "kill", lambda pid, number: killed.append(pid))
    forking.end(0)
    monkeypatch.undo()
    assert killed == []
