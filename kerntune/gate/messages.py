"""Sentences about cases, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kerntune.base.case_result import Attribution, CaseId, Share, Since
from kerntune.base.formatting import format_share, format_size, format_time
from kerntune.base.policy import Verdict
from kerntune.base.stats import Estimate, TwoModes


def interval(change: Estimate) -> str:
    """``99 % CI +11.6..+12.5``."""
    return f"{change.level * 100:.3g} % CI {_ends(change)}"


def _ends(change: Estimate) -> str:
    return f"{change.low * 100:+.1f}..{change.high * 100:+.1f}"


def unsure_text(decides: Estimate, limit: float) -> str:
    """Why a replay left the verdict open: ``decides`` has the interval at the run's level, ``limit`` is allowed."""
    return f"not sure enough: of the interval that decides, {_ends(decides)}, a part lies beyond {format_share(limit)}"


def shares_text(parts: Attribution) -> str:
    """``attributed: code +9.8 %, environment +0.2 %, compiler not measured``: what did something, the most first.

    What could only be timed together is named together: ``code and launch options +5.7 %``.
    """
    fields: dict[str, Share] = {name: getattr(parts, name) for name in NAMES}
    found = [(_named(name, fields), share) for name, share in fields.items() if not share.within]
    shown = sorted(
        ((n, s.change) for n, s in found if s.change is not None and abs(s.change) >= SHOWN), key=lambda x: -abs(x[1])
    )
    words = [f"{name} {format_share(change)}" for name, change in shown] or ["no cause to speak of"]
    return "attributed: " + ", ".join([*words, *(f"{n} not measured" for n, s in found if s.change is None)])


def _named(field: str, fields: Mapping[str, Share]) -> str:
    """A share's cause, with those within it."""
    return " and ".join(s.cause or NAMES[n] for n, s in fields.items() if field in (n, s.within))


def since_text(since: Since | None, parts: Attribution | None = None) -> str:
    """``+6.1 % since the anchor of 2026-10-02 (99 % CI +5.9..+6.3; 5.0 % allowed)``; empty for the same work.

    ``parts`` is this change taken apart, where it was.
    """
    if since is None:
        return ""
    allowed = f"{format_size(since.tolerance)} allowed"
    if since.change is not None:
        change = format_share(since.change.point)
        known = [interval(since.shown)] if since.shown is not None else []
        told = [*known, allowed, *([shares_text(parts)] if parts is not None else [])]
        return f"{change} since the anchor of {since.date} ({'; '.join(told)})"
    return f"the anchor of {since.date} can't be replayed" if since.verdict is Verdict.INCONCLUSIVE else ""


NAMES = {
    "environment": "environment",
    "compiler": "compiler",
    "code": "code",
    "launch": "launch",
    "config": "config choice",
}
"""Causes by their field, as far as they have no nearer name."""

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
    """A verdict's sentence, with the causes at its end; ``change`` has the interval that is shown.

    ``REGRESSED test[4096]: 12.4 µs -> 13.9 µs (+12.1 %, 99 % CI +11.6..+12.5), code changed, config unchanged``.
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


def modes_text(modes: TwoModes | None) -> list[str]:
    """A remark on times that fall into two groups, as clocks that are held back now and then make them."""
    if modes is None:
        return []
    low, high, share = format_time(modes.low), format_time(modes.high), format_size(modes.share_high)
    return [f"times fall into two groups, {low} and {high} ({share} of them), as under a power limit"]
