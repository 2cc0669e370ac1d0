"""Chooses a timer for a recording and takes samples with it."""

from __future__ import annotations

from kerntune.base.policy import TIMERS
from kerntune.errors import BackendError, MeasurementError, UsageError
from kerntune.gpu.program import Program
from kerntune.timing.events import EventSlot
from kerntune.timing.graphs import TARGET_NS, GraphSlot, most_in_place, unrolled_runs
from kerntune.timing.profiler import ProfilerSlot
from kerntune.timing.sample import Sample, Slot
from kerntune.timing.stopping import enough, quickly_enough, quickly_warm, warm

GRAPH_BELOW_NS = 200_000.0
"""Shorter recordings are timed as graphs, longer ones by event pairs (both agree A/A to 0.1 % near the border)."""

AUTO, GRAPH, EVENTS, PROFILER = TIMERS
"""Each timer's module says what it is good for."""

ESTIMATE_RUNS = 3

EVENT_RUNS = ((20, 1.5e6), (6, 5e6))
"""Executions in an event slot: so many, if they take no longer than so many ns together, or as many as do. On an H200
matmuls of 4096 x 4096 x 4096 that filled 5 ms a slot drove the device into its power limit within 30 to 60 ms, in the
midst of a sample: then its median says how long the sample took, not how long the kernel does."""


def estimate_ns(program: Program) -> float:
    """A rough time by a few event pairs; good enough to choose a timer and to drop configs that are far too slow."""
    slot = EventSlot(program, ESTIMATE_RUNS, roughly=True)
    slot.enqueue()()
    return slot.enqueue()()


def slot_for(program: Program, estimate: float, timer: str = AUTO, graph_ns: float = TARGET_NS) -> Slot:
    """A slot by the given timer; by itself, a graph of rotated copies for what is short and may be rotated, else event
    pairs. A graph needn't last longer than ``graph_ns``. What was chosen is in its protocol. :class:`MeasurementError`
    if that timer can't time this recording."""
    check_timer(timer)
    if timer == PROFILER:
        return ProfilerSlot(program)
    replicas = program.memory.rotation(program.recording)
    if timer == GRAPH and replicas < 2:
        raise MeasurementError("timer 'graph' needs copies of the call's memory, which has no room or hides addresses")
    if timer == EVENTS or (timer == AUTO and (estimate >= GRAPH_BELOW_NS or replicas < 2)):
        return EventSlot(program, event_runs(estimate))
    runs = unrolled_runs(replicas, len(program.recording.launches), estimate, most_in_place(program), graph_ns)
    try:
        return GraphSlot(program, replicas, runs)
    except (BackendError, MeasurementError):
        raise
    except RuntimeError as exc:
        raise MeasurementError(f"the launches can't be recorded as a graph: {exc}") from exc


def check_timer(timer: str) -> None:
    """:class:`UsageError` for a timer that doesn't exist."""
    if timer not in TIMERS:
        raise UsageError(f"timer {timer!r} is none of {', '.join(TIMERS)}")


def same_kind(program: Program, like: Slot) -> Slot:
    """A slot for another program under the very protocol of ``like``."""
    p = like.protocol
    if p.timer == GRAPH:
        return GraphSlot(program, p.replicas, p.runs_per_slot)
    made = ProfilerSlot if p.timer == PROFILER else EventSlot
    return made(program, p.runs_per_slot)


def take_sample(slot: Slot, quick: bool = False) -> Sample:
    """Warm up until slots have no trend, then take slots until the stopping rule ends it.

    A ``quick`` sample only separates large differences: it has fewer slots.
    """
    ready, done = (quickly_warm, quickly_enough) if quick else (warm, enough)
    warming: list[float] = []
    while not ready(warming):
        warming.append(slot.enqueue()())
    times: list[float] = []
    while not done(times):
        times.append(slot.enqueue()())
    return Sample(slot.protocol, tuple(round(t, 1) for t in times))


def event_runs(estimate: float) -> int:
    """Executions in an event slot; one that takes long is precise enough alone."""
    return max(1, *(round(min(most, together / max(estimate, 1.0))) for most, together in EVENT_RUNS))
