"""The front end in forked copies: the same text, and what a copy can't do costs only that."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import resource
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.frames import encode
from kerntune.compiling import forking, frontend_forks, stream
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.compiling.frontend import Lowered, lower, request_of
from kerntune.compiling.frontend_forks import Crashed, fork_count, lower_in_forks, shares
from kerntune.errors import CompileError

from . import kernels
from .kernels import CUDA90, FLOATS

FORK_MS = 15
LOWER_MS = 25


@pytest.fixture
def deadly(monkeypatch):
    """A front end that dies of B=64, in copies alone."""

    def dies(request):
        if request.launch.constexpr_texts()["B"] == "64":
            os.kill(os.getpid(), signal.SIGSEGV)
        return lower(request)

    monkeypatch.setattr(frontend_forks, "lower", dies)


def requests(count=6):
    return [request_of(kernels.add_launch(block=32 << i)) for i in range(count)]


@pytest.fixture
def two(monkeypatch):
    """Two copies, however few the cores and the launches."""
    monkeypatch.setattr(stream, "fork_count", lambda requests: 2 if requests > 1 else 0)


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_copies_make_what_this_process_makes(copies):
    wanted = requests()
    found = list(lower_in_forks(wanted, copies))
    assert sorted(id(r) for r, _ in found) == sorted(map(id, wanted))
    for request, result in found:
        assert isinstance(result, Lowered)
        here = lower(request)
        assert result.source_text == here.source_text
        assert encode(result.job) == encode(here.job)
        assert result.identity() == here.identity()


@pytest.fixture
def pids(monkeypatch):
    """Process ids of the copies that were made."""
    made: list[int] = []
    fork = forking.fork_process
    monkeypatch.setattr(forking, "fork_process", lambda: made.append(pid) or pid if (pid := fork()) else 0)
    return made


@pytest.mark.slow
def test_the_first_are_read_while_others_are_forked(pids, monkeypatch):
    lowered = lower_in_forks(requests(), 3)
    seen = []
    fork = forking.fork_process

    def after_the_first_has_answered():
        if len(pids) == 1:
            time.sleep(5)
        return fork()

    monkeypatch.setattr(forking, "fork_process", after_the_first_has_answered)
    for _ in lowered:
        seen.append(len(pids))
    assert seen[0] < 3
    assert len(seen) == len(requests())


def test_copies_are_gone_afterwards(pids):
    list(lower_in_forks(requests(), 3))
    assert len(pids) == 3
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_copies_are_ended_when_nobody_listens(pids):
    some = lower_in_forks(requests(), 2)
    next(some)
    some.close()
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_what_raises_is_left_to_this_process_and_its_words():
    bad = request_of(kernels.launch(kernels.bad_front, FLOATS, CUDA90, B=100))
    found = {id(r): f for r, f in lower_in_forks([bad, *requests(2)], 1)}
    assert found.pop(id(bad)) is None
    assert all(isinstance(f, Lowered) for f in found.values())


@pytest.mark.slow
def test_a_crash_costs_its_request_and_the_rest_is_lowered_here(farm, two, deadly):
    launches = [kernels.add_launch(block=b) for b in (256, 128, 64, 32)]
    results = {launch.constexpr_texts()["B"]: found for launch, found in Compiler(farm()).compile_stream(launches)}
    assert isinstance(results.pop("64"), CompileError)
    assert set(results) == {"256", "128", "32"}
    assert [found for found in results.values() if not isinstance(found, Compiled)] == []


def test_a_crash_is_told(deadly):
    found = [result for _, result in lower_in_forks([request_of(kernels.add_launch(block=64)), *requests(1)], 2)]
    assert Crashed("Triton's front end died (SIGSEGV)") in found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_from_outside_is_no_crash(monkeypatch, number):
    """Ctrl-C, a shutdown, want of memory: code that continues restores the limit itself."""
    monkeypatch.setattr(frontend_forks, "lower", lambda request: os.kill(os.getpid(), number))
    assert [result for _, result in lower_in_forks(requests(3), 1)] == [None] * 3


@pytest.mark.slow
def test_a_copy_that_hangs_is_ended_and_its_work_left(monkeypatch):
    monkeypatch.setattr(frontend_forks, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(frontend_forks, "lower", lambda request: time.sleep(60))
    wanted = requests(2)
    assert list(lower_in_forks(wanted, 1)) == [(request, None) for request in wanted]


@pytest.mark.slow
def test_a_whole_stream_through_copies(farm, two, monkeypatch):
    here: list[object] = []
    monkeypatch.setattr(stream, "lower", here.append)
    launches = [kernels.add_launch(block=32 << i) for i in range(5)]
    results = [found for _, found in Compiler(farm()).compile_stream(launches)]
    assert all(isinstance(found, Compiled) for found in results)
    assert here == []


@pytest.mark.parametrize(
    ("cores", "launches", "copies"), [(16, 48, 6), (16, 12, 4), (16, 3, 1), (2, 48, 1), (1, 48, 0)]
)
def test_copies_are_few_where_they_would_not_pay(monkeypatch, cores, launches, copies):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores))
    assert fork_count(launches) == copies
    monkeypatch.setenv("KERNTUNE_FORKS", "0")
    assert fork_count(launches) == 0


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The pipes that are made, as ``/proc`` names them. Other threads open and close files of their own meanwhile."""
    made: set[str] = set()
    pipe = os.pipe

    def named() -> tuple[int, int]:
        ends = pipe()
        made.add(os.readlink(f"/proc/self/fd/{ends[0]}"))
        return ends

    monkeypatch.setattr(os, "pipe", named)
    return made


