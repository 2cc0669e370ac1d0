"""Chooses a timer for a recording, takes samples with it, and says from numbers alone when to stop.

The time of each launch of a recording is timed by itself: it says where an operation's time goes. The bandwidth that
a device's memory reaches is that of a large copy on the device itself, timed by event pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kerntune.base.policy import TIMERS
from kerntune.base.recording import Artifacts, Launch, Recording
from kerntune.base.stats import median, relative_spread, settled
from kerntune.errors import BackendError, MeasurementError, UsageError
from kerntune.gpu.base import Executor
from kerntune.gpu.memory import Source
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.timing.timers import (
    TARGET_NS,
    GraphSlot,
    ProfilerSlot,
    Sample,
    Slot,
    event_slot,
    flushed_runs,
    flushes_before,
    median_ns,
    most_in_place,
    unrolled_runs,
)

MIN_WARM_UP = 3
MAX_WARM_UP = 40
"""Slots of a warm-up; after the most, a recording that doesn't settle is measured as it is, and its spread shows it."""

MIN_SLOTS = 10
MAX_SLOTS = 40
ENOUGH_SPREAD = 0.002
"""A sample whose half interquartile range is below 0.2 % doesn't get a better median from more slots."""

QUICK_SLOTS = 5
MAX_QUICK_SLOTS = 15
QUICK_SPREAD = 0.01
"""A quick sample only distinguishes large differences (the same work is DRIFTED from 5 % on): 1 % is precise enough."""


def warm(times_ns: Sequence[float], quick: bool = False) -> bool:
    """Whether the warm-up of a sample may end."""
    most = MAX_QUICK_SLOTS if quick else MAX_WARM_UP
    return len(times_ns) >= most or (len(times_ns) >= MIN_WARM_UP and settled(times_ns))


def enough(times_ns: Sequence[float], quick: bool = False) -> bool:
    """Whether a sample may end."""
    rule = (QUICK_SLOTS, MAX_QUICK_SLOTS, QUICK_SPREAD) if quick else (MIN_SLOTS, MAX_SLOTS, ENOUGH_SPREAD)
    least, most, spread = rule
    return len(times_ns) >= least and (len(times_ns) >= most or relative_spread(times_ns) < spread)


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
    gpu, work, restore, flushes = program.gpu, program.enqueue, program.restore, 1
    if len(program.recording.launches) > 1:  # one flush outlasts the enqueueing of one launch
        restore()
        work()
        flushes = flushes_before(gpu, work, restore)
    median_ns(flushed_runs(gpu, work, ESTIMATE_RUNS, flushes, restore))
    return median_ns(flushed_runs(gpu, work, ESTIMATE_RUNS, flushes, restore))


def slot_for(program: Program, estimate: float, timer: str = AUTO, graph_ns: float = TARGET_NS) -> Slot:
    """A slot by the given timer; automatically, a graph of rotated copies for recordings that are short and may be
    rotated, else event pairs. A graph lasts no longer than ``graph_ns``. The slot's protocol names the timer.
    :class:`MeasurementError` if the given timer can't time this recording."""
    if timer not in TIMERS:
        raise UsageError(f"timer {timer!r} is none of {', '.join(TIMERS)}")
    if timer == PROFILER:
        return ProfilerSlot(program)
    replicas = program.memory.rotation(program.recording)
    if timer == GRAPH and replicas < 2:
        why = "which has no room or hides addresses"
        raise MeasurementError(f"timer 'graph' needs copies of the call's memory, {why}")
    if timer == EVENTS or (timer == AUTO and (estimate >= GRAPH_BELOW_NS or replicas < 2)):
        return event_slot(program, event_runs(estimate))
    runs = unrolled_runs(replicas, len(program.recording.launches), estimate, most_in_place(program), graph_ns)
    try:
        return GraphSlot(program, replicas, runs)
    except (BackendError, MeasurementError):
        raise
    except RuntimeError as exc:
        raise MeasurementError(f"the launches can't be recorded as a graph: {exc}") from exc


