"""The parent's side of first launches: a process that is asked with a time limit, and ended if it is late."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence

from kerntune.base.child_process import ChildEnded, ChildProcess, module_command
from kerntune.errors import FrameError, MeasurementError, PeerTimeout
from kerntune.gpu.cuda_driver import visible_env
from kerntune.timing.worker.requests import FirstLaunchesRequest, FirstLaunchMessage, Ready

START_LIMIT_S = 60.0


class FirstLaunchProcess:
    """One process. It starts at once, in another thread; ``device`` has the words for its device, ``file`` is the
    descriptor of staging memory that it inherits."""

    def __init__(self, device: Sequence[str], file: int) -> None:
        command = module_command("kerntune.timing.worker", "first-launches", str(os.getpid()), str(file), *device)
        self.child: ChildProcess[FirstLaunchMessage] = ChildProcess(
            command, FirstLaunchMessage, visible_env(os.environ), (file,), from_lasting_thread=True
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

    def ask(self, request: FirstLaunchMessage, limit_s: float) -> FirstLaunchMessage:
        """The reply. :class:`ChildEnded` or :class:`PeerTimeout` if there is none; it can't be asked again then."""
        self.wait()
        self.asked += 1
        return self._reply(request, limit_s)

    def ask_each(
        self, request: FirstLaunchesRequest, limit_s: Callable[[], float]
    ) -> Generator[FirstLaunchMessage, None, None]:
        """The replies in order, each within its limit, as :meth:`ask`; the process is ended if not all are taken."""
        self.wait()
        self.asked += 1
        left, sending = len(request.requests), [request]
        try:
            while left:
                reply = self._reply(sending.pop() if sending else None, limit_s())
                left -= 1
                yield reply
        except GeneratorExit:
            if left:
                self.end(wait=False)
            raise

    def _reply(self, request: FirstLaunchMessage | None, limit_s: float) -> FirstLaunchMessage:
        try:
            return self.child.ask(request, limit_s)
        except (ChildEnded, PeerTimeout):
            raise
        except FrameError as exc:
            raise ChildEnded(f"its process wrote what is no answer: {exc}") from exc

    def end(self, wait: bool = True) -> None:
        """As :meth:`kerntune.base.child_process.ChildProcess.end`."""
        self.child.end(wait)
