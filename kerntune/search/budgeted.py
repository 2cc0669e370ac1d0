"""A search over a declared space for some trials or seconds.

``Search`` is the same as a kernel's decorator declares it: its space and its budget.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from kerntune.base.config import Config
from kerntune.errors import ConfigError, TuningError
from kerntune.search.space import Constraint, Found, History, Measure, Space, Tried

SPREAD = 12
"""Random trials before the first step: the best of 12 is in the top fifth of a space with 93 % (1 - 0.8^12)."""

ELITE = 3
"""Steps start from this many of the best configs: more than one, since the first good one is seldom the best."""

RANDOM_EVERY = 5
"""After the spread every fifth trial is random: it can find what steps can't reach, at a fifth of the cost."""

BATCH = 4
"""Of this many possible next trials the one with the lowest predicted cost is taken. On recorded sweeps (``search`` in
``benchmarks/results/resource_model.json``) that saves two trials of five; twice as many save little more, and each has
to be compiled."""

ATTEMPTS = 200
"""Random draws for a new legal point before all points are tried in order; for spaces with few legal points."""

Predicted = Callable[[Sequence[Config]], Sequence[float]]
"""A function that returns a cost for each config, infinite for one that can't run or isn't predicted. Only the order of
costs is used. Equal calls must return equal costs. It is called with up to :data:`BATCH` configs, with each config once
per search."""

