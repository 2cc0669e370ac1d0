"""Two texts of code: which lines differ, where the names of values don't count."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import takewhile

CONTEXT = 3
"""Lines that are shown before and after each difference, as diff -u does."""

MAX_COMPARED = 8_000
"""Lines of each side, without those in common at its beginning and end, that are compared: the time grows with the
product of both. What is beyond counts as not compared."""

_NUMBERED = re.compile(r"%[\w.$#]+|\$L\w+|\bU?[RP]\d+\b")
"""Values, labels and registers, which compilers number: one line more renames all that follow."""

Opcode = tuple[str, int, int, int, int]
"""Kind of a difference and the ranges of both sides, as :class:`difflib.SequenceMatcher` gives them."""


def hunks(before: Sequence[str], after: Sequence[str]) -> list[list[Opcode]]:
    """Differences with :data:`CONTEXT` lines around them.

    Lines that differ only in how values are numbered count as equal, unless nothing else differs.
    """
    bare = [[_NUMBERED.sub("%", line) for line in lines] for lines in (before, after)]
    for a, b in (bare, (before, after)):
        found = _grouped(a, b)
        if found:
            return found
    return []


def hunk_text(before: Sequence[str], after: Sequence[str], most: int) -> tuple[str, int]:
    """:func:`hunks` as ``diff -u`` writes them, at most ``most`` lines; and how many lines were left out."""
    lines = [line for hunk in hunks(before, after) for line in _unified(hunk, before, after)]
    return "\n".join(lines[:most]), max(0, len(lines) - most)


def _grouped(before: Sequence[str], after: Sequence[str]) -> list[list[Opcode]]:
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    if start == len(before) == len(after):
        return []
    begin = max(0, start - CONTEXT)
    rest = zip(reversed(before[start:]), reversed(after[start:]), strict=False)
    end = max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest)) - CONTEXT)
    old, new = (lines[begin : len(lines) - end][:MAX_COMPARED] for lines in (before, after))
    groups = difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT)
    return [
        [(tag, i + begin, j + begin, k + begin, m + begin) for tag, i, j, k, m in group]
        for group in groups
        if any(tag != "equal" for tag, *_ in group)
    ]


def _unified(hunk: Sequence[Opcode], before: Sequence[str], after: Sequence[str]) -> list[str]:
    first, last = hunk[0], hunk[-1]
    lines = [f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@"]
    for tag, i, j, k, m in hunk:
        if tag == "equal":
            lines += [f" {line}" for line in after[k:m]]
        else:
            lines += [f"-{line}" for line in before[i:j]] + [f"+{line}" for line in after[k:m]]
    return lines
