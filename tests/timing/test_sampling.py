"""Which timer a recording gets, and the times that it gives on a scripted clock."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import math
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from fake_runs import (
    N,
    block,
    by_block,
    increment_kernel,
    program_of,
    recorded,
    scale,
    scale_kernel,
    script,
    sum_kernel,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.stats import median
from kerntune.errors import BackendError, MeasurementError, UsageError
from kerntune.gpu.program import Program
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend, FakeGpu, FakeWork
from kerntune.timing import timers
from kerntune.timing.sampling import (
    enough,
    estimate_ns,
    event_runs,
    measured_bandwidth,
    same_kind,
    slot_for,
    take_sample,
    warm,
)
from kerntune.timing.timers import (
    EVENTS,
    GRAPH,
    PROTOCOL_VERSION,
    CallSlot,
    EventSlot,
    GraphSlot,
    Sample,
    TimingProtocol,
    event_slot,
    flush_count,
    most_in_place,
    unrolled_runs,
)
from kerntune.tuning.race import Estimates, Trial, executions

ENOUGH_SPREAD = 0.002
GRAPH_BELOW_NS = 200_000.0
MAX_QUICK_SLOTS = 15
MAX_SLOTS = 40
MAX_WARM_UP = 40
MIN_SLOTS = 10
MIN_WARM_UP = 3
QUICK_SLOTS = 5
HEADROOM = 2.0
IN_PLACE_BYTES = 1 << 30
MAX_FLUSHES = 256
TARGET_LAUNCHES = 200
TARGET_NS = 2e6


def one() -> None:
    scale(scale_kernel, BLOCK=64)


def in_place() -> None:
    increment_kernel[by_block](torch.randn(N, device="cuda"), N, BLOCK=64)


def program(backend: FakeBackend, *rules: Rule, call: Callable[[], None] = one, **options: Any) -> Program:
    script(backend, *rules, **{"noise": 0.0, **options})
    return program_of(backend, recorded(backend, call))


# choosing


def test_short_recordings_become_graphs(backend: FakeBackend) -> None:
    slot = slot_for(program(backend, block(64, 5000.0)), 5000.0)
    assert isinstance(slot, GraphSlot)
    assert slot.protocol == TimingProtocol("graph", 256, 256, PROTOCOL_VERSION)


@pytest.mark.parametrize(("estimate", "runs"), [(GRAPH_BELOW_NS, 8), (4.5e5, 6), (1.7e6, 3), (1e9, 1)])
def test_long_recordings_are_timed_by_events(backend: FakeBackend, estimate: float, runs: int) -> None:
    slot = slot_for(program(backend), estimate)
    assert isinstance(slot, EventSlot)
    assert slot.protocol == TimingProtocol("events", runs, 1, PROTOCOL_VERSION)


def test_hidden_pointers_are_timed_in_place(backend: FakeBackend) -> None:
    made = program(backend)
    made.recording = msgspec.structs.replace(made.recording, hidden_pointers=True)
    assert isinstance(slot_for(made, 5000.0), EventSlot)


def test_without_room_for_copies_events_do(backend: FakeBackend) -> None:
    made = program(backend)
    made.enqueue()
    backend.gpu.script.memory_bytes = 0
    assert isinstance(slot_for(made, 5000.0), EventSlot)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RuntimeError("not permitted"), MeasurementError, "the launches can't be recorded as a graph: not permitted"),
        (BackendError("cuGraphLaunch: out of memory"), BackendError, "^cuGraphLaunch: out of memory$"),
    ],
    ids=["a measurement error", "a driver's refusal stays one"],
)
def test_what_no_graph_can_hold_is_an_error(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], text: str
) -> None:
    made = program(backend)

    def refuse(self: FakeGpu, work: Callable[[], None]) -> None:
        raise error

    monkeypatch.setattr(FakeGpu, "graph", refuse)
    with pytest.raises(kind, match=text):
        slot_for(made, 5000.0)


def test_the_same_kind_has_the_same_protocol(backend: FakeBackend) -> None:
    for estimate in (5000.0, 1e6):
        first = slot_for(program(backend), estimate)
        again = same_kind(program(backend), first)
        assert type(again) is type(first)
        assert again.protocol == first.protocol


@given(
    st.integers(1, 256),
    st.integers(1, 50),
    st.floats(0, 1e7),
    st.one_of(st.just(math.inf), st.floats(0.01, 1000)),
    st.sampled_from([TARGET_NS, 7e5, 1e4]),
)
def test_unrolled_runs_are_whole_rounds(
    replicas: int, launches: int, estimate: float, most: float, target_ns: float
) -> None:
    runs = unrolled_runs(replicas, launches, estimate, most, target_ns)
    assert runs >= replicas
    assert runs % replicas == 0
    if runs > replicas:
        assert runs <= most
        assert runs * launches <= 1.5 * TARGET_LAUNCHES
        assert runs * max(estimate, 1.0) <= 1.5 * target_ns


@pytest.mark.parametrize(("free", "most"), [(1 << 40, IN_PLACE_BYTES / (4 * N)), (1 << 20, (1 << 18) / (4 * N))])
def test_in_place_work_has_room_for_its_copies(backend: FakeBackend, free: int, most: float) -> None:
    made = program(backend, call=in_place)
    backend.gpu.script.memory_bytes = free + backend.gpu._allocated
    assert most_in_place(made) == most
    assert most_in_place(program(backend, call=one)) == math.inf


# timing


@pytest.mark.parametrize("time_ns", [50.0, 5000.0, 1e6])
@pytest.mark.parametrize("call", [one, in_place])
def test_both_timers_read_the_script(backend: FakeBackend, time_ns: float, call: Callable[[], None]) -> None:
    made = program(backend, block(64, time_ns), call=call)
    for slot in (event_slot(made, 10), GraphSlot(made, 4, 8)):
        assert slot.enqueue()() == pytest.approx(time_ns)
        assert slot.enqueue()() == pytest.approx(time_ns)
    assert estimate_ns(made) == pytest.approx(time_ns)


def test_a_recordings_time_is_of_all_its_launches(backend: FakeBackend) -> None:
    def both() -> None:
        one()
        in_place()

    made = program(backend, Rule("scale_kernel", time_ns=100.0), Rule("increment_kernel", time_ns=20.0), call=both)
    assert slot_for(made, 120.0).enqueue()() == pytest.approx(120.0)


@pytest.mark.parametrize("make", [lambda p: GraphSlot(p, 2, 4), lambda p: event_slot(p, 3)], ids=["graph", "events"])
def test_a_slot_says_if_the_host_was_late_for_it(backend: FakeBackend, make: Callable[[Program], Any]) -> None:
    """A median bears one late execution; a graph is started once."""
    found = program(backend, block(64, 1000.0))
    slot, gpu = make(found), backend.gpu
    pauses = iter([0.0] * 3 + [5e4, 0.0, 0.0] + [5e4, 5e4, 0.0])
    calls = 3 if isinstance(slot, EventSlot) else 1
    late = []
    for _ in range(3):
        given = [next(pauses) for _ in range(3)][:calls]
        before, after = gpu.launches, iter(given)
        gpu.script = with_pauses(gpu.script, lambda launches, after=after: next(after))
        slot.enqueue()()
        assert gpu.launches > before
        late.append(slot.late)
    assert late == ([False, False, True] if calls == 3 else [False, True, True])


def with_pauses(script: Any, pause: Callable[[int], float]) -> Any:
    """The same script with another host."""
    return dataclasses.replace(script, pause=pause)


def test_slots_may_be_read_late_and_out_of_order(backend: FakeBackend) -> None:
    slot = event_slot(program(backend, block(64, 100.0)), 10)
    first = slot.enqueue()
    backend.gpu.script.shift = 2.0
    second = slot.enqueue()
    assert (second(), first()) == (pytest.approx(200.0), pytest.approx(100.0))


def test_in_place_work_is_restored_before_every_timed_run(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(backend, call=in_place)
    order: list[str] = []
    monkeypatch.setattr(made, "restore", lambda replica=0: order.append(f"restore {replica}"))
    monkeypatch.setattr(made, "enqueue", lambda replica=0: order.append(f"run {replica}"))
    slot: EventSlot | GraphSlot = event_slot(made, 2)
    order.clear()
    slot.enqueue()()
    assert order == ["restore 0", "run 0"] * 2
    order.clear()
    slot = GraphSlot(made, 2, 4)
    ran = [f"run {i}" for i in (0, 1, 2, 3)]
    assert [x for x in order if x.startswith("run")] == ran * 2, "once each, then as the graph holds them"
    order.clear()
    slot.enqueue()()
    assert order == [f"restore {i}" for i in range(4)]


def test_executions_share_what_they_only_read(backend: FakeBackend) -> None:
    """Each has its own copy of what it changes; inputs take turns."""
    x, total = torch.randn(N, device="cuda"), torch.zeros(1, device="cuda")
    made = program(backend, call=lambda: sum_kernel[by_block](x, total, N, BLOCK=64))
    GraphSlot(made, 2, 6)
    (written,) = made.in_place
    (read,) = {p.view for p in made.recording.launches[0].params if p.view is not None} - {written}
    assert made.memory.replicas == 6
    copies = [[made.memory.buffer(i, s).address for i in range(6)] for s in (written,)]
    assert len(set(copies[0])) == 6
    assert all(read not in made.memory._copies[i] for i in range(2, 6))


def test_flushes_and_restores_are_not_timed(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(backend, block(64, 100.0), call=in_place)

    def slow_copy(self: FakeGpu, target: Any, source: Any) -> None:
        self._clock += 1e6

    monkeypatch.setattr(FakeGpu, "copy", slow_copy)
    assert event_slot(made, 10).enqueue()() == pytest.approx(100.0)
    assert GraphSlot(made, 1, 3).enqueue()() == pytest.approx(100.0)


# samples


def test_a_quiet_sample_is_short(backend: FakeBackend) -> None:
    sample = take_sample(slot_for(program(backend, block(64, 5000.0)), 5000.0))
    assert sample.times_ns == (5000.0,) * MIN_SLOTS
    assert sample.protocol.timer == "graph"


def test_a_noisy_sample_is_bounded(backend: FakeBackend) -> None:
    made = program(backend, block(64, 1e6), noise=0.2)
    slot = event_slot(made, 1)
    before = backend.gpu.launches
    sample = take_sample(slot)
    assert len(sample.times_ns) == MAX_SLOTS
    assert backend.gpu.launches - before <= MAX_SLOTS + MAX_WARM_UP


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), noise=st.floats(0.0, 0.01))
def test_a_samples_median_is_the_scripts_time(shared: FakeBackend, seed: int, noise: float) -> None:
    made = program(shared, block(64, 20_000.0), noise=noise, seed=seed)
    sample = take_sample(event_slot(made, 20))
    assert median(sample.times_ns) == pytest.approx(20_000.0, rel=0.01)
    assert MIN_SLOTS <= len(sample.times_ns) <= MAX_SLOTS


def test_a_clock_that_slopes_is_warmed_up_first(backend: FakeBackend) -> None:
    made = program(backend, block(64, 1e6))
    gpu, slots = backend.gpu, 0
    real = made.enqueue

    def cooling(replica: int = 0) -> None:
        nonlocal slots
        slots += 1
        gpu.script.shift = 1.0 + max(0.0, 0.2 - 0.02 * slots)
        real(replica)

    made.enqueue = cooling  # type: ignore[method-assign]
    sample = take_sample(event_slot(made, 1))
    assert max(sample.times_ns) == pytest.approx(1e6, rel=0.005)


def test_samples_survive_json(backend: FakeBackend) -> None:
    sample = take_sample(slot_for(program(backend), 10_000.0))
    assert msgspec.json.decode(msgspec.json.encode(sample), type=Sample) == sample


# whole calls


class Caller:
    """A call that takes time on the scripted clock; ``refuses`` makes it unfit for graphs."""

    def __init__(self, gpu: FakeGpu, time_ns: float, refuses: bool = False) -> None:
        self.gpu, self.work, self.refuses = gpu, FakeWork(1, time_ns, 0.0, {}), refuses
        self.calls, self.preserved = 0, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.gpu._recording is not None:
            if self.refuses:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.gpu._recording.append(self.work)
        else:
            self.gpu.run(self.work)

    def preserving(self) -> Any:
        self.preserved += 1
        return contextlib.nullcontext()


@pytest.mark.parametrize(("refuses", "timer"), [(False, GRAPH), (True, EVENTS)])
def test_a_whole_call_is_a_graph_if_it_can_be_captured(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, refuses: bool, timer: str
) -> None:
    monkeypatch.setattr(FakeGpu, "call_graph", FakeGpu.graph)
    call = Caller(backend.gpu, 1234.0, refuses)
    slot = CallSlot(backend.gpu, call, call.preserving, runs=3)
    assert slot.protocol == TimingProtocol(timer, 3, 1)
    before = call.calls
    assert slot.enqueue()() == pytest.approx(1234.0)
    assert call.calls - before == (3 if refuses else 0)
    assert call.preserved == 3, "once to capture, once to see how long the host takes, once for the slot"


def test_a_whole_calls_own_error_is_its_own(backend: FakeBackend) -> None:
    def broken() -> None:
        raise ValueError("bad shape")

    with pytest.raises(ValueError, match="bad shape"):
        CallSlot(backend.gpu, broken, Caller(backend.gpu, 1.0).preserving)


def test_a_graph_is_freed_with_its_slot(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real graph keeps its work; in a cycle, device memory would wait for a collection that may not come."""
    found = program(backend)
    monkeypatch.setattr(found.gpu, "graph", lambda work: types.SimpleNamespace(replay=work, keep=work))
    slot = GraphSlot(found, 2, 4)
    seen = weakref.ref(slot)
    gc.disable()
    try:
        del slot
        assert seen() is None
    finally:
        gc.enable()