def open_files() -> Iterator[str]:
    """What the descriptors of this process lead to."""
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed by now
            yield os.readlink(f"/proc/self/fd/{descriptor}")


def test_what_no_copy_could_be_forked_for_comes_back(monkeypatch: pytest.MonkeyPatch, pipes: set[str]) -> None:
    """Not an error of the user's tuning: too little memory for a second copy leaves its share to this process."""
    fork, forked = forking.fork_process, []

    def once() -> int:
        if forked:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        pid = fork()
        forked.append(pid)
        return pid

    monkeypatch.setattr(forking, "fork_process", once)
    monkeypatch.setattr(frontend_forks, "SILENCE_SECONDS", 300.0)  # a busy machine is no hang
    wanted = requests()
    found = dict_of(lower_in_forks(wanted, 2))
    assert [found[id(r)] is None for r in wanted] == [i % 2 == 1 for i in range(len(wanted))]
    assert len(pipes) == 2
    assert pipes.isdisjoint(open_files())


def test_descriptors_above_a_thousand_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = os.pipe

    def high() -> tuple[int, int]:
        read, write = pipe()
        moved = fcntl.fcntl(read, fcntl.F_DUPFD, 1100)
        os.close(read)
        return moved, write

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this process may not have so many descriptors")
    monkeypatch.setattr(os, "pipe", high)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    try:
        assert all(result is not None for _, result in lower_in_forks(requests(), 2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def dict_of(found: Iterable[tuple[Any, Any]]) -> dict[int, Any]:
    return {id(request): result for request, result in found}


def test_filters_of_another_thread_stay_its_own(monkeypatch):
    """Copies are made in a thread, while the caller may enter and leave ``catch_warnings()``."""
    begun, go, before = threading.Event(), threading.Event(), list(warnings.filters)

    def full():
        begun.set()
        go.wait(60)
        raise OSError(errno.EAGAIN, "no process left")

    monkeypatch.setattr(forking, "fork_process", full)
    thread = threading.Thread(target=lambda: list(lower_in_forks(requests(2), 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread.start()
        assert begun.wait(60)
    go.set()
    thread.join()
    assert list(warnings.filters) == before


@pytest.mark.parametrize(("requests", "forks"), [(6, 2), (18, 6), (48, 6), (7, 2)])
def test_copies_that_begin_earlier_lower_more(requests: int, forks: int) -> None:
    found = shares(requests, forks)
    assert sorted(index for one in found for index in one) == list(range(requests))
    assert all(one == sorted(one) and one for one in found), "longest first"
    assert [len(one) for one in found] == sorted((len(one) for one in found), reverse=True)
    ends = [k * FORK_MS + len(one) * LOWER_MS for k, one in enumerate(found)]
    assert max(ends) - min(ends) <= LOWER_MS


class Waits:
    """Stands for ``os`` where a copy is reaped: gives what ``waitpid`` gives, one after the other."""

    WNOHANG, WIFSIGNALED, WTERMSIG = os.WNOHANG, os.WIFSIGNALED, os.WTERMSIG

    def __init__(self, *found: Any) -> None:
        self._found = iter(found)

    def waitpid(self, pid: int, options: int) -> Any:
        assert (pid, options) == (77, os.WNOHANG)
        found = next(self._found, (0, 0))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(
    ("found", "crash", "left"),
    [
        ([(0, 0), (77, int(signal.SIGSEGV))], Crashed("Triton's front end died (SIGSEGV)"), 0),
        ([(77, int(signal.SIGABRT) | 128)], Crashed("Triton's front end died (SIGABRT)"), 0),
        ([(77, int(signal.SIGKILL))], None, 0),
        ([(77, 1 << 8)], None, 0),
        ([(77, 11 << 8)], None, 0),
        ([ChildProcessError()], None, 0),
        ([], None, 77),
    ],
    ids=["crash", "with a core", "killed", "error", "status 11", "reaped by another", "runs on"],
)
def test_how_a_copy_ended(monkeypatch: pytest.MonkeyPatch, found: list[Any], crash: Any, left: int) -> None:
    now, slept = itertools.count(0.0, 0.3), list[float]()
    monkeypatch.setattr(frontend_forks, "os", Waits(*found))
    monkeypatch.setattr(frontend_forks, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=slept.append))
    copy = frontend_forks._Fork(77, 5, [], None, 0.0)  # type: ignore[arg-type]
    assert frontend_forks._how_fork_ended(copy) == crash
    assert copy.pid == left
    assert all(0 < seconds <= 0.01 for seconds in slept), "a tuning waits for it"


def test_a_copy_is_silent_after_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, copies = [0.0], {n: frontend_forks._Fork(77, n, [], None, 0.0) for n in (5, 6)}  # type: ignore[arg-type]
    copies[6].active = 5.0
    poll = SimpleNamespace(register=lambda *given: None, poll=lambda ms: [])
    monkeypatch.setattr(frontend_forks, "select", SimpleNamespace(poll=lambda: poll, POLLIN=1))
    monkeypatch.setattr(frontend_forks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    left = []
    for moment in (0.0, 10.0, 10.1, 15.1):
        now[0] = moment
        list(frontend_forks._arrived([], copies, 0))
        left.append(list(copies))
    assert left == [[5, 6], [5, 6], [6], []]


@pytest.mark.parametrize(
    ("cores", "requests", "copies"), [(100, 18, 6), (100, 17, 5), (100, 100, 6), (13, 100, 6), (11, 100, 5), (4, 2, 0)]
)
def test_how_many_copies_pay(monkeypatch: pytest.MonkeyPatch, cores: int, requests: int, copies: int) -> None:
    monkeypatch.delenv("KERNTUNE_FORKS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores))
    assert fork_count(requests) == copies


def test_what_is_buffered_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []

    def closed() -> None:
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(frontend_forks.sys, "stdout", SimpleNamespace(flush=closed))
    monkeypatch.setattr(frontend_forks.sys, "stderr", SimpleNamespace(flush=lambda: flushed.append("stderr")))
    frontend_forks._flush()
    monkeypatch.undo()
    assert flushed == ["stderr"]


@pytest.mark.parametrize("refused", [False, True])
def test_a_copy_ends_with_its_thread_and_prints_where_this_process_does(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """What is buffered goes first; of the pipe the copy keeps one end, and this process the other."""
    did: list[Any] = []

    def fork(work: Any, kept: int, **words: Any) -> int:
        did.append((kept, words))
        if refused:
            raise OSError
        return 77

    monkeypatch.setattr(frontend_forks, "_flush", lambda: did.append("flush"))
    monkeypatch.setattr(frontend_forks, "fork", fork)
    monkeypatch.setattr(frontend_forks, "os", SimpleNamespace(pipe=lambda: (40, 41), close=did.append))
    copy = None
    with contextlib.suppress(OSError):
        copy = frontend_forks._start_fork([], [4, 5])
    assert did == ["flush", (41, {"standard": (), "bound": True}), *([40] if refused else []), 41]
    assert (copy and (copy.pid, copy.pipe, copy.indices)) == (None if refused else (77, 40, [4, 5]))
