"""In which order the programs of an emulated launch run, and when one that waits for others goes on."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.races import RunningProgram

MOST_SHUFFLED = 1 << 22
"""Programs whose order is drawn: of more, no replay comes to the end."""

MOST_WAITING = 256
"""With so many programs that wait, those with the lowest numbers begin next: a GPU begins with them, too."""

PROCESSORS, MOST_BLOCKS, MOST_WARPS = 132, 32, 64
"""Of an H100, and what each of its processors holds at once (CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability")."""

Steps = Generator[None, None, Any]


def resident_programs(warps: int) -> int:
    """How many programs of so many warps a GPU holds at once, at most."""
    return PROCESSORS * min(MOST_BLOCKS, max(MOST_WARPS // max(warps, 1), 1))


class ProgramOrder:
    """``chance`` draws in which order programs begin, which no GPU promises; without it, it is the ascending one. Each
    program has so many ``warps``."""

    def __init__(self, chance: random.Random | None, warps: int) -> None:
        self._chance = chance
        self._resident = resident_programs(warps)
        self._waiting: dict[int, tuple[RunningProgram, Steps]] = {}
        self._awaited: defaultdict[int, list[int]] = defaultdict(list)
        self._awake: deque[int] = deque()

    def numbers(self, count: int) -> Iterator[int]:
        """The programs' numbers in the order in which they begin."""
        if self._chance is None or count > MOST_SHUFFLED:
            yield from range(count)
            return
        begun, lowest = set[int](), 0
        for number in self._chance.sample(range(count), count):
            while len(self._waiting) >= MOST_WAITING and lowest < count:
                if lowest not in begun:
                    begun.add(lowest)
                    yield lowest
                lowest += 1
            if number not in begun:
                begun.add(number)
                yield number

    def wait(self, program: RunningProgram, steps: Steps) -> None:
        """The program reads the same again and again: it goes on once one of these addresses has changed.
        :class:`KernelFault` if no GPU holds so many that wait: then those they wait for never begin."""
        if len(self._waiting) >= self._resident:
            raise KernelFault(f"more than {self._resident} programs wait for others, which no GPU holds at once")
        self._waiting[program.number] = program, steps
        for addresses, _ in program.awaited:
            for address in addresses:
                self._awaited[address].append(program.number)

    def changed(self, addresses: Iterable[int]) -> None:
        """An atomic has changed what is at these addresses."""
        if self._awaited:
            for address in addresses:
                self._awake.extend(self._awaited.pop(address, ()))

    def ready(self, last: bool) -> Iterator[tuple[RunningProgram, Steps]]:
        """Programs that go on. When the others have ended, all that wait are tried in turn, the ``last`` time."""
        while self._awake or (last and self._waiting):
            number = self._awake.popleft() if self._awake else next(iter(self._waiting))
            if number in self._waiting:
                yield self._waiting.pop(number)
