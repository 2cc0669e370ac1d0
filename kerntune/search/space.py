"""A declared space of configs (fields with their values, constraints between them), and the trials of a search so far.

Each config is tried once; failures have their reasons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import msgspec

from kerntune.base.config import COMPILE_FIELDS, Config, Scalar
from kerntune.errors import ConfigError, TrialError, TuningError

Constraint = Callable[[Config], bool]
"""True for configs that may be tried. It must not depend on anything but the config."""


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field with listed values; neighbours in the list are neighbours in the space."""

    name: str
    choices: tuple[Scalar, ...]

    def values(self) -> tuple[Scalar, ...]:
        """All values, each once."""
        return tuple({(type(v), v): v for v in self.choices}.values())

    def __str__(self) -> str:
        return f"{self.name} {'|'.join(map(repr, self.values()))}"


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An integer field from ``least`` to ``most``, both included: doubled each time, or counted (``by_one``)."""

    name: str
    least: int
    most: int
    by_one: bool = False

    def values(self) -> tuple[Scalar, ...]:
        """All values, ascending."""
        if self.by_one:
            return tuple(range(self.least, self.most + 1))
        doubled = (self.least << times for times in range(self.most.bit_length()))
        return tuple(value for value in doubled if 0 < value <= self.most)

    def __str__(self) -> str:
        return f"{self.name} {self.least}..{self.most}{' by one' if self.by_one else ''}"


@dataclass(frozen=True)
class Space:
    """All configs that ``base`` becomes with one value per axis, less those that a constraint forbids.

    A name that isn't ``num_warps``, ``num_stages``, ``num_ctas`` or ``maxnreg`` is a kernel parameter, or a compile
    option where ``base`` has an option of that name. :class:`ConfigError` for an axis twice or without values, and for
    one constraint that isn't in a tuple.
    """

    axes: tuple[Choice | Range, ...]
    constraints: tuple[Constraint, ...] = ()
    base: Config = field(default_factory=Config)

    def __post_init__(self) -> None:
        if callable(self.constraints):
            how = "give a tuple of them: constraints=(holds,)"
            raise ConfigError(f"the space's constraints are one function; {how}")
        names = [axis.name for axis in self.axes]
        twice = sorted({name for name in names if names.count(name) > 1})
        empty = [axis.name for axis in self.axes if not axis.values()]
        if twice:
            raise ConfigError(f"the space has {', '.join(twice)} twice; give each field once")
        if empty:
            raise ConfigError(
                f"the space has no value for {', '.join(empty)}; a range doesn't end below its start, and a doubled "
                "one starts at 1 or above"
            )

    @cached_property
    def values(self) -> tuple[tuple[Scalar, ...], ...]:
        """Per axis its values."""
        return tuple(axis.values() for axis in self.axes)

    @property
    def size(self) -> int:
        """Points before constraints."""
        return prod(len(v) for v in self.values)

    def at(self, point: Sequence[int]) -> Config:
        """The config at one index per axis."""
        config = self.base
        for axis, values, i in zip(self.axes, self.values, point, strict=True):
            config = _set(config, axis.name, values[i])
        return config

    def point_of(self, config: Config) -> tuple[int, ...] | None:
        """Indices of a config of this space; None if it isn't one."""
        out = []
        for axis, values in zip(self.axes, self.values, strict=True):
            value = _get(config, axis.name)
            same = [i for i, v in enumerate(values) if v == value and type(v) is type(value)]
            if not same:
                return None
            out.append(same[0])
        return tuple(out) if self.at(out) == config else None

    def legal(self, config: Config) -> bool:
        """Whether all constraints hold."""
        return all(holds(config) for holds in self.constraints)

    def configs(self) -> Iterator[Config]:
        """Every legal config, the last axis fastest."""
        points = itertools.product(*(range(len(values)) for values in self.values))
        return (config for point in points if self.legal(config := self.at(point)))


def _set(config: Config, name: str, value: Scalar) -> Config:
    if name in config.options:
        return config.replace(options={**config.options, name: value})
    return config.replace(**{name: value})


