"""Coordinate descent: steps along one field at a time for as long as a step pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kerntune.base.config import Config
from kerntune.heuristics import Field, improves
from kerntune.search.budgeted import Prepare
from kerntune.search.trial_history import History


class Steps(Protocol):
    """The neighbours of a config, for example :class:`kerntune.search.combos.GroupSteps`."""

    @property
    def fields(self) -> Sequence[Field]:
        """The integer fields, in the order in which they are tried."""

    def neighbours(self, config: Config, field: Field) -> Sequence[Config]:
        """Legal configs one step away along a field."""


def descend(
    history: History,
    start: Config,
    steps: Steps,
    *,
    prepare: Prepare = lambda configs: None,
) -> Config:
    """Step from ``start`` along any integer field of ``steps`` until no step saves a thousandth; returns the last one.
    The history may already hold some configs, and ends the search early with the best so far if it is full.

    After a step up a field that field is stepped again at once, so a distant optimum costs one trial per doubling.
    ``prepare`` is called with the configs that are measured next.
    """
    history.time_of(start)
    best, moved = start, True
    while moved and not history.full:
        moved = False
        for field in steps.fields:
            while (step := _better(history, best, steps.neighbours(best, field), prepare)) is not None:
                best, moved = step, True
    return best


def _better(history: History, best: Config, choices: Iterable[Config], prepare: Prepare) -> Config | None:
    several = list(choices)
    if new := history.untried(several):
        prepare(new)
    timed = [(history.time_of(c), i, c) for i, c in enumerate(several)]
    if not timed:
        return None
    least, _, config = min(timed, key=lambda t: t[:2])
    return config if improves(history.time_of(best), least) else None
