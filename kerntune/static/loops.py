"""Which instructions of machine code are in loops: those from which control can return to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

WAIT_BYTES = 8 * 16
"""A loop of up to eight instructions polls a barrier: it waits, and doesn't repeat work."""


class Jump(msgspec.Struct, frozen=True):
    """An instruction that may jump. ``target`` is None for an exit; ``falls`` is whether the next instruction may
    follow too."""

    at: int
    target: int | None
    falls: bool


def loops(jumps: Sequence[Jump], begin: int, end: int, step: int) -> list[tuple[int, int]]:
    """Address ranges (the end is not included) of code in loops, of instructions from ``begin`` to ``end``.

    Blocks of one strongly connected component of the control flow are in one loop, or in one within
    another. Code out of line, such as a wait for a barrier, so counts to the loop that it belongs to.
    """
    starts = sorted({begin, *(j.at + step for j in jumps), *(j.target for j in jumps if j.target is not None)})
    starts = [s for s in starts if begin <= s < end]
    ends = [*starts[1:], end]
    edges = _edges(jumps, starts, ends, step)
    found = []
    for members in _components(edges):
        if len(members) > 1 or members[0] in edges[members[0]]:
            ranges = [(starts[b], ends[b]) for b in sorted(members)]
            if sum(last - first for first, last in ranges) > WAIT_BYTES:
                found += ranges
    return sorted(found)


def inside(address: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether an address is in one of the sorted ranges."""
    at = bisect_right(ranges, (address, float("inf"))) - 1
    return at >= 0 and address < ranges[at][1]


def _edges(jumps: Sequence[Jump], starts: Sequence[int], ends: Sequence[int], step: int) -> dict[int, list[int]]:
    """For each block, the blocks that may follow it."""
    number = {start: i for i, start in enumerate(starts)}
    last = {j.at: j for j in jumps}
    edges: dict[int, list[int]] = {}
    for block, end in enumerate(ends):
        jump = last.get(end - step)
        following = [end] if jump is None or jump.falls else []
        following += [jump.target] if jump is not None and jump.target is not None else []
        edges[block] = [number[x] for x in following if x in number]
    return edges


def _components(edges: Mapping[int, Iterable[int]]) -> Iterator[list[int]]:
    """Strongly connected components, by two passes over the graph (Kosaraju's algorithm), without recursion."""
    back: dict[int, list[int]] = {node: [] for node in edges}
    for node, following in edges.items():
        for other in following:
            back[other].append(node)
    seen: set[int] = set()
    for node in reversed(_finished(edges)):
        if node not in seen:
            yield _reached(node, back, seen)


def _finished(edges: Mapping[int, Iterable[int]]) -> list[int]:
    """Nodes in the postorder of a depth-first search."""
    order: list[int] = []
    seen: set[int] = set()
    for root in edges:
        stack = [] if root in seen else [(root, iter(edges[root]))]
        seen.add(root)
        while stack:
            node, following = stack[-1]
            other = next((x for x in following if x not in seen), None)
            if other is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(other)
                stack.append((other, iter(edges[other])))
    return order


def _reached(root: int, edges: Mapping[int, Iterable[int]], seen: set[int]) -> list[int]:
    found, waiting = [], [root]
    seen.add(root)
    while waiting:
        node = waiting.pop()
        found.append(node)
        for other in edges[node]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return found
