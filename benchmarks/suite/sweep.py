"""Times every config of a call in turn with the others: the reference that chosen configs are compared with."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.suite.case import Call, config_text
from kerntune.base.device import DeviceSpec
from kerntune.base.recording import Recording
from kerntune.base.stats import median
from kerntune.capture import Capture, Probe, Site
from kerntune.capture.recorder import Recorded, make_launch, record
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.errors import KerntuneError
from kerntune.gate.static_figures import binary_input
from kerntune.gpu.base import Backend
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader, Program
from kerntune.static.disassembly import Disassembler
from kerntune.static.metrics import StaticMetrics, metrics_of
from kerntune.timing.sampling import estimate_ns, same_kind, slot_for
from kerntune.timing.timers import ProfilerSlot, Slot

WARM_UP_ROUNDS = 1
"""Rounds whose times are thrown away: clocks rise and settle."""

FEW_ROUNDS = 2
"""Rounds that determine which configs are near the best. Short kernels need them: event pairs misread those by a
microsecond."""

CHUNK = 24
"""Kernels in one run of the disassembler: enough that its start is a small part."""


@dataclass
class Swept:
    """One config: what it compiled to, or why it failed, and its times in nanoseconds."""

    config: str
    failure: str = ""
    compiled: Compiled | None = None
    same_as: int | None = None
    grid: tuple[int, ...] = ()
    first_look_ns: float | None = None
    times_ns: list[float] = field(default_factory=list)
    metrics: StaticMetrics | None = None

    @property
    def time_ns(self) -> float | None:
        """Median over its slots, else the first look's."""
        return median(self.times_ns) if self.times_ns else self.first_look_ns

    def row(self) -> dict[str, Any]:
        """As it is stored: only what is there, so figures that aren't are 0."""
        found = self.metrics
        static = {} if found is None else {name: value for name in STATIC if (value := getattr(found, name))}
        spread = _half_range(self.times_ns) if len(self.times_ns) > 3 else None
        row = {
            "config": self.config,
            "failure": self.failure.strip().split("\n")[-1][:200],
            "same_as": self.same_as,
            "grid": list(self.grid),
            "time_ns": None if self.time_ns is None else round(self.time_ns, 1),
            "rounds": len(self.times_ns),
            "spread": None if spread is None else round(spread, 5),
            **static,
        }
        return {k: v for k, v in row.items() if v not in (None, "", [], {})}


STATIC = (
    "registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "shared_bytes", "code_bytes", "threads",
    "occupancy", "occupancy_limiter", "instructions",
)  # fmt: skip
"""What is kept of a config's static figures (:class:`kerntune.static.StaticMetrics`)."""


def _half_range(times: Sequence[float]) -> float:
    """Half the interquartile range over the median."""
    ordered = sorted(times)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / 2 / median(times)


