"""Elements of a reference of which none is known to be right: unwritten ones, and those that have any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kerntune.referee.result_errors import COARSE

FILLS = (0xFF, 0x7F)
"""Bytes that unwritten memory holds in a first run, and in a second: NaN of all floats, and of whole numbers what is
rare."""


def left_unwritten(first: Sequence[Any], again: Iterator[Sequence[Any]]) -> str:
    """What a person should know of unwritten results: ``first`` are those of a run with the first of :data:`FILLS`,
    ``again`` gives those with the second. Empty if all is written."""
    places = [_holding(result, FILLS[0]) for result in first]
    if not any(place.any() for place in places):
        return ""
    for number, (place, result) in enumerate(zip(places, next(again), strict=True)):
        place &= _holding(result, FILLS[1])
        if count := int(place.sum()):
            at = place.reshape(result.shape).nonzero()[0].tolist()
            return (
                f"it leaves {count:,} of {place.numel():,} elements of result {number} as torch.empty gave them, the "
                f"first at {at}, so what is right there isn't known: fill them, or give inputs for which all are "
                "written"
            )
    return ""


def in_any_order(first: Sequence[Any], second: Sequence[Any]) -> str:
    """What a person should know of results that are others, by more than rounding, where programs run and terms are
    reduced in another order. Empty if none is."""
    import torch

    for one, other in zip(first, second, strict=True):
        if torch.equal(_bits(one), _bits(other)):
            continue
        alike = False
        if one.is_floating_point():
            a, b = one.double(), other.double()
            finite = a[a.isfinite()]
            size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
            alike = torch.allclose(a, b, rtol=COARSE, atol=COARSE * size, equal_nan=True)
        if not alike:
            return (
                "its own results are others where its programs run in another order, or a reduction has its terms so: "
                "which are right isn't known; sort what may have any order, or make one order certain"
            )
    return ""


def _holding(result: Any, byte: int) -> Any:
    """Which elements have this byte alone."""
    bits = _bits(result)
    return bits == int.from_bytes([byte] * bits.element_size(), "little", signed=bits.is_signed())


def _bits(result: Any) -> Any:
    """A result's elements as whole numbers, in a row; where it is, for to read it takes longer."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return result.detach().contiguous().reshape(-1).view(kinds[result.element_size()])
