"""The parent's side of first looks: a process in a group of its own, asked with a time limit, killed if it is late."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import IO

from kerntune.base.frames import Reader, Timeout, send
from kerntune.compiling.fault import signal_name
from kerntune.errors import FrameError, KerntuneError, MeasurementError, PeerClosed, PeerTimeout
from kerntune.gpu.visible import as_begun
from kerntune.timing.worker.look_requests import LookMessage, LooksRequest
from kerntune.timing.worker.module_command import module_command
from kerntune.timing.worker.requests import Ready

START_LIMIT_S = 60.0
CLOSE_LIMIT_S = 5.0
"""A killed process is gone after 0.05 s; one whose driver call doesn't return stays, whatever is waited."""

LAST_WORDS = 4000
"""Bytes of what a process has printed last that are kept."""


class ProcessEnded(KerntuneError):
    """The process is gone; the message says how it ended and what it said last. ``signal`` is the number of the signal
    that ended it; None if it exited by itself or that isn't known."""

    def __init__(self, message: str, signal: int | None = None) -> None:
        super().__init__(message)
        self.signal = signal


class ProcessLate(KerntuneError):
    """The process has not answered within its limit; it is to be closed."""


@lru_cache(maxsize=1)
def _starter(pid: int) -> SimpleQueue[Callable[[], object]]:
    """What a thread runs that lasts as long as this process (``pid``), also after its main thread: a child that dies
    with its parent dies with the very thread that started it (prctl(2), ``PR_SET_PDEATHSIG``). ``RuntimeError`` if no
    thread can be had."""
    queue: SimpleQueue[Callable[[], object]] = SimpleQueue()
    threading.Thread(target=_run_all, args=(queue,), name="kerntune-looks", daemon=True).start()
    return queue


