"""The bandwidth that a device's memory reaches: a large copy on the device itself, timed by event pairs."""

from __future__ import annotations

from kerntune.gpu.base import Executor
from kerntune.timing.event_pair import between_events, median_ns
from kerntune.timing.flush_ahead import flushes_before

CACHES = 8
"""The copied piece has so many times the size of the L2 cache: the part that is still in the cache then is small."""

LEAST_BYTES = 1 << 28
"""And 256 MiB at least, so that a copy outlasts its own launch by a hundred times."""

MEMORY_SHARE = 0.2
"""Of the free memory, source and target take at most this much each."""

RUNS = 9


def measured_bandwidth(gpu: Executor) -> float | None:
    """Bytes a second that the device reads and writes together while it copies; None where no copy takes time.

    Kernels that mostly read can exceed it, since reads cost a little less than writes.
    """
    nbytes = int(min(max(CACHES * gpu.spec.l2_bytes, LEAST_BYTES), gpu.free_bytes() * MEMORY_SHARE))
    if nbytes < 1:
        return None
    source, target = gpu.allocate(nbytes), gpu.allocate(nbytes)
    gpu.fill(source, 1)
    gpu.copy(target, source)
    flushes, pieces = flushes_before(gpu, lambda: gpu.copy(target, source)), []
    for _ in range(RUNS):
        for _ in range(flushes):
            gpu.flush_l2()
        pieces.append(between_events(gpu, lambda: gpu.copy(target, source)))
    time_ns = median_ns(pieces)
    return 2 * nbytes / time_ns * 1e9 if time_ns > 0 else None
