"""A descent as a kernel's decorator declares it: from the best of a list through its neighbours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.errors import ConfigError
from kerntune.heuristics import INDUCTOR_2_13, Neighbourhood, Preset, neighbourhood
from kerntune.heuristics.descent_steps import get_field, set_field
from kerntune.heuristics.hints import HeuristicType, KernelHints
from kerntune.search.budgeted import Prepare
from kerntune.search.descent import guided_descent
from kerntune.search.space import Constraint
from kerntune.search.trial_history import Found, History, Measure

TRIALS = 25
"""Configs that a descent tries beyond its list, by default; 20 to 22 in the mean of 56 descents on recorded sweeps
(``benchmarks/results/descent.json``)."""

FURTHER = 3
"""One trial of so many, at most, is one of the further starts."""


@dataclass(frozen=True)
class Proposed:
    """What is known of a kernel whose list a family of heuristics proposed: its ``hints``, and its own names of blocks
    by axis. Steps stay within what these allow for."""

    hints: KernelHints
    blocks: Mapping[str, str]
    family: HeuristicType
    preset: Preset = INDUCTOR_2_13


@dataclass(frozen=True)
class Descent:
    """Steps from the fastest of a list along its integer fields: constexprs doubled and halved, warps, stages; along
    one or two fields at once, or on request along all, up to ``radius`` steps each (``all_directions``). At most
    ``trials`` configs are tried, among them those of ``further`` starts, which are tried first, as far as they are a
    third of the trials. ``proposed`` bounds the blocks of a kernel that heuristics proposed for.

    ``limits`` are upper bounds by field, ``frozen`` are fields that stay as they are. :class:`ConfigError` for less
    than one trial.
    """

    listed: tuple[Config, ...]
    device: DeviceSpec
    trials: int = TRIALS
    all_directions: bool = False
    limits: tuple[tuple[str, int], ...] = ()
    frozen: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    further: tuple[Config, ...] = ()
    radius: int = 1
    proposed: Proposed | None = None

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"a descent of {self.trials} trials finds nothing; give at least one")

    def __str__(self) -> str:
        """A text that is equal for equal descents. It leaves out constraints, which are code, and the number of
        trials: one that goes on for longer goes on from where the shorter one was."""
        limits = "".join(f", {name} up to {most}" for name, most in self.limits)
        kept = f", {', '.join(self.frozen)} as listed" if self.frozen else ""
        far = f", {self.radius} steps" if self.radius > 1 else ""
        return f"descent{f' in all directions{far}' if self.all_directions else ''}{limits}{kept}"

    def among(self, constraint: Constraint) -> Descent:
        """The same descent, among fewer configs."""
        return replace(self, constraints=(*self.constraints, constraint))

    def has(self, config: Config) -> bool:
        """Whether the descent might come to a config: one of the list with other legal values of its fields."""
        return any(self._reaches(start, config) for start in self.listed)

    def run(self, measure: Measure, prepare: Prepare, starts: Sequence[Config], spent: float) -> Found:
        """Descend from the fastest few of ``starts``, whose known times are no trials; not if none can be used."""
        history = _Further(measure, starts, self.trials)
        if history.fastest():
            self._try_further(history, prepare)
            radius = self.radius if self.all_directions else 0
            guided_descent(history, self.steps_from, all_directions=radius, prepare=prepare)
        return history.found()

    def _try_further(self, history: History, prepare: Prepare) -> None:
        some = history.new([c for c in self.further if self.has(c)])[: self.trials // FURTHER]
        if some:
            prepare(some)
        for config in some:
            history.time_of(config)

    def steps_from(self, start: Config, without: Collection[str] = ()) -> Neighbourhood:
        """Where steps may lead within the constraints: along every integer field that isn't frozen or ``without``."""
        known = {name: most for name, most in self.limits if get_field(start, name) is not None}
        frozen = {*self.frozen, *without}
        words: dict[str, Any] = {} if self.proposed is None else vars(self.proposed)
        found = neighbourhood(start, self.device, limits=known, frozen=frozen, **words)
        return msgspec.structs.replace(found, constraints=self.constraints)

    def _reaches(self, start: Config, config: Config) -> bool:
        moved, steps = start, self.steps_from(start)
        for field in steps.fields:
            value, before = get_field(config, field.name), get_field(start, field.name)
            if value is None or (value != before and not field.least <= value <= field.most):
                return False
            moved = set_field(moved, field.name, value)
        return moved == config and steps.is_legal(config)


class _Further(History):
    """A history in which the starts are known, and don't count."""

    def __init__(self, measure: Measure, starts: Collection[Config], trials: int) -> None:
        super().__init__(measure, None)
        for start in starts:
            self.time_of(start)
        self._limit = len(self._by_key) + trials


def with_neighbour(config: Config) -> Config:
    """Another config to begin with, where a list has only one: twice the warps, or half of them from 8 on."""
    return config.replace(num_warps=config.num_warps * 2 if config.num_warps < 8 else config.num_warps // 2)


def descent_limits(limits: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    """Limits as a :class:`Descent` has them."""
    return tuple(sorted((limits or {}).items()))
