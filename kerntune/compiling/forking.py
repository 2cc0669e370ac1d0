"""Forks of this process, which has threads, a GPU and users' modules: what they leave behind, and when they pay."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from kerntune.compiling.descriptors import close_from

SWITCH = "KERNTUNE_FORKS"
"""Environment variable for processes that can't be forked safely: with ``0`` none of this one's forks does any work."""

FEWEST_CORES = 4
"""Where cores are fewer, what a fork would do costs this process as much."""

MOST_RESIDENT = 8 << 30
"""Bytes that a process may hold and be forked: a fork copies 1/512 of that, its page tables."""


def may_fork() -> bool:
    """Whether a fork of this process may work: not with ``KERNTUNE_FORKS=0``, on few cores, or if it holds much."""
    if os.environ.get(SWITCH) == "0" or not hasattr(os, "fork"):
        return False
    return len(os.sched_getaffinity(0)) >= FEWEST_CORES and _resident() <= MOST_RESIDENT


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_LIBC = ctypes.PyDLL(None, use_errno=True)


def fork() -> int:
    """``os.fork()`` by the calls that it consists of (Python's C API, "PyOS_BeforeFork"), without the warning of Python
    3.12 that there are threads: no caller waits for ever for what a fork does. A filter of warnings would be one of the
    whole process, and this may be any of its threads."""
    sys.audit("os.fork")
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_LIBC.fork())
    (ctypes.pythonapi.PyOS_AfterFork_Parent if pid else ctypes.pythonapi.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def leave_behind(kept: int) -> None:
    """In a fork: keep descriptor ``kept`` alone, and nothing to read from or to print to; no signal handler, tracer or
    profiler; collect nothing that was there, since it may hold memory of a GPU."""
    gc.disable()
    gc.freeze()
    os.setsid()
    for tracing in (sys.settrace, sys.setprofile, threading.settrace, threading.setprofile):
        tracing(None)
    signal.set_wakeup_fd(-1)
    default_handlers()
    close_from(3, kept)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.close(nothing)
    _LEFT.extend((sys.stdout, sys.stderr))  # pytest's say: their files are gone, and what they hold must not be written
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115


def default_handlers() -> None:
    """No signal is handled any more, by Python or by C: LLVM's and faulthandler's handlers of crashes can wait for ever
    in a fork, where the thread that holds their lock is not."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is not signal.SIG_IGN:  # Python doesn't know of handlers in C
            with contextlib.suppress(OSError, ValueError):  # the C library's own
                signal.signal(number, signal.SIG_DFL)


_LEFT: list[object] = []
"""What a fork must not end: it would flush into descriptors that aren't its own."""


def text_of_fork(work: Callable[[], str], seconds: float) -> str | None:
    """What ``work()`` gives in a fork, where no other thread of this process holds Python's lock; None if there is no
    fork to be had, or it gives nothing within so many seconds."""
    read, write = os.pipe()
    try:
        pid = fork()
    except OSError:
        pid = -1
    if not pid:
        _answer(work, write)
    os.close(write)
    text = _read_all(read, time.monotonic() + seconds) if pid > 0 else b""
    os.close(read)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if pid > 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return text.decode() or None


def _answer(work: Callable[[], str], write: int) -> None:
    try:
        leave_behind(write)
        with os.fdopen(write, "w") as pipe:
            pipe.write(work())
    finally:
        os._exit(0)


def _read_all(pipe: int, end: float) -> bytes:
    """Until the other end is closed; nothing if that takes too long."""
    found, poll = bytearray(), select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(max(0.0, 1000 * (end - time.monotonic()))):
        data = os.read(pipe, 1 << 16)
        if not data:
            return bytes(found)
        found += data
    return b""
