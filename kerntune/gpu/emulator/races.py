"""Finds races in an emulated launch: two accesses to one place of memory whose order no GPU promises.

Programs of a launch are ordered by atomics alone: what one has done before it releases an address is known to one that
acquires it later (PTX ISA, "Memory Consistency Model"). Threads of one program are ordered by barriers. Triton sets one
around atomics, and reductions, scans and products have them inside; between a store and a load it sets none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.flat_memory import FlatMemory

PLAIN, ATOMIC, NARROW, TMA = range(4)
"""How a place is written: by a store, by an atomic of the whole GPU, by one of a single program, by a descriptor."""

MANY = -1
"""Instead of one place in a tensor: several of its elements have one address."""

SEVERAL = -1
"""Instead of a program's number: several have read it."""

LANE_BITS = 20
"""A tensor has 2**20 elements at most (``TRITON_MAX_TENSOR_NUMEL``)."""

MOST_SHAPES = 1 << 9

NOT_NOTED = np.iinfo(np.int64).min
"""Instead of a distance: of a storage that isn't written."""

NOWHERE = np.zeros(0, np.int64)


class RunningProgram:
    """One program of a launch. ``barrier`` is the time of its last barrier, ``acquired`` has the times and addresses of
    its acquiring reads. ``awaited`` has what it has read so in a round of a loop, with ``loops`` of them around."""

    __slots__ = ("acquired", "awaited", "barrier", "depth", "loops", "number", "place")

    def __init__(self, number: int, place: tuple[int, int, int]) -> None:
        self.number, self.place = number, place
        self.barrier = self.depth = self.loops = 0
        self.acquired: list[tuple[int, np.ndarray]] = []
        self.awaited: list[tuple[tuple[int, ...], bytes]] = []


