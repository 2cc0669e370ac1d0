"""Sealed processes that open the GPU before their task is known: that takes a second, for most roles the larger part.

They start while the candidate is recorded, or while results are compared. They hold nothing by then, and run no code
but kerntune's own. What they answer is used before they have ended, which takes half a second with a large content.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from kerntune.referee.sealed_process import Answered, SealedEnd, SealedProcesses, SealRequest, Task, Told
from kerntune.referee.tasks import BytesLike

USED_SECONDS = 30.0
"""A process that has waited longer is given no task: it may end before it has read it."""

MOST_EARLY = 32


@dataclass(frozen=True)
class _Early:
    ended: Future[Answered]
    task: Future[tuple[Sequence[BytesLike], int]]
    answer: Future[memoryview]
    since: float = field(default_factory=time.monotonic)


class PrewarmedProcesses(SealedProcesses):
    """Sealed processes of which some on the GPU start before they are asked."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._threads, self._lock = ThreadPoolExecutor(MOST_EARLY), threading.Lock()
        self._early: dict[tuple[str, tuple[str, ...]], deque[_Early]] = {}
        self._ending: list[Future[Answered]] = []

    def prewarm(self, role: str, readable: tuple[str, ...], seconds: float, count: int) -> None:
        """Start processes for a role on the GPU, whose tasks may take ``seconds`` each."""
        self.wait()
        waiting = self._early.setdefault((role, readable), deque())
        request = SealRequest(role, readable, seconds, self.sealed, gpu=True, memory=0)
        for _ in range(count):
            task: Future[tuple[Sequence[BytesLike], int]] = Future()
            answer: Future[memoryview] = Future()
            ended = self._threads.submit(self._until_end, request, task, answer)
            waiting.append(_Early(ended, task, answer))

    def _until_end(
        self, request: SealRequest, task: Future[tuple[Sequence[BytesLike], int]], answer: Future[memoryview]
    ) -> Answered:
        """How a process has ended that was started early, without what it has answered: that may be large."""
        found = super()._started(request, task.result, answer.set_result)
        return replace(found, data=None)

    def _started(self, request: SealRequest, task: Task, told: Told | None = None) -> Answered:
        """By a process that has started before, if one waits for such a task. It may not have ended yet; what is timed
        has the device to itself."""
        if request.role == "time":
            self.wait_for_ends()
        while request.gpu and (one := self._taken(request.role, request.readable)) is not None:
            if time.monotonic() - one.since < USED_SECONDS and not one.ended.done():
                one.task.set_result(task())
                either: list[Future[Any]] = [one.answer, one.ended]
                wait(either, return_when=FIRST_COMPLETED)
                if not one.answer.done():
                    return one.ended.result()
                with self._lock:
                    self._ending = [*(x for x in self._ending if not x.done()), one.ended]
                return Answered(one.answer.result(), SealedEnd(), "")
            one.task.set_result(((), 0))
        return super()._started(request, task, told)

    def wait_for_ends(self) -> None:
        """Until those have ended that have answered: they have memory of the device. Others may answer meanwhile."""
        with self._lock:
            ending = self._ending
        wait(ending)

    def _taken(self, role: str, readable: tuple[str, ...]) -> _Early | None:
        with self._lock:
            waiting = self._early.get((role, readable))
            return waiting.popleft() if waiting else None

    def discard(self) -> None:
        """End those that were not asked."""
        for role, readable in list(self._early):
            while (one := self._taken(role, readable)) is not None:
                one.task.set_result(((), 0))

    def close(self) -> None:
        """These, too."""
        self.discard()
        super().close()
        self._threads.shutdown()
