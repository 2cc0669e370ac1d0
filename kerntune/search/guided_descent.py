"""A descent whose next steps are those that promise most: from the best few configs, along one field or two at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from kerntune.base.config import Config
from kerntune.heuristics import Field
from kerntune.search.budgeted import Prepare
from kerntune.search.descent import Steps
from kerntune.search.expected_improvement import Points, expected_improvements, points_of
from kerntune.search.trial_history import History, Twins

AT_ONCE = 2
"""Steps that are chosen together, and compiled at once."""

BEST_FEW = 5
"""Steps begin at this many of the fastest configs: the optimum is seldom next to the fastest start, and may lie behind
configs that are slower than that."""


class ManyFieldSteps(Steps, Protocol):
    """Steps along several fields at once, too, for example those of :class:`kerntune.heuristics.Neighbourhood`."""

    def two_fields(self, config: Config) -> Sequence[Config]:
        """Legal configs one step away along each of two fields."""

    def all_directions(self, config: Config, radius: int = 1) -> Sequence[Config]:
        """Legal configs up to ``radius`` steps away along all fields at once."""


StepsFrom = Callable[[Config, frozenset[str]], ManyFieldSteps]
"""The steps from a config, without those along the named fields."""


def guided_descent(
    history: History,
    steps_from: StepsFrom,
    *,
    all_directions: int = 0,
    prepare: Prepare = lambda configs: None,
) -> None:
    """Step from the best few configs of ``history``, which has one that can be used at least, until it is full or no
    step is left.

    Every step is one along a field or two from one of :data:`BEST_FEW`, or up to ``all_directions`` along all at once
    (0: no such steps). Of these the ones with the largest expected improvement are tried. A field along which a step
    has led to the same code is left alone, and counted ones (pipeline stages), which often do, are stepped alone first.
    ``prepare`` is called with the configs that are measured next.
    """
    while not history.full:
        choices = _choices(history, steps_from, all_directions)
        if not choices:
            return
        chosen = history.untried(_most_promising(history, choices))
        prepare(chosen)
        for config in chosen:
            history.time_of(config)


def _choices(history: History, steps_from: StepsFrom, all_directions: int) -> list[Config]:
    """The untried neighbours of the best few."""
    twins, found = history.twins(), list[Config]()
    best = [c for c in history.fastest() if c not in twins.later][:BEST_FEW]
    for config in best:
        steps = steps_from(config, twins.idle)
        for field in steps.fields:
            found += steps.neighbours(config, field)
        together = steps_from(config, twins.idle | _untold(steps.fields, twins))
        found += together.two_fields(config)
        if all_directions:
            found += together.all_directions(config, all_directions)
    return history.new(found)


def _untold(fields: Sequence[Field], twins: Twins) -> frozenset[str]:
    """Counted fields of which it is not known yet whether they change the code."""
    return frozenset(f.name for f in fields if f.by_one) - twins.telling


def _most_promising(history: History, choices: Sequence[Config]) -> list[Config]:
    """The first few by expected improvement. The second is chosen as if the first were as fast as the best, so that
    they aren't neighbours of each other."""
    tried = history.tried()
    points = points_of([*tried, *choices])
    known, others = points[: len(tried)], points[len(tried) :]
    times, chosen = [history.time_of(c) for c in tried], list[int]()
    best = min(times)
    while len(chosen) < min(AT_ONCE, len(choices)):
        gains = expected_improvements(known, times, others)
        gains[chosen] = 0.0
        chosen.append(_first_largest(gains))
        known, times = points[[*range(len(tried)), *(len(tried) + i for i in chosen)]], [*times, best]
    return [choices[i] for i in chosen]


def _first_largest(gains: Points) -> int:
    """The first of those that are equal but for rounding, which differs from process to process: a descent that was
    broken off has to go on with the same steps."""
    return int(np.argmax(gains >= gains.max() * (1 - 1e-6)))
