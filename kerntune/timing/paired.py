"""Two recordings on the same memory, timed in turn."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import msgspec

from kerntune.base.recording import Artifacts, Recording, Storage, Stored
from kerntune.base.stats import Estimate, hodges_lehmann
from kerntune.errors import ReplayError
from kerntune.gpu.base import Executor
from kerntune.gpu.foreign_work import NONE_SEEN, ClockWatch, ForeignWork, together
from kerntune.gpu.memory import Memory, Source, make_source
from kerntune.gpu.program import Loader, Program
from kerntune.timing.sampling import AUTO, PROFILER, estimate_ns, same_kind, slot_for, warm
from kerntune.timing.timers import Slot


@dataclass(frozen=True)
class Pair:
    """Times of both sides, a block each, in nanoseconds, and the change from ``a`` to ``b`` (0.12 is 12 % slower)."""

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]
    change: Estimate
    foreign: ForeignWork = NONE_SEEN
    """What other processes did on the device meanwhile."""


class Pairing:
    """Side ``a`` (the stored recording) beside side ``b`` (today's), under one protocol (:func:`slots_alike`)."""

    def __init__(self, gpu: Executor, slots: tuple[Slot, Slot], seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._slots = slots
        self._a: list[float] = []
        self._b: list[float] = []
        self._gpu, self._foreign, self._first = gpu, list[ForeignWork](), False
        times: list[float] = []
        while not warm(times):
            times.append(slots[0].enqueue()() + slots[1].enqueue()())

    def run(self, blocks: int) -> Pair:
        """Add blocks, as many in ABBA as in BAAB order, and return the estimate over all blocks so far. Work of other
        processes is looked for before, in the middle and afterwards, while nothing of ours is timed."""
        with contextlib.closing(ClockWatch(self._gpu)) as clock:
            for index in range(blocks):
                if index in (0, blocks // 2):
                    self._foreign.append(clock.watch())
                self._block(index)
            self._foreign.append(clock.watch())
        change = hodges_lehmann(block_ratios(self._a, self._b)).map_exp()
        return Pair(tuple(self._a), tuple(self._b), change, together(self._foreign))

    def _block(self, index: int) -> None:
        """Time both sides twice. In each two blocks the order of the first one is random: the first slot after a wait
        is different, and with an order drawn for each block, one side would get it more often; with 36 blocks by a
        sixth of it, which is more than all other noise."""
        self._first = self._random.random() < 0.5 if index % 2 == 0 else not self._first
        order = (0, 1, 1, 0) if self._first else (1, 0, 0, 1)
        readings = [(side, self._slots[side].enqueue()) for side in order]
        times: tuple[list[float], list[float]] = ([], [])
        for side, reading in readings:
            times[side].append(reading())
        self._a.append(sum(times[0]) / 2)
        self._b.append(sum(times[1]) / 2)


def slots_alike(a: Program, b: Program, timer: str = AUTO) -> tuple[Slot, Slot]:
    """Slots of one protocol for two programs. ``timer`` is as :func:`kerntune.timing.sampling.slot_for` takes it; the
    profiler's is for one side only; with it the timer is chosen automatically here."""
    estimate = min(estimate_ns(a), estimate_ns(b))
    slower = max(a, b, key=lambda program: len(program.in_place))
    first = slot_for(slower, estimate, AUTO if timer == PROFILER else timer)
    other = same_kind(b if slower is a else a, first)
    return (first, other) if slower is a else (other, first)


def block_ratios(a_ns: Sequence[float], b_ns: Sequence[float]) -> list[float]:
    """Per block, log of ``b`` over ``a``. :class:`ReplayError` if a side takes no time: it launches nothing."""
    if min(*a_ns, *b_ns) <= 0:
        raise ReplayError("one side launches nothing, so there is nothing to compare")
    return [log(b / a) for a, b in zip(a_ns, b_ns, strict=True)]


def common_plan(mine: Recording, other: Recording) -> tuple[tuple[Storage, ...], Recording]:
    """Storages for both sides, today's first, and ``other`` with its storages renumbered for them.

    A storage of ``other`` is today's storage of the same size, dtype and use: one that an argument of the same name
    points to, so that an output stays itself where another one is added before it; else the one of the same number,
    else the first unused one. An output that one side writes and the other only has as an argument of the same name is
    one storage. A storage that only ``other`` has (another temporary, say) is added.
    """
    storages = list(mine.storages)
    at: dict[int, int] = {}
    names = [_argument_names(side) for side in (mine, other)]
    for alike, same_name in ((_alike, True), (_alike, False), (_output_of_one, True)):
        for i, storage in enumerate(other.storages):
            free = [j for j in range(len(mine.storages)) if j not in at.values()]
            free = [j for j in free if alike(mine.storages[j], storage)]
            if same_name:
                free = [j for j in free if names[0].get(j, set()) & names[1].get(i, set())]
            if i not in at and free:
                at[i] = i if i in free else free[0]
    for i in (i for i in range(len(other.storages)) if i not in at):
        at[i] = len(storages)
        storages.append(other.storages[i])
    return tuple(storages), _renumbered(other, at)


def _argument_names(recording: Recording) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for param in (p for launch in recording.launches for p in launch.params):
        if param.view is not None:
            found.setdefault(recording.views[param.view].storage, set()).add(param.name)
    return found


def live_memory(
    gpu: Executor, storages: Sequence[Storage], live: Sequence[Source], stored: Artifacts, spaced: bool = False
) -> Memory:
    """Memory for a common plan in the user's own process: today's contents, then the contents of the storages that
    only the other side has. ``spaced`` as for :class:`~kerntune.gpu.memory.Memory`."""
    added = [make_source(gpu, s, stored_content(s, stored)) for s in storages[len(live) :]]
    return Memory(gpu, storages, [*live, *added], spaced=spaced)


def _alike(a: Storage, b: Storage) -> bool:
    return (a.nbytes, a.dtype, a.read, a.written) == (b.nbytes, b.dtype, b.read, b.written)


def _output_of_one(a: Storage, b: Storage) -> bool:
    """Neither side reads it, so that neither finds what the other has left."""
    return (a.nbytes, a.dtype) == (b.nbytes, b.dtype) and not (a.read or b.read) and a.written != b.written


def _renumbered(recording: Recording, at: dict[int, int]) -> Recording:
    replace = msgspec.structs.replace
    views = tuple(replace(v, storage=at[v.storage]) for v in recording.views)
    launches = tuple(
        replace(x, reads=tuple(at[i] for i in x.reads), writes=tuple(at[i] for i in x.writes))
        for x in recording.launches
    )
    return replace(recording, views=views, launches=launches)


def stored_content(storage: Storage, artifacts: Artifacts) -> bytes | None:
    """The bytes that a storage begins with, if they are stored."""
    return artifacts.get(storage.content.sha256) if isinstance(storage.content, Stored) else None


def pair(
    loader: Loader, a: Recording, b: Recording, memory: Memory, artifacts: Artifacts, timer: str = AUTO
) -> Pairing:
    """Both recordings bound to one memory and warmed up."""
    sides = Program(loader, a, memory, artifacts), Program(loader, b, memory, artifacts)
    return Pairing(loader.gpu, slots_alike(*sides, timer))
