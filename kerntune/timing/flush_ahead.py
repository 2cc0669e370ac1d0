"""Keeps the device busy while the host enqueues, so that the host's time is not between two events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from kerntune.gpu.base import Executor

HEADROOM = 2.0
"""The device is kept busy for so many times the host's measured time: hosts are interrupted."""

MAX_FLUSHES = 256
"""On an H200 a flush lasts some 30 us, so that 8 ms of Python can be hidden; a slower call is host-bound for its
users too."""


def flushes_before(gpu: Executor, enqueue: Callable[[], object], restore: Callable[[], object] = lambda: None) -> int:
    """How many L2 flushes to enqueue before ``enqueue`` (which has run before, so that it loads and compiles nothing):
    one empties the cache, more of them last until the host has enqueued everything between two events.

    ``restore`` restores the memory that ``enqueue`` depends on and has changed before.
    """
    restore()
    gpu.flush_l2()  # so that the device is busy while the next one is enqueued
    start = gpu.event()
    gpu.flush_l2()
    flush_ns = gpu.elapsed_ns(start, gpu.event())
    gpu.synchronize()
    begin = time.perf_counter_ns()
    gpu.event()
    enqueue()
    gpu.event()
    host_ns = time.perf_counter_ns() - begin
    gpu.synchronize()
    return flush_count(host_ns, flush_ns)


def flush_count(host_ns: float, flush_ns: float) -> int:
    """Flushes that last as long as the host takes, times :data:`HEADROOM`; one at least."""
    if flush_ns <= 0:
        return 1
    return math.ceil(max(1.0, min(MAX_FLUSHES, HEADROOM * host_ns / flush_ns)))
