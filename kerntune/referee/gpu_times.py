"""Times on a GPU, in sealed processes, of executions that are checked.

A candidate's timed execution is like any other one. Each has memory of its own that is restored before it: unwritten
memory is poison, and the content of the inputs is *rolled*, moved by a distance that is drawn for each execution, so
that no content comes twice. The one exception is a distance whose results the referee knows, which is drawn for one
execution in :data:`KNOWN_EACH`. What the author's code makes isn't rolled: there are several contents of it, all with
known results, and neighbouring copies have different ones. Of known and of other contents some executions are kept,
each with the same probability (Vitter, Random Sampling with a Reservoir, ACM TOMS 11, 1985), and what they left is the
answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from operator import attrgetter
from typing import Protocol, cast

import msgspec

from kerntune.base.stats import median
from kerntune.errors import KerntuneError, OutOfResourcesError
from kerntune.gpu.base import Buffer, Executor, Gpu
from kerntune.gpu.foreign_work import together
from kerntune.gpu.memory import Memory
from kerntune.gpu.program import Loader
from kerntune.referee import sealing
from kerntune.referee.declared_inputs import drawn_distance
from kerntune.referee.gpu_replay import Digests, ReplayedProgram, VariedSources, gpu_of, refused_for
from kerntune.referee.hostile_recording import filled
from kerntune.referee.live_reference import LiveReference, LiveSide, PreparedRuns
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import KeptExecution, ReplaySide, Rolls, TimeAnswer, TimedAs, TimeTask, Variation
from kerntune.timing.paired import Pair, Pairing, slots_alike
from kerntune.timing.sampling import launch_times
from kerntune.timing.timers import Slot, between_events
from kerntune.timing.worker.serve import Scatter

KNOWN_EACH = 8
"""One execution in so many has the content whose results are known."""

PLACEMENTS, PLACING_SECONDS = 8, 1.5
"""How often a process places both sides, as far as these seconds reach."""

HELD_FACTOR = 2
"""Earlier placements are held while so many more would have room."""

WARM_RUNS, WARM_SLOTS = 8, 7
"""Executions that follow each other in a graph, and how often that is timed."""


class Reservoir:
    """A reservoir: of all executions that are offered so many are kept, each with the same probability."""

    def __init__(self, gpu: Executor, sizes: Sequence[int], most: int, chance: random.Random) -> None:
        self._gpu, self._chance, self._offered = gpu, chance, 0
        self._places = [[gpu.allocate(n) for n in sizes] for _ in range(most)]
        self._rolls: list[Rolls] = []

    def offer(self, rolls: Rolls, left: Callable[[], Sequence[Buffer]]) -> None:
        """Enqueue copies of what an execution left, if it is kept."""
        self._offered += 1
        at = len(self._rolls) if len(self._rolls) < len(self._places) else self._chance.randrange(self._offered)
        if at >= len(self._places):
            return
        self._rolls[at:] = [rolls, *self._rolls[at + 1 :]]
        for place, buffer in zip(self._places[at], left(), strict=True):
            if buffer.nbytes:
                self._gpu.copy(place, buffer)

    def all(self, whole: bool) -> list[KeptExecution]:
        """What is kept, read from the device."""
        with Digests(self._gpu, whole) as left:
            places = [[left.of(b) for b in place] for place in self._places[: len(self._rolls)]]
            return [KeptExecution(r, tuple(x.result() for x in p)) for r, p in zip(self._rolls, places, strict=True)]


class KeptExecutions:
    """Some of a task's executions: as many of those with known contents, and of others, as it says."""

    def __init__(self, gpu: Executor, task: TimeTask, sizes: Sequence[int], chance: random.Random) -> None:
        self._known = task.known
        self.known, self.others = (Reservoir(gpu, sizes, task.keep, chance) for _ in range(2))

    def offer(self, rolls: Rolls, left: Callable[[], Sequence[Buffer]]) -> None:
        """As :meth:`Reservoir.offer`."""
        (self.known if rolls in self._known else self.others).offer(rolls, left)

    def all(self, whole: bool) -> tuple[KeptExecution, ...]:
        """What is kept, read from the device."""
        return (*self.known.all(whole), *self.others.all(whole))


