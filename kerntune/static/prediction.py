"""The resource model's figures of one tuning's candidates as they are compiled, where the model applies."""

from __future__ import annotations

import math

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.compiling.compiler import Compiled
from kerntune.errors import StoreError, TargetError
from kerntune.static.occupancy import cuda_occupancy
from kerntune.static.resource_model import cost, quick_candidate

GridTriple = tuple[int, int, int]


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one compiled candidate at its grid: ``cost`` as :func:`kerntune.static.resource_model.cost` gives it,
    infinite for what can't be launched; ``spill_bytes`` per thread, the stack frame stored and loaded; theoretical
    ``occupancy`` (0..1).
    """

    cost: float
    spill_bytes: int
    occupancy: float


def figures_of(compiled: Compiled, grid: GridTriple, spec: DeviceSpec) -> Figures | None:
    """The figures, from the binary in memory alone: 0.3 to 0.8 ms. None for another vendor's GPU, one whose limits
    aren't known, and a binary that can't be read."""
    stages = compiled.binary.options.get("num_stages")
    try:
        candidate = quick_candidate(
            compiled.binary, compiled.data, compiled.asm, grid, stages=stages if isinstance(stages, int) else 0
        )
        resident = cuda_occupancy(
            spec, registers=candidate.registers, shared_bytes=candidate.shared_bytes, threads=candidate.threads
        )
        return Figures(cost(candidate, spec), candidate.spill_bytes, resident.fraction)
    except (StoreError, TargetError):
        return None


class Predictions:
    """Figures of one call's candidates, by index, on one device. They are advice only: a candidate without figures has
    an infinite cost."""

    def __init__(self, spec: DeviceSpec) -> None:
        self._spec = spec
        self.figures: dict[int, Figures] = {}

    def add(self, index: int, compiled: Compiled, grid: GridTriple) -> None:
        """Compute and store a candidate's figures, if the model applies to it."""
        found = figures_of(compiled, grid, self._spec)
        if found is not None:
            self.figures[index] = found

    def cost(self, index: int) -> float:
        """A candidate's predicted cost, to be compared with other candidates' only."""
        return self.figures[index].cost if index in self.figures else math.inf

    def rank(self, index: int) -> int | None:
        """A candidate's rank by cost among those that have figures, 1 for the lowest; None without figures."""
        if index not in self.figures:
            return None
        return 1 + sum(f.cost < self.figures[index].cost for f in self.figures.values())