# timers by name


@pytest.mark.parametrize(
    ("estimate", "timer", "hidden", "expected"),
    [(199_999.0, "auto", False, "graph"), (200_000.0, "auto", False, "events"), (1.0, "auto", True, "events"),
     (1.0, "events", False, "events"), (1e9, "graph", False, "graph"), (1e9, "profiler", True, "profiler")],
)  # fmt: skip
def test_which_timer_by_hand(backend: FakeBackend, estimate: float, timer: str, hidden: bool, expected: str) -> None:
    made = program(backend)
    made.recording = msgspec.structs.replace(made.recording, hidden_pointers=hidden)
    assert slot_for(made, estimate, timer).protocol.timer == expected


@pytest.mark.parametrize(
    ("estimate", "runs"), [(0.0, 20), (75_000.0, 20), (80_000.0, 19), (250_000.0, 6), (833_000.0, 6), (1e6, 5)]
)
def test_runs_of_an_event_slot_by_hand(estimate: float, runs: int) -> None:
    """Twenty within 1.5 ms, or six within 5 ms."""
    assert event_runs(estimate) == runs


@pytest.mark.parametrize(
    ("cache", "free", "nbytes"),
    [(50 << 20, 80 << 30, 400 << 20), (4 << 20, 80 << 30, 256 << 20), (50 << 20, 1000, 200), (50 << 20, 5, 1),
     (50 << 20, 4, None)],
)  # fmt: skip
def test_what_a_bandwidth_is_measured_with(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, cache: int, free: int, nbytes: int | None
) -> None:
    """Eight caches, 256 MiB at least, a fifth of the free memory at most: it is copied twice and then nine times."""
    gpu, sizes, copies = backend.gpu, list[int](), list[int]()
    gpu.spec = msgspec.structs.replace(gpu.spec, l2_bytes=cache)
    monkeypatch.setattr(gpu, "free_bytes", lambda: free)
    allocate, copy = gpu.allocate, gpu.copy
    monkeypatch.setattr(gpu, "allocate", lambda size: (sizes.append(size), allocate(size))[1])
    monkeypatch.setattr(gpu, "copy", lambda *a: (copies.append(1), copy(*a))[1])
    measured_bandwidth(gpu)
    assert sizes == ([] if nbytes is None else [nbytes] * 2)
    assert len(copies) == (0 if nbytes is None else 1 + 1 + 9)


