"""Steps from measured configs to better ones.

A guided descent starts from the best few configs, and tries the steps of one field or two that promise most, by a
Gaussian process over the trials so far. Reduction blocks are halved where registers limit occupancy, once registers are
known. A kernel's decorator declares a descent from the best of its list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.errors import ConfigError
from kerntune.heuristics import (
    INDUCTOR_2_13,
    Neighbourhood,
    Preset,
    neighbourhood,
    scale_reductions,
    scaled_down,
)
from kerntune.heuristics.descent_steps import IMPROVEMENT, get_field, set_field, tile_of
from kerntune.heuristics.hints import BLOCK_NAMES, HeuristicType, KernelHints, is_power_of_two
from kerntune.search.budgeted import Prepare
from kerntune.search.space import Constraint, Found, History, Measure, Measured

AT_ONCE = 2
"""Steps that are chosen together, and compiled at once."""

BEST_FEW = 5
"""Steps begin at this many of the fastest configs: the optimum is seldom next to the fastest start, and may lie behind
configs that are slower than that."""

StepsFrom = Callable[[Config, frozenset[str]], Neighbourhood]
"""The steps from a config, without those along the named fields."""


def guided_descent(history: History, steps_from: StepsFrom, *, all_directions: int, prepare: Prepare) -> None:
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
    twins, found = history.twins(), list[Config]()
    best = [c for c in history.fastest() if c not in twins.later][:BEST_FEW]
    for config in best:
        steps = steps_from(config, twins.idle)
        for field in steps.fields:
            found += steps.neighbours(config, field)
        untold = {f.name for f in steps.fields if f.by_one} - twins.telling  # they may not change the code
        together = steps_from(config, twins.idle | untold)
        found += together.two_fields(config)
        if all_directions:
            found += together.all_directions(config, all_directions)
    return history.new(found)


def _most_promising(history: History, choices: Sequence[Config]) -> list[Config]:
    """The first few by expected improvement, each as if those before it were as fast as the best."""
    tried = history.tried()
    points = points_of([*tried, *choices])
    known, others = points[: len(tried)], points[len(tried) :]
    times, chosen = [history.time_of(c) for c in tried], list[int]()
    best = min(times)
    while len(chosen) < min(AT_ONCE, len(choices)):
        gains = expected_improvements(known, times, others)
        gains[chosen] = -math.inf  # where nothing promises anything, too
        # The first of those that are equal but for rounding, which differs from process to process: a descent that
        # was broken off has to go on with the same steps.
        chosen.append(int(np.argmax(gains >= gains.max() * (1 - 1e-6))))
        known, times = points[[*range(len(tried)), *(len(tried) + i for i in chosen)]], [*times, best]
    return [choices[i] for i in chosen]


Points = np.ndarray[Any, np.dtype[np.float64]]
"""One row a config."""

LENGTH = 2.0
"""The length scale, in doublings: at this distance times are correlated by a half. Chosen once for all
kernels; on the recorded sweeps (``benchmarks/results/descent.json``) values from 1.5 to 4 differ less than starts
do."""

NUGGET = 1e-2
"""For the error of a time: an event pair's 20 us are known to 2 %, where times of one kernel's configs vary by e."""

SLOWEST = 1.0
"""Times above e times the best count as that: how slow a slow config is says nothing about the fast ones."""

LEAST = 1e-3
"""Shorter times count as this: what launches nothing may take no time between two events, and 0 has no logarithm."""

FAILED = 0.5
"""A config that can't be used counts as slower by this logarithm, or as the slowest if that is more."""


def points_of(configs: Sequence[Config]) -> Points:
    """Coordinates of configs, one row each; comparable within one call only."""
    names = dict.fromkeys(name for c in configs for name in (*c.kwargs, *c.options, "num_warps", "num_stages"))
    columns = [_column([_value(c, name) for c in configs], "stages" in name.lower()) for name in names]
    by_warp = [math.log2(tile_of(c) / c.num_warps) for c in configs]
    found: Points = np.array([*columns, by_warp]).T
    return found


def _value(config: Config, name: str) -> object:
    number = get_field(config, name)
    return repr(config.kwargs.get(name, config.options.get(name))) if number is None else number


def _column(values: Sequence[object], counted: bool) -> list[float]:
    """Numbers by their logarithm unless they are ``counted``; texts by their place."""
    texts = sorted({v for v in values if isinstance(v, str)})
    numbers = [texts.index(v) if isinstance(v, str) else float(v) for v in values]  # type: ignore[arg-type]
    return [v if counted or texts else math.log2(max(v, 0.5)) for v in numbers]


def expected_improvements(points: Points, times: Sequence[float], choices: Points) -> Points:
    """By how much the logarithm of the best time is expected to fall with each of the ``choices``. ``times`` are those
    of the ``points``, infinite for what can't be used; one at least is finite."""
    known = log_times(times)
    mean, deviation = _foreseen(points, known, choices)
    u = (known.min() - IMPROVEMENT - mean) / deviation
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in u])
    found: Points = deviation * (u * below + np.exp(-u * u / 2) / math.sqrt(2 * math.pi))
    return found


