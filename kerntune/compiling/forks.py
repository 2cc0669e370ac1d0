"""Triton's front end in forked copies of this process, which alone has the kernels' Python: several at a time.

A copy never touches the GPU, writes what it made to a pipe and is gone after some tenths of a second. What it does not
answer, this process does itself; a front end that crashes costs its request and nothing else.
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
"""Requests that a copy is worth: a front end takes 15 to 40 ms."""

FORK_MS, LOWER_MS = 15, 25
"""What a fork takes this process, and a front end a copy, about."""

SILENCE_SECONDS = 10.0
"""A copy that says nothing for so long hangs (a lock that another thread held when it was forked)."""

FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""A front end's own deaths. Any other signal came from outside: Ctrl-C goes to copies as well, and says nothing of what
they were doing."""


class Front(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a copy made of request ``index``; no ``job`` if the front end raised."""

    index: int
    source_text: str
    job: Job | None


@dataclass(frozen=True)
class Crashed:
    """The front end took its process down."""

    reason: str


Fronted = Union[Lowered, Crashed, None]
"""None: nobody has tried, or the front end raised what it will raise again."""


@dataclass
class _Copy:
    """A forked process and the requests it was given, in order."""

    pid: int
    pipe: int
    indices: list[int]
    reader: Reader[Front]
    heard: float = field(default_factory=time.monotonic)


def fork_count(requests: int) -> int:
    """Copies that so many requests are worth on this machine: none where cores are few, or ``KERNTUNE_FORKS`` is 0."""
    if os.environ.get(SWITCH) == "0" or not hasattr(os, "fork"):
        return 0
    return min(MAX_FORKS, len(os.sched_getaffinity(0)) // 2, requests // EACH)


def lower_in_forks(requests: Sequence[CompileRequest], forks: int) -> Iterator[tuple[CompileRequest, Fronted]]:
    """Each request once, as it is done; those that no copy has answered come last, as None."""
    copies: list[_Copy] = []
    alone: list[int] = []
    open_: dict[int, _Copy] = {}
    try:
        for indices in shares(len(requests), forks):
            try:
                copies.append(_fork(requests, indices))
            except OSError:  # no memory or no process left for another copy: this process does its share
                alone += indices
            else:
                open_[copies[-1].pipe] = copies[-1]
                yield from _heard(requests, open_, 0)  # the first are at it while others are forked
        while open_:
            yield from _heard(requests, open_, 1000)
        for copy in copies:
            crashed = _ended(copy)
            for index in copy.indices:
                yield requests[index], crashed
                crashed = None
        for index in alone:
            yield requests[index], None
    finally:
        for copy in copies:
            _end(copy)


def shares(requests: int, forks: int) -> list[list[int]]:
    """Which requests each copy lowers: each goes to the one that comes to it first, and copies begin one by one."""
    found: list[list[int]] = [[] for _ in range(forks)]
    free = [k * FORK_MS for k in range(forks)]
    for index in range(requests):
        k = free.index(min(free))
        found[k].append(index)
        free[k] += LOWER_MS
    return found


def _heard(
    requests: Sequence[CompileRequest], open_: dict[int, _Copy], ms: int
) -> Iterator[tuple[CompileRequest, Fronted]]:
    """What comes through the pipes within ``ms``; one that is closed or silent for too long leaves ``open_``."""
    poll = select.poll()  # select() refuses descriptors from 1024 on
    for pipe in open_:
        poll.register(pipe, select.POLLIN)
    for pipe, _ in poll.poll(ms):
        copy = open_[pipe]
        copy.heard = time.monotonic()
        try:
            fronts = copy.reader.arrived()
        except FrameError:
            del open_[pipe]
            continue
        for front in fronts:
            copy.indices.remove(front.index)
            request = requests[front.index]
            yield request, None if front.job is None else Lowered(request, front.source_text, front.job)
    for pipe, copy in list(open_.items()):
        if time.monotonic() - copy.heard > SILENCE_SECONDS:
            del open_[pipe]


def _ended(copy: _Copy) -> Crashed | None:
    """Reap a copy, if it has ended; its crash, if it was one."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            pid, status = os.waitpid(copy.pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has reaped it; its number may be another process's by now
            copy.pid = 0
            return None
        if pid:
            copy.pid = 0
            return Crashed(_death(status)) if os.WIFSIGNALED(status) and os.WTERMSIG(status) in FAULTS else None
        time.sleep(0.001)
    return None


def _death(status: int) -> str:
    return f"Triton's front end died ({signal.Signals(os.WTERMSIG(status)).name})"


def _end(copy: _Copy) -> None:
    os.close(copy.pipe)
    end(copy.pid)


def _fork(requests: Sequence[CompileRequest], indices: list[int]) -> _Copy:
    read, write = os.pipe()
    _flush()
    try:
        pid = fork(lambda: _serve(write, requests, indices), write, standard=(), bound=True)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    return _Copy(pid, read, indices, Reader(read, Front))


def _serve(write: int, requests: Sequence[CompileRequest], indices: list[int]) -> None:
    for index in indices:
        send(write, _front(index, requests[index]))
    _flush()


def _flush() -> None:
    """What waits to be printed is printed once; what a kernel prints while it is compiled, too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or none
            stream.flush()


def _front(index: int, request: CompileRequest) -> Front:
    try:
        lowered = lower(request)
    except Exception:
        return Front(index, "", None)
    return Front(index, lowered.source_text, lowered.job)
