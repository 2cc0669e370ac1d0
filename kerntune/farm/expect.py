"""Guesses how long a compilation takes, and learns from those that are done."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

RATE = 0.3
"""Share of an error that one observation corrects (normalized least mean squares; Widrow and Hoff 1960)."""

_START = (-7.0, 0.2, 0.4, 0.5)
"""Weights to start with: a third of a second for a matmul of 9 KB, 64 K tile elements, 4 stages; only order matters."""


@dataclass(frozen=True)
class Shape:
    """What is known of a compilation beforehand: TTIR characters, tile elements, pipeline stages."""

    length: int
    tile: int
    stages: int

    def features(self) -> tuple[float, ...]:
        """1 and three logarithms: times differ by factors, not by seconds."""
        return 1.0, math.log(max(self.tile, 1)), math.log(max(self.stages, 1)), math.log(max(self.length, 1))


@dataclass
class Expectation:
    """Expected seconds as a product of powers of the three sizes, refitted a little by every observation."""

    weights: tuple[float, ...] = field(default=_START)

    def seconds(self, shape: Shape) -> float:
        """The expected time; good for an order, not for a promise."""
        return math.exp(min(self._log(shape), 20.0))

    def saw(self, shape: Shape, seconds: float) -> None:
        """Learn that ``shape`` took ``seconds``."""
        x = shape.features()
        error = math.log(max(seconds, 1e-4)) - self._log(shape)
        step = RATE * error / sum(v * v for v in x)
        self.weights = tuple(w + step * v for w, v in zip(self.weights, x, strict=True))

    def _log(self, shape: Shape) -> float:
        return sum(w * v for w, v in zip(self.weights, shape.features(), strict=True))


def tile_of(constants: list[object]) -> int:
    """Elements of a tile as constants tell: the product of the block sizes among them (16 and more, powers of two).

    A guess: a group size of 8 or a flag is left out, a padded row length counts as the block that it is.
    """
    sizes = [v for v in constants if isinstance(v, int) and not isinstance(v, bool)]
    return math.prod(v for v in sizes if 16 <= v <= 1 << 16 and v & (v - 1) == 0)
