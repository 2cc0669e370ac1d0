"""One change between two compilations of a kernel, as a static rule tells it."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["fail", "warn", "info"]


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change. ``text`` is a sentence for a person and names ``before`` and ``after``."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str = ""
    """The name of the rule that found it (:data:`kerntune.policy.STATIC_RULES`)."""


class Draft(msgspec.Struct, frozen=True):
    """A finding before the policy is asked. ``severity`` is ``fail`` for what the rule is about, ``warn`` for less of
    it, ``info`` for a gain."""

    severity: Severity
    metric: str
    before: float
    after: float
    text: str
    rule: str
    whatever_the_config: bool = False
    """Whether it counts in full between two configs too."""


def change(old: float, new: float) -> str:
    """``1,024 -> 512``."""
    return f"{number(old)} -> {number(new)}"


def number(value: float) -> str:
    """A figure with its thousands told apart, of fractions the first digit."""
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


def percent(old: float, new: float) -> str:
    """`` (+25%)``; empty without an old value."""
    return f" ({(new - old) / old:+.0%})" if old else ""
