"""A fork server that is a fork of this process: it starts no interpreter and imports no Triton, 0.3 s of a first call.

It has this process's modules, and nothing of its GPU, threads, descriptors, signal handlers and exit handlers. Memory
that both share is copied page by page as this process writes to it, so a process that holds much is not forked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from kerntune.compiling import (  # all that the fork needs: an import in it could wait for another thread's lock
    compile_worker,
    fork_server,
)
from kerntune.compiling.forking import fork

SLOW_SECONDS = 0.1
"""A fork takes 10 to 20 ms with torch and a CUDA context. Where it takes longer, 16 more forks would, too."""


BEGIN_SECONDS = 2.0
"""The fork is ready at once, or waits for a lock that another thread held."""

HELPERS = 2
"""Forks of the server that fork workers as well: the server alone takes a quarter of a second for sixteen."""


class OwnFork:
    """A forked process, with the part of ``subprocess.Popen`` that the fork client uses."""

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
        """End it, and its helpers with it: they are of its process group, workers are not."""
        if self.returncode is None:
            for end, number in ((os.killpg, self.pid), (os.kill, self.pid)):  # it may not have its group yet
                with contextlib.suppress(ProcessLookupError):
                    end(number, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # the program has reaped it itself
                self.returncode = 0
        return self.returncode


def fork_own_server(descriptor: int) -> OwnFork | None:
    """A fork of this process that serves requests for workers from a socket; None if a fork takes long or fails."""
    begin = time.perf_counter()
    try:
        pid = fork(
            lambda: fork_server.main(descriptor, compile_worker.address_space(), HELPERS, BEGIN_SECONDS), descriptor
        )
    except OSError:
        return None
    own = OwnFork(pid)
    if time.perf_counter() - begin <= SLOW_SECONDS:
        return own
    own.kill()
    own.wait()
    return None
