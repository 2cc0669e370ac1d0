"""Made-up timings for searches: a model of a matmul with several local optima, and a measure that counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kerntune.base.config import Config
from kerntune.errors import CompileError
from kerntune.search import Choice, Found, Measure, Measured, Range, Space
from kerntune.search.combos import GroupSteps, descend
from kerntune.search.space import History

SHARED_LIMIT = 232_448

MATMUL = Space(
    (
        Range("BLOCK_M", 16, 256),
        Range("BLOCK_N", 16, 256),
        Range("BLOCK_K", 16, 128),
        Choice("num_warps", (1, 2, 4, 8)),
        Range("num_stages", 1, 5, by_one=True),
    ),
    (lambda c: int(c.kwargs["BLOCK_M"]) * int(c.kwargs["BLOCK_N"]) <= 32768,),  # type: ignore[arg-type]
)


def matmul_ns(config: Config) -> float | None:
    """Nanoseconds of a made-up 4096x4096x4096 fp16 matmul, None where shared memory doesn't suffice.

    Traffic falls with the blocks, stages hide it, warps must fit the tile, and every configuration has a ripple of its
    own (up to 3 %): several local optima, one global.
    """
    m, n, k = (int(config.kwargs[x]) for x in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))  # type: ignore[arg-type]
    if (m + n) * k * 2 * config.num_stages > SHARED_LIMIT:
        return None
    traffic = 300_000 * (16 / m + 16 / n)
    latency = 90_000 / (config.num_stages * math.sqrt(k / 16))
    fit = abs(math.log2(m * n / 4096) - math.log2(config.num_warps))
    ripple = 1 + 0.03 * ((m * 7 + n * 13 + k * 29 + config.num_warps * 31 + config.num_stages * 37) % 17) / 17
    return (200_000 + traffic + latency) * (1 + 0.12 * fit) * ripple


@dataclass
class Counted:
    """A measure that records its configs, and fails for a config that comes twice."""

    time_of: Callable[[Config], float | None]
    asked: list[Config] = field(default_factory=list)

    def __call__(self, config: Config) -> Measured:
        assert config not in self.asked, f"{config} was measured twice"
        self.asked.append(config)
        time = self.time_of(config)
        return Measured(time, "" if time is not None else "out of shared memory")


def refusing(table: Mapping[int, float], name: str = "BLOCK") -> Callable[[Config], Measured]:
    """Times by one field's value; the compiler refuses what isn't in the table."""

    def measure(config: Config) -> Measured:
        value = config.kwargs[name]
        if value not in table:
            raise CompileError(f"{name}={value} can't be compiled")
        return Measured(table[int(value)])  # type: ignore[arg-type]

    return measure


def best_of(space: Space, time_of: Callable[[Config], float | None]) -> float:
    """The least time of a whole space."""
    return min(t for c in space.configs() if (t := time_of(c)) is not None)


def every(measure: Measure, configs: Iterable[Config]) -> Found:
    """Every config once, in order."""
    history = History(measure)
    for config in configs:
        history.time_of(config)
    return history.found()


def descended(
    measure: Measure, start: Config, steps: GroupSteps, *, max_trials: int | None = None, **words: Any
) -> Found:
    """A descent of its own from one config."""
    history = History(measure, max_trials)
    descend(history, start, steps, **words)
    return history.found()
