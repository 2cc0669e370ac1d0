"""Work that waits for a process: each gets what it has the code for, and helps the others when it has no more."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkByKind(Generic[T]):
    """A queue for several takers, each with a name of its own. A taker gets, of what waits,

    1. the oldest work of a kind that no taker has had: to compile it takes long, and keeps the processors busy;
    2. work of a kind that it has had, whose code it has loaded already;
    3. work of the kind of which the most is left.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[T]] = {}
        self._had: dict[str, set[object]] = {}
        self._ended = False

    def put(self, kind: str, work: T) -> None:
        """Add work."""
        with self._changed:
            self._waiting.setdefault(kind, deque()).append(work)
            self._changed.notify()

    def take(self, taker: object) -> T | None:
        """The taker's next work, once there is some; None after the :meth:`end`, when none is left."""
        with self._changed:
            while not self._waiting:
                if self._ended:
                    return None
                self._changed.wait()
            kind = self._kind_for(taker)
            self._had.setdefault(kind, set()).add(taker)
            work = self._waiting[kind].popleft()
            if not self._waiting[kind]:
                del self._waiting[kind]
            return work

    def end(self) -> None:
        """No taker waits any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _kind_for(self, taker: object) -> str:
        new = next((kind for kind in self._waiting if kind not in self._had), None)
        if new is not None:
            return new
        own = [kind for kind in self._waiting if taker in self._had[kind]]
        return own[0] if own else max(self._waiting, key=lambda kind: len(self._waiting[kind]))
