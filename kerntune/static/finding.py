"""One change between two compilations of a kernel, as a static rule reports it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeVar

import msgspec

from kerntune.base.policy import STATIC_RULES

Severity = Literal["fail", "warn", "info"]


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change. ``text`` is a sentence for messages that gives ``before`` and ``after``."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str = ""
    """The name of the rule that found it (:data:`kerntune.base.policy.STATIC_RULES`)."""


class Draft(msgspec.Struct, frozen=True):
    """A finding before the policy is applied. ``severity`` is ``fail`` for what the rule is about, ``warn`` for a
    smaller change of that kind, ``info`` for an improvement."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str
    any_config: bool = False
    """Whether its severity is kept between two configs too."""


SEVERITIES = ("fail", "warn", "info")
"""The most severe first."""

_RANK = {name: rank for rank, name in enumerate(STATIC_RULES)}


class Said(NamedTuple):
    """A sentence about a case, with the kernel's name, and the rule that found it."""

    severity: Severity
    rule: str
    text: str


Ranked = TypeVar("Ranked", Finding, Said)


def worst_first(findings: Iterable[Ranked]) -> list[Ranked]:
    """By severity, then by rule in the order of :data:`kerntune.base.policy.STATIC_RULES`; of one rule in their
    order."""
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), _RANK.get(f.rule, len(_RANK))))


def change(old: float, new: float) -> str:
    """``1,024 -> 512``."""
    return f"{number(old)} -> {number(new)}"


def number(value: float) -> str:
    """A figure with separators between thousands, fractions with one digit."""
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


def percent(old: float, new: float) -> str:
    """`` (+25%)``; empty without an old value."""
    return f" ({(new - old) / old:+.0%})" if old else ""
