"""The timers: slots that are enqueued in any order and read later, and what they return.

The device flushes until everything between two events is enqueued, so that the host's time isn't in between.

*Event pairs* around single executions, the L2 cache flushed before each. A pair resolves about half a microsecond,
and the events themselves cost one or two (on an H200 A/A differed by 2 to 5 % under 20 us). So it is for longer
recordings, and for what no graph can hold.

*A CUDA graph* of unrolled executions over rotated buffers, between two events. On an H200, kernels of 2 to 16 us
agreed A/A to 0.04 to 0.12 % over fresh processes, in 0.1 s. The buffers together exceed the L2 cache, so each
execution finds it cold, as a flush would leave it, without the flush's time.

*The profiler* (CUPTI, through ``torch.profiler``), a cross-check: each kernel's own start and end, to about 32 ns on
recent GPUs, without launch overhead and gaps. It reads lower than a graph by the gap between two kernels (about a
microsecond each). It is never chosen automatically: CUPTI slows every launch of its process from then on, needs
torch, and other profilers must be off. Only the user's own process uses it; replays don't.

*A whole callable*, torch's operations included: a graph of one call if it can be captured (no synchronisation, no
host-dependent work), else event pairs around each call. The protocol names which.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from kerntune.base.stats import median
from kerntune.errors import MeasurementError
from kerntune.gpu.base import Executor, Gpu, GpuEvent, GpuGraph
from kerntune.gpu.memory import MEMORY_SHARE
from kerntune.gpu.program import Program

if TYPE_CHECKING:
    from pathlib import Path


PROTOCOL_VERSION = 2
"""Raised whenever a change of the measurement makes its times incomparable with stored ones."""

Reading = Callable[[], float]
"""Waits for a slot's work and returns its time in nanoseconds per execution of the recording."""


class TimingProtocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How times were taken. Times are comparable only by the same timer of the same version."""

    timer: str
    runs_per_slot: int
    replicas: int
    version: int = PROTOCOL_VERSION

    def differences(self, today: TimingProtocol) -> list[str]:
        """Why times under this protocol can't be compared with today's; empty if they can."""
        pairs = (("timer", self.timer, today.timer), ("timing protocol", self.version, today.version))
        return [f"{what} {then} -> {now}" for what, then, now in pairs if then != now]


TimeNs = Annotated[float, msgspec.Meta(ge=1e-3, le=1e15)]
"""No launch takes less than a picosecond, or more than eleven days."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Raw times of one recording, a slot each, in nanoseconds per execution, in the order they were taken."""

    protocol: TimingProtocol
    times_ns: Annotated[tuple[TimeNs, ...], msgspec.Meta(min_length=1)]


class Slot(Protocol):
    """A prepared piece of work: a number of executions of one recording between two events."""

    protocol: TimingProtocol

    late: bool
    """Of the last piece that was enqueued: whether the device had reached its first event before everything up to the
    last one was enqueued. Then its time may contain some of the host's, which always adds."""

    def enqueue(self) -> Reading:
        """Enqueue the piece once, with the restores that it needs before the first event."""


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


def flushed_runs(
    gpu: Executor, work: Callable[[], object], runs: int, flushes: int = 1, restore: Callable[[], object] = lambda: None
) -> list[Between]:
    """Enqueue some work several times, each between two events, after ``restore`` and so many L2 flushes."""
    pieces = []
    for _ in range(runs):
        restore()
        for _ in range(flushes):
            gpu.flush_l2()
        pieces.append(between_events(gpu, work))
    return pieces


def median_ns(pieces: Sequence[Between]) -> float:
    """The median of their times, after waiting for them."""
    return median([piece.ns() for piece in pieces])


def mostly_late(pieces: Sequence[Between]) -> bool:
    """Whether at least half of them are late; otherwise the median is of a piece without the host's time."""
    return 2 * sum(piece.late for piece in pieces) >= len(pieces)


HEADROOM = 2.0
"""The device is kept busy for so many times the host's measured time: hosts are interrupted."""

MAX_FLUSHES = 256
"""A flush lasts some 30 us (H200), so 8 ms of Python can be hidden; a slower call is host-bound for its users."""


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


class EventSlot:
    """``runs`` executions of ``work``, each restored, flushed and timed by itself; the slot's time is their median.

    ``work`` has run before, so that it loads and compiles nothing.
    """

    def __init__(
        self,
        gpu: Executor,
        work: Callable[[], object],
        runs: int,
        restore: Callable[[], object] = lambda: None,
        timer: str = "events",
    ) -> None:
        self._gpu, self._work, self._restore = gpu, work, restore
        self.protocol = TimingProtocol(timer, runs, 1)
        self.late = False
        self._flushes = flushes_before(gpu, work, restore)

    def enqueue(self) -> Reading:
        """Enqueue all runs; restores and flushes stay outside the event pairs."""
        pieces = flushed_runs(self._gpu, self._work, self.protocol.runs_per_slot, self._flushes, self._restore)
        self.late = mostly_late(pieces)
        return lambda: median_ns(pieces)


def event_slot(program: Program, runs: int) -> EventSlot:
    """A slot of event pairs for a recording."""
    program.restore()
    program.enqueue()
    return EventSlot(program.gpu, program.enqueue, runs, program.restore)


TARGET_LAUNCHES = 200
"""Launches in one graph: enough that the graph's own start (a few us) is a small and equal part of both sides."""

TARGET_NS = 2e6
"""A graph lasts no longer than this; longer kernels are unrolled less often."""

IN_PLACE_BYTES = 1 << 30
"""Copies of what is restored before each slot hold at most this much: on an H200, restoring it takes half a
millisecond. A graph of two launches only would be read off event timers that resolve half a microsecond."""


