"""Tells memory that holds something for each part of the work from results: partial sums, one row a block, say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

NEARLY = 0.02
"""How near the ratio of what two configs write must come to that of their parts: bytes of whole numbers that equal the
poison, and the last part of a number that doesn't divide, count wrongly."""

MOSTLY = 0.5
"""At least this share of what both configs write differs: a sum over 128 elements is none over 64. Where a wrong config
misses some elements, it mostly agrees on those that it does write."""


Parts = dict[str, float]
"""By a name for each way of splitting work, a number in proportion to the parts."""


def parts_of(grid: tuple[int, int, int], constants: Mapping[str, str]) -> Parts:
    """Into how many parts a launch may split its work: blocks, blocks along an axis, the inverse of a block size."""
    sizes = {name: int(text) for name, text in constants.items() if text.isdecimal()}
    found: Parts = {"blocks": math.prod(grid), **{f"axis {axis}": count for axis, count in enumerate(grid)}}
    found |= {f"size {name}": 1 / size for name, size in sizes.items() if size}
    return {name: number for name, number in found.items() if number}


@dataclass(frozen=True)
class Written:
    """How much (``count``, in elements or bytes) one config wrote to a storage, and how it may have split the work."""

    count: int
    parts: Parts
    config: str = ""


def explanations(a: Written, b: Written, different: int) -> frozenset[str]:
    """The ways of splitting work that explain why two configs wrote unlike amounts: in proportion to their blocks, to
    the blocks along an axis, or inversely to a block size; none unless mostly other values are where both wrote.

    ``different`` is how much differs in all. A kernel that forgets the end of a row writes less, too, but not with
    larger blocks, or what it writes is right.
    """
    less, more = sorted((a.count, b.count))
    if not less or less == more or different - (more - less) < MOSTLY * less:
        return frozenset()
    ratios = {name: a.parts[name] / b.parts[name] for name in a.parts.keys() & b.parts.keys()}
    amount = math.log(a.count / b.count)
    return frozenset(n for n, r in ratios.items() if r != 1.0 and abs(amount - math.log(r)) <= NEARLY)


def still_explained(ways: frozenset[str], one: Parts, same: Parts) -> frozenset[str]:
    """Those of the ``ways`` that stand although two configs wrote the same, ``one`` and another: if amounts followed a
    way of splitting, both would have to split alike."""
    return frozenset(way for way in ways if same.get(way, one[way]) == one[way])
