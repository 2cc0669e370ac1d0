"""Replays on a GPU, in sealed processes: results of single executions, and times of executions that are checked.

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
import hashlib
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple
from typing import Protocol, cast

import msgspec

from kerntune.base.recording import Recording
from kerntune.base.stats import median
from kerntune.errors import BackendError, KerntuneError, OutOfResourcesError
from kerntune.gpu.base import Buffer, Executor, Gpu
from kerntune.gpu.driver_gpu import DriverGpu
from kerntune.gpu.guards import GuardedBuffer, GuardReader
from kerntune.gpu.memory import Memory, Source
from kerntune.gpu.program import Loader, Program
from kerntune.referee import sealing
from kerntune.referee.declared_inputs import drawn_distance
from kerntune.referee.hostile_recording import filled, given_contents
from kerntune.referee.live_reference import LiveSide, PreparedRuns, Runs, open_by_torch
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import (
    CallRefused,
    DeviceAnswer,
    KeptExecution,
    ReplayAnswer,
    ReplaySide,
    ReplayTask,
    Rolls,
    TimeAnswer,
    TimedAs,
    TimeTask,
    Variation,
    encoded,
)
from kerntune.timing.paired import Pairing, slots_alike
from kerntune.timing.sampling import launch_times, measured_bandwidth
from kerntune.timing.timers import (
    Slot,
    between_events,
)
from kerntune.timing.worker.serve import Scatter

KNOWN_EACH = 8
"""One execution in so many has the content whose results are known."""

HASHED_AT_ONCE = 4
"""Contents that are hashed beside each other: to hash takes longer than to read from the device."""

READ_ZONES = 64
"""Guarded storages in all executions up to which reading their zones is quicker than loading a kernel that compares."""

WARM_RUNS, WARM_SLOTS = 8, 7
"""Executions that follow each other in a graph, and how often that is timed."""

ORDINAL = 0
"""Of the devices that ``CUDA_VISIBLE_DEVICES`` leaves."""


def device_answer(task: bytes) -> bytes:
    """What GPU there is; the bytes of a :class:`DeviceAnswer`."""
    try:
        gpu = DriverGpu(ORDINAL)
        return encoded(DeviceAnswer(gpu.spec, measured_bandwidth(gpu), gpu.free_bytes()))
    except KerntuneError as exc:
        return encoded(DeviceAnswer(problem=str(exc)))


def prewarm(with_torch: bytes) -> bytes:
    """Open the device, with torch where a user's code is to run. Where that fails, so will the task, and says so."""
    with contextlib.suppress(KerntuneError, RuntimeError):
        if msgspec.msgpack.decode(with_torch, type=bool):
            open_by_torch()
        else:
            DriverGpu(ORDINAL)
    return b""


class VariedSources:
    """First contents on the device. Varied storages have theirs twice in a row, so that any rolled content is one
    piece, or several contents."""

    def __init__(self, gpu: Executor, side: ReplaySide, variation: Variation) -> None:
        self._gpu, self.variation = gpu, variation
        self.sizes = [s.nbytes for s in side.recording.storages]
        self.given = [side.poison if content is None else content for content in given_contents(side)]
        self._buffers = [self._made(i) for i in range(len(self.sizes))]

    def _made(self, storage: int) -> Buffer:
        given, nbytes = self.given[storage], self.sizes[storage]
        if storage in self.variation.storages:
            nbytes = max(2 * nbytes, len(given))
        buffer = self._gpu.allocate(nbytes)
        self._gpu.repeat(buffer, given) if len(given) < buffer.nbytes else self._gpu.write(buffer, given)
        return buffer

    def plain(self) -> list[Source]:
        """As a memory takes them."""
        return [Source(self._gpu.part(b, 0, n), shared=False) for b, n in zip(self._buffers, self.sizes, strict=True)]

    def content(self, storage: int, rolls: Rolls) -> Buffer:
        """What a storage holds before an execution."""
        distance = dict(zip(self.variation.storages, rolls, strict=True)).get(storage, 0)
        return self._gpu.part(self._buffers[storage], distance, self.sizes[storage])

    def damaged(self) -> bool:
        """Whether any first content has changed."""
        return any(
            not _begins_over_and_over(self._gpu.read(b, b.nbytes), g)
            for b, g in zip(self._buffers, self.given, strict=True)
            if b.nbytes
        )


