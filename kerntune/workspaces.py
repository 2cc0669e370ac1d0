"""Tells memory that holds something for each part of the work from results: partial sums, one row a block, say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NEARLY = 0.02
"""How near the ratio of what two configs write must come to that of their parts: bytes of whole numbers that equal the
poison, and the last part of a number that doesn't divide, count wrongly."""

MOSTLY = 0.5
"""At least this share of what both configs write differs: a sum over 128 elements is none over 64. Where a wrong config
misses some elements, it mostly agrees on those that it does write."""


@dataclass(frozen=True)
class Written:
    """How much (``count``, in elements or bytes) one config wrote to a storage, and what it was launched with."""

    count: int
    grid: tuple[int, int, int]
    constants: Mapping[str, str]
    config: str = ""


def splits_work(a: Written, b: Written, different: int) -> bool:
    """Whether two configs wrote unlike amounts because they split the work unlike: in proportion to their blocks, to
    the blocks along an axis, or inversely to a block size; and mostly other values where both wrote.

    ``different`` is how much differs in all. A kernel that forgets the end of a row writes less, too, but not with
    larger blocks, or what it writes is right.
    """
    less, more = sorted((a.count, b.count))
    if not less or less == more or different - (more - less) < MOSTLY * less:
        return False
    ratio = a.count / b.count
    return any(abs(math.log(ratio / parts)) <= NEARLY for parts in _parts(a, b) if parts != 1.0)


def _parts(a: Written, b: Written) -> Iterator[float]:
    """Ratios of the numbers of parts into which two configs may have split the work."""
    axes = [x / y for x, y in zip(a.grid, b.grid, strict=True) if x > 0 < y]
    yield math.prod(axes)
    yield from axes
    for name, text in a.constants.items():
        other = b.constants.get(name, "")
        if text.isdecimal() and other.isdecimal() and int(text) and int(other):
            yield int(other) / int(text)
