"""A process that has imported Triton and forks compiling processes of itself: 16 imports at once take twice as long.

It has one thread, has compiled nothing and holds no user code. It sends each worker's process id and exit status
through the status pipe that came with the request.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from kerntune.base.frames import receive_with, send, send_with
from kerntune.base.orphans import process_end
from kerntune.compiling.forking import fork
from kerntune.compiling.protocol import DESCRIPTORS, READY, ForkRequest
from kerntune.errors import PeerClosed

START_SECONDS = 60.0
"""A new process that takes longer to import Triton is a broken installation."""


@dataclass(frozen=True)
class _Shared:
    """What the server and its helpers share: the socket, the process that sends requests, and the bytes of address
    space that :func:`kerntune.compiling.compile_worker.main` calls ``inherited``."""

    requests: socket.socket
    parent: int
    inherited: int


def main(descriptor: int, inherited: int = 0, helpers: int = 0, seconds: float = START_SECONDS) -> None:
    """Serve requests from a socket until it closes or the parent ends. ``inherited`` is as in
    :func:`kerntune.compiling.compile_worker.main`; ``helpers`` is the number of forks of the server that serve the same
    socket, for machines on which a fork takes long. A server that isn't ready within ``seconds`` ends: it may wait for
    a lock."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    parent = os.getppid()
    import triton  # noqa: F401 - what workers inherit
    from triton.compiler.compiler import make_backend  # noqa: F401

    from kerntune.compiling import compile_worker  # noqa: F401

    gc.freeze()  # what was imported is no garbage: workers needn't traverse it, which would copy its pages
    requests = socket.socket(fileno=descriptor)
    send_with(requests, READY)
    requests.setblocking(False)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _serve(_Shared(requests, parent, inherited), helpers)


def _serve(shared: _Shared, helpers: int) -> NoReturn:
    """Fork a worker for each request; after the first one, fork a helper that does the same, if there are helpers."""
    requests, wake, end = shared.requests, _wake_on_ends(), process_end(shared.parent)
    children: dict[int, int] = {}
    poll = select.poll()
    for one in (requests.fileno(), wake, *([] if end is None else [end])):
        poll.register(one, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if wake in ready:
            os.read(wake, 4096)
            _report_ends(children)
        if requests.fileno() in ready:
            try:
                request, descriptors = receive_with(requests, ForkRequest, DESCRIPTORS)
            except BlockingIOError:  # another helper took it
                continue
            except PeerClosed:
                os._exit(0)  # workers notice the end of their own pipes
            pid, status = _fork_worker(shared, request, descriptors)
            children[pid] = status
            _report(status, pid)
            if helpers and _is_helper():
                _close([wake, *children.values()])
                _serve(shared, helpers - 1)
            helpers = 0
        elif end in ready:
            os._exit(0)


def _fork_worker(shared: _Shared, request: ForkRequest, descriptors: list[int]) -> tuple[int, int]:
    *standard, status = descriptors
    pid = fork(lambda: _be_worker(shared, request), standard=standard)
    _close(standard)
    return pid, status


def _is_helper() -> bool:
    """Fork a helper; true in the helper. Where the system refuses the fork, there is none."""
    try:
        return not os.fork()
    except OSError:
        return False


def _close(descriptors: Sequence[int]) -> None:
    for one in descriptors:
        os.close(one)


def _wake_on_ends() -> int:
    """A pipe that can be read when a child has ended."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def _report_ends(children: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            if pid in children:  # else it was a helper
                _report(children[pid], os.waitstatus_to_exitcode(status))
                os.close(children.pop(pid))


def _report(pipe: int, number: int) -> None:
    with contextlib.suppress(PeerClosed):
        send(pipe, number)


def _be_worker(shared: _Shared, request: ForkRequest) -> None:
    from kerntune.compiling.compile_worker import main as work

    gc.enable()
    work(request.memory, request.knobs, request.folder, shared.parent, shared.inherited)
