"""The time after which a compilation counts as hung."""

from __future__ import annotations

FLOOR_SECONDS = 30.0
"""No compilation is ended sooner: the slowest of 147 specializations took under 2 s on two shared cores."""

SLOWEST_TIMES = 10.0
"""A compilation ten times slower than the slowest one that has ended counts as a hang."""


class Deadline:
    """Seconds to wait for one compilation, from earlier ones: ``max(floor, 10 x the slowest so far)``."""

    def __init__(self, floor: float = FLOOR_SECONDS, factor: float = SLOWEST_TIMES) -> None:
        self._floor, self._factor, self._slowest = floor, factor, 0.0

    def saw(self, seconds: float) -> None:
        """Learn from a compilation that ended by itself, with or without an error."""
        self._slowest = max(self._slowest, seconds)

    @property
    def seconds(self) -> float:
        """How long the next one may take."""
        return max(self._floor, self._factor * self._slowest)

    def __str__(self) -> str:
        if self._factor * self._slowest <= self._floor:
            return f"{self.seconds:.0f} s"
        return f"{self.seconds:.0f} s, {self._factor:.0f} times the slowest so far"
