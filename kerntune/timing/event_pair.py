"""Work between two events, and whether the host was in time for it: the piece of all timers but the profiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kerntune.base.stats import median
from kerntune.gpu.base import Executor, GpuEvent


@dataclass(frozen=True)
class Between:
    """Work that was enqueued between two events. It is ``late`` if the device had reached the first one before all was
    enqueued: then its time may contain some of the host's, which always adds."""

    gpu: Executor
    start: GpuEvent
    end: GpuEvent
    late: bool

    def ns(self) -> float:
        """Nanoseconds between the events, after waiting for the later one."""
        return self.gpu.elapsed_ns(self.start, self.end)


def between_events(gpu: Executor, work: Callable[[], object]) -> Between:
    """Enqueue some work, with nothing else between it and the events."""
    start = gpu.event()
    work()
    end = gpu.event()
    return Between(gpu, start, end, gpu.reached(start))


def median_ns(pieces: Sequence[Between]) -> float:
    """The median of their times, after waiting for them."""
    return median([piece.ns() for piece in pieces])


def mostly_late(pieces: Sequence[Between]) -> bool:
    """Whether at least half of them are late; otherwise the median is of a piece without the host's time."""
    return 2 * sum(piece.late for piece in pieces) >= len(pieces)