class Rotated(Protocol):
    """What is executed on copies of its memory in turn: a :class:`~kerntune.gpu.program.Program`, which describes the
    methods, or a call of torch's."""

    @property
    def gpu(self) -> Executor:
        """Where it runs."""

    @property
    def in_place(self) -> Sequence[int]:
        """What is restored before each execution; none: nothing has to be."""

    def rotate(self, replicas: int, runs: int) -> int:
        """Have so many copies."""

    def enqueue(self, replica: int = 0) -> object:
        """One execution."""

    def restore(self, replica: int = 0) -> None:
        """First content, as far as executions change it and depend on it."""

    def graph(self, runs: int, replicas: int) -> GpuGraph:
        """Executions on copies in turn."""


class GraphSlot:
    """A graph of ``runs`` executions that visit the copies in turn; the slot's time is its duration over ``runs``.

    What launches change and depend on has a copy for each execution, because restores can't be inside the graph.
    """

    def __init__(self, program: Rotated, replicas: int, runs: int) -> None:
        self._program = program
        self.protocol = TimingProtocol("graph", runs, replicas)
        self.late = False
        visits = range(program.rotate(replicas, runs))
        self._restored: Sequence[int] = visits if program.in_place else ()
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
        (piece,) = flushed_runs(self._program.gpu, self._graph.replay, 1, self._flushes, self._restore)
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


PROFILER_DEFAULT_RUNS = 20


class ProfilerSlot:
    """``runs`` executions, each restored and flushed; the slot's time is the median of their kernels' summed times.

    The profiler starts and stops with each slot, which takes milliseconds: all is done when ``enqueue`` returns.
    """

    def __init__(self, program: Program, runs: int = PROFILER_DEFAULT_RUNS) -> None:
        self._program = program
        recording = program.recording
        self._symbols = [recording.binary_of(x).symbol for x in recording.launches if 0 not in x.grid]
        self.protocol = TimingProtocol("profiler", runs, 1)
        self.late = False  # the profiler's times contain none of the host's

    def enqueue(self) -> Reading:
        """Run all executions under the profiler."""
        ours = set(self._symbols)
        seen = [(name, ns) for name, ns in kernels_of(self._work) if name in ours]
        time_ns = median([sum(x) for x in executions(seen, self._symbols)])
        return lambda: time_ns

    def _work(self) -> None:
        for _ in range(self.protocol.runs_per_slot):
            self._program.restore()
            self._program.gpu.flush_l2()
            self._program.enqueue()
        self._program.gpu.synchronize()


def executions(seen: Sequence[tuple[str, float]], symbols: Sequence[str]) -> list[Sequence[float]]:
    """Kernel times, a row an execution. :class:`MeasurementError` if they aren't the launches that were made."""
    names, times = [name for name, _ in seen], [ns for _, ns in seen]
    whole = len(names) // max(len(symbols), 1)
    if not whole or names != list(symbols) * whole:
        raise MeasurementError(
            f"the profiler saw {len(names)} kernels that are not {', '.join(dict.fromkeys(symbols))} in turn; "
            "end other profilers, or use another timer"
        )
    return [times[i : i + len(symbols)] for i in range(0, len(times), len(symbols))]


def kernels_of(work: Callable[[], None]) -> list[tuple[str, float]]:
    """Name and nanoseconds of each kernel that ``work`` runs, in the order in which they started."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        raise MeasurementError("the profiler's timestamps need torch and a CUDA device; use another timer")
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        work()
    events = [e for e in found.events() or () if e.device_type == DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    return [(str(e.name), 1e3 * float(e.time_range.elapsed_us())) for e in events]


def write_trace(path: Path, work: Callable[[], object], metadata: Mapping[str, str]) -> None:
    """Run ``work`` under torch's profiler, and write what the host and, where there is one, the GPU did as a Chrome
    trace (``chrome://tracing``, Perfetto), with ``metadata`` as texts. ``OSError`` where the file can't be written."""
    import json

    import torch
    from torch.profiler import ProfilerActivity, profile, supported_activities

    wanted = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & set(supported_activities())
    # without acc_events, torch 2.11 warns of cycles at every start (pytorch #180348)
    with profile(activities=sorted(wanted, key=str), acc_events=True) as found:
        work()
        if ProfilerActivity.CUDA in wanted:
            torch.cuda.synchronize()
        for name, text in metadata.items():
            found.add_metadata(name, json.dumps(text)[1:-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    found.export_chrome_trace(str(path))


CALL_RUNS = 5
GRAPH, EVENTS = "op graph", "op events"


class CallSlot(EventSlot):
    """``runs`` executions of a call, the L2 cache flushed before each; the slot's time is their median.

    ``preserving`` undoes what the call does to its arguments; it encloses a slot, not each run.
    """

    def __init__(
        self,
        gpu: Gpu,
        call: Callable[[], object],
        preserving: Callable[[], AbstractContextManager[None]],
        runs: int = CALL_RUNS,
    ) -> None:
        self._preserving = preserving
        graph = self._capture(gpu, call)
        with preserving():
            if graph is not None:
                super().__init__(gpu, graph.replay, runs, timer=GRAPH)
            else:
                super().__init__(gpu, call, runs, timer=EVENTS)

    def _capture(self, gpu: Gpu, call: Callable[[], object]) -> GpuGraph | None:
        with self._preserving():
            call()
            gpu.synchronize()
            try:
                graph = gpu.call_graph(call)
                graph.replay()
                gpu.synchronize()
            except RuntimeError:
                return None
        return graph

    def enqueue(self) -> Reading:
        """Enqueue all runs; flushes stay outside the event pairs."""
        with self._preserving():
            return super().enqueue()
