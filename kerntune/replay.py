"""Two recordings on the same memory, timed in turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from kerntune.backend.base import Gpu
from kerntune.errors import ReplayError
from kerntune.launch import Artifacts, Loader, Program
from kerntune.measure.base import Slot
from kerntune.measure.stopping import warm
from kerntune.measure.timing import estimate_ns, same_kind, slot_for
from kerntune.memory import Memory, Source, make_source
from kerntune.recording import Recording, Storage, Stored
from kerntune.stats import Estimate, hodges_lehmann, median

BLOCKS = 15
"""Blocks of a first look: the fewest whose exact signed-rank interval reaches 99.9 % with something to spare."""

MORE_BLOCKS = 30
"""Blocks of the one escalation."""


@dataclass(frozen=True)
class Pair:
    """Times of both sides, a block each, in nanoseconds, and the change from ``a`` to ``b`` (0.12 is 12 % slower)."""

    a_ns: tuple[float, ...]
    b_ns: tuple[float, ...]
    change: Estimate


class Pairing:
    """Side ``a`` (the stored recording) beside side ``b`` (today's), under one protocol, on one memory."""

    def __init__(self, a: Program, b: Program, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._slots = self._prepare(a, b)
        self._a: list[float] = []
        self._b: list[float] = []
        self._warm_up()

    @staticmethod
    def _prepare(a: Program, b: Program) -> tuple[Slot, Slot]:
        estimate = min(estimate_ns(a), estimate_ns(b))
        slower = a if len(a.in_place) >= len(b.in_place) else b
        first = slot_for(slower, estimate)
        other = same_kind(b if slower is a else a, first)
        return (first, other) if slower is a else (other, first)

    def _warm_up(self) -> None:
        times: list[float] = []
        while not warm(times):
            times.append(self._slots[0].enqueue()() + self._slots[1].enqueue()())

    def run(self, blocks: int, level: float) -> Pair:
        """Add blocks in random ABBA or BAAB order; the estimate is over all blocks so far."""
        for _ in range(blocks):
            order = (0, 1, 1, 0) if self._random.random() < 0.5 else (1, 0, 0, 1)
            readings = [(side, self._slots[side].enqueue()) for side in order]
            times: tuple[list[float], list[float]] = ([], [])
            for side, reading in readings:
                times[side].append(reading())
            self._a.append(sum(times[0]) / 2)
            self._b.append(sum(times[1]) / 2)
        ratios = [log(b / a) for a, b in zip(self._a, self._b, strict=True)]
        return Pair(tuple(self._a), tuple(self._b), hodges_lehmann(ratios, level).map_exp())

    @property
    def a_ns(self) -> float:
        """Median time of side ``a``."""
        return median(self._a)


def shared_memory(gpu: Gpu, sides: Sequence[Recording], live: Sequence[Source], stored: Artifacts) -> Memory:
    """Memory that both sides run on: storage ``i`` of one is storage ``i`` of the other where their plans agree.

    ``live`` are the first contents of today's side (the last of ``sides``). A storage that only the stored side has
    (another temporary, say) gets the content that its recording describes. :class:`ReplayError` if the plans differ in
    a size, because then the two sides don't do the same work on the same memory.
    """
    *others, mine = sides
    storages, sources = list(mine.storages), list(live)
    for other in others:
        for i, storage in enumerate(other.storages):
            if i >= len(storages):
                storages.append(storage)
                sources.append(make_source(gpu, storage, _stored(storage, stored)))
            elif storage.nbytes > storages[i].nbytes:
                raise ReplayError(
                    f"storage {i} has {storages[i].nbytes} bytes today and {storage.nbytes} in the baseline: "
                    "the call lays out its memory in another way"
                )
            elif storage.written and sources[i].shared:
                sources[i] = Source(sources[i].pristine, shared=False)
    return Memory(gpu, storages, sources)


def _stored(storage: Storage, artifacts: Artifacts) -> bytes | None:
    return artifacts.get(storage.content.sha256) if isinstance(storage.content, Stored) else None


def pair(loader: Loader, a: Recording, b: Recording, memory: Memory, artifacts: Artifacts) -> Pairing:
    """Both recordings bound to one memory and warmed up."""
    return Pairing(Program(loader, a, memory, artifacts), Program(loader, b, memory, artifacts))
