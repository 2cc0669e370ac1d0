"""Forks of this process, which has threads, a GPU and users' modules: what they give up, and when they pay.

Closes the descriptors that a forked process has inherited from its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from kerntune.base.frames import Reader, Timeout, send
from kerntune.errors import FrameError

SWITCH = "KERNTUNE_FORKS"
"""Environment variable for processes that can't be forked safely: with ``0`` no fork of this process does any work."""

FEWEST_CORES = 4
"""Where cores are fewer, what a fork would do costs this process as much."""

PR_SET_PDEATHSIG = 1
"""Of ``<linux/prctl.h>``: the signal that a process gets when the thread has ended that has forked it."""

MOST_RESIDENT = 8 << 30
"""Bytes that a process may hold and be forked: a fork copies 1/512 of that, its page tables."""


def may_fork() -> bool:
    """Whether a fork of this process may work: not with ``KERNTUNE_FORKS=0``, on few cores, or if it holds much."""
    if os.environ.get(SWITCH) == "0":
        return False
    return len(os.sched_getaffinity(0)) >= FEWEST_CORES and _resident() <= MOST_RESIDENT


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_LIBC = ctypes.PyDLL(None, use_errno=True)
_FORK = _LIBC.fork
_BEFORE = ctypes.pythonapi.PyOS_BeforeFork
_IN_PARENT, _IN_CHILD = ctypes.pythonapi.PyOS_AfterFork_Parent, ctypes.pythonapi.PyOS_AfterFork_Child
_CALL = type(_FORK).__call__


def fork_process() -> int:
    """``os.fork()`` by the calls that it consists of (Python's C API, "PyOS_BeforeFork"), without the warning of Python
    3.12 that there are threads: under ``-W error`` that makes ``os.fork()`` fail, and a filter for it would be one of
    the whole process, of which this may be any thread."""
    pids, known = itertools.tee(itertools.islice(map(_CALL, (_BEFORE, _FORK)), 1, None))
    finish = map({0: _IN_CHILD}.get, pids, itertools.repeat(_IN_PARENT))
    sys.audit("os.fork")
    # All of it in one step, so that no bytecode runs between: a child that was forked while a thread waited for
    # Python's lock would give that away and wait for the thread, which it doesn't have.
    list(map(_CALL, finish))
    pid = int(next(known))
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def fork(work: Callable[[], object], kept: int = -1, standard: Sequence[int] | None = None, bound: bool = False) -> int:
    """The process id of a fork of this process that leaves everything behind but descriptor ``kept``
    (:func:`leave_behind`), calls ``work`` and ends, with status 1 if that raised. It runs no exit handlers. If it is
    ``bound``, it is killed when this thread ends.

    ``OSError`` where no process can be had.
    """
    parent, pid = os.getpid(), fork_process()
    if pid:
        return pid
    code = 1
    try:
        if bound:
            die_with(parent)
        leave_behind(kept, standard)
        work()
        code = 0
    finally:
        os._exit(code)


def die_with(parent: int) -> None:
    """Have the system kill this process when the thread of process ``parent`` that started it ends; end it now if that
    process has ended already."""
    with contextlib.suppress(AttributeError):  # another system than Linux
        _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def leave_behind(kept: int, standard: Sequence[int] | None) -> None:
    """In a fork: keep descriptor ``kept`` alone; no signal handler, tracer or profiler; a process group of its own;
    collect nothing that was there, since it may hold memory of a GPU.

    ``standard`` has the descriptors that become standard input, output and error; if it is empty, they stay; if it is
    None, there is nothing to read and what is printed is lost.
    """
    gc.disable()
    gc.freeze()
    os.setsid()
    for tracing in (sys.settrace, sys.setprofile, threading.settrace, threading.setprofile):
        tracing(None)
    signal.set_wakeup_fd(-1)
    default_handlers()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, one in enumerate((nothing,) * 3 if standard is None else standard):
        os.dup2(one, number)
    if nothing > 2:  # else this process had no standard files
        os.close(nothing)
    close_from(3, kept)
    if standard is None:
        _LEFT.extend((sys.stdout, sys.stderr))  # what they hold must not be written: pytest's have lost their files
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
        pid = fork(lambda: send(write, work()), write, bound=True)
    except OSError:
        pid = 0
    os.close(write)
    reader: Reader[str] = Reader(read, str)
    try:
        return (reader.receive(Timeout(seconds)) or None) if pid else None
    except FrameError:
        return None
    finally:
        os.close(read)
        end(pid)


def end(pid: int) -> None:
    """Kill and reap a fork, unless it is reaped already; nothing for 0."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


MOST = 1 << 20
"""Linux's own limit of a process's descriptors (``fs.nr_open``), where the process's own limit is none or absurd."""


def close_from(low: int, kept: int) -> None:
    """Close every descriptor from ``low`` on but ``kept``: a pipe whose other end is open keeps its reader waiting.

    Their numbers stay taken, by the null device: objects of the parent that end later close them, and would close
    files that this process has opened since under the same number.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        taken = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # without /proc the numbers are not known
        limit = os.sysconf("SC_OPEN_MAX")
        os.close(nothing)
        for begin, end in ((low, kept), (max(low, kept + 1), limit if 0 < limit < MOST else MOST)):
            os.closerange(begin, end)
        return
    for number in taken:
        if number >= low and number not in (kept, nothing):
            with contextlib.suppress(OSError):  # the listing's own
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
