"""Figures as text, formatted alike in every table, message and report."""

from __future__ import annotations

import math
import sys

NO_FIGURE = "–"

_TIME_UNITS = ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))

LIMIT = 999.5
"""From this value on, rounding to three digits gives a thousand, which belongs to the next unit."""


def format_time(ns: float | None) -> str:
    """Nanoseconds with three significant digits in the unit that fits: ``12.4 µs``, ``1.00 ms``."""
    if ns is None or not math.isfinite(ns):
        return NO_FIGURE
    scale, unit = next(((s, u) for s, u in _TIME_UNITS if abs(ns) / s < LIMIT), _TIME_UNITS[-1])
    return f"{_three(ns / scale)} {unit}"


def format_bytes(count: int) -> str:
    """``12.6 MB``, ``832 B``: bytes in the unit of a thousand that fits."""
    amount, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.3g} {unit}"


_RATE_UNITS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))


def format_rate(per_second: float | None, of_what: str) -> str:
    """Bytes (``B``) or operations (``FLOP``) a second in the unit that fits: ``3.81 TB/s``."""
    if per_second is None or not math.isfinite(per_second):
        return NO_FIGURE
    scale, unit = next(((s, u) for s, u in _RATE_UNITS if abs(per_second) / s < LIMIT), _RATE_UNITS[-1])
    return f"{_three(per_second / scale)} {unit}{of_what}/s"


def format_share(share: float) -> str:
    """A relative change as a signed percentage: 0.121 is ``+12.1 %``."""
    return f"{100 * share:+.1f} %" if bounded(share) else ("> any" if share > 0 else "< any")


def format_size(share: float) -> str:
    """A share that isn't a change: 0.02 is ``2.0 %``."""
    return format_share(share).removeprefix("+")


def bounded(value: float) -> bool:
    """Whether a number is finite and not one of those that stand for infinity in JSON."""
    return abs(value) < sys.float_info.max


def _three(number: float) -> str:
    digits = 0 if abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2
    return f"{number:.{digits}f}"
