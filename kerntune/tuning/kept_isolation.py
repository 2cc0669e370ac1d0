"""A process for first launches that serves several tunings in turn, where many follow each other.

Starting one takes 0.24 s on an H200, mostly for its context: more than all the rest of a tuning whose configs are
compiled already. It takes 526 MiB of the device's memory, so it stays for jobs (:mod:`kerntune.tuning.many`) alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kerntune.errors import BackendError
from kerntune.gpu.base import Gpu
from kerntune.tuning.isolation import Isolate, Isolation

KEPT_S = 10.0
"""Seconds that a process stays after a tuning: the next job comes within milliseconds, or not soon."""


class KeptIsolation:
    """This process's. Outside of :meth:`keeping` each tuning has a process of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keeping = 0
        self._kept: tuple[object, Isolation] | None = None
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def keeping(self, seconds: float = KEPT_S) -> Iterator[None]:
        """Tunings inside leave their process to the next one, which may come within so many seconds after the end; at 0
        it is ended there."""
        with self._lock:
            self._keeping += 1
            self._stop_timer()
        try:
            yield
        finally:
            with self._lock:
                self._keeping -= 1
                stays = self._kept is None or bool(self._keeping) or (seconds > 0 and self._ends_in(seconds))
            if not stays:
                self.close()

    @contextlib.contextmanager
    def lent(self, gpu: Gpu, mode: Isolate) -> Iterator[Isolation]:
        """For one tuning on a device. After an error its process is ended."""
        if not self._keeping:
            with contextlib.closing(Isolation(gpu, mode, single=True)) as isolation:
                yield isolation
            return
        isolation = self._taken(gpu, mode) or Isolation(gpu, mode)
        try:
            yield isolation
        except BaseException:
            isolation.close()
            raise
        self._keep(gpu, mode, isolation)

    def close(self) -> None:
        """End the process that is kept."""
        with self._lock:
            self._stop_timer()
            kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _taken(self, gpu: Gpu, mode: Isolate) -> Isolation | None:
        """The one that is kept, if it is of this device; it belongs to the caller now."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        if kept[0] != _identity(gpu, mode):
            kept[1].close()
            return None
        return kept[1]

    def _keep(self, gpu: Gpu, mode: Isolate, isolation: Isolation) -> None:
        with self._lock:
            if isolation.wanted and self._keeping and self._kept is None:
                self._kept = _identity(gpu, mode), isolation
                return
        isolation.close()

    def _ends_in(self, seconds: float) -> bool:
        """Have the process end later; whether a thread for that could be had."""
        self._timer = threading.Timer(seconds, self.close)
        self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            return False
        return True

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


def _identity(gpu: Gpu, mode: Isolate) -> object:
    """Two objects may stand for one device."""
    try:
        return gpu.spec, gpu.looking_process(), mode
    except BackendError:  # it can't have a process any more
        return gpu.spec, None, mode


KEPT = KeptIsolation()
"""Of this process."""