@pytest.mark.parametrize(("share", "answer"), [(0.9, True), (1.1, False)])
def test_a_quick_sample_needs_one_percent(share: float, answer: bool) -> None:
    off = share * 0.01
    assert quickly_enough([0.5, 1 - off, 1.0, 1 + off, 1.5]) is answer


@pytest.mark.parametrize("timer", ["graph", "events"])
@pytest.mark.parametrize("estimate", [5000.0, 1e6])
def test_a_timer_asked_for_is_used_and_recorded(backend: FakeBackend, timer: str, estimate: float) -> None:
    assert slot_for(program(backend), estimate, timer).protocol.timer == timer


def test_an_unknown_timer_is_a_usage_error(backend: FakeBackend) -> None:
    with pytest.raises(UsageError, match="timer 'sundial' is none of auto, graph, events, profiler"):
        slot_for(program(backend), 5000.0, "sundial")


def test_a_graph_that_cannot_rotate_is_refused_not_replaced(backend: FakeBackend) -> None:
    made = program(backend)
    made.recording = msgspec.structs.replace(made.recording, hidden_pointers=True)
    with pytest.raises(MeasurementError, match="timer 'graph' needs copies"):
        slot_for(made, 5000.0, "graph")


def profiled(monkeypatch: pytest.MonkeyPatch, *kernels: tuple[str, float]) -> None:
    """What the profiler will have seen, once ``work`` has run."""

    def kernels_of(work: Callable[[], None]) -> list[tuple[str, float]]:
        work()
        return list(kernels)

    monkeypatch.setattr(timers, "kernels_of", kernels_of)


