"""What waits for what: threads of one test that call ``autotune``, and workers of pytest-xdist that share a GPU.

Each worker begins with another GPU of the host.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from threading import RLock, Thread, current_thread, get_ident
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any

from kerntune.errors import MeasurementError, UsageError
from pytest_kerntune.marker import concerns

if TYPE_CHECKING:
    import pytest

    from kerntune.gate.api import Session


LOOK_SECONDS = 0.2
"""How often one who waits looks whether the other waits for it."""


class Turns:
    """Gives one call a turn at a time: a capture records the whole process's launches, and no two calls may be timed at
    once. A call inside of a call, from the same thread, has its turn at once, and goes on to the error that names
    it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._owner: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn; :class:`UsageError` if who has it waits for this thread, which would never end."""
        while not self._lock.acquire(timeout=LOOK_SECONDS):
            if self._owner is not None and _waits_for_me(sys._current_frames().get(self._owner)):
                raise UsageError(
                    "autotune(...) was called in a thread that the function of another autotune(...) call waits for; "
                    "let the function launch kernels only, and call autotune outside of it"
                )
        before, self._owner = self._owner, get_ident()
        try:
            yield
        finally:
            self._owner = before
            self._lock.release()


def _waits_for_me(frame: FrameType | None) -> bool:
    """Whether a thread that is in ``frame`` joins the calling one, or waits for the result that this is to give."""
    if frame is None:
        return False
    mine = {id(current_thread()), *map(id, _promised())}
    waiting = (caller.f_locals for caller, _ in walk_stack(frame) if caller.f_code in _WAITING)
    return any(not mine.isdisjoint(map(id, (f.get("self"), *f.get("fs", ())))) for f in waiting)


_WAITING = (
    Thread.join.__code__,
    Future.result.__code__,
    Future.exception.__code__,
    wait.__code__,
    as_completed.__code__,
)
"""What waits for ``self``, or for one of its futures ``fs``."""


def _promised() -> Iterator[Future[object]]:
    """The futures of an executor's threads that the calling thread is working on."""
    for frame, _ in walk_stack(sys._getframe()):
        work = frame.f_locals.get("self") if frame.f_code.co_name == "run" else None
        future = getattr(work, "future", None)
        if isinstance(future, Future):
            yield future


CROWDED = "kerntune_crowded"
"""In the ``workerinput`` of xdist's workers: whether several of them begin with the same GPU."""

GPU_MARKS = ("gpu", "cuda")
"""Markers by which projects tell tests that need a GPU."""


class TurnTaking(str, Enum):
    """Which tests wait while another worker measures on their GPU: all, those that use ``autotune`` or are marked
    ``gpu`` or ``cuda``, or none."""

    ALL = "all"
    MARKED = "marked"
    OFF = "off"


class Spread:
    """On xdist's controller: which worker begins with which GPU."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._crowded: dict[str, bool] = {}

    def turn(self, specs: Sequence[Any], seen: int) -> None:
        """Give each worker of this host its list of the GPUs that are ``seen``, before it starts; without any, of the
        AMD GPUs that torch sees, on which nothing is measured. One whose list is given already (by another plugin, or
        with ``--tx popen//env:CUDA_VISIBLE_DEVICES=1``) keeps that, and so does one of another host."""
        from kerntune.gpu.host_gpus import rotated, turned_by_others, visible_count
        from kerntune.gpu.probe import amd_gpus

        local = [spec for spec in specs if spec.popen and not turned_by_others(spec.env)]
        amd = amd_gpus() if not seen else 0
        count = amd or visible_count(seen)
        for turns, spec in enumerate(local):
            if self._wanted:
                spec.env.update(rotated(os.environ, count, turns, amd=bool(amd)))
            crowded = len(local) > count if self._wanted else len(local) > 1
            self._crowded[str(spec.id)] = bool(seen) and crowded

    def input_of(self, node: Any) -> dict[str, bool]:
        """What goes into a worker's ``workerinput``. One that takes the place of another has the other's list."""
        return {CROWDED: self._crowded.get(str(node.gateway.id), any(self._crowded.values()))}


@contextmanager
def in_turn(session: Session, item: pytest.Item, turns: TurnTaking, crowded: bool) -> Iterator[None]:
    """Run a test, on one of several workers, while no other one measures on the GPUs that it uses: its first one, if
    it shares that (``crowded``), and others on which it has made tensors before. What it measures itself comes in
    between. If the others don't end, it runs all the same: it fails no test."""
    marked = concerns(item) or any(item.get_closest_marker(name) for name in GPU_MARKS)
    with ExitStack() as stack:
        if turns is TurnTaking.ALL or (turns is TurnTaking.MARKED and marked):
            with suppress(MeasurementError):
                stack.enter_context(session.in_turn(crowded))
        yield
