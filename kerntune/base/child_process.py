"""A child process that answers messages: it starts in a group of its own, is asked within a limit, and is ended whole.

The contract:

* A reply is whole within one limit, or the process is ended, also on Ctrl-C: a late reply must never be taken for that
  to the next request.
* It leads a session and a process group of its own: its end takes what it has started along, and Ctrl-C in the
  terminal doesn't reach it.
* An error names its exit status or signal; what it printed last is kept, also after its end.
* Messages are those of :mod:`kerntune.base.frames`: nothing is pickled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any, Generic, Protocol, TypeVar

from kerntune.base.frames import Reader, Timeout, encode, write
from kerntune.errors import PeerClosed, PeerTimeout

T = TypeVar("T")

END_LIMIT_S = 5.0
"""A killed process is gone after 0.05 s; one whose driver call doesn't return stays, whatever is waited."""

FIRST_WORDS, LAST_WORDS = 8 << 10, 64 << 10
"""Bytes of what a process has printed first and last that are read. MLIR prints a crashed pass's whole module between
the cause (``LLVM ERROR: out of memory``) and the pass's name. After the process's end, the last are kept."""

_ROOT = str(Path(__file__).resolve().parents[2])

_PROGRAM = (
    "import sys; root, module, count = sys.argv[1:4]; end = 4 + int(count); path = sys.argv[4:end]; "
    "sys.path[:] = [root, *path]; import kerntune; sys.path[:] = path; "
    "del sys.argv[1:end]; import runpy; runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def module_command(module: str, *words: str) -> list[str]:
    """A command that runs ``module`` of the kerntune that runs here, with this process's ``sys.path`` but for the
    working folder; ``words`` are its arguments.

    ``python -m`` searches the working folder before all others, ``PYTHONPATH`` included: in a checkout of another
    kerntune, or beside a folder of that name, it would run that one.
    """
    path = [str(entry) for entry in sys.path if entry]
    return [sys.executable, "-c", _PROGRAM, _ROOT, module, str(len(path)), *path, *words]


class ChildEnded(PeerClosed):
    """The process is gone; the message says how it ended, with the last line of ``words``, what it said last.

    ``code`` is its exit status, negative for a signal, and ``signal`` that signal's number; None where that isn't
    known or isn't so.
    """

    def __init__(self, message: str, code: int | None = None, words: str = "") -> None:
        super().__init__(message)
        self.code, self.words = code, words
        self.signal = -code if code is not None and code < 0 else None


class RunningProcess(Protocol):
    """The part of ``subprocess.Popen`` that :class:`ChildProcess` uses."""

    returncode: Any

    @property
    def pid(self) -> int:
        """Its process id, which is its group's."""

    @property
    def stdin(self) -> IO[bytes] | None:
        """The pipe that it reads."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """The pipe that it writes."""

    def poll(self) -> int | None:
        """Its exit status if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. ``subprocess.TimeoutExpired`` if it goes on."""


class ChildProcess(Generic[T]):
    """One process, whose messages are of ``message_kind``; used by one thread at a time.

    ``env`` replaces the environment, and ``pass_fds`` are descriptors that it inherits. ``fork`` gets the file for its
    standard error, and gives a process that leads a group already; where it gives None, ``command`` is run. What keeps
    it from starting is an ``OSError``.
    """

    def __init__(
        self,
        command: Sequence[str],
        message_kind: Any,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        fork: Callable[[IO[bytes]], RunningProcess | None] = lambda errors: None,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self.process = fork(self._errors) or subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env,
                pass_fds=pass_fds, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self._errors.close()
            raise
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.inbox, self._outbox = self.process.stdin, self.process.stdout
        self.messages: Reader[T] = Reader(self._outbox.fileno(), message_kind)
        self._printed, self._words = 0, b""
        self._first: T | None = None
        self._killed = self._ended = False

    @property
    def pid(self) -> int:
        """Also the number of its group."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not (self._killed or self._ended) and self.process.poll() is None

    def ready(self, limit_s: float, end_if_late: bool = True) -> T:
        """Its first message, which is waited for once. Errors as of :meth:`ask`."""
        if self._first is None:
            self._first = self.ask(None, limit_s, end_if_late)
        return self._first

    def ask(self, message: Any, limit_s: float, end_if_late: bool = True) -> T:
        """Send a message, unless it is None, and return the next one that comes, both within the limit.

        :class:`ChildEnded` if the process is gone, ``PeerTimeout`` if it is late, ``FrameError`` for what is no
        message. It has been ended then, and after Ctrl-C, which doesn't wait until it is gone. Only one that is late
        may go on, without ``end_if_late``. What :func:`kerntune.base.frames.encode` raises ends nothing.
        """
        return self.exchange(None if message is None else encode(message), limit_s, end_if_late)

    def exchange(self, frame: bytearray | None, limit_s: float, end_if_late: bool = True) -> T:
        """As :meth:`ask`, of an encoded message."""
        with self._ended_by_errors(end_if_late):
            limit = Timeout(limit_s)
            if frame is not None:
                write(self.inbox.fileno(), frame, limit)
            return self.messages.receive(limit)

    def tell(self, message: Any, limit_s: float) -> None:
        """Send a message that has no reply. Errors as of :meth:`ask`."""
        frame = encode(message)
        with self._ended_by_errors():
            write(self.inbox.fileno(), frame, Timeout(limit_s))

    @contextmanager
    def _ended_by_errors(self, end_if_late: bool = True) -> Iterator[None]:
        try:
            if self._killed or self._ended:
                raise ChildEnded("its process was ended before")
            try:
                yield
            except PeerClosed:
                raise self._how_it_ended() from None
        except KeyboardInterrupt:
            self.end(wait=False)
            raise
        except BaseException as exc:
            if end_if_late or not isinstance(exc, PeerTimeout):
                self.end()
            raise

    def _how_it_ended(self) -> ChildEnded:
        """One that closes its pipe is about to end."""
        try:
            code = self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return ChildEnded("its process closed its pipe")
        how, words = f"its process {how_it_ended(code)}", self.said().strip()
        return ChildEnded(f"{how}: {words.splitlines()[-1]}" if words else how, code, words)

    @property
    def printed(self) -> int:
        """Bytes that it has printed so far."""
        if not self._errors.closed:
            self._printed = os.fstat(self._errors.fileno()).st_size
        return self._printed

    def said(self, since: int = 0) -> str:
        """What it has printed from byte ``since`` on: of much how it begins and ends; of an ended process the end."""
        size = self.printed
        length = size - since
        if self._errors.closed:
            return self._words[max(len(self._words) - length, 0) :].decode(errors="replace")
        much = length > FIRST_WORDS + LAST_WORDS
        parts = [(FIRST_WORDS, since), (LAST_WORDS, size - LAST_WORDS)] if much else [(length, size - length)]
        return "\n".join(os.pread(self._errors.fileno(), *part).decode(errors="replace") for part in parts)

    def end(self, wait: bool = True) -> None:
        """Kill its group and wait until it is gone.

        A kernel that never ends is stopped when the driver takes its context down (0.05 s). A process that isn't gone
        after :data:`END_LIMIT_S` is left to the system. Without ``wait``, another thread waits.
        """
        if self._ended:
            return
        self._killed = True  # some time goes by before it is gone
        kill_group(self.pid)  # what it has started may live on without it, in its group
        if not wait and _in_background(self.end):
            return
        self._ended = True
        try:
            self._wait_until_gone()
        finally:
            self._close_files()

    def let_end(self, wait_s: float) -> None:
        """Close its pipes, so that it ends when it has done what is left, and wait for that up to ``wait_s``."""
        self._ended = True
        self._close_files()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_s)
        self.forget()

    def forget(self) -> None:
        """Close the pipes of a process that isn't waited for: one that ends by itself, or the child of the process that
        this one is a forked copy of."""
        self._ended = True
        self._close_files()
        if self.process.returncode is None:
            self.process.returncode = 0

    def _wait_until_gone(self) -> None:
        try:
            self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            _in_background(self.process.wait)

    def _close_files(self) -> None:
        if not self._errors.closed:
            size = self.printed
            self._words = os.pread(self._errors.fileno(), LAST_WORDS, max(0, size - LAST_WORDS))
        for file in (self._errors, self.inbox, self._outbox):
            with suppress(OSError):  # closing flushes what a dead process doesn't read
                file.close()


def kill_group(pid: int) -> None:
    """Kill a process that leads a group, and all that it has started there."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def how_it_ended(code: int) -> str:
    """An exit code of ``subprocess`` in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    names = {known.value: known.name for known in signal.Signals}
    return f"died ({names.get(-code, f'signal {-code}')})"


def _in_background(work: Callable[[], object]) -> bool:
    try:
        Thread(target=work, name="kerntune-child-end", daemon=True).start()
    except RuntimeError:  # no more threads, or the interpreter is ending
        return False
    return True
