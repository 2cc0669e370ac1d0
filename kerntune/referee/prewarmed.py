"""Sealed processes that open the GPU before their task is known: that takes a second, for most roles the larger part.

They start while the candidate is recorded, or while results are compared. They hold nothing by then, and run no code
but kerntune's own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kerntune.referee.sealed_process import Answered, SealedProcesses, SealRequest, Task

USED_SECONDS = 30.0
"""A process that has waited longer is given no task: it may end before it has read it."""

MOST_EARLY = 32


@dataclass(frozen=True)
class _Early:
    answered: Future[Answered]
    task: Future[tuple[bytes, int]]
    since: float = field(default_factory=time.monotonic)


class PrewarmedProcesses(SealedProcesses):
    """Sealed processes of which some on the GPU start before they are asked."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._threads, self._lock = ThreadPoolExecutor(MOST_EARLY), threading.Lock()
        self._early: dict[tuple[str, tuple[str, ...]], deque[_Early]] = {}

    def prewarm(self, role: str, readable: tuple[str, ...], seconds: float, count: int) -> None:
        """Start processes for a role on the GPU, whose tasks may take ``seconds`` each."""
        self.wait()
        waiting = self._early.setdefault((role, readable), deque())
        request = SealRequest(role, readable, seconds, self.sealed, gpu=True, memory=0)
        for _ in range(count):
            task: Future[tuple[bytes, int]] = Future()
            waiting.append(_Early(self._threads.submit(super()._started, request, task.result), task))

    def _started(self, request: SealRequest, task: Task) -> Answered:
        """By a process that has started before, if one waits for such a task."""
        while request.gpu and (one := self._taken(request.role, request.readable)) is not None:
            if time.monotonic() - one.since < USED_SECONDS and not one.answered.done():
                one.task.set_result(task())
                return one.answered.result()
            one.task.set_result((b"", 0))
        return super()._started(request, task)

    def _taken(self, role: str, readable: tuple[str, ...]) -> _Early | None:
        with self._lock:
            waiting = self._early.get((role, readable))
            return waiting.popleft() if waiting else None

    def discard(self) -> None:
        """End those that were not asked."""
        for role, readable in list(self._early):
            while (one := self._taken(role, readable)) is not None:
                one.task.set_result((b"", 0))

    def close(self) -> None:
        """These, too."""
        self.discard()
        super().close()
        self._threads.shutdown()
