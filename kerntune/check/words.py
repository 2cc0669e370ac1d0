"""Sentences about cases, for people."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.policy import Verdict
from kerntune.result import Attribution, CaseId, Share
from kerntune.stats import Estimate


def duration(ns: float) -> str:
    """``12.4 µs``: three digits and a unit."""
    for unit, size in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if float(_three(ns / size)) < 1000:
            return f"{_three(ns / size)} {unit}"
    return f"{_three(ns / 1e9)} s"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def percent(change: float) -> str:
    """``+12.1 %``."""
    return f"{change * 100:+.1f} %"


def interval(change: Estimate) -> str:
    """``99.9 % CI +11.6..+12.5``."""
    level = f"{change.level * 100:.6g} % CI"
    return f"{level} {change.low * 100:+.1f}..{change.high * 100:+.1f}"


def shares_text(parts: Attribution) -> str:
    """``attributed: code +9.8 %, environment +0.2 %, compiler not measured``: what did something, the most first."""
    names = ("environment", "compiler", "code", "config")
    found: list[tuple[str, Share]] = [(NAMES.get(n, n), getattr(parts, n)) for n in names]
    shown = sorted(
        ((n, s.change) for n, s in found if s.change is not None and abs(s.change) >= SHOWN), key=lambda x: -abs(x[1])
    )
    words = [f"{name} {percent(change)}" for name, change in shown] or ["no cause to speak of"]
    return "attributed: " + ", ".join([*words, *(f"{n} not measured" for n, s in found if s.change is None)])


NAMES = {"config": "config choice"}

SHOWN = 0.0005
"""Smaller shares would be shown as 0.0 %."""


def timed_message(
    verdict: Verdict,
    case: CaseId,
    before_ns: float | None,
    after_ns: float | None,
    change: Estimate | None,
    causes: Sequence[str],
) -> str:
    """A verdict's sentence, with the causes at its end.

    ``REGRESSED test[4096]: 12.4 µs -> 13.9 µs (+12.1 %, 99.9 % CI +11.6..+12.5), code changed, config unchanged``.
    """
    text = f"{verdict.value} {case}"
    if before_ns is not None and after_ns is not None:
        text += f": {duration(before_ns)} -> {duration(after_ns)}"
        if change is not None:
            text += f" ({percent(change.point)}, {interval(change)})"
        elif before_ns > 0:
            text += f" ({percent(after_ns / before_ns - 1)})"
    elif after_ns is not None:
        text += f": {duration(after_ns)}"
    return ", ".join([text, *causes])