def log_times(times: Sequence[float]) -> Points:
    """Logarithms, of failures and of what is far slower than the best as :data:`FAILED` and :data:`SLOWEST` say."""
    known = [math.log(max(t, LEAST)) for t in times if t < math.inf]
    best = min(known)
    failed = max(*known, best + FAILED)
    logs = (math.log(max(t, LEAST)) if t < math.inf else failed for t in times)
    return np.array([min(log, best + SLOWEST) for log in logs])


def _foreseen(points: Points, known: Points, choices: Points) -> tuple[Points, Points]:
    """Mean and standard deviation of the process at the choices; its own mean and variance by maximum likelihood."""
    within = _covariance(points, points) + NUGGET * np.eye(len(points))
    weights = np.linalg.solve(within, np.ones(len(points)))
    mean = weights @ known / weights.sum()
    pulls = np.linalg.solve(within, known - mean)
    variance = max((known - mean) @ pulls / len(points), 1e-6)
    across = _covariance(choices, points)
    explained = (across.T * np.linalg.solve(within, across.T)).sum(axis=0)
    return mean + across @ pulls, np.sqrt(variance * np.maximum(1 + NUGGET - explained, 1e-9))


def _covariance(some: Points, others: Points) -> Points:
    apart = np.sqrt(((some[:, None] - others[None]) ** 2).sum(axis=-1)) * (math.sqrt(5) / LENGTH)
    found: Points = (1 + apart + apart**2 / 3) * np.exp(-apart)
    return found


@dataclass(frozen=True)
class RegisterScaling:
    """The rule of :func:`kerntune.heuristics.scale_reductions` for a kernel whose ``blocks`` have other names, by axis,
    from the configs ``listed``. Each halved config is compiled, and may be halved again."""

    listed: tuple[Config, ...]
    blocks: Mapping[str, str]
    hints: KernelHints
    device: DeviceSpec
    family: HeuristicType
    preset: Preset

    def __str__(self) -> str:
        """Empty: a winner is the answer to its list's question, as Inductor keys it too."""
        return ""

    def has(self, config: Config) -> bool:
        """Whether a config of the list becomes this one with reduction blocks halved."""
        return any(self._halved(start, config) for start in self.listed)

    def may_help(self, registers: Mapping[Config, int | None]) -> bool:
        """Whether any config of the list would be halved if it took so many registers a thread."""
        pairs = ((self._canonical(c), registers.get(c)) for c in self.listed)
        return any(scaled_down(c, count, self.hints, self.device) is not None for c, count in pairs)

    def run(
        self, measure: Callable[[Config], Measured], prepare: Prepare, starts: Sequence[Config], spent: float
    ) -> Found:
        """Have the halved configs prepared; ``measure`` gives the registers of each."""
        history, known = History(measure), {self._canonical(c): c for c in starts}

        def registers_of(canonical: Config) -> int | None:
            if canonical not in known:
                known[canonical] = self._own(canonical)
                prepare([known[canonical]])
            return measure(known[canonical]).registers

        for canonical in scale_reductions(list(known), registers_of, self.hints, self.device, self.family, self.preset):
            if canonical not in known:
                registers_of(canonical)
            history.time_of(known[canonical])
        return history.found()

    def _canonical(self, config: Config) -> Config:
        return _renamed(config, {name: BLOCK_NAMES[axis] for axis, name in self.blocks.items()})

    def _own(self, canonical: Config) -> Config:
        return _renamed(canonical, {BLOCK_NAMES[axis]: name for axis, name in self.blocks.items()})

    def _halved(self, start: Config, config: Config) -> bool:
        reduced = [self.blocks[axis] for axis in ("r0", "r1") if axis in self.blocks]
        reduced = [name for name in reduced if name in start.kwargs]
        if config.replace(kwargs={}) != start.replace(kwargs={}) or config.kwargs.keys() != start.kwargs.keys():
            return False
        same = all(config.kwargs[name] == value for name, value in start.kwargs.items() if name not in reduced)
        return same and all(_is_half(start.kwargs[name], config.kwargs[name]) for name in reduced)


def _renamed(config: Config, names: Mapping[str, str]) -> Config:
    return config.replace(kwargs={names.get(name, name): value for name, value in config.kwargs.items()})


def _is_half(before: object, after: object) -> bool:
    """Whether a block is another, halved any number of times."""
    if not isinstance(before, int) or not isinstance(after, int) or not 0 < after <= before:
        return False
    return before % after == 0 and is_power_of_two(before // after)


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
        history = History(measure)
        for start in starts:
            history.time_of(start)
        history.limit = len(history.tried()) + self.trials
        if history.fastest():
            some = history.new([c for c in self.further if self.has(c)])[: self.trials // FURTHER]
            if some:
                prepare(some)
            for config in some:
                history.time_of(config)
            radius = self.radius if self.all_directions else 0
            guided_descent(history, self.steps_from, all_directions=radius, prepare=prepare)
        return history.found()

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


def with_neighbour(config: Config) -> Config:
    """Another config to begin with, where a list has only one: twice the warps, or half of them from 8 on."""
    return config.replace(num_warps=config.num_warps * 2 if config.num_warps < 8 else config.num_warps // 2)


def descent_limits(limits: Mapping[str, int] | None) -> tuple[tuple[str, int], ...]:
    """Limits as a :class:`Descent` has them."""
    return tuple(sorted((limits or {}).items()))
