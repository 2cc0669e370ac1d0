"""A CUDA graph of unrolled executions over rotated buffers, between two events.

Resolution: on an H200, kernels of 2 to 16 us agreed A/A to 0.04 to 0.12 % over fresh processes, in 0.1 s. The buffers
together exceed the L2 cache, so each execution finds it cold, as a flush would leave it, without the flush's time.
"""

from __future__ import annotations

import math

from kerntune.gpu.memory import MEMORY_SHARE
from kerntune.gpu.program import Program
from kerntune.timing.event_pair import between_events
from kerntune.timing.flush_ahead import flushes_before
from kerntune.timing.sample import Reading, TimingProtocol

TARGET_LAUNCHES = 200
"""Launches in one graph: enough that the graph's own start (a few us) is a small and equal part of both sides."""

TARGET_NS = 2e6
"""A graph lasts no longer than this; longer kernels are unrolled less often."""


IN_PLACE_BYTES = 1 << 30
"""Copies of what is restored before each slot hold at most this much: on an H200, restoring it takes half a
millisecond. A graph of two launches only would be read off event timers that resolve half a microsecond."""


class GraphSlot:
    """A graph of ``runs`` executions that visit the copies in turn; the slot's time is its duration over ``runs``.

    What launches change and depend on has a copy for each execution, because restores can't be inside the graph.
    """

    def __init__(self, program: Program, replicas: int, runs: int) -> None:
        self._program = program
        self.protocol = TimingProtocol("graph", runs, replicas)
        self.late = False
        program.cycle = replicas
        self._restored = range(runs if program.in_place else 0)
        visits = range(runs if program.in_place else replicas)
        program.memory.ensure(len(visits))
        self._restore()
        for visit in visits:
            program.enqueue(visit)
        program.gpu.synchronize()

        self._graph = program.graph(runs, len(visits))
        self._restore()
        self._graph.replay()
        self._flushes = flushes_before(program.gpu, self._graph.replay, self._restore)

    def _restore(self) -> None:
        """Before each execution: a kernel that counts up a place to write to would leave its memory without it."""
        for copy in self._restored:
            self._program.restore(copy)

    def enqueue(self) -> Reading:
        """Restore every copy, then replay between two events. The device is kept busy meanwhile: on an idle one, the
        first event would wait some ten microseconds for the graph, another time in every slot."""
        gpu = self._program.gpu
        self._restore()
        for _ in range(self._flushes):
            gpu.flush_l2()
        piece = between_events(gpu, self._graph.replay)
        self.late = piece.late
        return lambda: piece.ns() / self.protocol.runs_per_slot


def unrolled_runs(
    replicas: int, launches: int, estimate_ns: float, most: float = math.inf, target_ns: float = TARGET_NS
) -> int:
    """How many executions go into one graph: a multiple of ``replicas``, so that all copies weigh the same; no more
    than ``most``, and no more than last ``target_ns``, but once per copy in any case."""
    wanted = min(TARGET_LAUNCHES / max(launches, 1), target_ns / max(estimate_ns, 1.0))
    return max(1, min(round(wanted / replicas), int(min(most, wanted + replicas) // replicas))) * replicas


def most_in_place(program: Program) -> float:
    """How many executions can have copies of their own of what is restored."""
    nbytes = sum(program.memory.storages[i].nbytes for i in program.in_place)
    room = min(IN_PLACE_BYTES, program.gpu.free_bytes() * MEMORY_SHARE)
    return room / nbytes if nbytes else math.inf
