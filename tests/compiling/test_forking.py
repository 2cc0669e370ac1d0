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
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising
from triton.runtime import autotuner, cache

from kerntune.compiling import forking, frontend
from kerntune.compiling.forking import may_fork, text_of_fork
from kerntune.compiling.frontend_forks import FAULTS
from kerntune.kernels.compat import triton_compiler


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
    monkeypatch.setattr(forking, "fork_process", raising(OSError))
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


@pytest.mark.slow
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
    assert triton_compiler.triton_key_is_known()


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
    triton_compiler.know_triton_key("other")
    assert cache.triton_key is before


def test_a_fork_finds_what_triton_finds() -> None:
    assert text_of_fork(triton_compiler.triton_key, 60) == triton_compiler.triton_key()


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


# what happens in a fork, in this process


class Exit(BaseException):
    """The end of a process."""


def exits(code: int) -> None:
    raise Exit(code)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a fork does, which this process stands for."""
    done: list[Any] = []
    ids = SimpleNamespace(getpid=lambda: 5, _exit=exits)
    monkeypatch.setattr(forking, "fork_process", lambda: 0)
    monkeypatch.setattr(forking, "os", ids)
    monkeypatch.setattr(forking, "die_with", lambda parent: done.append(("dies with", parent)))
    monkeypatch.setattr(forking, "leave_behind", lambda kept, standard: done.append(("leaves", kept, standard)))
    return done


def test_a_fork_works_and_ends(forked: list[Any]) -> None:
    with pytest.raises(Exit) as ended:
        forking.fork(lambda: forked.append("works"), 7, (1, 2), bound=True)
    assert ended.value.args == (0,)
    assert forked == [("dies with", 5), ("leaves", 7, (1, 2)), "works"]


def test_a_fork_that_is_not_bound_outlives_its_thread(forked: list[Any]) -> None:
    with pytest.raises(Exit) as ended:
        forking.fork(fails)
    assert ended.value.args == (1,)
    assert forked == [("leaves", -1, None)]


def test_the_process_that_forks_goes_on(forked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "fork_process", lambda: 77)
    assert forking.fork(lambda: forked.append("works"), bound=True) == 77
    assert forked == []


@pytest.mark.parametrize(("parent", "ended"), [(5, False), (6, True)])
def test_a_process_dies_with_the_one_that_started_it(monkeypatch: pytest.MonkeyPatch, parent: int, ended: bool) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(forking, "os", SimpleNamespace(getppid=lambda: 5, _exit=exits))
    monkeypatch.setattr(forking, "_LIBC", SimpleNamespace(prctl=lambda *given: asked.append(given)))
    with pytest.raises(Exit) if ended else contextlib.nullcontext() as found:
        forking.die_with(parent)
    assert found is None or found.value.args == (1,)
    assert asked == [(1, 9, 0, 0, 0)]
    monkeypatch.setattr(forking, "_LIBC", SimpleNamespace())  # another system
    if not ended:
        forking.die_with(parent)


@pytest.mark.parametrize(
    ("standard", "nothing", "expected"),
    [
        (None, 9, [("dup2", 9, 0), ("dup2", 9, 1), ("dup2", 9, 2), ("close", 9)]),
        ((), 9, [("close", 9)]),
        ((20, 21, 22), 9, [("dup2", 20, 0), ("dup2", 21, 1), ("dup2", 22, 2), ("close", 9)]),
        ((), 3, [("close", 3)]),
        ((), 2, []),
    ],
    ids=["none", "they stay", "given", "above them", "without standard files"],
)
def test_what_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, standard: tuple[int, ...] | None, nothing: int, expected: list[Any]
) -> None:
    done: list[Any] = []

    def doing(name: str) -> Any:
        return lambda *given: done.append((name, *given))

    def opened(path: str, flags: int) -> int:
        assert (path, flags) == ("nothing", 2)
        return nothing

    system = {name: doing(name) for name in ("setsid", "dup2", "close")}
    files = SimpleNamespace(settrace=doing("trace"), setprofile=doing("profile"), stdout="out", stderr="err")
    for name, value in {
        "gc": SimpleNamespace(disable=doing("disable"), freeze=doing("freeze")),
        "os": SimpleNamespace(open=opened, devnull="nothing", O_RDWR=2, **system),
        "sys": files,
        "threading": SimpleNamespace(settrace=doing("threads' trace"), setprofile=doing("threads' profile")),
        "signal": SimpleNamespace(set_wakeup_fd=doing("wake-up")),
        "default_handlers": doing("handlers"),
        "close_from": doing("close from"),
        "_LEFT": [],
    }.items():
        monkeypatch.setattr(forking, name, value)
    monkeypatch.setattr(forking, "open", lambda number, mode, closefd: (number, mode, closefd), raising=False)
    forking.leave_behind(77, standard)
    left, streams = list(forking._LEFT), (files.stdout, files.stderr)
    monkeypatch.undo()
    assert done == [
        ("disable",), ("freeze",), ("setsid",), ("trace", None), ("profile", None), ("threads' trace", None),
        ("threads' profile", None), ("wake-up", -1), ("handlers",), *expected, ("close from", 3, 77),
    ]  # fmt: skip
    if standard is None:
        assert left == ["out", "err"], "what they hold is never written"
        assert streams == ((1, "w", False), (2, "w", False))
    else:
        assert (left, streams) == ([], ("out", "err"))


def test_no_signal_is_handled_but_those_that_are_ignored_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, Any]] = []

    def handle(number: int, how: Any) -> None:
        if number == 2:
            raise OSError
        if number == 3:
            raise ValueError
        done.append((number, how))

    known = {1: "ignored", 2: None, 3: None, 4: print, 5: "default"}
    monkeypatch.setattr(forking, "signal", SimpleNamespace(
        valid_signals=lambda: known, getsignal=known.get, SIG_IGN="ignored", SIG_DFL="default", signal=handle,
    ))  # fmt: skip
    forking.default_handlers()
    monkeypatch.undo()
    assert done == [(4, "default"), (5, "default")]


@pytest.mark.parametrize("error", [None, ProcessLookupError, ChildProcessError])
def test_a_fork_is_killed_and_reaped(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    done: list[tuple[str, int, int]] = []

    def kill(pid: int, number: int) -> None:
        done.append(("kill", pid, number))
        if error is not None:
            raise error

    system = SimpleNamespace(kill=kill, waitpid=lambda pid, options: done.append(("wait", pid, options)))
    monkeypatch.setattr(forking, "os", system)
    forking.end(77)
    monkeypatch.undo()
    assert done == [("kill", 77, 9)] + [("wait", 77, 0)] * (error is None)
