"""A process of :mod:`benchmarks.edit_corpus.label`: compares both sides of edits, or times them.

    python -m benchmarks.edit_corpus.label_process check|time OUT.jsonl FOLDER < KEYS.json

A line is written before an edit is begun and another one when it is done.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable
from math import exp, log
from pathlib import Path
from typing import Any

import torch

from benchmarks.edit_corpus.corpus import EDITS
from benchmarks.edit_corpus.edit import Edit
from benchmarks.harness import module_of
from kerntune.base.stats import hodges_lehmann

SLOT_MS = 2.0
"""What one replay of a graph should take: far more than its launch."""

MOST_CALLS = 50
BLOCKS = 16
"""Of four slots each; so many that the signed-rank interval has a level of 99 %."""

FEW_BLOCKS, LONG_MS = 8, 20.0
"""Calls that take longer are timed less often."""

WARM_UP_MS = 30.0
LEVEL = 0.99


def outputs(result: Any) -> list[torch.Tensor]:
    """What a side returned, as a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def difference(before: Iterable[torch.Tensor], after: Iterable[torch.Tensor]) -> float:
    """The largest one, as a share of the largest value; infinite where one is no number."""
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        apart = (x.double() - y.double()).abs().max() / x.double().abs().max().clamp(min=1e-30)
        worst = max(worst, float(apart.nan_to_num(nan=float("inf"))))
    return worst


class Sides:
    """Both sides of an edit, ready to be called."""

    def __init__(self, edit: Edit, folder: Path) -> None:
        modules = [module_of(text, edit.kernel, folder) for text in (edit.before(), edit.after())]
        self.reference = modules[0].reference
        self.calls: list[Callable[[], Any]] = []
        for module in modules:
            torch.manual_seed(0)
            self.calls.append(self._bound(module.run, module.inputs("cuda")))

    def _bound(self, run: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
        self.inputs = inputs if not self.calls else self.inputs
        return lambda: run(*inputs)


def check(edit: Edit, folder: Path) -> dict[str, Any]:
    """Whether both compute the same, and the first what torch computes."""
    sides = Sides(edit, folder)
    before = [x.clone() for x in outputs(sides.calls[0]())]
    after = outputs(sides.calls[1]())
    torch.cuda.synchronize()
    apart = difference(before, after)
    off = difference(outputs(sides.reference(*sides.inputs)), before)
    return {"right": apart <= edit.tolerance, "difference": round(apart, 6), "off": round(off, 6)}


def graph(call: Callable[[], Any], calls: int) -> torch.cuda.CUDAGraph:
    """So many calls one after the other."""
    found = torch.cuda.CUDAGraph()
    with torch.cuda.graph(found):
        for _ in range(calls):
            call()
    return found


def elapsed(run: Callable[[], Any]) -> float:
    """What the device took, in ms."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def timed(edit: Edit, folder: Path) -> dict[str, Any]:
    """Both sides in turn (ABBA or BAAB by chance), as graphs of equally many calls."""
    sides = Sides(edit, folder)
    for call in sides.calls:
        call()
    slowest = max(min(elapsed(call) for _ in range(3)) for call in sides.calls)
    fastest = min(min(elapsed(call) for _ in range(2)) for call in sides.calls)
    calls = max(1, min(MOST_CALLS, round(SLOT_MS / max(fastest, 1e-3))))
    graphs = [graph(call, calls) for call in sides.calls]
    spent = 0.0
    while spent < WARM_UP_MS:
        spent += elapsed(graphs[0].replay) + elapsed(graphs[1].replay)
    blocks, orders = FEW_BLOCKS if slowest > LONG_MS else BLOCKS, random.Random(0)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(blocks):
        first = orders.random() < 0.5
        found: tuple[list[float], list[float]] = ([], [])
        for side in (0, 1, 1, 0) if first else (1, 0, 0, 1):
            found[side].append(elapsed(graphs[side].replay) / calls)
        for side in (0, 1):
            times[side].append(sum(found[side]) / 2)
    change = hodges_lehmann([log(b / a) for a, b in zip(*times, strict=True)], LEVEL)
    middle = [1e3 * sorted(x)[blocks // 2] for x in times]
    ratio, low, high = (round(exp(x), 4) for x in (change.point, change.low, change.high))
    return {
        "ratio": ratio,
        "low": low,
        "high": high,
        "before_us": round(middle[0], 2),
        "after_us": round(middle[1], 2),
        "blocks": blocks,
    }


def main() -> None:
    """See the module's text."""
    do = {"check": check, "time": timed}[sys.argv[1]]
    out, folder = Path(sys.argv[2]), Path(sys.argv[3])
    wanted = set(json.load(sys.stdin))
    with out.open("a") as file:

        def write(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        for edit in (e for e in EDITS if e.key in wanted):
            write({"edit": edit.key, "error": "its process ended"})
            try:
                found = do(edit, folder)
            except Exception as exc:
                found = {"error": f"{type(exc).__name__}: {exc}"[:600]}
            write({"edit": edit.key, **found})
            if "CUDA error" in found.get("error", "") or "illegal" in found.get("error", ""):
                sys.exit(f"{edit.key}: {found['error']}")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