class VariedProgram(ReplayedProgram):
    """A candidate's program. :meth:`restore` gives a copy new content, and keeps what the execution before it left.

    Memory that the call itself fills with one byte, zeros above all, is filled in each execution, as the reference's
    is: it is a part of what is timed.
    """

    def __init__(
        self, loader: Loader, task: TimeTask, sources: VariedSources, kept: KeptExecutions, chance: random.Random
    ) -> None:
        side = task.candidate
        memory = Memory(loader.gpu, side.recording.storages, sources.plain(), spaced=True)
        super().__init__(loader, side, memory)
        self._task, self._sources, self._kept, self._chance = task, sources, kept, chance
        self._varied = [sources.sizes[i] for i in task.variation.storages]
        self._content: dict[int, Rolls] = {}
        self._turn: list[Rolls] = []
        self._settled = False
        bytes_of = {f.storage: {*filled(f, 8)} for f in side.fills if not f.before and f.storage in self.in_place}
        self._filled = {i: byte.pop() for i, byte in bytes_of.items() if len(byte) == 1}

    def enqueue(self, replica: int = 0) -> None:
        """Enqueue the call's fills and every launch."""
        for storage, byte in self._filled.items():
            self.gpu.fill(self.memory.buffer(replica, storage), byte)
        super().enqueue(replica)

    def restore(self, replica: int = 0) -> None:
        """Enqueue the first content of another execution into every storage that the launches use. All copies are
        restored, the first one first: then no lines stay in the cache that either side has marked."""
        if replica == 0:
            self.gpu.reset_persisting_l2()
            self._turn = self._chance.sample(self._task.known, len(self._task.known))
        self._offer(replica)
        rolls = self._turn[replica % len(self._turn)]
        if not self._task.variation.whole and self._chance.randrange(KNOWN_EACH):
            varied = zip(self._task.variation.items, self._varied, strict=True)
            rolls = tuple(drawn_distance(item, nbytes, self._chance) for item, nbytes in varied)
        self._content[replica] = rolls
        for storage in self.in_place:
            self.gpu.copy(self.memory.buffer(replica, storage), self._sources.content(storage, rolls))
        for buffer in self._scratch if replica == 0 else ():
            self.gpu.fill(buffer, 0)

    def _offer(self, replica: int) -> None:
        rolls = self._content.pop(replica, None)
        if rolls is not None and not self._settled:
            self._kept.offer(rolls, lambda: [self.memory.buffer(replica, i) for i in self._task.wanted])

    def settle(self) -> None:
        """Offer what the last executions left; nothing is kept from here on."""
        for replica in list(self._content):
            self._offer(replica)
        self._settled = True


def timed(task: bytes) -> TimeAnswer:
    """Do a :class:`TimeTask`. Failures are answers too."""
    asked = msgspec.msgpack.decode(task, type=TimeTask)
    try:
        return _timed(asked)
    except OutOfResourcesError as exc:
        return TimeAnswer(refused=refused_for(Reason.COMPILE, exc))
    except (KerntuneError, RuntimeError) as exc:  # torch's own, of a graph that holds operators
        return TimeAnswer(refused=refused_for(Reason.REPLAY, exc))


def _timed(task: TimeTask) -> TimeAnswer:
    stages, began = dict[str, float](), time.monotonic()

    def end(stage: str) -> None:
        stages[stage] = time.monotonic() - began - sum(stages.values())

    with to_be_timed():
        with turn(alone=False):
            sides = (task.candidate, task.reference)
            gpu = gpu_of(any(not isinstance(x, ReplaySide) or x.operators for x in sides))
            both = TimedSides(gpu, task)
            gpu.synchronize()
        end("prepare")
        with turn(alone=True):
            end("wait")
            pairs = list(both.timed())
            both.release()
        end("time")
    after_all_timings()  # copies to the host take bandwidth of what others time
    end("others")
    with turn(alone=False):
        damaged, kept = both.damaged(), both.kept.all(task.whole)
    end("read")
    a_ns, b_ns = ([ns for pair in pairs for ns in side(pair)] for side in (attrgetter("a_ns"), attrgetter("b_ns")))
    foreign = astuple(together([pair.foreign for pair in pairs]))
    return TimeAnswer(
        tuple(a_ns), tuple(b_ns), foreign, kept, both.shares, both.warm, damaged, both.timed_as, stages, len(pairs)
    )


