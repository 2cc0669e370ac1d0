"""A CUDA graph of unrolled executions over rotated buffers, between two events.

Floor: on an H200, kernels of 2 to 16 us agreed A/A to 0.04 to 0.12 % over fresh processes, in 0.1 s. The buffers
together exceed the L2 cache, so each execution finds it cold, as a flush would leave it, without the flush's time.
"""

from __future__ import annotations

from kerntune.launch import Program
from kerntune.measure.base import Reading, TimingProtocol
from kerntune.measure.hold import flushes_before

TARGET_LAUNCHES = 200
"""Launches in one graph: enough that the graph's own start (a few us) is a small and equal part of both sides."""

TARGET_NS = 2e6
"""A graph need not last longer than this; longer kernels are unrolled less often."""


class GraphSlot:
    """A graph of ``runs`` executions that visit the copies in turn; the slot's time is its duration over ``runs``."""

    def __init__(self, program: Program, replicas: int, runs: int) -> None:
        self._program = program
        self.protocol = TimingProtocol("graph", runs, replicas)
        program.memory.ensure(replicas)
        for replica in range(replicas):
            program.enqueue(replica)
        program.gpu.synchronize()

        def work() -> (
            None
        ):  # without self: a graph keeps its work, and device memory can't wait for a cycle's collection
            for i in range(runs):
                program.enqueue(i % replicas)

        self._graph = program.gpu.graph(work)
        self._graph.replay()
        self._flushes = flushes_before(program.gpu, self._graph.replay)

    def enqueue(self) -> Reading:
        """Restore every copy, then replay between two events. The device is kept busy meanwhile: on an idle one, the
        first event would wait some ten microseconds for the graph, another time in every slot."""
        gpu = self._program.gpu
        for replica in range(self.protocol.replicas):
            self._program.restore(replica)
        for _ in range(self._flushes):
            gpu.flush_l2()
        start = gpu.event()
        self._graph.replay()
        end = gpu.event()
        return lambda: gpu.elapsed_ns(start, end) / self.protocol.runs_per_slot


def unrolled_runs(replicas: int, launches: int, estimate_ns: float, in_place: bool) -> int:
    """How many executions go into one graph: a multiple of ``replicas``, so that all copies weigh the same.

    What depends on its own earlier output runs once per copy, because restores can't be inside the graph.
    """
    if in_place:
        return replicas
    wanted = min(TARGET_LAUNCHES / max(launches, 1), TARGET_NS / max(estimate_ns, 1.0))
    return max(1, round(wanted / replicas)) * replicas
