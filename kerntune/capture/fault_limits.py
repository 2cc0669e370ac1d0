"""How many first launches may fail, while none has run, before the call is to blame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

DOUBT_FAULTS, DOUBT_HANGS = 12, 3
"""So many in config order, and none that ran: the next ones are taken from all over the list."""

MORE_FAULTS, MORE_HANGS = 24, 5
"""So many more after that, and still none that ran: the rest isn't tried."""

GOLDEN = 0.6180339887498949
"""Multiples of it modulo 1 lie evenly wherever one stops (H. Weyl; D. Knuth, TAOCP 3, 6.4)."""


def in_doubt(faults: int, hangs: int) -> bool:
    """Whether candidates should be tried in another order, if none has run. ``faults`` include the ``hangs``."""
    return faults >= DOUBT_FAULTS or hangs >= DOUBT_HANGS


def is_hopeless(faults: int, hangs: int, candidates: int) -> bool:
    """Whether no more of the candidates need be tried, if none has run: most have failed, or the limits are reached."""
    if not in_doubt(faults, hangs):
        return False
    many = faults >= DOUBT_FAULTS + MORE_FAULTS or hangs >= DOUBT_HANGS + MORE_HANGS
    return many or 2 * faults > candidates


def spread(items: Iterable[T]) -> list[T]:
    """In an order whose first ones, however many, lie all over the list: configs that fail are often neighbors."""
    return [x for _, x in sorted(enumerate(items), key=lambda pair: (pair[0] + 1) * GOLDEN % 1.0)]
