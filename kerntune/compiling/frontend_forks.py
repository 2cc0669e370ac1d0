"""Triton's front end in forked copies of this process, which alone has the kernels' Python: several at a time.

A copy never touches the GPU, writes its results to a pipe and ends after some tenths of a second. This process lowers
what a copy does not answer; a front end that crashes costs its request and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Union

import msgspec

from kerntune.base.frames import Reader, send
from kerntune.compiling.forking import SWITCH, end, fork
from kerntune.compiling.frontend import CompileRequest, Lowered, lower
from kerntune.compiling.protocol import Job
from kerntune.errors import FrameError

MAX_FORKS = 6
"""Copies at once. A fork of a process with torch and a CUDA context takes 5 to 10 ms, so few pay."""

EACH = 3
"""Requests for which a copy pays: a front end takes 15 to 40 ms."""

FORK_MS, LOWER_MS = 15, 25
"""About the time of a fork in this process, and of a front end in a copy."""

SILENCE_SECONDS = 10.0
"""A copy that sends nothing for so long hangs (a lock that another thread held when it was forked)."""

FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""Signals of a front end that crashed. Any other signal came from outside, and has nothing to do with the request."""


class ForkReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a copy for request ``index``; ``job`` is None if the front end raised."""

    index: int
    source_text: str
    job: Job | None


@dataclass(frozen=True)
class Crashed:
    """The front end crashed, and its process with it."""

    reason: str


FrontEndResult = Union[Lowered, Crashed, None]
"""None: no copy has tried, or the front end raised an exception, which it will raise again."""


@dataclass
class _Fork:
    pid: int
    pipe: int
    indices: list[int]
    reader: Reader[ForkReply]
    active: float = field(default_factory=time.monotonic)


def fork_count(requests: int) -> int:
    """How many copies pay for so many requests on this machine: none if cores are few or ``KERNTUNE_FORKS`` is 0."""
    if os.environ.get(SWITCH) == "0":
        return 0
    return min(MAX_FORKS, len(os.sched_getaffinity(0)) // 2, requests // EACH)


def lower_in_forks(requests: Sequence[CompileRequest], forks: int) -> Iterator[tuple[CompileRequest, FrontEndResult]]:
    """Each request once, when it is done; those that no copy has answered come last, with None."""
    copies: list[_Fork] = []
    alone: list[int] = []
    open_: dict[int, _Fork] = {}
    try:
        for indices in shares(len(requests), forks):
            try:
                copies.append(_start_fork(requests, indices))
            except OSError:  # the system refuses another copy: this process lowers its share
                alone += indices
            else:
                open_[copies[-1].pipe] = copies[-1]
                yield from _arrived(requests, open_, 0)  # the first copies work while others are forked
        while open_:
            yield from _arrived(requests, open_, 1000)
        for copy in copies:
            crashed = _how_fork_ended(copy)
            for index in copy.indices:
                yield requests[index], crashed
                crashed = None
        for index in alone:
            yield requests[index], None
    finally:
        for copy in copies:
            os.close(copy.pipe)
            end(copy.pid)


def shares(requests: int, forks: int) -> list[list[int]]:
    """Which requests each copy lowers: each request goes to the copy that is free first; copies start one by one."""
    found: list[list[int]] = [[] for _ in range(forks)]
    free = [k * FORK_MS for k in range(forks)]
    for index in range(requests):
        k = free.index(min(free))
        found[k].append(index)
        free[k] += LOWER_MS
    return found


def _arrived(
    requests: Sequence[CompileRequest], open_: dict[int, _Fork], ms: int
) -> Iterator[tuple[CompileRequest, FrontEndResult]]:
    """What arrives through the pipes within ``ms``; a pipe that is closed, or silent for too long, leaves ``open_``."""
    poll = select.poll()  # select() refuses descriptors from 1024 on
    for pipe in open_:
        poll.register(pipe, select.POLLIN)
    for pipe, _ in poll.poll(ms):
        copy = open_[pipe]
        copy.active = time.monotonic()
        try:
            replies = copy.reader.arrived()
        except FrameError:
            del open_[pipe]
            continue
        for reply in replies:
            copy.indices.remove(reply.index)
            request = requests[reply.index]
            yield request, None if reply.job is None else Lowered(request, reply.source_text, reply.job)
    for pipe, copy in list(open_.items()):
        if time.monotonic() - copy.active > SILENCE_SECONDS:
            del open_[pipe]


def _how_fork_ended(copy: _Fork) -> Crashed | None:
    """Reap a copy, if it has ended; its crash, if it was one."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            pid, status = os.waitpid(copy.pid, os.WNOHANG)
        except ChildProcessError:  # the program has reaped it itself; its number may be another process's by now
            copy.pid = 0
            return None
        if pid:
            copy.pid = 0
            fault = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            return Crashed(f"Triton's front end died ({signal.Signals(fault).name})") if fault in FAULTS else None
        time.sleep(0.001)
    return None


def _start_fork(requests: Sequence[CompileRequest], indices: list[int]) -> _Fork:
    read, write = os.pipe()
    _flush()
    try:
        pid = fork(lambda: _serve(write, requests, indices), write, standard=(), bound=True)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    return _Fork(pid, read, indices, Reader(read, ForkReply))


def _serve(write: int, requests: Sequence[CompileRequest], indices: list[int]) -> None:
    for index in indices:
        reply = ForkReply(index, "", None)
        with contextlib.suppress(Exception):
            lowered = lower(requests[index])
            reply = ForkReply(index, lowered.source_text, lowered.job)
        send(write, reply)
    _flush()


def _flush() -> None:
    """Print what is buffered, so that it is printed once; what a kernel prints while it is compiled, too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or none
            stream.flush()
