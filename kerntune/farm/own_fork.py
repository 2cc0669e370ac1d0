"""A nest that is a fork of this process: no interpreter to start and no Triton to import: 0.3 s of a first call.

It has this process's modules, and nothing of its GPU, threads, descriptors, signal handlers and exit handlers. What it
shares of memory is copied page by page as this process goes on writing, so a process that holds much is not forked.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import threading
import time
import warnings
from typing import NoReturn

from kerntune.farm import nest, worker  # all that a nest needs: whoever imports could wait for another thread's lock
from kerntune.farm.descriptors import close_from
from kerntune.farm.forks import SWITCH

FEWEST_CORES = 4
"""Where cores are fewer, the front end doesn't run in forks either."""

MOST_RESIDENT = 8 << 30
"""Bytes that a process may hold and be forked: page tables are 1/512 of that, and every worker has its own."""

SLOW_SECONDS = 0.1
"""A fork takes 10 to 20 ms with torch and a CUDA context. Where it takes longer, 16 more would, too."""

SOCKET = 3
"""The nest's descriptor of the socket; all above are closed."""


class OwnFork:
    """A forked process, with the part of ``subprocess.Popen`` that a nursery uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status if it has ended."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._reap(0)

    def kill(self) -> None:
        """End it."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # somebody else has reaped it
                self.returncode = 0
        return self.returncode


def may_fork() -> bool:
    """Whether a fork of this process may compile: not with ``KERNTUNE_FORKS=0``, on few cores, or if it holds much."""
    if os.environ.get(SWITCH) == "0" or not hasattr(os, "fork"):
        return False
    return len(os.sched_getaffinity(0)) >= FEWEST_CORES and _resident() <= MOST_RESIDENT


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def fork_nest(descriptor: int) -> OwnFork | None:
    """A fork of this process that serves a nest's requests from a socket; None if it can't be had cheaply."""
    begin = time.perf_counter()
    # 3.12 warns of threads; see the module's docstring and that of kerntune.farm.forks
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=re.escape(__name__))
    try:
        pid = os.fork()
    except OSError:
        return None
    if not pid:
        _be_nest(descriptor)
    own = OwnFork(pid)
    if time.perf_counter() - begin <= SLOW_SECONDS:
        return own
    own.kill()
    own.wait()
    return None


def _be_nest(descriptor: int) -> NoReturn:
    """In the fork: never returns, and runs nobody's exit handlers."""
    try:
        gc.disable()  # what this process has left uncollected may hold memory of its GPU
        gc.freeze()
        os.setsid()
        _forget_callbacks()
        _forget_descriptors(descriptor)
        nest.main(SOCKET, worker.address_space())
    finally:
        os._exit(1)


def _forget_callbacks() -> None:
    """No signal handler, tracer or profiler of the process that was forked."""
    sys.settrace(None)
    sys.setprofile(None)
    threading.settrace(None)
    threading.setprofile(None)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _forget_descriptors(kept: int) -> None:
    """Only ``kept``, as :data:`SOCKET`, and nothing to read from or to print to."""
    if kept != SOCKET:
        os.dup2(kept, SOCKET)
    close_from(SOCKET + 1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(SOCKET):
        os.dup2(nothing, standard)
    os.close(nothing)