def test_the_profiler_counts_our_kernels_only(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(backend)
    empty = msgspec.structs.replace(made.recording.launches[0], grid=(1, 0, 1))
    made.recording = msgspec.structs.replace(made.recording, launches=(*made.recording.launches, empty))
    profiled(monkeypatch, ("Memset", 40_000.0), ("scale_kernel", 900.0), ("Memset", 1.0), ("scale_kernel", 1100.0))
    slot = slot_for(made, 5000.0, "profiler")
    assert slot.protocol == TimingProtocol("profiler", 20, 1)
    before = backend.gpu.launches
    assert slot.enqueue()() == pytest.approx(1000.0)
    assert backend.gpu.launches - before == 20
    assert same_kind(made, slot).protocol == slot.protocol


def test_an_execution_is_the_sum_of_its_launches() -> None:
    seen = [("a", 1.0), ("b", 2.0), ("a", 3.0), ("b", 4.0)]
    assert [sum(x) for x in timers.executions(seen, ["a", "b"])] == [3.0, 7.0]


@pytest.mark.parametrize("seen", [[], [("a", 1.0)], [("a", 1.0), ("a", 1.0)], [("b", 1.0), ("a", 1.0)]])
def test_what_the_profiler_missed_is_told(seen: list[tuple[str, float]]) -> None:
    with pytest.raises(MeasurementError, match=f"saw {len(seen)} kernels that are not a, b in turn"):
        timers.executions(seen, ["a", "b"])


def test_without_cuda_there_are_no_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasurementError, match="need torch and a CUDA device"):
        timers.kernels_of(lambda: None)


