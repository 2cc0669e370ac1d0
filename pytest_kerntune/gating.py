"""What is gated, and what verdicts do, as people write it in a marker or in the ini file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kerntune.base.policy import FORMER_NAMES, MAPPABLE, METRIC_TOLERANCES, METRICS, TIME, Metrics, Outcome, Verdict
from kerntune.errors import UsageError
from pytest_kerntune.values import parse_choice, parse_share


def parse_metrics(value: object, where: str) -> Metrics:
    """Exactly the metrics that are gated; :class:`UsageError` with ``where`` for anything else.

    ``("time", "spills")``, ``{"time": True, "registers": 0.1}`` and ``"time registers=10%"`` are all understood. A name
    alone has its default tolerance (:data:`kerntune.base.policy.METRIC_TOLERANCES`). Figures are named as the static
    gate's rules are.
    """
    named = {FORMER_NAMES.get(str(name), name): share for name, share in _pairs(value).items()}
    if not named:
        raise UsageError(f"{where}: {value!r} names no metrics; write some of {', '.join(METRICS)}")
    for name, share in named.items():
        if parse_choice(name, METRICS, where) == TIME and share is not True:
            raise UsageError(f"{where}: {TIME} is named alone or left out; its share is what tolerance= says")
    static = {str(n): _growth(str(n), share, f"{where}, {n}") for n, share in named.items() if n != TIME}
    return Metrics(TIME in named, static)


def parse_outcomes(value: object, where: str) -> dict[Verdict, Outcome]:
    """``{"DRIFTED": "fail"}`` or ``"drifted=fail regressed=warn"``: what verdicts do to a test."""
    named = _pairs(value)
    if not named:
        raise UsageError(f"{where}: {value!r} maps no verdict; write for example {{'DRIFTED': 'fail'}}")
    return {_verdict(name, where): _outcome(found, f"{where}, {name}") for name, found in named.items()}


def _pairs(value: object) -> dict[object, object]:
    """Names with what is said of each; True where nothing is."""
    if isinstance(value, str):
        words = [word.partition("=") for word in value.replace(",", " ").split()]
        return {name: said or True for name, _, said in words}
    if isinstance(value, Mapping):
        return dict(value)
    names = value if isinstance(value, Iterable) else ()
    return {name if isinstance(name, str) else repr(name): True for name in names}


def _growth(name: str, share: object, where: str) -> float:
    return METRIC_TOLERANCES[name] if share is True else parse_share(share, where)


def _verdict(name: object, where: str) -> Verdict:
    text = (name.value if isinstance(name, Verdict) else str(name)).upper()
    if text == Verdict.NEW.value:
        raise UsageError(f"{where}: what NEW does is for missing= (--kerntune-missing) to say")
    known = [v.value for v in MAPPABLE]
    return Verdict(text if text in known else parse_choice(str(name), known, where))


def _outcome(found: object, where: str) -> Outcome:
    text = found.value if isinstance(found, Outcome) else found
    return Outcome(parse_choice(text, [o.value for o in Outcome], where))
