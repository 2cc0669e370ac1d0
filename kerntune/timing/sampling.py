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
"""Each timer's module describes its use."""

ESTIMATE_RUNS = 3

EVENT_RUNS = ((20, 1.5e6), (6, 5e6))
"""Executions in an event slot and the ns that they may take together: with longer executions there are fewer. On an
H200 matmuls of 4096 x 4096 x 4096 that filled 5 ms a slot brought the device to its power limit within 30 to 60 ms,
within a sample: then its median depends on the length of the sample, not only on the kernel."""


def estimate_ns(program: Program) -> float:
    """A rough time by a few event pairs; precise enough to choose a timer and to drop far slower configs."""
    slot = EventSlot(program, ESTIMATE_RUNS, roughly=True)
    slot.enqueue()()
    return slot.enqueue()()


def slot_for(program: Program, estimate: float, timer: str = AUTO, graph_ns: float = TARGET_NS) -> Slot:
    """A slot by the given timer; automatically, a graph of rotated copies for recordings that are short and may be
    rotated, else event pairs. A graph lasts no longer than ``graph_ns``. The slot's protocol names the timer.
    :class:`MeasurementError` if the given timer can't time this recording."""
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
    """A slot for another program under the same protocol as ``like``."""
    p = like.protocol
    if p.timer == GRAPH:
        return GraphSlot(program, p.replicas, p.runs_per_slot)
    made = ProfilerSlot if p.timer == PROFILER else EventSlot
    return made(program, p.runs_per_slot)


def take_sample(slot: Slot, quick: bool = False) -> Sample:
    """Warm up until the times of slots have no slope, then take slots until there are enough (:mod:`.stopping`).

    A ``quick`` sample has fewer slots: it distinguishes large differences only.
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
    """Executions in an event slot; a single long one is precise enough."""
    return max(1, *(round(min(most, together / max(estimate, 1.0))) for most, together in EVENT_RUNS))