def _run_all(queue: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        queue.get()()


class LookProcess:
    """One process. It starts at once, in another thread; ``device`` has the words for its device, ``file`` is the
    descriptor of staging memory that it inherits."""

    def __init__(self, device: Sequence[str], file: int) -> None:
        self._errors: IO[bytes] | None = None
        self._started: Future[subprocess.Popen[bytes]] = Future()
        start = partial(self._start, tuple(device), file)
        try:
            _starter(os.getpid()).put(start)
        except RuntimeError:
            start()  # it ends with this thread
        self._reader: Reader[LookMessage] | None = None
        self._ready = self._killed = self._closed = False
        self._closing_s = 0.0
        self.asked = 0

    def _start(self, device: Sequence[str], file: int) -> None:
        try:
            self._started.set_result(self._popen(device, file))
        except Exception as exc:  # the next use of the process raises it
            self._started.set_exception(exc)

    def _popen(self, device: Sequence[str], file: int) -> subprocess.Popen[bytes]:
        command = module_command("kerntune.timing.worker.look_main", str(os.getpid()), str(file), *device)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=as_begun(os.environ),
            pass_fds=(file,), start_new_session=True,
        )  # fmt: skip

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        """Once it has started. :class:`ProcessEnded` if it can't."""
        failure = self._started.exception()
        if failure is not None:
            raise ProcessEnded(f"no process can be started ({failure})")
        return self._started.result()

    @property
    def pid(self) -> int:
        """Also the number of its group. :class:`ProcessEnded` if it could not start."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        if self._killed or self._closed or self._started.exception() is not None:
            return False
        return self._process.poll() is None

    def wait(self) -> None:
        """Until it has its device. :class:`MeasurementError` if it can't have it."""
        if self._ready:
            return
        try:
            first = self._exchange(None, START_LIMIT_S)
        except (ProcessEnded, ProcessLate) as exc:
            raise MeasurementError(f"a process for first looks did not start: {exc}") from exc
        if not isinstance(first, Ready):
            raise MeasurementError(getattr(first, "message", "a process for first looks did not start"))
        self._ready = True

    def ask(self, request: LookMessage, limit_s: float) -> LookMessage:
        """The reply. :class:`ProcessEnded` or :class:`ProcessLate` if there is none; it can't be asked again then."""
        self.wait()
        self.asked += 1
        return self._exchange(request, limit_s)

    def ask_each(self, request: LooksRequest, limit_s: Callable[[], float]) -> Generator[LookMessage, None, None]:
        """The replies in order, each within the limit of its time. As :meth:`ask`; without all of them, for whatever
        reason, the process is closed."""
        self.wait()
        self.asked += 1
        left, sending = len(request.looks), [request]
        try:
            while left:
                reply = self._exchange(sending.pop() if sending else None, limit_s())
                left -= 1
                yield reply
        except GeneratorExit:
            if left:
                self.end_behind()
            raise

    def _exchange(self, request: LookMessage | None, limit_s: float) -> LookMessage:
        """Send a request, if there is one, and receive the next message, both within the limit.

        Without a whole reply, for whatever reason (Ctrl-C, a test's time limit), the process is closed: it may never
        answer, and a later reply would be taken for that to the next request. Ctrl-C doesn't wait until it is gone.
        """
        try:
            return self._exchanged(request, limit_s)
        except KeyboardInterrupt:
            self.end_behind()
            raise
        except BaseException:
            self.close()
            raise

    def _exchanged(self, request: LookMessage | None, limit_s: float) -> LookMessage:
        if self._killed or self._closed:
            raise ProcessEnded("its process was ended before")
        process, limit = self._process, Timeout(limit_s)
        try:
            if request is not None:
                assert process.stdin is not None
                send(process.stdin.fileno(), request, limit)
            return self._messages().receive(limit)
        except PeerTimeout as exc:
            raise ProcessLate(f"no answer within {limit_s:.1f} s") from exc
        except PeerClosed:
            raise self._end() from None
        except FrameError as exc:
            raise ProcessEnded(f"its process wrote what is no answer: {exc}") from exc

    def _messages(self) -> Reader[LookMessage]:
        if self._reader is None:
            stdout = self._process.stdout
            assert stdout is not None
            self._reader = Reader(stdout.fileno(), LookMessage)
        return self._reader

    def _end(self) -> ProcessEnded:
        """How it ended. One that closes its pipe is about to."""
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return ProcessEnded("its process closed its pipe")
        how = (
            f"its process was ended by {signal_name(-code)}" if code < 0 else f"its process ended with exit code {code}"
        )
        said = self.last_words().splitlines()
        return ProcessEnded(f"{how}: {said[-1]}" if said else how, -code if code < 0 else None)

    def last_words(self) -> str:
        """What it has printed last."""
        if self._errors is None or self._errors.closed:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - LAST_WORDS))
        return self._errors.read().decode(errors="replace").strip()

    def end_behind(self) -> None:
        """As :meth:`close`, but for the waiting, which another thread does: a context takes 0.05 s to be taken down."""
        self._kill()
        if not _behind(self.close):
            self.close()

    def close(self) -> float:
        """Kill its group, and wait until it is gone; the seconds that took: a kernel that never ends is stopped when
        the driver takes its context down. One that isn't gone after some seconds is left to the system. Closed again,
        it returns the same at once."""
        if self._closed:
            return self._closing_s
        begin, self._closed = time.monotonic(), True
        try:
            self._kill()
            self._wait_until_gone()
        finally:
            self._closing_s = time.monotonic() - begin
            self._close_files()
        return self._closing_s

    def _kill(self) -> None:
        self._killed = True  # some time goes by before it is gone
        if self._started.exception() is None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _wait_until_gone(self) -> None:
        if self._started.exception() is None:
            try:
                self._process.wait(CLOSE_LIMIT_S)
            except subprocess.TimeoutExpired:
                _behind(self._process.wait)

    def _close_files(self) -> None:
        pipes = () if self._started.exception() is not None else (self._process.stdin, self._process.stdout)
        for file in (self._errors, *pipes):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


def _behind(work: Callable[[], object]) -> bool:
    """Do some work while the caller goes on; whether a thread for it could be had."""
    try:
        threading.Thread(target=work, name="kerntune-looks-end", daemon=True).start()
    except RuntimeError:  # no more threads, or the interpreter is ending
        return False
    return True
