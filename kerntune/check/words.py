"""Sentences about cases, for people."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.figures import format_share, format_size, format_time
from kerntune.policy import Verdict
from kerntune.result import Attribution, CaseId, Share, Since
from kerntune.stats import Estimate, Modes


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
    words = [f"{name} {format_share(change)}" for name, change in shown] or ["no cause to speak of"]
    return "attributed: " + ", ".join([*words, *(f"{n} not measured" for n, s in found if s.change is None)])


def since_text(since: Since | None) -> str:
    """``+6.1 % since the anchor of 2026-10-02 (99.9 % CI +5.9..+6.3; 5.0 % allowed)``; empty for the same work."""
    if since is None:
        return ""
    allowed = f"{format_size(since.tolerance)} allowed"
    if since.change is not None:
        change = format_share(since.change.point)
        return f"{change} since the anchor of {since.date} ({interval(since.change)}; {allowed})"
    return f"the anchor of {since.date} can't be replayed" if since.verdict is Verdict.INCONCLUSIVE else ""


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
        text += f": {format_time(before_ns)} -> {format_time(after_ns)}"
        if change is not None:
            text += f" ({format_share(change.point)}, {interval(change)})"
        elif before_ns > 0:
            text += f" ({format_share(after_ns / before_ns - 1)})"
    elif after_ns is not None:
        text += f": {format_time(after_ns)}"
    return ", ".join([text, *causes])


def modes_text(modes: Modes | None) -> list[str]:
    """A remark on times that fall into two groups, as clocks that are held back now and then make them."""
    if modes is None:
        return []
    low, high, share = format_time(modes.low), format_time(modes.high), format_size(modes.share_high)
    return [f"times fall into two groups, {low} and {high} ({share} of them), as under a power limit"]