class TimedSides:
    """Both sides of a task in one process, timed at several placements: memory and code lie elsewhere each time. On an
    H100 the ratios of placements are 0.1 to 0.2 % apart (standard deviation), and a placement takes a tenth of the time
    of another process. Where there is room, earlier ones are held, for memory that was freed is the next one's."""

    def __init__(self, gpu: Executor, task: TimeTask) -> None:
        self._gpu, self._task = gpu, task
        self._chance = random.Random(secrets.randbits(64))
        self._sources = VariedSources(gpu, task.candidate, task.variation)
        sizes = [self._sources.sizes[i] for i in task.wanted]
        self.kept = KeptExecutions(gpu, task, sizes, self._chance)
        self._reference: VariedSources | LiveReference
        if isinstance(task.reference, ReplaySide):
            self._reference = VariedSources(gpu, task.reference, Variation())
        else:
            self._reference = LiveReference(cast("Gpu", gpu), task.reference)
        self.warm: tuple[float, ...] = ()
        self.shares: tuple[float, ...] = ()
        self.timed_as: TimedAs = "replayed"
        self._held = contextlib.ExitStack()
        self._largest = 0

    def timed(self) -> Iterator[Pair]:
        """The blocks of each placement: as many as there is time for, one at least."""
        began, longest = time.monotonic(), 0.0
        for number in range(PLACEMENTS):
            since = time.monotonic()
            if number and since + longest > began + PLACING_SECONDS:
                return
            free = self._gpu.free_bytes()
            if free < HELD_FACTOR * self._largest:
                self.release()
                free = self._gpu.free_bytes()
            yield self._placed(number)
            self._largest = max(self._largest, free - self._gpu.free_bytes())
            longest = max(longest, time.monotonic() - since)

    def _placed(self, number: int) -> Pair:
        task, gpu, began = self._task, self._gpu, time.monotonic()
        loaders, scatter = (Loader(gpu), Loader(gpu)), Scatter(gpu, self._chance)
        for one in (scatter, *loaders):
            self._held.callback(one.close)
        scatter.memory()
        sides = [s for s in (task.candidate, task.reference) if isinstance(s, ReplaySide)]
        scatter.code([s.recording for s in sides], {k: v for s in sides for k, v in s.artifacts.items()})
        candidate = VariedProgram(loaders[0], task, self._sources, self.kept, self._chance)
        other = self._other(loaders[1])
        slots = other.slots(candidate)
        pairing = Pairing(gpu, slots, task.seed + number)
        pair = pairing.run(task.blocks)
        if not number and time.monotonic() - began > PLACING_SECONDS / 2:  # no second one will fit
            pair = pairing.run(task.blocks)
        candidate.settle()
        self.timed_as = other.timed_as
        if task.details and not number:
            self.warm = tuple(_warm(gpu, *one) for one in other.single(candidate))
            if not task.candidate.operators:  # a launch alone would find what an operator hasn't made
                side = task.candidate
                self.shares = launch_times(
                    loaders[0], side.recording, self._sources.plain(), side.artifacts, spaced=True
                )
        self._held.push(lambda *_: (candidate, other, slots) is None)  # they have the memory
        return pair

    def release(self) -> None:
        """Free the memory of all placements."""
        self._held.close()
        if isinstance(self._reference, LiveReference):
            self._reference.free_unused()

    def _other(self, loader: Loader) -> OtherSide:
        if isinstance(self._reference, VariedSources):
            return ReplayedReference(loader, cast(ReplaySide, self._task.reference), self._reference)
        return LiveSide(self._reference.elsewhere())

    def damaged(self) -> bool:
        """Whether first contents of either side have changed."""
        return self._sources.damaged() or self._reference.damaged()


@contextlib.contextmanager
def turn(alone: bool, place: int = 0) -> Iterator[None]:
    """Among the processes of one referee: beside others that prepare themselves, or alone, to be timed. ``place`` is a
    byte of the file that is locked."""
    fcntl.lockf(sealing.turn_file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, 1, place)
    try:
        yield
    finally:
        fcntl.lockf(sealing.turn_file, fcntl.LOCK_UN, 1, place)


def to_be_timed() -> contextlib.AbstractContextManager[None]:
    """Held until a process was timed: :func:`after_all_timings` waits for it."""
    return turn(alone=False, place=1)


def after_all_timings() -> None:
    """Wait until none of the processes that prepare themselves will be timed any more."""
    with turn(alone=True, place=1):
        pass


class OtherSide(Protocol):
    """The reference, beside a candidate."""

    timed_as: TimedAs

    def slots(self, candidate: VariedProgram) -> tuple[Slot, Slot]:
        """Its slot and the candidate's, timed alike."""

    def single(self, candidate: VariedProgram) -> tuple[PreparedRuns, PreparedRuns]:
        """Single executions of both."""


class ReplayedReference(ReplayedProgram):
    """A reference that was recorded."""

    timed_as: TimedAs = "replayed"

    def __init__(self, loader: Loader, side: ReplaySide, sources: VariedSources) -> None:
        memory = Memory(loader.gpu, side.recording.storages, sources.plain(), spaced=True)
        super().__init__(loader, side, memory)

    def restore(self, replica: int = 0) -> None:
        """As every program's, and no lines stay in the cache that the candidate has marked."""
        if replica == 0:
            self.gpu.reset_persisting_l2()
        super().restore(replica)

    def slots(self, candidate: VariedProgram) -> tuple[Slot, Slot]:
        """As the engine times two programs."""
        return slots_alike(self, candidate)

    def single(self, candidate: VariedProgram) -> tuple[PreparedRuns, PreparedRuns]:
        """Launch by launch."""
        return (self.restore, self.enqueue), (candidate.restore, candidate.enqueue)


def _warm(gpu: Executor, restore: Callable[[], object], work: Callable[[], object]) -> float:
    """Nanoseconds of an execution that follows others on the same memory."""
    times = []
    for _ in range(WARM_SLOTS):
        restore()
        gpu.flush_l2()
        work()
        times.append(between_events(gpu, lambda: [work() for _ in range(WARM_RUNS)]).ns() / WARM_RUNS)
    return median(times)