def _begins_over_and_over(content: bytes, given: bytes) -> bool:
    """Whether ``content`` is ``given`` over and over, the last one cut off."""
    return content.startswith(given[: len(content)]) and content[len(given) :] == content[: -len(given)]


# results


def replayed_on_gpu(task: ReplayTask) -> ReplayAnswer:
    """Each execution alone, its code loaded anew, between guard zones. Failures are answers too."""
    try:
        gpu = DriverGpu(ORDINAL)
        return _replayed(gpu, task)
    except OutOfResourcesError as exc:
        return ReplayAnswer(refused=_refused(Reason.COMPILE, exc))
    except BackendError as exc:
        return ReplayAnswer(refused=_refused(Reason.FAULT, exc))
    except KerntuneError as exc:
        return ReplayAnswer(refused=_refused(Reason.REPLAY, exc))


def _replayed(gpu: Executor, task: ReplayTask) -> ReplayAnswer:
    side, storages = task.side, task.side.recording.storages
    reader = GuardReader(gpu, on_device=len(storages) * len(task.rolls) > READ_ZONES)
    sources = VariedSources(gpu, side, task.variation)
    guarded = {i: GuardedBuffer(gpu, s.nbytes) for i, s in enumerate(storages)}
    left, outside = list[list[Future[bytes]]](), 0
    with Digests(gpu, task.whole) as digests:
        for rolls in (*task.rolls, task.rolls[0]) if task.whole else task.rolls:
            given = [sources.content(i, rolls) for i in range(len(storages))]
            first = [Source(x, shared=False, home=guarded[i].buffer) for i, x in enumerate(given)]
            memory, loader = Memory(gpu, storages, first), Loader(gpu)
            Program(loader, side.recording, memory, side.artifacts).enqueue()
            gpu.synchronize()
            buffers = [gpu.part(guarded[i].buffer, 0, storages[i].nbytes) for i in task.wanted]
            left.append([digests.of(buffer) for buffer in buffers])
            outside += sum(damage.count for damage in reader.damages(guarded))
            loader.close()
    contents = [tuple(x.result() for x in each) for each in left]
    repeated = contents.pop() if task.whole else contents[0]
    before = [side.contents[i] if task.rolls == ((),) else None for i in task.wanted]
    flat = tuple(None if x == b else x for each in contents for x, b in zip(each, before, strict=True))
    return ReplayAnswer(flat, outside + sources.damaged(), repeated == contents[0])


class Digests:
    """What buffers hold, or its SHA-256: of one while the next is read."""

    def __init__(self, gpu: Executor, whole: bool) -> None:
        self._gpu, self._whole = gpu, whole

    def __enter__(self) -> Digests:
        self._threads = ThreadPoolExecutor(HASHED_AT_ONCE)
        return self

    def of(self, buffer: Buffer) -> Future[bytes]:
        """Read a buffer now."""
        content = self._gpu.read(buffer, buffer.nbytes)
        return self._threads.submit(lambda: content if self._whole else hashlib.sha256(content).digest())

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()


# times


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


class VariedProgram(Program):
    """A candidate's program. :meth:`restore` gives a copy new content, and keeps what the execution before it left.

    Memory that the call itself fills with one byte, zeros above all, is filled in each execution, as the reference's
    is: it is a part of what is timed.
    """

    def __init__(self, loader: Loader, task: TimeTask, sources: VariedSources, chance: random.Random) -> None:
        side = task.candidate
        memory = Memory(loader.gpu, side.recording.storages, sources.plain(), spaced=True)
        super().__init__(loader, side.recording, memory, side.artifacts)
        sizes = [sources.sizes[i] for i in task.wanted]
        self._task, self._sources, self._chance = task, sources, chance
        self._varied = [sources.sizes[i] for i in task.variation.storages]
        self.known, self.others = (Reservoir(loader.gpu, sizes, task.keep, chance) for _ in range(2))
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
            kept = self.known if rolls in self._task.known else self.others
            kept.offer(rolls, lambda: [self.memory.buffer(replica, i) for i in self._task.wanted])

    def settle(self) -> None:
        """Offer what the last executions left; nothing is kept from here on."""
        for replica in list(self._content):
            self._offer(replica)
        self._settled = True

    def kept(self) -> tuple[KeptExecution, ...]:
        """What was kept of all executions."""
        return (*self.known.all(self._task.whole), *self.others.all(self._task.whole))


