"""The parent's side: fresh processes, started at the first need, the next ones made ready meanwhile."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Protocol

from kerntune.backend.base import Executor
from kerntune.errors import MeasurementError, ReplayError
from kerntune.worker.messages import Failed, Message, PairReply, PairRequest, Ready, receive, send
from kerntune.worker.serve import answer

READY = 4
"""Processes kept ready: what one decision, or one calibration, needs."""

START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 300.0


class Pairs(Protocol):
    """Something that answers pair requests, each in a process of its own if it can."""

    def run(self, request: PairRequest) -> PairReply:
        """:class:`ReplayError` where no process could, :class:`MeasurementError` where this one couldn't."""

    def settle(self) -> None:
        """Wait for processes that are starting up: they would disturb what is measured meanwhile."""

    def close(self) -> None:
        """End every process."""


class LocalPairs:
    """Answers in this process, on a given device: for scripted devices."""

    def __init__(self, gpu: Executor | None) -> None:
        self._gpu = gpu

    def run(self, request: PairRequest) -> PairReply:
        """At once. Without a device there is nothing to run on."""
        if self._gpu is None:
            raise ReplayError("there is no device to replay on")
        return _checked(answer(self._gpu, request))

    def settle(self) -> None:
        """Nobody starts up."""

    def close(self) -> None:
        """Nothing to end."""


class Worker:
    """One process. Used for one request, then dropped: a fresh process has a fresh placement in memory."""

    def __init__(self, ordinal: int) -> None:
        root = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kerntune.worker", str(ordinal)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env, start_new_session=True,
        )  # fmt: skip
        self._ready = False

    def wait(self) -> None:
        """Until the process has its device."""
        if self._ready:
            return
        try:
            first = self._receive(START_TIMEOUT_S)
        except EOFError as exc:
            raise MeasurementError(f"a measuring process ended at its start: {self._last_words()}") from exc
        if not isinstance(first, Ready):
            raise MeasurementError(getattr(first, "message", "a measuring process did not start"))
        self._ready = True

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip() or f"exit code {self._process.poll()}"

    def ask(self, request: PairRequest) -> Message:
        """The reply; :class:`MeasurementError` if the process dies or hangs."""
        assert self._process.stdin is not None
        self.wait()
        try:
            send(self._process.stdin, request)  # type: ignore[arg-type]  # a pipe is a binary stream
            return self._receive(REQUEST_TIMEOUT_S)
        except (EOFError, BrokenPipeError) as exc:
            raise MeasurementError(f"a measuring process ended: {self._last_words()}") from exc

    def _receive(self, timeout: float) -> Message:
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise MeasurementError(f"a measuring process has not answered for {timeout:.0f} s")
        return receive(stdout)  # type: ignore[arg-type]  # a pipe is a binary stream

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class WorkerPool:
    """A queue of ready workers on one device."""

    def __init__(self, ordinal: int = 0) -> None:
        self._ordinal = ordinal
        self._ready: deque[Worker] = deque()

    def run(self, request: PairRequest) -> PairReply:
        """In a process that has done nothing before."""
        self._start()
        self.settle()
        worker = self._ready.popleft()
        try:
            return _checked(worker.ask(request))
        finally:
            worker.close()
            if not self._ready:
                self._start()

    def settle(self) -> None:
        """Nobody starts up on the device while something is measured there."""
        for waiting in self._ready:
            waiting.wait()

    def _start(self) -> None:
        if not self._ready:
            self._ready.extend(Worker(self._ordinal) for _ in range(READY))

    def close(self) -> None:
        """End every process."""
        while self._ready:
            self._ready.popleft().close()


def _checked(reply: Message) -> PairReply:
    if isinstance(reply, PairReply):
        return reply
    if isinstance(reply, Failed):
        raise (MeasurementError if reply.replayable else ReplayError)(reply.message)
    raise MeasurementError(f"a measuring process answered {type(reply).__name__}")
