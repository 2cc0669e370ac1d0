"""Two calls' times on the device, in turn: each a CUDA graph of many launches, so that the host has no share in it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

LEAST_MS = 2.0
"""The least time of one replay: events resolve about half a microsecond."""

MOST_CALLS = 256
ROUNDS = 25


def graph_of(call: Callable[[], object], calls: int) -> Any:
    """A graph of so many calls, which must not synchronise."""
    import torch

    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def milliseconds(run: Callable[[], object]) -> float:
    """Of the device, between events around what ``run`` enqueues."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def device_ratio(one: Callable[[], object], other: Callable[[], object], rounds: int = ROUNDS) -> dict[str, Any]:
    """The first's time over the second's: the median over rounds, each of both twice, ABBA and BAAB in turn; and the
    same for the second against itself, which is the instrument's own error."""
    once = milliseconds(graph_of(other, 8).replay) / 8
    calls = min(max(math.ceil(LEAST_MS / max(once, 1e-6)), 1), MOST_CALLS)
    a, b, again = graph_of(one, calls), graph_of(other, calls), graph_of(other, calls)
    found = {"calls": calls, "us": 1e3 * milliseconds(b.replay) / calls}
    for name, first, second in (("ratio", a, b), ("null_ratio", again, b)):
        ratios = [_round(first.replay, second.replay, i % 2 == 0) for i in range(rounds)]
        found |= {name: statistics.median(ratios), f"{name}s": [round(r, 5) for r in sorted(ratios)]}
    return found


def _round(first: Callable[[], object], second: Callable[[], object], begins: bool) -> float:
    one, other = (first, second) if begins else (second, first)
    times = [milliseconds(run) for run in (one, other, other, one)]
    outer, inner = times[0] + times[3], times[1] + times[2]
    return outer / inner if begins else inner / outer
