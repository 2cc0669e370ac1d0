"""Reductions with and without halved blocks and the rule for spilling candidates: which winner is faster, on a GPU.

    python benchmarks/registers.py benchmarks/results/registers_h200.json      on a machine with a GPU
    python benchmarks/registers.py out.json --scripted                         the same steps on the scripted GPU

Six kernels of ``benchmarks/heuristic_sweep.py``. Each is tuned twice in fresh caches; both winners then take turns. A
row is written as each is done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("KERNTUNE_PATIENCE", "all")

import torch

from benchmarks.suite.held_out_cases import HELD_OUT
from benchmarks.suite.proposed import Proposed
from benchmarks.suite.proposed_cases import PROPOSED
from kerntune.heuristics.hints import Modes
from kerntune.tuning import context

NAMES = ("sums_inner", "moments_inner", "sums_outer", "moments_outer")
CASES = [("tuned", PROPOSED[n]) for n in NAMES] + [("held-out", HELD_OUT[n]) for n in NAMES[:2]]
ANY_NUMBER = 1 << 30
WITHOUT = {"modes": Modes(dynamic_scale_rblock=False), "spill_threshold": ANY_NUMBER}
ROUNDS, CALLS = 30, 20


def seconds(kernel: Any, call: Any) -> float:
    """Of one launch, between events around several."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        kernel[call.grid](*call.arguments)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / CALLS / 1e3


def row(shapes: str, case: Proposed, scripted: bool) -> dict[str, Any]:
    """One kernel: winners, what was left out, and the ratio of times (below 1: faster with the rules)."""
    call = case.call(case.shape, "cuda")
    fresh = {**case.words, **case.options, "cache_results": False}
    with_rules = case.decorator(**fresh)(case.kernel)
    without = case.decorator(**{**fresh, **WITHOUT})(case.kernel)
    for kernel in (with_rules, without):
        kernel[call.grid](*call.arguments)
    found = {
        "kernel": case.name,
        "shapes": shapes,
        "with": str(with_rules.best_config),
        "without": str(without.best_config),
        "left_out": list(with_rules.left_out.values()),
        "tried": [len(getattr(k, "configs_timings", {})) for k in (with_rules, without)],
    }
    if not scripted:
        ratios = [seconds(with_rules, call) / seconds(without, call) for _ in range(ROUNDS)]
        found |= {"ratio": statistics.median(ratios), "ratios": sorted(ratios)}
    return found


@contextlib.contextmanager
def device(scripted: bool) -> Iterator[None]:
    """The machine's GPU, or a scripted one."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNTUNE_CACHE_DIR"] = folder
        if not scripted:
            yield
            return
        from kerntune.gpu.scripted import FakeBackend, Script

        backend = FakeBackend(Script())
        with backend.activate():
            context.this_gpu = lambda: backend  # type: ignore[assignment]
            yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scripted", action="store_true")
    options = parser.parse_args()
    rows = []
    with device(options.scripted):
        for shapes, case in CASES:
            rows.append(row(shapes, case, options.scripted))
            print(json.dumps(rows[-1]), flush=True)
            options.out.write_text(json.dumps({"scripted": options.scripted, "kernels": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
