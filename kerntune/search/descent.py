"""Coordinate descent: steps along one field at a time for as long as a step pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kerntune.base.config import Config
from kerntune.heuristics import Field, improves
from kerntune.search.budgeted import Prepare
from kerntune.search.trial_history import History


class Steps(Protocol):
    """The neighbours of a config, for example :class:`kerntune.heuristics.Neighbourhood`."""

    @property
    def fields(self) -> Sequence[Field]:
        """The integer fields, in the order in which they are tried."""

    def neighbours(self, config: Config, field: Field) -> Sequence[Config]:
        """Legal configs one step away along a field."""

    def two_fields(self, config: Config) -> Sequence[Config]:
        """Legal configs one step away along each of two fields, the likeliest first."""

    def all_directions(self, config: Config, radius: int = 1) -> Sequence[Config]:
        """Legal configs up to ``radius`` steps away along all fields at once."""


AT_ONCE = 4
"""Steps along two fields that are chosen together, and compiled at once: the first of the four cores of a small
machine have one each, and of so few not many are in vain."""

MOST_PAIRS = 8
"""Steps along two fields that are tried where no single field helps, the likeliest first; a tile of three axes has 40.
What is left of the trials goes to another start."""


def descend(
    history: History,
    start: Config,
    steps: Steps,
    *,
    two_fields: bool = False,
    all_directions: bool = False,
    radius: int = 1,
    prepare: Prepare = lambda configs: None,
) -> Config:
    """Step from ``start`` along any integer field of ``steps`` until no step saves a thousandth; returns the last one.
    The history may already hold some configs, and ends the search early with the best so far if it is full.

    After a step up a field that field is stepped again at once, so a distant optimum costs one trial per doubling.
    ``two_fields`` tries, once no single field helps, steps along two fields together, the likeliest first: optima for
    which block and warps change at once. ``all_directions`` then tries up to ``radius`` steps along all fields
    together: it takes many trials. ``prepare`` is called with the configs that are measured next.
    """
    history.time_of(start)
    best, moved = start, True
    while moved and not history.full:
        moved = False
        for field in steps.fields:
            while (step := _better(history, best, steps.neighbours(best, field), prepare)) is not None:
                best, moved = step, True
        if not moved and two_fields:
            step = _first_better(history, best, steps.two_fields(best)[:MOST_PAIRS], prepare)
            best, moved = (best, False) if step is None else (step, True)
        if not moved and all_directions:
            step = _better(history, best, steps.all_directions(best, radius), prepare)
            best, moved = (best, False) if step is None else (step, True)
    return best


def _first_better(history: History, best: Config, choices: Sequence[Config], prepare: Prepare) -> Config | None:
    """The best of the first few of ``choices`` among which one is worth a step."""
    for begin in range(0, len(choices), AT_ONCE):
        if history.full:
            return None
        if (step := _better(history, best, choices[begin : begin + AT_ONCE], prepare)) is not None:
            return step
    return None


def _better(history: History, best: Config, choices: Iterable[Config], prepare: Prepare) -> Config | None:
    several = list(choices)
    if new := history.untried(several):
        prepare(new)
    timed = [(history.time_of(c), i, c) for i, c in enumerate(several)]
    if not timed:
        return None
    least, _, config = min(timed, key=lambda t: t[:2])
    return config if improves(history.time_of(best), least) else None
