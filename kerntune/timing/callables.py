"""Times a whole callable: everything that it enqueues on the device, torch's operations included.

A CUDA graph of one call if it can be captured (no synchronisation, no host-dependent work), else event pairs around
each call. The protocol names which. Shortest time that it resolves: an event pair's, a few microseconds. The
device flushes until a call's work is enqueued, so the host's own time is in it only where the call itself waits for the
device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from kerntune.gpu.base import Gpu, GpuGraph
from kerntune.timing.event_pair import between_events, median_ns, mostly_late
from kerntune.timing.flush_ahead import flushes_before
from kerntune.timing.sample import Reading, TimingProtocol

RUNS = 5
GRAPH, EVENTS = "op graph", "op events"


class CallSlot:
    """``runs`` executions of a call, the L2 cache flushed before each; the slot's time is their median.

    ``preserving`` undoes what the call does to its arguments; it encloses a slot, not each run.
    """

    def __init__(
        self,
        gpu: Gpu,
        call: Callable[[], object],
        preserving: Callable[[], AbstractContextManager[None]],
        runs: int = RUNS,
    ) -> None:
        self._gpu, self._call, self._preserving = gpu, call, preserving
        graph = self._capture()
        self._run = graph.replay if graph is not None else self._plain
        self.protocol = TimingProtocol(GRAPH if graph is not None else EVENTS, runs, 1)
        self.late = False
        with preserving():
            self._flushes = flushes_before(gpu, self._run)

    def _plain(self) -> None:
        self._call()

    def _capture(self) -> GpuGraph | None:
        with self._preserving():
            self._plain()
            self._gpu.synchronize()
            try:
                graph = self._gpu.call_graph(self._plain)
                graph.replay()
                self._gpu.synchronize()
            except RuntimeError:
                return None
        return graph

    def enqueue(self) -> Reading:
        """Enqueue all runs; flushes stay outside the event pairs."""
        gpu, pieces = self._gpu, []
        with self._preserving():
            for _ in range(self.protocol.runs_per_slot):
                for _ in range(self._flushes):
                    gpu.flush_l2()
                pieces.append(between_events(gpu, self._run))
        self.late = mostly_late(pieces)
        return lambda: median_ns(pieces)
