"""A search as a kernel's decorator declares it: its space and its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kerntune.base.config import Config
from kerntune.errors import ConfigError
from kerntune.search.budgeted import MAX_UNBOUNDED, SPREAD, Budget, BudgetedSearch, Prepare
from kerntune.search.space import Constraint, Space
from kerntune.search.trial_history import Found, Measure

AT_ONCE = 8
"""Configs that are chosen together, and compiled at once. On 28 recorded sweeps (``search`` in
``benchmarks/results/resource_model.json``) that takes no more trials than one at a time: 16.7 instead of 17.3 until one
is within 5 % of the best, in 2.6 rounds."""


@dataclass(frozen=True)
class Search:
    """Try configs of ``space`` for ``trials``, for ``seconds``, or until the first of both ends; all of a small space
    where neither is given. Equal seeds try equal configs, as long as these take equal times.

    Seconds are of compiling and timing, and the last few configs under way are finished. Stored trials of earlier runs
    count as trials and take no seconds.

    :class:`~kerntune.errors.ConfigError` for an empty budget, a large space without a budget, and a base with options:
    a field of the space that is no parameter of the kernel is an option of the compiler.
    """

    space: Space
    trials: int | None = None
    seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.trials is not None and self.trials < 1) or (self.seconds is not None and not self.seconds > 0):
            raise ConfigError(f"a search for {self._budget()} finds nothing; give at least one trial or some seconds")
        if self.trials is None and self.seconds is None and self.space.size > MAX_UNBOUNDED:
            raise ConfigError(f"a space of {self.space.size} points needs a budget: give trials or seconds")
        if self.space.base.options:
            raise ConfigError(f"the space's base ({self.space.base}) has options; give them as its kwargs")

    def __str__(self) -> str:
        """A text that is equal for equal searches. It leaves out constraints, which are code."""
        axes = ", ".join(map(str, self.space.axes))
        return f"{axes}; else {self.space.base}; {self._budget()}, seed {self.seed}"

    def among(self, constraint: Constraint) -> Search:
        """The same search, of fewer configs."""
        return replace(self, space=replace(self.space, constraints=(*self.space.constraints, constraint)))

    def has(self, config: Config) -> bool:
        """Whether the search might try a config."""
        return self.space.point_of(config) is not None and self.space.legal(config)

    def begins_with(self, starts: Sequence[Config]) -> list[Config]:
        """The configs that are tried in any case: the legal ones of ``starts``, and a spread of others."""
        many = max(SPREAD, len(starts))
        return BudgetedSearch(self.space, seed=self.seed, starts=starts).next_configs(
            many if self.trials is None else min(many, self.trials)
        )

    def run(self, measure: Measure, prepare: Prepare, starts: Sequence[Config], spent: float = 0.0) -> Found:
        """Continue the search after the configs that it :meth:`begins_with`; ``spent`` are the seconds that these
        took."""
        search = BudgetedSearch(self.space, seed=self.seed, starts=starts, prepare=prepare, at_once=AT_ONCE)
        seconds = None if self.seconds is None else max(self.seconds - spent, 0.0)
        return search.run(measure, Budget(self.trials, seconds))

    def _budget(self) -> str:
        parts = [] if self.trials is None else [f"{self.trials} trials"]
        parts += [] if self.seconds is None else [f"{self.seconds:g} s"]
        return ", ".join(parts) or "all of it"