def test_a_copy_s_source_is_filled_before_it_is_timed(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that was never written may not be there at all."""
    gpu, did = backend.gpu, list[Any]()
    for name in ("fill", "copy", "event"):
        real = getattr(gpu, name)
        monkeypatch.setattr(gpu, name, lambda *a, name=name, real=real: (did.append((name, *a[1:])), real(*a))[1])
    assert measured_bandwidth(gpu) is None
    assert [did[0], did[1][0]] == [("fill", 1), "copy"], "ones, since a device may compress zeros"


# the host's time


@given(st.floats(0, 1e9), st.floats(0, 1e6))
def test_the_device_is_busy_for_longer_than_the_host(host_ns: float, flush_ns: float) -> None:
    count = flush_count(host_ns, flush_ns)
    assert 1 <= count <= MAX_FLUSHES
    if flush_ns > 0 and count < MAX_FLUSHES:
        assert count * flush_ns >= HEADROOM * host_ns or count == 1
        assert (count - 1) * flush_ns <= HEADROOM * host_ns


def test_a_slow_host_is_hidden_behind_flushes(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each of its runs, and outside the events."""
    made = program(backend, block(64, 100.0))
    flushed: list[FakeGpu] = []
    monkeypatch.setattr(timers, "flush_count", lambda host_ns, flush_ns: 7)
    slots = event_slot(made, 3), GraphSlot(made, 2, 4)
    monkeypatch.setattr(FakeGpu, "flush_l2", lambda self: flushed.append(self))
    for slot, count in zip(slots, (21, 7), strict=True):
        flushed.clear()
        assert slot.enqueue()() == pytest.approx(100.0)
        assert len(flushed) == count


# stopping rules: numbers in, yes or no out


quickly_warm, quickly_enough = partial(warm, quick=True), partial(enough, quick=True)
times = st.lists(st.floats(1.0, 1e9), max_size=60)


def taken(rule: Callable[[Sequence[float]], bool], source: Iterator[float]) -> list[float]:
    """The times that a timer takes from ``source`` until the rule stops it."""
    found: list[float] = []
    while not rule(found):
        found.append(next(source))
        assert len(found) <= 1000
    return found


def steady(noise: float, seed: int = 0) -> Iterator[float]:
    random = np.random.default_rng(seed)
    while True:
        yield float(10_000 * (1 + random.normal(0, noise)))


def cooling() -> Iterator[float]:
    """The first runs are slow: half of what is left goes with every slot."""
    extra = 1.0
    while True:
        yield 10_000 * (1 + extra)
        extra /= 2


@pytest.mark.slow
@given(times)
def test_rules_keep_their_borders(seen: list[float]) -> None:
    if len(seen) < MIN_WARM_UP:
        assert not warm(seen)
    if len(seen) >= MAX_WARM_UP:
        assert warm(seen)
    if len(seen) < MIN_SLOTS:
        assert not enough(seen)
    if len(seen) >= MAX_SLOTS:
        assert enough(seen)


@given(times, st.sampled_from([0.25, 2.0, 1024.0]))
def test_rules_know_no_unit(seen: list[float], scale: float) -> None:
    scaled = [t * scale for t in seen]
    assert warm(scaled) == warm(seen)
    assert enough(scaled) == enough(seen)


def test_a_steady_kernel_is_measured_in_the_fewest_slots() -> None:
    assert len(taken(warm, steady(0.0005))) == MIN_WARM_UP
    assert len(taken(enough, steady(ENOUGH_SPREAD / 4))) == MIN_SLOTS


def test_a_noisy_kernel_gets_the_most_slots_and_no_more() -> None:
    assert len(taken(enough, steady(0.05))) == MAX_SLOTS
    assert len(taken(warm, steady(0.2))) == MAX_WARM_UP


def test_warm_up_outlasts_the_slope() -> None:
    warming = taken(warm, cooling())
    assert MIN_WARM_UP < len(warming) < MAX_WARM_UP
    assert warming[-1] / 10_000 - 1 < 0.005


def test_one_odd_slot_does_not_end_or_prolong_a_sample() -> None:
    """An interrupt's spike must not count: the rule uses quartiles."""
    seen = [10_000.0] * (MIN_SLOTS - 1)
    assert enough([*seen, 50_000.0])
    assert not enough([*seen[1:], 50_000.0])


@pytest.mark.parametrize(("share", "answer"), [(0.9, True), (1.1, False)])
def test_spread_is_half_the_quartiles_distance(share: float, answer: bool) -> None:
    """Quartiles at 1 -/+ share * ENOUGH_SPREAD, the median at 1; the ends far out."""
    off = share * ENOUGH_SPREAD
    seen = [0.5, 1 - off, 1 - off, 1 - off, 1.0, 1.0, 1.0, 1 + off, 1 + off, 1 + off, 1.5]
    assert len(seen) >= MIN_SLOTS
    assert enough(seen) is answer


def test_zeros_never_settle() -> None:
    """A timer that gives 0 (a broken event) ends by the limits, not by looking steady."""
    assert not enough([0.0] * MIN_SLOTS)
    assert not warm([0.0] * MIN_WARM_UP)


@pytest.mark.parametrize("rule", [warm, enough])
def test_nothing_taken_is_not_enough(rule: Callable[[Sequence[float]], bool]) -> None:
    assert not rule([])


def test_a_quick_sample_is_short_whatever_the_noise() -> None:
    assert len(taken(quickly_enough, steady(0.0005))) == QUICK_SLOTS
    assert len(taken(quickly_enough, steady(0.2))) == MAX_QUICK_SLOTS
    assert len(taken(quickly_warm, steady(0.2))) == MAX_QUICK_SLOTS
    assert len(taken(quickly_warm, steady(0.0005))) == MIN_WARM_UP


@given(times)
def test_quick_rules_never_ask_for_more(seen: list[float]) -> None:
    assert quickly_warm(seen) or not warm(seen)
    assert quickly_enough(seen) or not enough(seen)


@given(st.integers(0, 1000))
def test_a_quick_median_is_near_enough_to_tell_drift(seed: int) -> None:
    seen = taken(quickly_enough, steady(0.01, seed))
    assert np.median(seen) == pytest.approx(10_000, rel=0.02)


# first contents before every timed execution


def looked_at(program: Program) -> None:
    Estimates().take(Trial(0, program.recording, program, [0]))


def slots(make: Callable[[Program], EventSlot | GraphSlot]) -> Callable[[Program], None]:
    def take(program: Program) -> None:
        slot = make(program)
        for _ in range(3):
            slot.enqueue()()

    return take


@pytest.mark.parametrize(
    "timed",
    [
        looked_at,
        lambda program: executions(program, 5),
        slots(lambda program: event_slot(program, 4)),
        slots(lambda program: GraphSlot(program, 2, 2)),
        slots(lambda program: GraphSlot(program, 2, 8)),
    ],
    ids=["first look", "executions", "events", "graph", "graph of several rounds"],
)
def test_every_timed_execution_begins_with_the_first_content(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, timed: Callable[[Program], None]
) -> None:
    script(backend, block(64, 1000.0), noise=0.0)
    x = torch.randn(N, device="cuda")
    program = program_of(backend, recorded(backend, lambda: increment_kernel[by_block](x, N, BLOCK=64)))
    assert program.in_place == [0]
    first, leave, seen = program.memory.sources[0].pristine.content.key, FakeWork.leave, list[bool]()

    def watched(work: FakeWork) -> None:
        seen.extend(buffer.content.key == first and len(marks) == 1 for buffer, marks in work.left.items())
        leave(work)

    monkeypatch.setattr(FakeWork, "leave", watched)
    timed(program)
    assert len(seen) >= 5
    assert all(seen)


@pytest.mark.parametrize(
    ("host_ns", "flush_ns", "count"),
    [(100, 0, 1), (100, -1, 1), (100, 0.5, MAX_FLUSHES), (100, 200, 1), (100, 199, 2), (1000, 100, 20), (0, 1, 1)],
)
def test_flushes_by_hand(host_ns: float, flush_ns: float, count: int) -> None:
    """They last twice as long as the host takes; where flushes take no time, they hide none."""
    assert flush_count(host_ns, flush_ns) == count


@pytest.mark.parametrize(
    ("replicas", "launches", "estimate_ns", "most", "runs"),
    [(1, 1, 1000, math.inf, 200), (1, 4, 1000, math.inf, 50), (1, 0, 1000, math.inf, 200), (1, 1, 1e5, math.inf, 20),
     (3, 1, 1e5, math.inf, 21), (4, 1, 1e5, 10, 8), (8, 1, 1e6, math.inf, 8), (1, 1, 0, math.inf, 200),
     (3, 1, 1e6, math.inf, 3), (2, 1, 1e5, 20, 20), (2, 1, 1e5, 19, 18)],
)  # fmt: skip
def test_runs_of_a_graph_by_hand(replicas: int, launches: int, estimate_ns: float, most: float, runs: int) -> None:
    """200 launches or two milliseconds, in whole rounds of the copies."""
    assert unrolled_runs(replicas, launches, estimate_ns, most) == runs


def test_half_of_the_pieces_being_late_are_most() -> None:
    piece = types.SimpleNamespace
    late = [timers.mostly_late([piece(late=i < n) for i in range(4)]) for n in range(5)]  # type: ignore[misc]
    assert late == [False, False, True, True, True]


@pytest.mark.parametrize(("launches", "rough", "measured"), [(1, 0, 2), (2, 2, 2)])
def test_a_rough_time_of_one_launch_needs_no_look_at_the_host(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, launches: int, rough: int, measured: int
) -> None:
    def call() -> None:
        for _ in range(launches):
            one()

    made, flushed = program(backend, block(64, 100.0), call=call), list[FakeGpu]()
    monkeypatch.setattr(FakeGpu, "flush_l2", lambda self: flushed.append(self))
    estimate_ns(made)
    assert (len(flushed), backend.gpu.launches) == (rough + 6, (rough + 6) * launches), (
        "it runs before, and is looked at"
    )
    flushed.clear()
    slot = event_slot(made, 3)
    assert len(flushed) == measured
    slot.enqueue()
    assert (len(flushed), slot.protocol) == (measured + 3, TimingProtocol("events", 3, 1))


def test_an_estimate_is_of_three_executions_after_three(backend: FakeBackend) -> None:
    made = program(backend, block(64, 100.0))
    assert estimate_ns(made) == pytest.approx(100.0)
    assert backend.gpu.launches == 6


class Noted:
    """A device that notes what it is asked for, and whose host takes a second between two events."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.did.append(name)

    def elapsed_ns(self, start: object, end: object) -> float:
        self.did.append("elapsed_ns")
        return 1e8

    def call_graph(self, call: Callable[[], object]) -> Any:
        self.did.append("call_graph")
        return types.SimpleNamespace(replay=lambda: self.did.append("replay"))


LOOK = "flush_l2 event flush_l2 event elapsed_ns synchronize event {} event synchronize"


def test_what_comes_before_a_work_hides_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush is timed while the device is busy, then the host's time with both events, on an idle device."""
    gpu, seconds = Noted(), iter([1_000_000_000, 2_000_000_000])
    monkeypatch.setattr(timers.time, "perf_counter_ns", lambda: gpu.did.append("clock") or next(seconds))
    did = gpu.did.append
    assert timers.flushes_before(gpu, lambda: did("work"), lambda: did("restore")) == 20  # type: ignore[arg-type]
    before, after = LOOK.split(" event {} event ")
    assert gpu.did == ["restore", *before.split(), "clock", "event", "work", "event", "clock", *after.split()]


def test_a_call_is_run_before_it_is_captured_and_its_graph_before_it_is_timed() -> None:
    """A graph that can't be replayed says so only when the device is waited for."""
    gpu = Noted()
    CallSlot(gpu, lambda: gpu.did.append("call"), contextlib.nullcontext)  # type: ignore[arg-type]
    assert gpu.did == f"call synchronize call_graph replay synchronize {LOOK.format('replay')}".split()


def test_times_are_kept_to_a_tenth_of_a_nanosecond() -> None:
    slot: Any = types.SimpleNamespace(protocol=TimingProtocol("events", 1, 1), enqueue=lambda: lambda: 1234.56)
    assert take_sample(slot).times_ns == (1234.6,) * 10


def test_a_whole_call_runs_five_times_a_slot(backend: FakeBackend) -> None:
    call = Caller(backend.gpu, 1.0, refuses=True)
    assert CallSlot(backend.gpu, call, call.preserving).protocol.runs_per_slot == 5


def test_kernels_of_the_profiler_are_ours_in_order_of_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the device's events alone; the profiler may list them in another order."""
    from torch.autograd import DeviceType

    def event(name: str, start: float, us: float, device: Any = DeviceType.CUDA) -> Any:
        span = types.SimpleNamespace(start=start, elapsed_us=lambda: us)
        return types.SimpleNamespace(name=name, time_range=span, device_type=device)

    class Profile:
        def __init__(self, **words: Any) -> None:
            assert words["acc_events"] is True, "events() is empty without"

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *exc: object) -> None:
            did.append("end")

        def events(self) -> list[Any]:
            return [event("b", 5.0, 2.0), event("host", 0.0, 9.0, DeviceType.CPU), event("a", 1.0, 0.5)]

    did: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    assert timers.kernels_of(lambda: did.append("work")) == [("a", 500.0), ("b", 2000.0)]
    assert did == ["work", "end"]