def timed(task: bytes) -> bytes:
    """Do a :class:`TimeTask`; the bytes of a :class:`TimeAnswer`. Failures are answers too."""
    asked = msgspec.msgpack.decode(task, type=TimeTask)
    try:
        return encoded(_timed(asked))
    except OutOfResourcesError as exc:
        return encoded(TimeAnswer(refused=_refused(Reason.COMPILE, exc)))
    except KerntuneError as exc:
        return encoded(TimeAnswer(refused=_refused(Reason.REPLAY, exc)))


def _timed(task: TimeTask) -> TimeAnswer:
    stages, began = dict[str, float](), time.monotonic()

    def end(stage: str) -> None:
        stages[stage] = time.monotonic() - began - sum(stages.values())

    with contextlib.ExitStack() as opened:
        with to_be_timed():
            with turn(alone=False):
                gpu, chance = _gpu_for(task), random.Random(secrets.randbits(64))
                loaders = Loader(gpu), Loader(gpu)
                scatter = Scatter(gpu, chance)
                for one in (scatter, *loaders):
                    opened.callback(one.close)
                scatter.memory()
                sides = [s for s in (task.candidate, task.reference) if isinstance(s, ReplaySide)]
                scatter.code([s.recording for s in sides], {k: v for s in sides for k, v in s.artifacts.items()})
                sources = VariedSources(gpu, task.candidate, task.variation)
                candidate = VariedProgram(loaders[0], task, sources, chance)
                other: OtherSide
                if isinstance(task.reference, ReplaySide):
                    other = ReplayedReference(loaders[1], task.reference)
                else:
                    other = LiveSide(cast("Gpu", gpu), task.reference)
                gpu.synchronize()
            end("prepare")
            with turn(alone=True):
                end("wait")
                slots = other.slots(candidate)
                end("slots")
                pair = Pairing(gpu, slots, task.seed).run(task.blocks, 0.99)
                candidate.settle()
                warm = tuple(_warm(gpu, *one) for one in other.single(candidate)) if task.details else ()
                shares = _shares(loaders[0], task.candidate.recording, sources, task) if task.details else ()
            end("time")
        after_all_timings()  # copies to the host take bandwidth of what others time
        end("others")
        with turn(alone=False):
            damaged, kept = sources.damaged() or other.damaged(), candidate.kept()
        end("read")
        return TimeAnswer(
            pair.a_ns, pair.b_ns, astuple(pair.foreign), kept, shares, warm, damaged, other.timed_as, stages
        )


def _gpu_for(task: TimeTask) -> Executor:
    """Of torch as well where the reference runs live."""
    if isinstance(task.reference, ReplaySide):
        return DriverGpu(ORDINAL)
    from kerntune.gpu.cuda import CudaGpu

    return CudaGpu(ORDINAL)


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

    def damaged(self) -> bool:
        """Whether its first contents have changed."""


class ReplayedReference(Program):
    """A reference that was recorded."""

    timed_as: TimedAs = "replayed"

    def __init__(self, loader: Loader, side: ReplaySide) -> None:
        self._sources = VariedSources(loader.gpu, side, Variation())
        memory = Memory(loader.gpu, side.recording.storages, self._sources.plain(), spaced=True)
        super().__init__(loader, side.recording, memory, side.artifacts)

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
        return (self, self.enqueue), (candidate, candidate.enqueue)

    def damaged(self) -> bool:
        """By reading them."""
        return self._sources.damaged()


def _warm(gpu: Executor, runs: Runs, work: Callable[[], object]) -> float:
    """Nanoseconds of an execution that follows others on the same memory."""
    times = []
    for _ in range(WARM_SLOTS):
        runs.restore()
        gpu.flush_l2()
        work()
        times.append(between_events(gpu, lambda: [work() for _ in range(WARM_RUNS)]).ns() / WARM_RUNS)
    return median(times)


def _shares(loader: Loader, recording: Recording, sources: VariedSources, task: TimeTask) -> tuple[float, ...]:
    return launch_times(loader, recording, sources.plain(), task.candidate.artifacts, spaced=True)


def _refused(reason: Reason, exc: Exception) -> CallRefused:
    return CallRefused(reason.value, str(exc)[:1000])
