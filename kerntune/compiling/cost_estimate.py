"""Estimates how long a compilation takes, and learns from those that are done."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

RATE = 0.3
"""Share of an error that one observation corrects (normalized least mean squares; Widrow and Hoff 1960)."""

_START = (-8.8, 0.47, -0.45, 0.33, 0.33)
"""Weights to start with; only order matters. Least squares within each list of 277 compilations of the tuning suite
(sm_90, Triton 3.6). What a thread holds decides: 8192 elements of a row take 2 s with one warp, 0.2 s with four."""

_TENSOR = re.compile(r"tensor<((?:\d+x)+)")


@dataclass(frozen=True)
class Shape:
    """The sizes of a compilation that are known beforehand: TTIR characters, tile elements, pipeline stages, warps."""

    length: int
    tile: int
    stages: int
    warps: int = 4

    def features(self) -> tuple[float, ...]:
        """1 and four logarithms: times differ by factors, not by seconds."""
        return 1.0, *(math.log(max(size, 1)) for size in (self.tile, self.warps, self.stages, self.length))


@dataclass
class Expectation:
    """Expected seconds as a product of powers of the four sizes, refitted a little by every observation."""

    weights: tuple[float, ...] = field(default=_START)

    def seconds(self, shape: Shape) -> float:
        """The expected time; precise enough for an order only."""
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
    """Elements of a tile by the constants: the product of the block sizes among them (16 and more, powers of two).

    An estimate: a group size of 8 or a flag is left out, a padded row length counts as a block size.
    """
    sizes = [v for v in constants if isinstance(v, int) and not isinstance(v, bool)]
    return math.prod(v for v in sizes if 16 <= v <= 1 << 16 and v & (v - 1) == 0)


def elements_in(ir: str) -> int:
    """Elements of the distinct tensor shapes that a module's text names: the data that its programs work on."""
    return sum(math.prod(map(int, sizes[:-1].split("x"))) for sizes in set(_TENSOR.findall(ir)))
