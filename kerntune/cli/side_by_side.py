"""Two texts of code side by side: what differs, with a few lines around it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from kerntune.base.text_diff import CONTEXT, hunks

GAP = "..."


def side_by_side(before: str, after: str, names: tuple[str, str], width: int) -> str:
    """Two columns of together ``width`` characters, under ``names``; empty if nothing differs.

    ``|`` is between lines that changed, ``<`` and ``>`` beside those of one side only. Lines that differ only in how
    values are numbered count as equal, unless nothing else differs.
    """
    column = max(20, (width - 3) // 2)
    rows = list(_rows(before.splitlines(), after.splitlines()))
    if not rows:
        return ""
    head = [(names[0], " ", names[1]), ("-" * column, " ", "-" * column)]
    return "\n".join(line for row in [*head, *rows] for line in _wrapped(*row, column))


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """As ``diff -u`` writes it, for pagers and patches; every difference counts."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=CONTEXT)
    return "\n".join(lines)


def _rows(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    first = True
    for group in hunks(before, after):
        if not first:
            yield GAP, " ", GAP
        first = False
        for tag, i, j, k, m in group:
            for left, right in zip_longest(before[i:j], after[k:m]):
                mark = " " if tag == "equal" else ">" if left is None else "<" if right is None else "|"
                yield left or "", mark, right or ""


def _wrapped(left: str, mark: str, right: str, column: int) -> Iterator[str]:
    """A row, over as many lines as the longer text needs."""
    pieces = [[text[i : i + column] for i in range(0, len(text), column)] or [""] for text in (left, right)]
    for n, (a, b) in enumerate(zip_longest(*pieces, fillvalue="")):
        yield f"{a:<{column}} {mark if n == 0 else ' '} {b}".rstrip()
