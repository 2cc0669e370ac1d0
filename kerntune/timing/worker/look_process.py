"""The parent's side of first launches: a process that is asked with a time limit, and ended if it is late."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence

from kerntune.base.child_process import ChildEnded, ChildProcess, module_command
from kerntune.errors import FrameError, MeasurementError, PeerTimeout
from kerntune.gpu.visible import as_begun
from kerntune.timing.worker.look_requests import LookMessage, LooksRequest
from kerntune.timing.worker.requests import Ready

START_LIMIT_S = 60.0


class LookProcess:
    """One process. It starts at once, in another thread; ``device`` has the words for its device, ``file`` is the
    descriptor of staging memory that it inherits."""

    def __init__(self, device: Sequence[str], file: int) -> None:
        command = module_command("kerntune.timing.worker", "first-launches", str(os.getpid()), str(file), *device)
        self.child: ChildProcess[LookMessage] = ChildProcess(
            command, LookMessage, as_begun(os.environ), (file,), from_lasting_thread=True
        )
        self.asked = 0

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self.child.alive

    def wait(self) -> None:
        """Until it has its device. :class:`MeasurementError` if it can't have it."""
        try:
            first = self.child.ready(START_LIMIT_S)
        except FrameError as exc:
            raise MeasurementError(f"a process for first launches did not start: {exc}") from exc
        if not isinstance(first, Ready):
            raise MeasurementError(getattr(first, "message", "a process for first launches did not start"))

    def ask(self, request: LookMessage, limit_s: float) -> LookMessage:
        """The reply. :class:`ChildEnded` or :class:`PeerTimeout` if there is none; it can't be asked again then."""
        self.wait()
        self.asked += 1
        return self._reply(request, limit_s)

    def ask_each(self, request: LooksRequest, limit_s: Callable[[], float]) -> Generator[LookMessage, None, None]:
        """The replies in order, each within the limit of its time. As :meth:`ask`; without all of them, for whatever
        reason, the process is ended."""
        self.wait()
        self.asked += 1
        left, sending = len(request.looks), [request]
        try:
            while left:
                reply = self._reply(sending.pop() if sending else None, limit_s())
                left -= 1
                yield reply
        except GeneratorExit:
            if left:
                self.end(wait=False)
            raise

    def _reply(self, request: LookMessage | None, limit_s: float) -> LookMessage:
        try:
            return self.child.ask(request, limit_s)
        except (ChildEnded, PeerTimeout):
            raise
        except FrameError as exc:
            raise ChildEnded(f"its process wrote what is no answer: {exc}") from exc

    def end(self, wait: bool = True) -> float:
        """As :meth:`kerntune.base.child_process.ChildProcess.end`."""
        return self.child.end(wait)
