"""Elements of a reference of which none is known to be right: unwritten ones, and those that have any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kerntune.referee.call_inputs import bytes_of
from kerntune.referee.result_errors import COARSE

FILLS = (0xFF, 0x7F)
"""Bytes that unwritten memory holds in a first run, and in a second: NaN of all floats, and of whole numbers what is
rare."""


def left_unwritten(first: Sequence[Any], again: Iterator[Sequence[Any]]) -> str:
    """What a person should know of unwritten results: ``first`` are those of a run with the first of :data:`FILLS`,
    ``again`` gives those with the second. Empty if all is written."""
    import numpy as np

    places = [_holding(result, FILLS[0]) for result in first]
    if not any(place.any() for place in places):
        return ""
    for number, (place, result) in enumerate(zip(places, next(again), strict=True)):
        place &= _holding(result, FILLS[1])
        if count := int(place.sum()):
            at = [int(i) for i in np.argwhere(place)[0]]
            return (
                f"it leaves {count:,} of {place.size:,} elements of result {number} as torch.empty gave them, the "
                f"first at {at}, so what is right there isn't known: fill them, or give inputs for which all are "
                "written"
            )
    return ""


def in_any_order(first: Sequence[Any], second: Sequence[Any]) -> str:
    """What a person should know of results that are others, by more than rounding, where programs run and terms are
    reduced in another order. Empty if none is."""
    import numpy as np

    for one, other in zip(first, second, strict=True):
        a, b = (np.frombuffer(bytes_of(x), np.uint8) for x in (one, other))
        if one.is_floating_point():
            a, b = (x.detach().double().cpu().numpy().reshape(-1) for x in (one, other))
            with np.errstate(all="ignore"):
                size = float(np.sqrt(np.mean(np.square(a[np.isfinite(a)])))) if np.isfinite(a).any() else 0.0
                alike = np.isclose(a, b, rtol=COARSE, atol=COARSE * size, equal_nan=True)
        else:
            alike = a == b
        if not alike.all():
            return (
                "its own results are others where its programs run in another order, or a reduction has its terms so: "
                "which are right isn't known; sort what may have any order, or make one order certain"
            )
    return ""


def _holding(result: Any, byte: int) -> Any:
    """Which elements have this byte alone."""
    import numpy as np

    raw = np.frombuffer(bytes_of(result), np.uint8)
    return (raw.reshape(*result.shape, -1) == byte).all(-1) if raw.size else np.zeros(result.shape, bool)
