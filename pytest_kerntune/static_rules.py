"""Rules of the static gate as people write them, in a marker or in the ini file."""

from __future__ import annotations

from collections.abc import Mapping

from kerntune.base.policy import FORMER_NAMES, STATIC_RULES, StaticPolicy, StaticRule, StaticSeverity
from kerntune.errors import UsageError
from pytest_kerntune.values import parse_share, parse_switch

EVERY_CONFIG = "all"
"""The word that has every candidate config of a tuned kernel looked at."""

SEVERITIES: tuple[StaticSeverity, ...] = ("fail", "warn", "off")


def parse_static(value: object, where: str) -> StaticPolicy:
    """A mapping of rules, or the same as text; :class:`UsageError` with ``where`` for anything else.

    ``{"spills": "warn", "registers": 0.1, "occupancy": ("warn", "20%"), "all": True}`` is
    ``"spills=warn registers=0.1 occupancy=warn:20% all"``. A share alone means that more than it fails; a severity
    alone (``fail``, ``warn``, ``off``) leaves the rule its share.
    """
    if isinstance(value, str):
        value = _words(value)
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {value!r} is no rules; write for example {{'spills': 'warn', 'registers': 0.1}}")
    every = parse_switch(value[EVERY_CONFIG], f"{where}, {EVERY_CONFIG}") if EVERY_CONFIG in value else None
    named = {_name(k, where): (v, f"{where}, {k}") for k, v in value.items() if k != EVERY_CONFIG}
    rules = {name: _rule(name, *said) for name, said in named.items()}
    return StaticPolicy(rules, every)


def _words(text: str) -> dict[str, object]:
    pairs = [word.partition("=") for word in text.replace(",", " ").split()]
    return {name: True if name == EVERY_CONFIG and not value else value for name, _, value in pairs}


def _name(name: object, where: str) -> str:
    name = FORMER_NAMES.get(str(name), name)
    if name not in STATIC_RULES:
        raise UsageError(f"{where}: there is no rule {name!r}; there are {', '.join(STATIC_RULES)}, and {EVERY_CONFIG}")
    return str(name)


def _rule(name: str, value: object, where: str) -> StaticRule:
    """The rule ``name`` as ``value`` has it."""
    parts = value.split(":") if isinstance(value, str) else list(value) if isinstance(value, (tuple, list)) else [value]
    default = STATIC_RULES[name]
    severities = [s for p in parts for s in SEVERITIES if p == s]
    rest = [p for p in parts if p not in SEVERITIES]
    shares = [] if default.threshold is None else [parse_share(p, where, SEVERITIES) for p in rest]
    if not parts or len(severities) > 1 or len(shares) > 1:
        raise UsageError(f"{where}: {value!r} is no rule; write one of {', '.join(SEVERITIES)}, a share, or both")
    if rest and default.threshold is None:
        raise UsageError(f"{where}: {name} has no share that may change, any change counts; write fail, warn or off")
    severity: StaticSeverity = severities[0] if severities else "fail" if shares else default.severity
    return StaticRule(severity, shares[0] if shares else default.threshold)
