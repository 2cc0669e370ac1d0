"""Which compiled candidates aren't worth running, by the figures of all of them: never all, never without a reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from kerntune.base.policy import StaticPrune
from kerntune.static.prediction import Figures

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
        yield partial(_beyond, max(1, math.ceil(rules.share * count)))


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
