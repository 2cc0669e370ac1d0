"""Event pairs around single executions, the L2 cache flushed before each.

Resolution: an event pair resolves about half a microsecond, and the events themselves cost one or two (on an H200 A/A
differed by 2 to 5 % under 20 us), so this timer is for longer recordings and for what no graph can hold. The host's
time between two launches can't leak in: the device flushes until everything between the events is enqueued.
"""

from __future__ import annotations

from kerntune.gpu.program import Program
from kerntune.timing.event_pair import between_events, median_ns, mostly_late
from kerntune.timing.flush_ahead import flushes_before
from kerntune.timing.sample import Reading, TimingProtocol

DEFAULT_RUNS = 10


class EventSlot:
    """``runs`` executions, each flushed, restored and timed by itself; the slot's time is their median."""

    def __init__(self, program: Program, runs: int = DEFAULT_RUNS, roughly: bool = False) -> None:
        self._program = program
        self.protocol = TimingProtocol("events", runs, 1)
        self.late = False
        # One flush outlasts the enqueueing of one launch; a rough time needn't know by how much.
        lone = roughly and len(program.recording.launches) == 1
        if not lone:
            program.restore()
            program.enqueue()
        self._flushes = 1 if lone else flushes_before(program.gpu, program.enqueue, program.restore)

    def enqueue(self) -> Reading:
        """Enqueue all runs; restores and flushes stay outside the event pairs."""
        gpu, program = self._program.gpu, self._program
        pieces = []
        for _ in range(self.protocol.runs_per_slot):
            program.restore()
            for _ in range(self._flushes):
                gpu.flush_l2()
            pieces.append(between_events(gpu, program.enqueue))
        self.late = mostly_late(pieces)
        return lambda: median_ns(pieces)
