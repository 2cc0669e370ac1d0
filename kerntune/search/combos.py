"""Search for combo kernels, one group of blocks after the other: trials are the sum over groups, not the product."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from kerntune.base.config import Config
from kerntune.heuristics import ComboGroup, ComboPlan, Field, improves
from kerntune.heuristics.descent_steps import get_field, set_field
from kerntune.search.descent import descend
from kerntune.search.history import Found, History, Measure


def combo_search(measure: Measure, plan: ComboPlan, *, descent: bool = False, max_trials: int | None = None) -> Found:
    """Try each group's candidates on top of the best so far, then warps and stages, then (``descent``) single blocks.

    Groups come in the plan's order, the largest first. A group's members keep equal blocks throughout.
    """
    history = History(measure, max_trials)
    best = plan.base
    history.time_of(best)
    for group in plan.groups:
        best = _best_of(history, best, plan.candidates(best, group))
    best = _best_of(history, best, plan.warp_candidates(best))
    if descent:
        descend(history, best, GroupSteps(plan))
    return history.found()


def _best_of(history: History, best: Config, candidates: Iterable[Config]) -> Config:
    for candidate in candidates:
        if improves(history.time_of(best), history.time_of(candidate)):
            best = candidate
    return best


@dataclass(frozen=True)
class GroupSteps:
    """Steps along a combo's block fields, within its limits; all members of a group step together."""

    plan: ComboPlan

    @property
    def fields(self) -> tuple[Field, ...]:
        """One field per group and axis, named after the group's first member."""
        return tuple(Field(name, most=self.plan.field_limits[name]) for name in self.plan.fields)

    def neighbours(self, config: Config, field: Field) -> tuple[Config, ...]:
        """Configs with the field's group doubled or halved."""
        value = get_field(config, field.name)
        return () if value is None else tuple(self._set(config, field, v) for v in field.values(value))

    def two_fields(self, config: Config) -> tuple[Config, ...]:
        """None: a combo's groups are tuned one after the other."""
        return ()

    def all_directions(self, config: Config, radius: int = 1) -> tuple[Config, ...]:
        """Every combination of steps of all groups."""
        present = [(f, v) for f in self.fields if (v := get_field(config, f.name)) is not None]
        found = []
        for values in itertools.product(*(f.values(v, radius, include_self=True) for f, v in present)):
            step = config
            for (field, _), value in zip(present, values, strict=True):
                step = self._set(step, field, value)
            found.append(step)
        return tuple(found)

    def _set(self, config: Config, field: Field, value: int) -> Config:
        group = next(g for g in self.plan.groups if field.name in g.fields)
        for name in _names(field, group):
            if get_field(config, name) is not None:
                config = set_field(config, name, value)
        return config


def _names(field: Field, group: ComboGroup) -> list[str]:
    axis = field.name.rpartition("_")[0]
    return [f"{axis}_{member}" for member in group.members]
