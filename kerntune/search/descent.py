"""Coordinate descent: steps along one field at a time for as long as a step pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kerntune.base.config import Config
from kerntune.heuristics import Field, improves
from kerntune.search.history import Found, History, Measure


class Steps(Protocol):
    """The neighbours of a config, for example :class:`kerntune.heuristics.Neighbourhood`."""

    @property
    def fields(self) -> Sequence[Field]:
        """The integer fields, in the order in which they are tried."""

    def neighbours(self, config: Config, field: Field) -> Sequence[Config]:
        """Legal configs one step away along a field."""

    def all_directions(self, config: Config, radius: int = 1) -> Sequence[Config]:
        """Legal configs up to ``radius`` steps away along all fields at once."""


def coordinate_descent(
    measure: Measure,
    start: Config,
    steps: Steps,
    *,
    all_directions: bool = False,
    radius: int = 1,
    max_trials: int | None = None,
) -> Found:
    """Step from ``start`` along any integer field of ``steps`` until no step saves a thousandth.

    After a step up a field that field is stepped again at once, so a distant optimum costs one trial per doubling.
    ``all_directions`` tries, once no single field helps, up to ``radius`` steps along all fields together: it takes
    many trials, and finds optima for which two fields must change at once. ``max_trials`` ends the search early with
    the best so far.
    """
    history = History(measure, max_trials)
    descend(history, start, steps, all_directions=all_directions, radius=radius)
    return history.found()


def descend(history: History, start: Config, steps: Steps, *, all_directions: bool = False, radius: int = 1) -> Config:
    """The descent on a history that may already hold some configs; returns the config where it ends."""
    best, time = start, history.time_of(start)
    moved = True
    while moved and not history.full:
        moved = False
        for field in steps.fields:
            while (step := _better(history, time, steps.neighbours(best, field))) is not None:
                best, time, moved = step, history.time_of(step), True
        if not moved and all_directions:
            step = _better(history, time, steps.all_directions(best, radius))
            if step is not None:
                best, time, moved = step, history.time_of(step), True
    return best


def _better(history: History, time: float, choices: Iterable[Config]) -> Config | None:
    timed = [(history.time_of(c), i, c) for i, c in enumerate(choices)]
    if not timed:
        return None
    least, _, config = min(timed, key=lambda t: t[:2])
    return config if improves(time, least) else None
