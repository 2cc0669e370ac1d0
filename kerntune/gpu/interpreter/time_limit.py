"""A limit on the wall time of what runs in this thread: Python code that never ends is ended."""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType

PAUSE_SECONDS = 0.001


class Overdue(BaseException):
    """Raised in the thread whose time is over. It isn't an :class:`Exception`, so that handlers of those don't catch
    it."""


class TimeLimit:
    """A context that ends with :class:`Overdue` once it has lasted so many ``seconds``; 0 for no limit.

    The exception is set from another thread (``PyThreadState_SetAsyncExc``), so it comes between two steps of Python
    code, on any thread, but not inside of one call into C.
    """

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._fire) if seconds else None
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._open, self._fired = True, False

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._open = False
        while self._fired and not isinstance(error, Overdue):
            time.sleep(PAUSE_SECONDS)  # it is on its way, and must not come later

    def _fire(self) -> None:
        with self._lock:
            if self._open:
                self._fired = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Overdue))