Prepare = Callable[[Sequence[Config]], None]
"""Called with the configs that are tried next, for slow work on all of them, such as compiling."""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to search: a number of trials, seconds of preparing, measuring and predicting, or both, of which the
    first that is spent ends the search. Both count over all runs of one search."""

    trials: int | None = None
    seconds: float | None = None

    def spent(self, trials: int, seconds: float) -> bool:
        """Whether the budget is spent."""
        limits = ((self.trials, trials), (self.seconds, seconds))
        return any(most is not None and used >= most for most, used in limits)


class BudgetedSearch:
    """A search over a space. :meth:`run` may be called repeatedly, also after an exception.

    ``starts`` are tried first (illegal ones are left out). ``predicted`` decides which config of a batch is tried
    first. ``at_once`` configs are chosen together, before any of them is measured, and passed to ``prepare``.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        starts: Sequence[Config] = (),
        predicted: Predicted | None = None,
        prepare: Prepare = lambda configs: None,
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.space, self._starts, self._predicted, self._clock = space, tuple(starts), predicted, clock
        self._prepare, self._at_once = prepare, at_once
        self._costs: dict[str, float] = {}
        self._seed, self._seconds = seed, 0.0
        self._trials: list[Tried] = []
        self._seen: set[str] = set()
        self.exhausted = False
        """Whether every legal config was tried."""

    def run(self, measure: Measure, budget: Budget) -> Found:
        """Try configs until the budget is spent or the space is exhausted.

        :class:`TuningError` if none is legal, :class:`ConfigError` if a large space has no budget.
        """
        if budget.trials is None and budget.seconds is None and self.space.size > MAX_UNBOUNDED:
            raise ConfigError(f"a space of {self.space.size} points needs a budget: give trials or seconds")
        while not budget.spent(len(self._trials), self._seconds):
            left = self._at_once if budget.trials is None else budget.trials - len(self._trials)
            configs = self.next_configs(min(self._at_once, left))
            if not configs:
                self.exhausted = True
                break
            with self._clocked():
                self._prepare(configs)
            for config in configs:
                history = History(measure)
                with self._clocked():
                    history.time_of(config)
                self._trials += history.found().trials
                self._seen.add(config.key())
        if self.exhausted and not self._trials:
            raise TuningError("no config of the space satisfies its constraints")
        return self.found()

    def next_configs(self, many: int) -> list[Config]:
        """The next configs, chosen before any of them is measured: as many, or all that are left."""
        found: list[Config] = []
        seen = set(self._seen)
        try:
            while len(found) < many and (config := self._next(len(self._trials) + len(found))) is not None:
                found.append(config)
                self._seen.add(config.key())
        finally:
            self._seen = seen  # they count as seen when they are tried
        return found

    def found(self) -> Found:
        """The trials so far."""
        return Found(tuple(self._trials))

    @contextlib.contextmanager
    def _clocked(self) -> Iterator[None]:
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds += self._clock() - begin

    def _next(self, number: int) -> Config | None:
        for start in self._starts:
            if self._new(start):
                return start
        draw = random.Random(f"{self._seed} {number}")
        if number >= SPREAD and number % RANDOM_EVERY:
            choices: Iterator[Config] = itertools.chain(self._steps(draw), self._anywhere(draw))
        else:
            choices = self._anywhere(draw)
        return next(choices, None) if self._predicted is None else self._most_promising(self._predicted, choices)

    def _most_promising(self, predicted: Predicted, choices: Iterator[Config]) -> Config | None:
        """The config with the lowest predicted cost of the first :data:`BATCH`, the first of equals."""
        batch: dict[str, Config] = {}
        for config in choices:
            batch[config.key()] = config
            if len(batch) == BATCH:
                break
        unknown = [config for key, config in batch.items() if key not in self._costs]
        if unknown:
            with self._clocked():
                self._costs.update((c.key(), cost) for c, cost in zip(unknown, predicted(unknown), strict=True))
        return min(batch.values(), key=lambda config: self._costs[config.key()], default=None)

    def _steps(self, draw: random.Random) -> Iterator[Config]:
        """New legal configs one axis step from the best few, then two axes from the best."""
        timed = (t for t in self._trials if t.time_ns is not None)
        usable = sorted(timed, key=lambda t: t.time_ns or math.inf)
        points = [p for t in usable[:ELITE] if (p := self.space.point_of(t.config)) is not None]
        for point in points:
            yield from self._shuffled(draw, self._around(point))
        for point in points[:1]:
            pairs = [far for near in self._around(point) for far in self._around(near)]
            yield from self._shuffled(draw, pairs)

    def _around(self, point: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [
            (*point[:axis], to, *point[axis + 1 :])
            for axis, values in enumerate(self.space.values)
            for to in (point[axis] + 1, point[axis] - 1)
            if 0 <= to < len(values)
        ]

    def _shuffled(self, draw: random.Random, points: list[tuple[int, ...]]) -> Iterator[Config]:
        draw.shuffle(points)
        return (c for p in points if self._new(c := self.space.at(p)))

    def _anywhere(self, draw: random.Random) -> Iterator[Config]:
        """New legal configs at random; if no draw finds one, all that are left in order."""
        found = False
        for _ in range(ATTEMPTS):
            config = self.space.at([draw.randrange(len(values)) for values in self.space.values])
            if self._new(config):
                found = True
                yield config
        if not found:
            yield from (c for c in self.space.configs() if c.key() not in self._seen)

    def _new(self, config: Config) -> bool:
        return config.key() not in self._seen and self.space.legal(config)


MAX_UNBOUNDED = 100_000
"""Without a budget a space is tried completely; a space of more points than this requires a budget."""

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
            how = "give at least one trial or some seconds"
            raise ConfigError(f"a search for {self._budget()} finds nothing; {how}")
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
        many = many if self.trials is None else min(many, self.trials)
        return BudgetedSearch(self.space, seed=self.seed, starts=starts).next_configs(many)

    def run(self, measure: Measure, prepare: Prepare, starts: Sequence[Config], spent: float) -> Found:
        """Continue after the configs that it :meth:`begins_with`, which took ``spent`` seconds."""
        search = BudgetedSearch(self.space, seed=self.seed, starts=starts, prepare=prepare, at_once=AT_ONCE)
        seconds = None if self.seconds is None else max(self.seconds - spent, 0.0)
        return search.run(measure, Budget(self.trials, seconds))

    def _budget(self) -> str:
        parts = [] if self.trials is None else [f"{self.trials} trials"]
        parts += [] if self.seconds is None else [f"{self.seconds:g} s"]
        return ", ".join(parts) or "all of it"
