"""Reductions with and without halved blocks and the rule for spilling candidates: which winner is faster, on a GPU.

    python benchmarks/registers.py benchmarks/results/registers_h200.json      on a machine with a GPU
    python benchmarks/registers.py out.json --scripted                         the same steps on the scripted GPU

Six kernels of ``benchmarks/heuristic_sweep.py``, and power sums (``benchmarks/spilling_kernels.py``), whose configs
spill: compiled for cuda:90, the only inner candidate 160 bytes a thread, the others up to 23,872. Each is tuned twice
in fresh caches; both winners then take turns as CUDA graphs of many launches (``benchmarks/graph_pairs.py``). ``ratio``
below 1: faster with the rules; ``null_ratio`` is the winner without them against itself. A row is written as each is
done.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("KERNTUNE_PATIENCE", "all")

import torch
import triton

import kerntune
from benchmarks.graph_pairs import device_ratio
from benchmarks.spilling_kernels import power_sums
from benchmarks.suite.case import Call, Shape
from benchmarks.suite.held_out_cases import HELD_OUT
from benchmarks.suite.proposed import Proposed
from benchmarks.suite.proposed_cases import PROPOSED
from kerntune.heuristics.hints import Modes
from kerntune.tuning import context


def power_sums_call(shape: Shape, device: str, outer: bool = False) -> Call:
    """A call; six sums a row."""
    rows, cols = shape["rows"], shape["cols"]
    x = torch.rand(cols, rows, device=device).T if outer else torch.rand(rows, cols, device=device)
    out = torch.empty(rows, 6, device=device)

    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(rows, meta["XBLOCK"]),)

    return Call(grid, (x, out, rows, cols, x.stride(0), x.stride(1)), lambda: {1: expected_power_sums(x)})


def expected_power_sums(x: Any) -> Any:
    """By torch, in float64."""
    powers = [(x.double() ** k).sum(1) for k in range(1, 13)]
    return torch.stack([powers[k] + powers[k + 6] for k in range(6)], 1)


POWER_SUMS = Proposed(
    "power_sums", power_sums, {"rows": 16384, "cols": 4096}, {"rows": 10, "cols": 300}, power_sums_call,
    kerntune.reduction, {"sizes": {"x": "rows", "r0": "cols"}, "blocks": {"x": "XBLOCK", "r0": "RBLOCK"}}, tuple,
)  # fmt: skip
POWER_SUMS_INNER = dataclasses.replace(POWER_SUMS, words={**POWER_SUMS.words, "reduction": "inner"})
POWER_SUMS_OUTER = dataclasses.replace(
    POWER_SUMS, name="power_sums_outer", shape={"rows": 32768, "cols": 2048},
    call=partial(power_sums_call, outer=True),
)  # fmt: skip

NAMES = ("sums_inner", "moments_inner", "sums_outer", "moments_outer")
CASES = [("tuned", PROPOSED[n]) for n in NAMES] + [("held-out", HELD_OUT[n]) for n in NAMES[:2]]
CASES += [("spilling", POWER_SUMS_INNER), ("spilling, max-autotune", POWER_SUMS), ("max-autotune", POWER_SUMS_OUTER)]
ANY_NUMBER = 1 << 30
WITHOUT = {"spill_threshold": ANY_NUMBER}


def row(shapes: str, case: Proposed, scripted: bool) -> dict[str, Any]:
    """One kernel: winners, what was left out, and the ratio of times (below 1: faster with the rules)."""
    call = case.call(case.shape, "cuda")
    fresh: dict[str, Any] = {**case.words, **case.options, "cache_results": False}
    widely = shapes.endswith("max-autotune")
    with_rules = case.decorator(**fresh, max_autotune=widely)(case.kernel)
    modes = Modes(dynamic_scale_rblock=False, max_autotune=widely)
    without = case.decorator(**{**fresh, **WITHOUT, "modes": modes})(case.kernel)
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
        found["same"] = found["with"] == found["without"]
        found |= device_ratio(
            lambda: with_rules[call.grid](*call.arguments), lambda: without[call.grid](*call.arguments)
        )
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
    rows: list[dict[str, Any]] = []
    result = {"date": datetime.now(timezone.utc).date().isoformat(), "scripted": options.scripted, "kernels": rows}
    with device(options.scripted):
        for shapes, case in CASES:
            try:
                rows.append(row(shapes, case, options.scripted))
            except Exception:  # the other rows are worth having
                rows.append({"kernel": case.name, "shapes": shapes, "error": traceback.format_exc()})
            print(json.dumps({k: v for k, v in rows[-1].items() if not k.endswith("ratios")}), flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any("error" in found for found in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
