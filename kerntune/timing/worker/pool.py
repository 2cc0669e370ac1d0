"""The parent's side: processes that start when needed, get requests in turn, and are replaced after some requests."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial

from kerntune.base.child_process import ChildEnded, ChildProcess, module_command
from kerntune.errors import FrameError, MeasurementError, PeerTimeout, ReplayError
from kerntune.gpu.base import Executor
from kerntune.gpu.cuda_driver import visible_env
from kerntune.timing.worker.requests import Message, PairReply, PairRequest, Ready, RequestFailed
from kerntune.timing.worker.serve import answer

READY = 3
"""Processes that start anew together: as many as one decision needs first."""

REQUESTS = 10
"""Requests that one process serves. Memory and code are laid out anew for each
(:mod:`kerntune.timing.worker.serve`); then those of one process differ as those of several do
(``benchmarks/results/process_reuse_h200.json``)."""

START_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 300.0


class Pairs:
    """Answers pair requests, in several processes where possible."""

    def expect(self, count: int) -> None:
        """A decision makes ``count`` requests in all: let each be answered by another process."""

    def run(self, request: PairRequest) -> PairReply:
        """The reply. :class:`ReplayError` if no process can give one, :class:`MeasurementError` if this one can't."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait for processes that are starting: they would disturb a measurement."""

    def close(self) -> None:
        """End every process."""


class LocalPairs(Pairs):
    """Answers in this process, on a given device: for scripted devices. There is nothing to start or to end."""

    def __init__(self, gpu: Executor) -> None:
        self._gpu = gpu

    def run(self, request: PairRequest) -> PairReply:
        """At once."""
        return _checked(answer(self._gpu, request))


class Worker:
    """One process. ``asked`` counts its requests."""

    def __init__(self, ordinal: int) -> None:
        command = module_command("kerntune.timing.worker", str(ordinal))
        self._child: ChildProcess[Message] = ChildProcess(command, Message, visible_env(os.environ))
        self.asked = 0

    def wait(self) -> None:
        """Wait until the process has its device."""
        first = self._told(self._child.ready, START_TIMEOUT_S, " at its start")
        if not isinstance(first, Ready):
            raise MeasurementError(getattr(first, "message", "a measuring process did not start"))

    def ask(self, request: PairRequest) -> Message:
        """The reply; :class:`MeasurementError` if the process dies or hangs."""
        self.wait()
        self.asked += 1
        return self._told(partial(self._child.ask, request), REQUEST_TIMEOUT_S)

    def _told(self, asks: Callable[[float], Message], seconds: float, when: str = "") -> Message:
        try:
            return asks(seconds)
        except PeerTimeout as exc:
            raise MeasurementError(f"a measuring process has not answered for {seconds:.0f} s") from exc
        except ChildEnded as exc:
            raise MeasurementError(f"a measuring process ended{when}: {exc.words[-2000:] or exc}") from exc
        except FrameError as exc:
            raise MeasurementError(f"nothing can be measured in another process: {exc}") from exc

    def close(self) -> None:
        """End the process."""
        self._child.end()


class WorkerPool(Pairs):
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
        if worker.asked < self._requests:
            self._workers.append(worker)
        else:
            worker.close()
        if not self._workers:
            self.expect(READY)  # they start while the caller goes on
        return reply

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
