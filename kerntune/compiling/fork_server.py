"""A process that has imported Triton and forks compiling processes of itself: 16 imports at once take twice as long.

It has one thread, has compiled nothing and knows no user code. It tells each child's end to whoever asked for it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import NoReturn

STATUS = struct.Struct("<i")
"""On a child's status pipe: its process id first, its exit status (a signal is negative) at its end."""

MAX_MESSAGE = 1 << 16
PIPES = 4
"""Descriptors that come with a request: standard input, output and error of the child, and its status pipe."""


def main(descriptor: int, inherited: int = 0, helpers: int = 0) -> None:
    """Serve requests from a socket until it closes. ``inherited`` as in
    :func:`kerntune.compiling.compile_worker.main`; so many ``helpers``, forks as well, serve them too, for where a
    fork takes long."""
    import triton  # noqa: F401 - what children are to have
    from triton.compiler.compiler import make_backend  # noqa: F401

    from kerntune.compiling import compile_worker  # noqa: F401

    gc.freeze()  # what was imported is no garbage: children needn't go through it, and copy its pages
    asked = socket.socket(fileno=descriptor)
    asked.send(b"ready")
    asked.setblocking(False)
    _serve(asked, inherited, helpers)


def _serve(asked: socket.socket, inherited: int, helpers: int) -> NoReturn:
    """Fork a worker for each request; after the first, a helper that does the same, if there are to be any."""
    wake = _wake_on_ends()
    children: dict[int, int] = {}
    poll = select.poll()
    for one in (asked.fileno(), wake):
        poll.register(one, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if wake in ready:
            os.read(wake, 4096)
            _tell_ends(children)
        if asked.fileno() in ready:
            found = _request(asked)
            if found is None:
                continue
            message, descriptors = found
            if not message:
                os._exit(0)  # children see the end of their own pipes
            pid, status = _fork_worker(message, descriptors, inherited)
            children[pid] = status
            _tell(status, pid)
            if helpers and _is_helper():
                _close([wake, *children.values()])
                _serve(asked, inherited, helpers - 1)
            helpers = 0


def _request(asked: socket.socket) -> tuple[bytes, list[int]] | None:
    """A message and its descriptors; None where another one has taken it. The socket must not block: ``recv_fds`` takes
    flags and ignores them (CPython 3.11 for one), so with ``MSG_DONTWAIT`` it would wait for ever."""
    try:
        message, descriptors, _, _ = socket.recv_fds(asked, MAX_MESSAGE, PIPES)
    except BlockingIOError:
        return None
    return message, descriptors


def _fork_worker(message: bytes, descriptors: list[int], inherited: int) -> tuple[int, int]:
    """A worker's process id and its status pipe."""
    pid = os.fork()
    if not pid:
        _be_worker(json.loads(message), descriptors, inherited)
    *standard, status = descriptors
    _close(standard)
    return pid, status


def _is_helper() -> bool:
    """Fork a helper; true in the helper. Where there is no fork to be had, there is none."""
    try:
        return not os.fork()
    except OSError:
        return False


def _close(descriptors: Sequence[int]) -> None:
    for one in descriptors:
        os.close(one)


def _wake_on_ends() -> int:
    """A pipe that says when a child has ended."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def _tell_ends(children: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            if pid in children:  # else it was a helper
                _tell(children[pid], os.waitstatus_to_exitcode(status))
                os.close(children.pop(pid))


def _tell(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, STATUS.pack(number))


def _be_worker(wanted: dict[str, str], descriptors: list[int], inherited: int) -> NoReturn:
    """In a child: a process group of its own, the given pipes for standard ones, nothing else of its parent's."""
    from kerntune.compiling.compile_worker import main as work
    from kerntune.compiling.descriptors import close_from

    code = 1
    try:
        gc.enable()
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, one in enumerate(descriptors[:3]):
            os.dup2(one, number)
        close_from(3)
        os.environ["TMPDIR"], tempfile.tempdir = wanted["folder"], None
        work(int(wanted["memory"]), wanted["knobs"], inherited)
        code = 0
    finally:
        os._exit(code)
