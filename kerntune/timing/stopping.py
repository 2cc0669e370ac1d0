"""When to stop warming up and when to stop sampling, from numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.base.stats import relative_spread, settled

MIN_WARM_UP = 3
MAX_WARM_UP = 40
"""Slots of a warm-up; after the most, a recording that doesn't settle is measured as it is, and its spread shows it."""

MIN_SLOTS = 10
MAX_SLOTS = 40
ENOUGH_SPREAD = 0.002
"""A sample whose half interquartile range is below 0.2 % doesn't get a better median from more slots."""


QUICK_SLOTS = 5
MAX_QUICK_SLOTS = 15
QUICK_SPREAD = 0.01
"""A quick sample only distinguishes large differences (the same work is DRIFTED from 5 % on): 1 % is precise enough."""


def warm(times_ns: Sequence[float]) -> bool:
    """Whether a warm-up may end."""
    return len(times_ns) >= MAX_WARM_UP or (len(times_ns) >= MIN_WARM_UP and settled(times_ns))


def enough(times_ns: Sequence[float]) -> bool:
    """Whether a sample may end."""
    if len(times_ns) < MIN_SLOTS:
        return False
    return len(times_ns) >= MAX_SLOTS or relative_spread(times_ns) < ENOUGH_SPREAD


def quickly_warm(times_ns: Sequence[float]) -> bool:
    """Whether the warm-up of a quick sample may end."""
    return len(times_ns) >= MAX_QUICK_SLOTS or warm(times_ns)


def quickly_enough(times_ns: Sequence[float]) -> bool:
    """Whether a quick sample may end."""
    if len(times_ns) < QUICK_SLOTS:
        return False
    return len(times_ns) >= MAX_QUICK_SLOTS or relative_spread(times_ns) < QUICK_SPREAD
