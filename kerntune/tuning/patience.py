"""How long a tuning waits for candidates that take far longer to compile than all others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kerntune.errors import UsageError

SHARE = 0.1
"""By default stragglers are waited for a tenth as long as everything else has taken. They are tried either way,
a little later and for some milliseconds: waiting costs a tenth at most, and could save no more than that."""

ALL = "all"


@dataclass(frozen=True)
class Patience:
    """Of one tuning, which began at ``begin`` (:func:`time.monotonic`): how many ``seconds`` it waits for stragglers
    once all others are raced; None for :data:`SHARE` of the time since then."""

    seconds: float | None = None
    begin: float = field(default_factory=time.monotonic)

    def end(self, since: float) -> float:
        """Until when to wait, if waiting begins at ``since``."""
        return since + (SHARE * (since - self.begin) if self.seconds is None else self.seconds)


def checked_patience(given: float | str) -> float | str:
    """Seconds, or :data:`ALL`. :class:`UsageError` for anything else."""
    try:
        value = ALL if given == ALL else float(given)
    except (TypeError, ValueError):
        value = -1.0
    if value != ALL and not value >= 0:  # type: ignore[operator]  # a number
        raise UsageError(f"patience is {given!r}; it can be a number of seconds from 0 on, or all")
    return value
