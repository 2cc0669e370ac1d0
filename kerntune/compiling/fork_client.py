"""The farm's end of a :mod:`kerntune.compiling.fork_server`: many worker processes at the cost of one import.

The server is a fork of this process where that is safe: it starts no interpreter and imports no Triton, which is
0.3 s of a first call. Elsewhere it is a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO, BinaryIO

from kerntune.base.frames import Reader, Timeout, receive_with, send_with
from kerntune.compiling import (  # all that the fork needs: an import in it could wait for another thread's lock
    compile_worker,
    fork_server,
)
from kerntune.compiling.fork_server import START_SECONDS
from kerntune.compiling.forking import fork, may_fork
from kerntune.compiling.protocol import READY, CompilerEnvironment, ForkRequest
from kerntune.errors import FrameError, PeerTimeout

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

    def serve() -> None:
        fork_server.main(descriptor, compile_worker.address_space(), HELPERS, BEGIN_SECONDS)

    begin = time.perf_counter()
    try:
        pid = fork(serve, descriptor)
    except OSError:
        return None
    own = OwnFork(pid)
    if time.perf_counter() - begin <= SLOW_SECONDS:
        return own
    own.kill()
    own.wait()
    return None


FORK_SECONDS = 10.0

_COMMAND = (
    "import gc, sys; gc.disable(); sys.path[:] = sys.argv[2:]; "
    "from kerntune.compiling.fork_server import main; main(int(sys.argv[1]))"
)
"""Without garbage collection, imports take a seventh less time; workers collect garbage again."""


class Child:
    """A forked worker, as :class:`kerntune.base.child_process.ChildProcess` uses it."""

    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, status: int) -> None:
        self.stdin, self.stdout, self._status = stdin, stdout, status
        self._told: Reader[int] = Reader(status, int)
        self.returncode: int | None = None
        self.pid = 0

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._status)

    def poll(self) -> int | None:
        """Its exit status if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, a signal's number negative; 1 if the fork server ended without sending it."""
        if self.returncode is None:
            try:
                self.returncode = self._told.receive(Timeout(timeout))
            except PeerTimeout as exc:
                raise subprocess.TimeoutExpired("a worker process", timeout or 0.0) from exc
            except FrameError:
                self.returncode = 1
        return self.returncode

    def let_go(self) -> None:
        """Close its standard input and output: it could not be had."""
        self.stdin.close()
        self.stdout.close()

    def learn_pid(self, seconds: float) -> None:
        """Receive its process id, which is sent first. :class:`FrameError` if it doesn't come within ``seconds``."""
        self.pid = self._told.receive(Timeout(seconds))


class ForkClient:
    """Starts a fork server in the background, and workers as its forks. Safe for several threads; a forked child must
    not use it.

    The server is a fork of this process where that may be (:func:`kerntune.compiling.forking.may_fork`), else, or if
    ``own_fork`` is false, a new one."""

    def __init__(self, surroundings: CompilerEnvironment, own_fork: bool | None = None) -> None:
        self.surroundings = surroundings
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._ended = False
        self._begin(may_fork() if own_fork is None else own_fork)

    def _begin(self, own_fork: bool) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            forked = fork_own_server(theirs.fileno()) if own_fork else None
            try:
                self._popen: OwnFork | subprocess.Popen[bytes] = forked or self._new_process(theirs)
            except OSError:
                self._ours.close()
                raise
        self._ready: bool | None = None

    def _new_process(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _COMMAND, str(theirs.fileno()), *sys.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # if it fails, new interpreters are started, and their errors are shown
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env={**os.environ, **dict(self.surroundings.env)},
        )

    def serves(self, surroundings: CompilerEnvironment) -> bool:
        """Whether the server can fork workers under these settings. Waits until it is ready."""
        if surroundings.env != self.surroundings.env or os.getpid() != self._pid:
            return False
        with self._lock:
            if self._ready is None:
                self._ready = self._says_ready()
                if not self._ready and isinstance(self._popen, OwnFork) and not self._ended:
                    self.close()
                    self._begin(own_fork=False)
                    self._ready = self._says_ready()
            return self._ready

    def fork(self, surroundings: CompilerEnvironment, memory: int, folder: str, stderr: IO[bytes]) -> Child | None:
        """A worker process; None if the server has none, and a new interpreter has to be started."""
        if not self.serves(surroundings):
            return None
        return self._forked(ForkRequest(memory, surroundings.knobs, folder), stderr.fileno())

    def _says_ready(self) -> bool:
        self._ours.settimeout(BEGIN_SECONDS if isinstance(self._popen, OwnFork) else START_SECONDS)
        try:
            return receive_with(self._ours, str) == (READY, [])
        except (OSError, FrameError):
            return False

    def _forked(self, request: ForkRequest, stderr: int) -> Child | None:
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        status_read, status_write = os.pipe()
        child = Child(os.fdopen(in_write, "wb"), os.fdopen(out_read, "rb"), status_read)
        try:
            send_with(self._ours, request, [in_read, out_write, stderr, status_write])
        except (OSError, FrameError):
            self._ready = False
            child.let_go()
            return None
        finally:
            for one in (in_read, out_write, status_write):
                os.close(one)
        try:
            child.learn_pid(FORK_SECONDS)
        except FrameError as exc:
            self._ready = self._ready and not isinstance(exc, PeerTimeout)
            child.let_go()
            return None
        return child

    def end_start(self) -> None:
        """From another thread: who waits until the server is ready goes on without one. One that is ready stays, for it
        tells how its workers end."""
        self._ended = True
        if self._ready is None and os.getpid() == self._pid:
            self._popen.kill()

    def close(self) -> None:
        """End the server. Its workers go on, but their exit statuses are lost."""
        self._ours.close()
        end = time.monotonic() + 1.0
        while self._popen.poll() is None and time.monotonic() < end and os.getpid() == self._pid:
            time.sleep(0.001)
        if self._popen.poll() is None and os.getpid() == self._pid:
            self._popen.kill()
            self._popen.wait()
