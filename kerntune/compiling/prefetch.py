"""An iterator that a thread of its own advances, so that its consumer may do something else meanwhile, or stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, Union

T = TypeVar("T")


class _End:
    """Comes after the last result."""


class Pulled(Generic[T]):
    """Results of an iterator in their order, for one consumer. ``done`` is set once the thread has all of them, whether
    the consumer has taken them or not."""

    def __init__(self, results: Iterator[T], stop: Callable[[], object] = lambda: None, name: str = "pulled") -> None:
        self.done: Future[None] = Future()
        self._queue: SimpleQueue[Union[T, _End, BaseException]] = SimpleQueue()
        self._head: list[Union[T, _End, BaseException]] = []
        self._stop = stop
        threading.Thread(target=self._pull, args=(results,), name=name, daemon=True).start()

    def _pull(self, results: Iterator[T]) -> None:
        try:
            for result in results:
                self._queue.put(result)
        except BaseException as exc:
            self._queue.put(exc)
        finally:
            self._queue.put(_End())
            self.done.set_result(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether a result, or the end, arrives within so many seconds."""
        if not self._head:
            try:
                self._head.append(self._queue.get(timeout=seconds))
            except Empty:
                return False
        return True

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self.wait()
        head = self._head[0]
        if isinstance(head, _End):
            raise StopIteration
        self._head.clear()
        if isinstance(head, BaseException):
            raise head
        return head

    def stop(self) -> None:
        """Let the iterator end early, without waiting for that."""
        self._stop()