class Races:
    """The last accesses to each ``unit`` bytes of a memory during one launch. ``written`` are the storages that it may
    write; where it only reads, nothing can race.

    Every access raises :class:`KernelFault` where it races with one before it.
    """

    def __init__(self, memory: FlatMemory, unit: int, written: Sequence[bool]) -> None:
        self._memory, self._unit = memory, unit
        places = sorted((memory.address(i) - memory.base, may) for i, may in enumerate(written))
        self._starts = [at for at, _ in places]
        ends, noted = [*self._starts[1:], memory.size], 0
        self._moved = np.full(len(places), NOT_NOTED, np.int64)
        for number, ((start, may), end) in enumerate(zip(places, ends, strict=True)):
            if may:  # what lies behind a storage, too
                self._moved[number] = noted - start
                noted += end - start
        self._writer, self._written, self._write_lane, self._reader, self._read, self._read_lane = (
            np.zeros(-(-noted // unit), np.int32) for _ in range(6)
        )
        self._now = 0
        self._shapes: dict[tuple[int, ...], int] = {}
        self._programs: dict[int, RunningProgram] = {}
        self._released: deque[tuple[int, int, np.ndarray]] = deque()
        self._by_unit: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def barrier(self, program: RunningProgram) -> None:
        """All threads of the program have come here."""
        program.barrier = self._now

    def load(self, program: RunningProgram, addresses: np.ndarray, size: int, mask: np.ndarray, tma: bool) -> None:
        """A read of elements at ``addresses``, by a tensor's elements where ``mask`` is true."""
        units, lanes, _ = self._units(addresses, mask, size)
        if not units.size:
            return
        self._after_writes(program, units, lanes, tma, "reads", None)
        me, old = program.number + 1, self._reader[units]
        self._reader[units] = np.where((old != 0) & (old != me), SEVERAL, me)
        again = (old == me) & (self._read[units] > program.barrier) & (self._read_lane[units] != lanes)
        self._read[units] = self._now
        self._read_lane[units] = lanes
        again |= self._read_lane[units] != lanes
        if again.any():
            self._read_lane[units[again]] = MANY

    def volatile_load(self, program: RunningProgram, addresses: np.ndarray, size: int, mask: np.ndarray) -> None:
        """A read that may wait for an atomic of another program, which it acquires."""
        units, lanes, _ = self._units(addresses, mask, size)
        if not units.size:
            return
        self._acquire(program, units)
        plain = self._write_lane[units] & 3 != ATOMIC
        self._after_writes(program, units[plain], lanes[plain], False, "reads", None)

    def store(
        self, program: RunningProgram, addresses: np.ndarray, size: int, mask: np.ndarray, tma: bool,
        unchanged: Callable[[], np.ndarray],
    ) -> None:  # fmt: skip
        """A write; ``unchanged`` says of which elements the value is there already, which does no harm."""
        units, lanes, noted = self._units(addresses, mask, size)
        if not units.size:
            return

        def same() -> np.ndarray:
            return np.repeat(unchanged()[noted], self._wide(size))

        self._after_writes(program, units, lanes, tma, "writes", same)
        self._after_reads(program, units, None if tma else lanes, "writes", same)
        self._mark(program, units, lanes, TMA if tma else PLAIN)

    def atomic(
        self, program: RunningProgram, addresses: np.ndarray, size: int, mask: np.ndarray, order: str, scope: str
    ) -> None:
        """An atomic update. ``order`` is its semantic (``acq_rel``), ``scope`` who sees it (``gpu``)."""
        units, lanes, _ = self._units(addresses, mask, size)
        narrow = scope == "cta"
        if not narrow and order in ("acquire", "acq_rel"):
            self._acquire(program, units)
        owner, kind = self._writer[units], self._write_lane[units] & 3
        foreign = (owner != 0) & (owner != program.number + 1) & (narrow | (kind != ATOMIC))
        self._demand(program, units, owner, self._written[units], foreign, "updates")
        self._after_reads(program, units, None, "updates", None)
        self._mark(program, units, lanes, NARROW if narrow else ATOMIC)
        if not narrow and order in ("release", "acq_rel"):
            self._released.append((self._now, program.number, units))
        self.barrier(program)

    # what an access comes after

    def _after_writes(
        self, program: RunningProgram, units: np.ndarray, lanes: np.ndarray, tma: bool, does: str,
        same: Callable[[], np.ndarray] | None,
    ) -> None:  # fmt: skip
        owner = self._writer[units]
        if not owner.any():
            return
        when, how = self._written[units], self._write_lane[units]
        own = owner == program.number + 1
        foreign = (owner != 0) & ~own
        if foreign.any():
            if same is not None:
                foreign &= ~(same() & (how & 3 == PLAIN))
            self._demand(program, units, owner, when, foreign, does)
        lane = how >> 2
        wrong = own & (when > program.barrier) & (lane != lanes) & (lane != MANY)
        if tma:
            wrong = own & (how & 3 == PLAIN)
        if wrong.any() and same is not None:
            wrong &= ~same()
        if wrong.any():
            why = "a descriptor needs a fence after stores" if tma else "no barrier is between"
            told = self._told(units[wrong])
            raise KernelFault(f"a race: a program {does} {told}, which its other threads wrote; {why}")

    def _after_reads(
        self, program: RunningProgram, units: np.ndarray, lanes: np.ndarray | None, does: str,
        same: Callable[[], np.ndarray] | None,
    ) -> None:  # fmt: skip
        reader = self._reader[units]
        if not reader.any():
            return
        me, when = program.number + 1, self._read[units]
        foreign = (reader != 0) & (reader != me)
        wrong = np.zeros(len(units), np.bool_)
        if lanes is not None:
            read_lane = self._read_lane[units]
            wrong = (reader == me) & (when > program.barrier) & (read_lane != lanes)
            if wrong.any() and (read_lane[wrong] == MANY).any():
                _, back, count = np.unique(units, return_inverse=True, return_counts=True)
                wrong &= (read_lane != MANY) | (count[back] == 1)
        if same is not None and (foreign.any() or wrong.any()):
            changed = ~same()
            foreign, wrong = foreign & changed, wrong & changed
        if wrong.any():
            raise KernelFault(
                f"a race: a program {does} {self._told(units[wrong])}, which its other threads have yet to read; "
                "no barrier is between"
            )
        several = foreign & (reader == SEVERAL)
        if several.any() and not program.acquired:
            told = self._told(units[several])
            raise KernelFault(f"a race: a program {does} {told}, which others read in the same launch")
        self._demand(program, units, reader, when, foreign & ~several, does)

    def _demand(
        self, program: RunningProgram, units: np.ndarray, owner: np.ndarray, when: np.ndarray, which: np.ndarray,
        does: str,
    ) -> None:  # fmt: skip
        """The accesses ``which``, of other programs, must have happened before."""
        if not which.any():
            return
        units, owner, when = units[which], owner[which], when[which]
        for number in np.unique(owner):
            mine = owner == number
            if not self._known(program, int(number) - 1, int(when[mine].max())):
                raise KernelFault(
                    f"a race: program {program.number} {does} {self._told(units[mine])}, which program {number - 1} "
                    "uses in the same launch; nothing orders them"
                )

    # what programs know of each other

    def _acquire(self, program: RunningProgram, units: np.ndarray) -> None:
        self._programs[program.number] = program
        program.acquired.append((self._now, units))

    def _known(self, program: RunningProgram, other: int, when: int) -> bool:
        """Whether what ``other`` did at that time has happened before what ``program`` does now."""
        while self._released:
            at, number, units = self._released.popleft()
            for unit in units.tolist():
                self._by_unit[unit].append((at, number))
        latest: dict[int, int] = {}
        steps = [(program.number, self._now + 1)]
        for number, until in steps:  # which grows
            for at, units in self._programs[number].acquired if number in self._programs else ():
                if at >= until:
                    break
                for unit in units.tolist():
                    for released, by in self._by_unit.get(unit, ()):
                        if released >= at:
                            break
                        if by == other and released >= when:
                            return True
                        if released > latest.get(by, -1):
                            latest[by] = released
                            steps.append((by, released + 1))
        return False

    # places

    def _lanes(self, mask: np.ndarray) -> np.ndarray:
        """Numbers of a tensor's elements where ``mask`` is true; tensors of other shapes have other numbers, for their
        elements are in other threads."""
        shape = tuple(n for n in mask.shape if n > 1)
        number = self._shapes.setdefault(shape, len(self._shapes)) % MOST_SHAPES
        return np.asarray(np.flatnonzero(mask) + (number << LANE_BITS), np.int32)

    def _wide(self, size: int) -> int:
        return max(size // self._unit, 1)

    def _units(self, addresses: np.ndarray, mask: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, Any]:
        """Which places the elements take, the number in its tensor of each, and which elements lie where the launch may
        write: the others have none."""
        self._now += 1
        places, noted = addresses - self._memory.base, cast(Any, slice(None))
        first, last = (bisect_right(self._starts, int(end)) - 1 for end in (places.min(), places.max()))
        if first == last:
            moved = NOT_NOTED if first < 0 else self._moved[first]
            if moved == NOT_NOTED:
                return NOWHERE, NOWHERE, noted
        else:
            storages = np.searchsorted(self._starts, places, side="right") - 1
            moved = np.where(storages < 0, NOT_NOTED, self._moved[storages])
            noted = moved != NOT_NOTED
            places, moved = places[noted], moved[noted]
        units, lanes, wide = (places + moved) // self._unit, self._lanes(mask)[noted], self._wide(size)
        if wide > 1:
            return (units[:, None] + np.arange(wide)).ravel(), np.repeat(lanes, wide), noted
        return units, lanes, noted

    def _mark(self, program: RunningProgram, units: np.ndarray, lanes: np.ndarray, kind: int) -> None:
        marks = lanes << 2 | kind
        self._writer[units] = program.number + 1
        self._written[units] = self._now
        self._write_lane[units] = marks
        again = self._write_lane[units] != marks
        if again.any():
            self._write_lane[units[again]] = MANY << 2 | kind

    def _told(self, units: np.ndarray) -> str:
        at = int(units[0]) * self._unit
        moved = [
            (start + by, by) for start, by in zip(self._starts, self._moved.tolist(), strict=True) if by != NOT_NOTED
        ]
        return self._memory.told(at - max(one for one in moved if one[0] <= at)[1])
