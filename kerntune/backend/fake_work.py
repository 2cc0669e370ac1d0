"""What launches on a scripted GPU come to: time, and bytes in buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class FakeBuffer:
    """Memory that is one byte value all over. Launches leave ``users`` own as it is."""

    address: int
    nbytes: int
    byte: int = 0
    users: bool = False


class OwnBuffer(FakeBuffer):
    """Memory that counts until its last reference goes."""

    def __init__(self, address: int, nbytes: int, give_back: Callable[[int], None]) -> None:
        super().__init__(address, nbytes)
        self._give_back = give_back

    def __del__(self) -> None:
        self._give_back(self.nbytes)


@dataclass(frozen=True)
class FakeWork:
    """Launches in a row, taken as one: how many, how long, and what bytes they leave in which buffers (kept alive).

    ``spread_ns`` times the script's noise is the standard deviation of ``time_ns``. Each launch has noise of its own,
    so the spreads of several add up as the sides of a right angle do.
    """

    launches: int
    time_ns: float
    spread_ns: float
    left: dict[FakeBuffer, int]

    @classmethod
    def of(cls, works: Sequence[FakeWork]) -> FakeWork:
        """The same, one after the other."""
        left = {buffer: byte for work in works for buffer, byte in work.left.items()}
        time_ns, spread_ns = sum(w.time_ns for w in works), math.hypot(*(w.spread_ns for w in works))
        return cls(sum(w.launches for w in works), time_ns, spread_ns, left)
