"""Calls of ``autotune`` from several threads, one after the other."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait
from types import FrameType

from kerntune.errors import UsageError

LOOK_SECONDS = 0.2
"""How often one who waits looks whether the other waits for it."""


class Turns:
    """Gives one call a turn at a time: a capture records the whole process's launches, and no two calls may be timed at
    once. A call inside of a call, from the same thread, has its turn at once, and goes on to the error that names
    it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn; :class:`UsageError` if who has it waits for this thread, which would never end."""
        while not self._lock.acquire(timeout=LOOK_SECONDS):
            if self._owner is not None and _waits_for_me(sys._current_frames().get(self._owner)):
                raise UsageError(
                    "autotune(...) was called in a thread that the function of another autotune(...) call waits for; "
                    "let the function launch kernels only, and call autotune outside of it"
                )
        before, self._owner = self._owner, threading.get_ident()
        try:
            yield
        finally:
            self._owner = before
            self._lock.release()


def _waits_for_me(frame: FrameType | None) -> bool:
    """Whether a thread that is in ``frame`` joins the calling one, or waits for the result that this is to give."""
    mine = {id(threading.current_thread()), *map(id, _promised())}
    while frame is not None:
        if frame.f_code in _WAITING:
            found = frame.f_locals
            if not mine.isdisjoint(map(id, (found.get("self"), *found.get("fs", ())))):
                return True
        frame = frame.f_back
    return False


_WAITING = (
    threading.Thread.join.__code__,
    Future.result.__code__,
    Future.exception.__code__,
    wait.__code__,
    as_completed.__code__,
)
"""What waits for ``self``, or for one of its futures ``fs``."""


def _promised() -> Iterator[Future[object]]:
    """The futures of an executor's threads that the calling thread is working on."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        work = frame.f_locals.get("self") if frame.f_code.co_name == "run" else None
        future = getattr(work, "future", None)
        if isinstance(future, Future):
            yield future
        frame = frame.f_back
