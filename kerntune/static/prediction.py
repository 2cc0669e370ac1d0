"""The resource model's figures of one tuning's candidates, and which candidates aren't worth running by them.

A candidate has figures as soon as it is compiled, where the model applies. All candidates are never left out, and none
without a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
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


MODEL_LIMIT = 3.0
"""A multiple of the lowest predicted cost. On 52 sweeps of 21 kernels (``benchmarks/results/resource_model.json``) a
config within 1 % of the best is predicted to cost 2.1 times the lowest at most, and 1.3 times in all cases but one."""

LOW_OCCUPANCY = 0.1
"""A share of the highest occupancy among the candidates. On those sweeps a backward layer norm's best has an eighth of
it, matrix products' a sixth: below a quarter there are configs that are up to 15 % faster than all others."""

Figured = Mapping[int, Figures]


def left_out(figures: Figured, rules: StaticPrune, protected: Collection[int | None] = ()) -> dict[int, str]:
    """Why each candidate that needn't run is left out, by index; the ``protected`` never are, and one is always left.

    Each rule applies to the candidates that the one before it kept. Candidates that can't be launched (infinite cost)
    are kept, so that the launch reports them, and so are those without figures.
    """
    rest = {i: f for i, f in figures.items() if math.isfinite(f.cost)}
    out: dict[int, str] = {}
    for rule in _rules(rules, len(rest)):
        found = rule(rest) if rest else {}
        out.update(found)
        rest = {i: f for i, f in rest.items() if i not in found}
    return {i: why for i, why in out.items() if i not in protected}


def _rules(rules: StaticPrune, count: int) -> Iterator[Callable[[Figured], dict[int, str]]]:
    """The rules that are set, each as a function of the candidates that are left."""
    if rules.spills:
        yield _spilling
    if rules.occupancy:
        yield _sparse
    if rules.model:
        yield _costly
    if rules.share is not None:
        yield partial(_beyond, math.ceil(rules.share * count))


def _spilling(figures: Figured) -> dict[int, str]:
    if all(f.spill_bytes for f in figures.values()):
        return {}
    return {i: f"spills {f.spill_bytes:,} bytes a thread, others none" for i, f in figures.items() if f.spill_bytes}


def _sparse(figures: Figured) -> dict[int, str]:
    most = max(f.occupancy for f in figures.values())
    return {
        i: f"occupancy {f.occupancy:.0%}, others have up to {most:.0%}"
        for i, f in figures.items()
        if f.occupancy < LOW_OCCUPANCY * most
    }


def _costly(figures: Figured) -> dict[int, str]:
    least = min(f.cost for f in figures.values())
    return {
        i: f"predicted to cost more than {MODEL_LIMIT:g} times what the best does"
        for i, f in figures.items()
        if f.cost > MODEL_LIMIT * least
    }


def _beyond(most: int, figures: Figured) -> dict[int, str]:
    """All but the ``most`` with the lowest cost; of equal ones the first are kept."""
    order = sorted(figures, key=lambda i: (figures[i].cost, i))
    return {
        i: f"predicted to be number {place} of {len(order)}, the first {most} are tried"
        for place, i in enumerate(order, 1)
        if place > most
    }
