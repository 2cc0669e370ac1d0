"""The trials of a search so far: each config once, failures with their reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from kerntune.base.config import Config
from kerntune.errors import TrialError, TuningError

LAUNCH_FIELDS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Those that every config has."""


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
        self._measure, self._limit = measure, limit
        self._by_key: dict[str, Tried] = {}
        self._codes: dict[str, str] = {}

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and len(self._by_key) >= self._limit

    def untried(self, configs: Sequence[Config]) -> list[Config]:
        """Those of some configs that :meth:`time_of` would measure, each once, as far as the limit allows."""
        room = None if self._limit is None else max(self._limit - len(self._by_key), 0)
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
    """Names and values, in the order of the names; what isn't set is left out."""
    launch = {n: getattr(config, n) for n in LAUNCH_FIELDS}
    items = (*launch.items(), *config.kwargs.items(), *config.options.items())
    return tuple(sorted((name, repr(value)) for name, value in items if value is not None))


def _time(trial: Tried) -> float:
    return math.inf if trial.time_ns is None else trial.time_ns
