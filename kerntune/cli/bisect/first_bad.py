"""The first bad one on a line whose first is good and whose last is bad, with as few measurements as possible.

Those with the same identity (they do the same work) have the same verdict, so one measurement answers for all of them.
Nothing is known here of commits or kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

AskIdentities = Callable[[Sequence[int]], Mapping[int, Hashable | None]]
"""Identities of positions on the line; None where it is unknown, as of a version that can't be built."""

AskIfBad = Callable[[int], bool | None]
"""Whether the one at a position is bad; None if that is unknown."""

WHOLE = 64
"""Positions between a good and a bad one from which on all of them are screened before the next is measured. Screening
costs a compilation, a measurement a GPU; of a longer line only the middle is screened."""


class FirstBad(NamedTuple):
    """The first bad position lies after ``good`` and is ``bad`` at most. Those between them are unknown.
    ``measured`` are the positions that were measured, in order."""

    good: int
    bad: int
    measured: tuple[int, ...]


class VersionLine:
    """Positions 0 (good) to ``last`` (bad), and what is known of them."""

    def __init__(self, last: int, screen: AskIdentities, measure: AskIfBad) -> None:
        self.measured: list[int] = []
        self._screen, self._measure = screen, measure
        self._identities: dict[int, Hashable | None] = {}
        self._verdicts: dict[Hashable, bool | None] = {}
        self._good, self._bad = 0, last
        self.look([0, last])
        self._verdicts[self._identities[0]] = False

    def look(self, positions: Sequence[int]) -> None:
        """AskIdentities positions that were not screened yet."""
        new = [p for p in positions if p not in self._identities]
        if new:
            self._identities.update(self._screen(new))

    def identity(self, position: int) -> Hashable | None:
        """What a position was screened as."""
        return self._identities[position]

    def verdict(self, position: int) -> bool | None:
        """Whether a screened position is bad, measured if no other of its identity was; None if it is unknown."""
        identity = self._identities[position]
        if identity is None:
            return None
        if identity not in self._verdicts:
            self.measured.append(position)
            self._verdicts[identity] = self._measure(position)
        return self._verdicts[identity]

    def search(self) -> FirstBad:
        """The first bad position. The first is good and the last is bad: :meth:`verdict` must have said so."""
        while True:
            self._narrow()
            if self._bad - self._good <= WHOLE:
                self.look(range(self._good + 1, self._bad))
                self._narrow()
            chosen = self._next()
            if chosen is None:
                return FirstBad(self._good, self._bad, tuple(self.measured))
            self.verdict(chosen)

    def _narrow(self) -> None:
        known = {p: self._verdicts.get(i) for p, i in sorted(self._identities.items()) if i is not None}
        inside = {p: v for p, v in known.items() if self._good < p < self._bad and v is not None}
        self._bad = min((p for p, bad in inside.items() if bad), default=self._bad)
        self._good = max((p for p, bad in inside.items() if not bad and p < self._bad), default=self._good)

    def _next(self) -> int | None:
        """The position to measure next: the first one of the middle stretch of equal work; None if none can help."""
        if self._bad - self._good > WHOLE:
            return self._middle()
        starts: list[int] = []
        before: Hashable | None = None
        for position in range(self._good + 1, self._bad):
            identity = self._identities[position]
            if identity is not None and identity not in self._verdicts:
                starts += [position] if identity != before else []
                before = identity
        return starts[len(starts) // 2] if starts else None

    def _middle(self) -> int | None:
        """The position nearest to the middle that has an identity, screened one after the other."""
        middle = (self._good + self._bad) // 2
        for position in sorted(range(self._good + 1, self._bad), key=lambda p: abs(p - middle)):
            self.look([position])
            identity = self._identities[position]
            if identity is not None and self._verdicts.get(identity, True) is not None:
                return position
        return None
