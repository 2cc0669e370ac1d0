"""A declared space of configs: fields with their values, and constraints between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import msgspec

from kerntune.base.config import COMPILE_FIELDS, Config, Scalar
from kerntune.errors import ConfigError

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
        found = []
        value = self.least
        while 0 < value <= self.most:
            found.append(value)
            value *= 2
        return tuple(found)

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
            raise ConfigError("the space's constraints are one function; give a tuple of them: constraints=(holds,)")
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
    if name in COMPILE_FIELDS:
        found: Scalar = getattr(config, name)
        return found
    return config.kwargs.get(name)
