"""The parent's side: processes that start when needed, get requests in turn, and are replaced after some requests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kerntune.base.frames import Reader, Timeout, send
from kerntune.errors import FrameError, MeasurementError, PeerClosed, PeerTimeout, ReplayError
from kerntune.gpu.base import Executor
from kerntune.gpu.visible import as_begun
from kerntune.timing.worker.module_command import module_command
from kerntune.timing.worker.requests import Message, PairReply, PairRequest, Ready, RequestFailed
from kerntune.timing.worker.serve import answer

READY = 3
"""Processes that start anew together: as many as one decision needs first."""

REQUESTS = 10
"""Requests that one process serves. Memory and code are laid out anew for each
(:mod:`kerntune.timing.worker.layout`); then those of one process differ as those of several do
(``benchmarks/results/process_reuse_h200.json``)."""

START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 300.0


class Pairs(Protocol):
    """Answers pair requests, in several processes where possible."""

    def expect(self, count: int) -> None:
        """A decision makes ``count`` requests in all: let each be answered by another process."""

    def run(self, request: PairRequest) -> PairReply:
        """The reply. :class:`ReplayError` if no process can give one, :class:`MeasurementError` if this one can't."""

    def settle(self) -> None:
        """Wait for processes that are starting: they would disturb a measurement."""

    def close(self) -> None:
        """End every process."""


class LocalPairs:
    """Answers in this process, on a given device: for scripted devices."""

    def __init__(self, gpu: Executor | None) -> None:
        self._gpu = gpu

    def expect(self, count: int) -> None:
        """Nothing: this process answers every request."""

    def run(self, request: PairRequest) -> PairReply:
        """At once. Without a device there is nothing to run on."""
        if self._gpu is None:
            raise ReplayError("there is no device to replay on")
        return _checked(answer(self._gpu, request))

    def settle(self) -> None:
        """Nothing: no process starts."""

    def close(self) -> None:
        """Nothing: there is no process to end."""


class Worker:
    """One process. ``asked`` counts its requests."""

    def __init__(self, ordinal: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            module_command("kerntune.timing.worker", str(ordinal)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=as_begun(os.environ), start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._reader: Reader[Message] = Reader(self._process.stdout.fileno(), Message)
        self._ready = False
        self.asked = 0

    def wait(self) -> None:
        """Wait until the process has its device."""
        if self._ready:
            return
        first = self._exchange(None, START_TIMEOUT_S)
        if not isinstance(first, Ready):
            raise MeasurementError(getattr(first, "message", "a measuring process did not start"))
        self._ready = True

    def ask(self, request: PairRequest) -> Message:
        """The reply; :class:`MeasurementError` if the process dies or hangs."""
        self.wait()
        self.asked += 1
        return self._exchange(request, REQUEST_TIMEOUT_S)

    def _exchange(self, request: PairRequest | None, seconds: float) -> Message:
        """Send a request, if there is one, and receive the next message, both within ``seconds``."""
        limit = Timeout(seconds)
        try:
            if request is not None:
                assert self._process.stdin is not None
                send(self._process.stdin.fileno(), request, limit)
            return self._reader.receive(limit)
        except PeerTimeout as exc:
            raise MeasurementError(f"a measuring process has not answered for {seconds:.0f} s") from exc
        except PeerClosed as exc:
            when = "" if self._ready else " at its start"
            raise MeasurementError(f"a measuring process ended{when}: {self._last_words()}") from exc
        except FrameError as exc:
            raise MeasurementError(f"nothing can be measured in another process: {exc}") from exc

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip() or f"exit code {self._process.poll()}"

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
    """Workers on one device that get requests in turn, up to ``requests`` each; one that fails is ended at once."""

    def __init__(self, ordinal: int = 0, requests: int = REQUESTS, start: Callable[[int], Worker] = Worker) -> None:
        self._ordinal, self._requests, self._start = ordinal, requests, start
        self._workers: deque[Worker] = deque()
        self._broken = ""

    def expect(self, count: int) -> None:
        """Start missing workers, at once. They get the next requests: the others may have answered some already."""
        for _ in range(count - len(self._workers)):
            self._workers.appendleft(self._start(self._ordinal))

    def run(self, request: PairRequest) -> PairReply:
        """Send a request to the process whose last one is longest ago."""
        self.expect(1)
        self.settle()
        if not self._workers:
            raise MeasurementError(self._broken)
        worker = self._workers.popleft()
        try:
            reply = _checked(worker.ask(request))
        except BaseException:
            worker.close()
            raise
        self._back(worker)
        return reply

    def _back(self, worker: Worker) -> None:
        """Keep a worker that may serve again. When the last one is used up, others start while the caller goes on."""
        if worker.asked < self._requests:
            self._workers.append(worker)
            return
        worker.close()
        if not self._workers:
            self.expect(READY)

    def settle(self) -> None:
        """Wait for workers that are starting, so that none starts on the device during a measurement."""
        for worker in tuple(self._workers):
            try:
                worker.wait()
            except MeasurementError as exc:
                self._broken = str(exc)
                self._workers.remove(worker)
                worker.close()

    def close(self) -> None:
        """End every process."""
        while self._workers:
            self._workers.popleft().close()


def _checked(reply: Message) -> PairReply:
    if isinstance(reply, PairReply):
        return reply
    if isinstance(reply, RequestFailed):
        raise (MeasurementError if reply.replayable else ReplayError)(reply.message)
    raise MeasurementError(f"a measuring process answered {type(reply).__name__}")