@dataclass
class Sweep:
    """A call's configs, compiled: ``swept`` by index of the tuner's list."""

    capture: Capture
    site: Site
    probes: dict[int, Probe]
    swept: list[Swept]
    timing: dict[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> list[int]:
        """Those that are launched: each distinct code and grid once."""
        return [i for i, s in enumerate(self.swept) if s.compiled is not None and s.same_as is None and not s.failure]

    def rows(self) -> list[dict[str, Any]]:
        """All configs as they are stored; equal code has its first one's time."""
        for s in self.swept:
            if s.same_as is not None:
                first = self.swept[s.same_as]
                s.first_look_ns, s.times_ns, s.failure = first.first_look_ns, first.times_ns, first.failure
        return [s.row() for s in self.swept]


def prepare(backend: Backend, compiler: Compiler, tuner: Any, call: Call) -> Sweep:
    """Capture one call of a tuner and compile all its configs. Nothing is timed yet."""
    capture = Capture(backend, compiler, thread=threading.get_ident())
    site = capture.site_of(tuner, call.arguments, {"grid": call.grid, "warmup": False})
    sweep = Sweep(capture, site, {}, [Swept(config_text(c)) for c in site.originals])
    with capture.active():
        capture.launch(site)
        for i in range(len(site.candidates)):
            try:
                sweep.probes[i] = capture.probe(site, i)
            except KerntuneError as exc:
                sweep.swept[i].failure = str(exc)
    _compile(compiler, sweep)
    return sweep


def _compile(compiler: Compiler, sweep: Sweep) -> None:
    compiler.compile_all([probe.specialized for probe in sweep.probes.values()])
    first: dict[tuple[str, tuple[int, ...]], int] = {}
    for i, probe in sweep.probes.items():
        one = sweep.swept[i]
        try:
            one.compiled = compiler.compile(probe.specialized)
        except KerntuneError as exc:
            one.failure = str(exc)
            continue
        one.grid = probe.grid
        work = (one.compiled.binary.text, probe.grid)
        one.same_as = first.setdefault(work, i) if first.get(work, i) != i else None
        first.setdefault(work, i)


def measure(
    sweep: Sweep, *, rounds: int, near: float, look: float = math.inf, always: Collection[int] = (), seed: int = 0
) -> None:
    """Time all configs: a first look at each by event pairs; a few rounds of those within ``look`` times its best, by
    the timer that suits the best; ``rounds`` of those that these find within ``near`` times their best.

    Those in ``always`` are timed to the end whatever they take. Every round visits its configs in another order. Call
    inside the GPU's lock.
    """
    gpu = sweep.capture.backend.gpu
    assert gpu is not None
    loader, order = Loader(gpu), random.Random(seed)
    forced = {i if (same := sweep.swept[i].same_as) is None else same for i in always}
    try:
        with sweep.capture.active():
            recorded = record(sweep.capture)
            programs = _programs(sweep, recorded, loader)
        _look(sweep, programs)
        slots = _slots({i: programs[i] for i in _near(sweep, programs, look, forced)}, sweep)
        _rounds(sweep, slots, FEW_ROUNDS, order)
        final = {i: slots[i] for i in _near(sweep, slots, near, forced)}
        for i in final:
            sweep.swept[i].times_ns.clear()
        _rounds(sweep, final, rounds, order)
        if slots:
            protocol = msgspec.to_builtins(next(iter(slots.values())).protocol)
            sweep.timing = {**protocol, "rounds": rounds, "near": len(final), "in_turn": len(slots)}
    finally:
        loader.close()


def measure_again(
    sweep: Sweep, indexes: Collection[int], rounds: int, make: Callable[[Program], Slot] = ProfilerSlot
) -> dict[int, list[float]]:
    """Times in nanoseconds of some configs by another timer, in turn, one for each round; those that it can't time are
    left out, and their ``failure`` says why. Call inside the GPU's lock."""
    gpu = sweep.capture.backend.gpu
    assert gpu is not None
    loader, order = Loader(gpu), random.Random(0)
    times: dict[int, list[float]] = {i: [] for i in indexes}
    try:
        with sweep.capture.active():
            recorded = record(sweep.capture)
            programs = _programs(sweep, recorded, loader)
        turn = [i for i in times if i in programs]
        slots = {i: make(programs[i]) for i in turn}
        for number in range(WARM_UP_ROUNDS + rounds):
            order.shuffle(turn)
            for i in turn:
                time = slots[i].enqueue()()
                times[i] += [time] if number >= WARM_UP_ROUNDS else []
    finally:
        loader.close()
    return {i: found for i, found in times.items() if found}


def _near(sweep: Sweep, among: Iterable[int], factor: float, forced: Collection[int]) -> list[int]:
    """Those whose time so far is within ``factor`` of the best's, and those that are kept in any case."""
    times = {i: sweep.swept[i].time_ns or math.inf for i in among}
    best = min(times.values(), default=0.0)
    return [i for i, time in times.items() if time <= factor * best or i in forced]


def _programs(sweep: Sweep, recorded: Recorded, loader: Loader) -> dict[int, Program]:
    memory = Memory(loader.gpu, recorded.recording.storages, recorded.sources)
    found = {}
    for i in sweep.running:
        try:
            found[i] = _program(sweep, i, recorded.recording, loader, memory)
        except KerntuneError as exc:
            sweep.swept[i].failure = str(exc)
    return found


def _program(sweep: Sweep, index: int, captured: Recording, loader: Loader, memory: Memory) -> Program:
    """The captured launch as one config would have it, on the captured run's storages."""
    plan, probe, compiled = sweep.capture.plan, sweep.probes[index], sweep.swept[index].compiled
    assert compiled is not None
    launch = make_launch(plan, probe.specialized, compiled, probe.grid)
    whole = msgspec.structs.replace(captured, views=plan.views).with_launch(0, launch, compiled.binary)
    return Program(loader, whole.only(0).pruned(), memory, {compiled.binary.sha256: compiled.data})


def _look(sweep: Sweep, programs: dict[int, Program]) -> None:
    for i, program in list(programs.items()):
        try:
            sweep.swept[i].first_look_ns = estimate_ns(program)
        except KerntuneError as exc:
            sweep.swept[i].failure = str(exc)
            del programs[i]


def _slots(programs: Mapping[int, Program], sweep: Sweep) -> dict[int, Slot]:
    """One protocol for all, that of the fastest."""
    best = min((sweep.swept[i].first_look_ns or 0.0 for i in programs), default=0.0)
    slots: dict[int, Slot] = {}
    for i, program in programs.items():
        like = next(iter(slots.values()), None)
        slots[i] = slot_for(program, best) if like is None else same_kind(program, like)
    return slots


def _rounds(sweep: Sweep, slots: Mapping[int, Slot], rounds: int, order: random.Random) -> None:
    turn = list(slots)
    for number in range(WARM_UP_ROUNDS + rounds):
        order.shuffle(turn)
        for i in turn:
            time = slots[i].enqueue()()
            if number >= WARM_UP_ROUNDS:
                sweep.swept[i].times_ns.append(time)


def add_metrics(sweeps: Sequence[Sweep], spec: DeviceSpec, workers: int) -> None:
    """Static figures of everything that was compiled, each distinct code once, the disassembler in parallel."""
    found = [s for sweep in sweeps for s in sweep.swept if s.compiled is not None and s.same_as is None]
    chunks = [found[i : i + CHUNK] for i in range(0, len(found), CHUNK)]

    def work(chunk: list[Swept]) -> None:
        inputs = [binary_input(c.binary, c.data, c.asm) for s in chunk if (c := s.compiled) is not None]
        for s, metrics in zip(chunk, metrics_of(inputs, spec, disassembler=Disassembler()), strict=True):
            s.metrics = metrics

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, chunks))