def _get(config: Config, name: str) -> Scalar:
    if name in config.options:
        return config.options[name]
    found: Scalar = getattr(config, name) if name in COMPILE_FIELDS else config.kwargs.get(name)
    return found


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a measure: nanoseconds, or None and the reason why the config can't be used. ``registers`` of a
    thread where they are known; ``code`` is equal for configs that are launched as the same code, empty if unknown."""

    time_ns: float | None
    reason: str = ""
    registers: int | None = None
    code: str = ""


Measure = Callable[[Config], Measured]
"""Tries one config. A :class:`~kerntune.errors.TrialError` that it raises is a failed trial, anything else ends it."""


class Tried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A config that was tried, and its outcome."""

    config: Config
    time_ns: float | None
    reason: str = ""


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A search's outcome: everything that was tried, in order."""

    trials: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The fastest, the earlier one of equals. :class:`TuningError`, listing every reason, if none can be used."""
        usable = [t for t in self.trials if t.time_ns is not None]
        if not usable:
            lines = "".join(f"\n  {t.config}: {t.reason}" for t in self.trials)
            raise TuningError(f"none of the {len(self.trials)} configs that the search tried can be used{lines}")
        return min(usable, key=_time)


@dataclass(frozen=True)
class Twins:
    """``later`` configs, which are launched as the same code as an earlier one; ``idle`` fields, in which alone two
    such differ; and ``telling`` ones, in which alone two of different code do."""

    later: frozenset[Config]
    idle: frozenset[str]
    telling: frozenset[str]


class History:
    """Measures each config once; after ``limit`` trials a new config counts as unusable and isn't measured."""

    def __init__(self, measure: Measure, limit: int | None = None) -> None:
        self._measure, self.limit = measure, limit
        self._by_key: dict[str, Tried] = {}
        self._codes: dict[str, str] = {}

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and len(self._by_key) >= self.limit

    def untried(self, configs: Sequence[Config]) -> list[Config]:
        """Those of some configs that :meth:`time_of` would measure, each once, as far as the limit allows."""
        room = None if self.limit is None else max(self.limit - len(self._by_key), 0)
        return self.new(configs)[:room]

    def new(self, configs: Sequence[Config]) -> list[Config]:
        """Those of some configs that weren't tried yet, each once."""
        return list({c.key(): c for c in configs if c.key() not in self._by_key}.values())

    def time_of(self, config: Config) -> float:
        """The config's time in nanoseconds; infinite if it can't be used or the history is full."""
        key = config.key()
        if key not in self._by_key:
            if self.full:
                return math.inf
            self._by_key[key] = self._try(config)
        return _time(self._by_key[key])

    def _try(self, config: Config) -> Tried:
        try:
            outcome = self._measure(config)
        except TrialError as exc:
            return Tried(config, None, str(exc) or type(exc).__name__)
        self._codes[config.key()] = outcome.code
        if outcome.time_ns is None:
            return Tried(config, None, outcome.reason or "no reason was given")
        if not math.isfinite(outcome.time_ns):
            return Tried(config, None, outcome.reason or f"its time is {outcome.time_ns}")
        return Tried(config, outcome.time_ns)

    def tried(self) -> list[Config]:
        """All configs so far, in order."""
        return [t.config for t in self._by_key.values()]

    def fastest(self) -> list[Config]:
        """The configs that can be used, the fastest first, the earlier one of equals."""
        usable = [t for t in self._by_key.values() if t.time_ns is not None]
        return [t.config for t in sorted(usable, key=_time)]

    def twins(self) -> Twins:
        """What the codes of the configs so far say of their fields. Configs are grouped by all other fields: a list may
        have hundreds, which aren't compared with each other."""
        known = [(t.config, code) for key, t in self._by_key.items() if (code := self._codes.get(key))]
        names = dict.fromkeys(name for config, _ in known for name, _ in _fields(config))
        codes, alike = dict[object, set[str]](), set[object]()
        seen, later, idle, telling = set[str](), set[Config](), set[str](), set[str]()
        for config, code in known:
            fields = _fields(config)
            for name in () if fields in alike else names:
                group = codes.setdefault((name, *(item for item in fields if item[0] != name)), set())
                if code in group:
                    idle.add(name)
                if group - {code}:
                    telling.add(name)
                group.add(code)
            alike.add(fields)
            if code in seen:
                later.add(config)
            seen.add(code)
        return Twins(frozenset(later), frozenset(idle), frozenset(telling - idle))

    def found(self) -> Found:
        """All trials so far."""
        return Found(tuple(self._by_key.values()))


def _fields(config: Config) -> tuple[tuple[str, str], ...]:
    launch = {n: getattr(config, n) for n in COMPILE_FIELDS}
    items = (*launch.items(), *config.kwargs.items(), *config.options.items())
    return tuple(sorted((name, repr(value)) for name, value in items if value is not None))


def _time(trial: Tried) -> float:
    return math.inf if trial.time_ns is None else trial.time_ns