@pytest.mark.parametrize("devices", ["CPU", "CPU CUDA", "CPU XPU"])
def test_a_trace_is_of_the_host_and_of_the_gpu_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: str
) -> None:
    """Its end waits for the GPU; its metadata are texts within JSON."""
    from torch.profiler import ProfilerActivity

    did: list[object] = []

    class Profile:
        def __init__(self, **words: Any) -> None:
            did.append(({kind.name for kind in words["activities"]}, words["acc_events"]))

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *exc: object) -> None:
            did.append("end")

        def add_metadata(self, name: str, text: str) -> None:
            did.append((name, json.loads(f'"{text}"')))

        def export_chrome_trace(self, path: str) -> None:
            assert Path(path).parent.is_dir()
            did.append(path)

    kinds = {ProfilerActivity.__members__[name] for name in devices.split()}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: kinds)
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: did.append("synchronize"))
    path, said = tmp_path / "far" / "away" / "trace.json", 'a "text"\n'
    for _ in range(2):
        did.clear()
        timers.write_trace(path, lambda: did.append("work"), {"case": said})
        waits = ["synchronize"] if "CUDA" in devices else []
        kept = {*devices.split()} - {"XPU"}
        assert did == [(kept, True), "work", *waits, ("case", said), "end", str(path)]