def same_kind(program: Program, like: Slot) -> Slot:
    """A slot for another program under the same protocol as ``like``."""
    p = like.protocol
    if p.timer == GRAPH:
        return GraphSlot(program, p.replicas, p.runs_per_slot)
    made = ProfilerSlot if p.timer == PROFILER else event_slot
    return made(program, p.runs_per_slot)


def take_sample(slot: Slot, quick: bool = False) -> Sample:
    """Warm up until the times of slots have no slope, then take slots until there are enough. A ``quick`` sample has
    fewer slots: it distinguishes large differences only."""
    warming: list[float] = []
    while not warm(warming, quick):
        warming.append(slot.enqueue()())
    times: list[float] = []
    while not enough(times, quick):
        times.append(slot.enqueue()())
    return Sample(slot.protocol, tuple(round(t, 1) for t in times))


def event_runs(estimate: float) -> int:
    """Executions in an event slot; a single long one is precise enough."""
    return max(1, *(round(min(most, together / max(estimate, 1.0))) for most, together in EVENT_RUNS))


MAX_LAUNCHES = 16
"""Different launches that are timed; a table of more shares is too long to read, and would cost a second."""

SHARE_SLOTS = 3
"""Slots, after as many to warm up. Shares are shown in percent, so the median of three is enough."""


def launch_times(
    loader: Loader, recording: Recording, sources: Sequence[Source], artifacts: Artifacts, spaced: bool = False
) -> tuple[float, ...]:
    """Nanoseconds of each launch alone, in their order; empty for one launch, for more than are timed, and
    where the device has no memory left.

    Each launch reads what the launches before it have written, but from outside the L2 cache; in the whole recording it
    may still be in the cache. So the times can add up to more than the whole; their shares show where the time goes.
    Equal launches are timed once. ``spaced`` as for :class:`~kerntune.gpu.memory.Memory`.
    """
    launches = [(i, x) for i, x in enumerate(recording.launches) if 0 not in x.grid]
    kinds = {_launch_kind(x): i for i, x in reversed(launches)}
    if len(launches) < 2 or len(kinds) > MAX_LAUNCHES:
        return ()
    try:
        times = {kind: _launch_time(loader, recording, sources, artifacts, i, spaced) for kind, i in kinds.items()}
    except MeasurementError:  # no memory for another copy; no verdict needs these times
        return ()
    return tuple(times.get(_launch_kind(x), 0.0) for x in recording.launches)


def _launch_kind(launch: Launch) -> tuple[object, ...]:
    return launch.binary, launch.grid, launch.params


def _launch_time(
    loader: Loader, recording: Recording, sources: Sequence[Source], artifacts: Artifacts, index: int, spaced: bool
) -> float:
    memory = memory_at(loader, recording, sources, artifacts, index, spaced=spaced)
    program = Program(loader, recording.only(index).pruned(), memory, artifacts)
    slot = slot_for(program, estimate_ns(program))
    return median([slot.enqueue()() for _ in range(MIN_WARM_UP + SHARE_SLOTS)][MIN_WARM_UP:])


COPIED_CACHES = 8
"""The copied piece has so many times the size of the L2 cache: the part that is still in the cache then is small."""

LEAST_COPIED_BYTES = 1 << 28
"""And 256 MiB at least, so that a copy outlasts its own launch by a hundred times."""

COPY_MEMORY_SHARE = 0.2
"""Of the free memory, source and target take at most this much each."""

COPY_RUNS = 9


def measured_bandwidth(gpu: Executor) -> float | None:
    """Bytes a second that the device reads and writes together while it copies; None where no copy takes time.

    Kernels that mostly read can exceed it, since reads cost a little less than writes.
    """
    wanted = max(COPIED_CACHES * gpu.spec.l2_bytes, LEAST_COPIED_BYTES)
    nbytes = int(min(wanted, gpu.free_bytes() * COPY_MEMORY_SHARE))
    if nbytes < 1:
        return None
    source, target = gpu.allocate(nbytes), gpu.allocate(nbytes)
    gpu.fill(source, 1)
    gpu.copy(target, source)
    copy = partial(gpu.copy, target, source)
    time_ns = median_ns(flushed_runs(gpu, copy, COPY_RUNS, flushes_before(gpu, copy)))
    return 2 * nbytes / time_ns * 1e9 if time_ns > 0 else None
