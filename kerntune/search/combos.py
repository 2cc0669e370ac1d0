"""Search for combo kernels, one group of blocks after the other: trials are the sum over groups, not the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerntune.base.config import Config, Scalar
from kerntune.heuristics import ComboGroup, ComboPlan, Field, improves
from kerntune.heuristics.descent_steps import get_field, set_field
from kerntune.heuristics.hints import is_power_of_two
from kerntune.search.budgeted import Prepare, Search
from kerntune.search.descent import Descent, RegisterScaling
from kerntune.search.space import Found, History, Measure


def combo_search(
    measure: Measure,
    plan: ComboPlan,
    *,
    descent: bool = False,
    max_trials: int | None = None,
    prepare: Prepare = lambda configs: None,
) -> Found:
    """Try each group's candidates on top of the best so far, then warps and stages, then (``descent``) single blocks.

    Groups come in the plan's order, the largest first. A group's members keep equal blocks throughout. ``prepare`` is
    called with the configs that are measured next.
    """
    history = History(measure, max_trials)
    best = plan.base
    _best_of(history, best, [best], prepare)
    for group in plan.groups:
        best = _best_of(history, best, plan.candidates(best, group), prepare)
    best = _best_of(history, best, plan.warp_candidates(best), prepare)
    if descent:
        descend(history, best, GroupSteps(plan), prepare=prepare)
    return history.found()


@dataclass(frozen=True)
class ComboSearch:
    """The search of a tuned combo: :func:`combo_search` over its ``plan``, with at most ``trials`` configs; a
    ``descent`` after it on request."""

    plan: ComboPlan
    trials: int
    descent: bool = False

    def __str__(self) -> str:
        """A text that is equal for equal searches, however many configs they try."""
        return "a combo's groups in turn" + (", then descent" if self.descent else "")

    def has(self, config: Config) -> bool:
        """Whether the search might come to a config; a descent goes to any blocks within its limits."""
        kwargs, plan = config.kwargs, self.plan
        if kwargs.keys() != plan.base.kwargs.keys():
            return False
        if self.descent:
            return all(_within(kwargs[name], plan, name) for name in plan.fields if name in kwargs)
        pairs = {(plan.base.num_warps, plan.base.num_stages), *plan.warp_stage_pairs}
        if (config.num_warps, config.num_stages) not in pairs or not all(_chosen(kwargs, g) for g in plan.groups):
            return False
        return all(value in _common(name, plan) for name, value in kwargs.items() if not name[-1].isdigit())

    def run(self, measure: Measure, prepare: Prepare, starts: Sequence[Config], spent: float) -> Found:
        """Go through the plan. What is measured before it is ready is prepared first."""
        return combo_search(measure, self.plan, descent=self.descent, max_trials=self.trials, prepare=prepare)


AnySearch = Search | Descent | ComboSearch | RegisterScaling
"""What may choose further configs of a tuning."""


def _within(value: object, plan: ComboPlan, name: str) -> bool:
    least, most = plan.field_minimums.get(name, 1), plan.field_limits[name]
    return isinstance(value, int) and least <= value <= most and is_power_of_two(value)


def _chosen(kwargs: Mapping[str, Scalar], group: ComboGroup) -> bool:
    own = [{f"{n}_{m}": v for m in group.members for n, v in c.kwargs.items()} for c in group.configs]
    return any(all(kwargs.get(name, value) == value for name, value in choice.items()) for choice in own)


def _common(name: str, plan: ComboPlan) -> set[Scalar]:
    configs = [c for g in plan.groups for c in g.configs if name in c.kwargs]
    return {plan.base.kwargs[name], *(c.kwargs[name] for c in configs)}


def _best_of(history: History, best: Config, candidates: Sequence[Config], prepare: Prepare) -> Config:
    if new := history.untried(candidates):
        prepare(new)
    for candidate in candidates:
        if improves(history.time_of(best), history.time_of(candidate)):
            best = candidate
    return best


def descend(history: History, start: Config, steps: GroupSteps, *, prepare: Prepare = lambda configs: None) -> Config:
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
            while (step := _best_of(history, best, steps.neighbours(best, field), prepare)) is not best:
                best, moved = step, True
    return best


@dataclass(frozen=True)
class GroupSteps:
    """Steps along a combo's block fields, within its limits; all members of a group step together."""

    plan: ComboPlan

    @property
    def fields(self) -> tuple[Field, ...]:
        """One field per group and axis, named after the group's first member."""
        least, most = self.plan.field_minimums, self.plan.field_limits
        return tuple(Field(name, least=least.get(name, 1), most=most[name]) for name in self.plan.fields)

    def neighbours(self, config: Config, field: Field) -> tuple[Config, ...]:
        """Configs with the field's group doubled or halved."""
        value = get_field(config, field.name)
        return () if value is None else tuple(self._set(config, field, v) for v in field.values(value))

    def _set(self, config: Config, field: Field, value: int) -> Config:
        group = next(g for g in self.plan.groups if field.name in g.fields)
        axis = field.name.rpartition("_")[0]
        for name in (f"{axis}_{member}" for member in group.members):
            if get_field(config, name) is not None:
                config = set_field(config, name, value)
        return config
