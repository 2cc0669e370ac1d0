"""Whether a tuner's quick figures (stack frame from the cubin, instructions from PTX) order configs as those of the
machine code do, which ``resource_model.py`` uses.

    python benchmarks/foresight_figures.py OUT.json benchmarks/results/tuning_suite.json [kernel ...] [--shapes 1]

Needs no GPU. Compiles the configs of the tuning suite for sm_90 with the Triton at hand, and holds both orders against
the times that the given result recorded on a GPU (with its Triton). ``foresee_ms`` is the median time of one look.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import triton

from benchmarks.recorded_sweeps import H200, Recorded, figures, recorded
from benchmarks.replayed_uses import RULES
from benchmarks.resource_model import averaged, judged
from benchmarks.suite import sweep
from benchmarks.suite.cases import CASES
from benchmarks.suite.results import environment
from kerntune.base.device import Target
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.compile_only import StaticBackend
from kerntune.static.prediction import Figures, figures_of
from kerntune.static.pruning import left_out


def foreseen(one: sweep.Sweep) -> tuple[dict[str, Figures], dict[str, Figures], float]:
    """By config, the tuner's quick figures and those of the machine code; milliseconds of the former."""
    quick, whole, took = {}, {}, []
    for row, swept in zip(one.rows(), one.swept, strict=True):
        if swept.compiled is None or swept.grid is None or "registers" not in row:
            continue
        begin = time.perf_counter()
        found = figures_of(swept.compiled, swept.grid, H200)
        took.append(1e3 * (time.perf_counter() - begin))
        if found is not None:
            quick[row["config"]], whole[row["config"]] = found, figures(row)
    return quick, whole, statistics.median(took)


def compared(case: Recorded, quick: dict[str, Figures], whole: dict[str, Figures]) -> dict[str, Any]:
    """Both orders compared with the recorded times of the configs that both sides have."""
    rows = [row for row in case.rows if row["config"] in quick]
    times = [float(row["time_ns"]) for row in rows]
    out: dict[str, Any] = {"case": case.name, "configs": len(rows)}
    for label, side in (("foreseen", quick), ("machine code", whole)):
        known = {i: side[row["config"]] for i, row in enumerate(rows)}
        order = sorted(known, key=lambda i, known=known: known[i].cost)  # type: ignore[misc]
        losses = {}
        for rule, rules in RULES.items():
            gone = left_out(known, rules)
            losses[rule] = round(min(t for i, t in enumerate(times) if i not in gone) / min(times) - 1, 4)
        out[label] = {**{k: round(v, 4) for k, v in judged(times, order).items()}, "losses": losses}
    return out


def summary(cases: Sequence[dict[str, Any]], label: str) -> dict[str, Any]:
    """Means over cases, and each rule's largest loss."""
    means = averaged([{k: v for k, v in c[label].items() if k != "losses"} for c in cases])
    worst = {rule: max(c[label]["losses"][rule] for c in cases) for rule in RULES}
    return {**{key: round(value, 4) for key, value in means.items()}, "worst_loss": worst}


def compiled(kernels: Sequence[str], shapes: int) -> Iterator[tuple[str, sweep.Sweep]]:
    """The suite's cases, every config compiled for sm_90."""
    backend, compiler = StaticBackend((Target.parse("cuda:90"),)), Compiler()
    with backend.activate():
        for case in (CASES[kernel] for kernel in kernels):
            for shape in case.shapes[:shapes]:
                tuner = case.tuned(triton.autotune, case.configs(shape))
                one = sweep.prepare(backend, compiler, tuner, case.call(shape, "cuda"))
                sweep.add_metrics([one], H200, len(os.sched_getaffinity(0)))
                yield case.label(shape), one
    compiler.close()


def main() -> int:
    """Write OUT.json and print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("kernels", nargs="*", help="of the tuning suite; all that were recorded if none is named")
    parser.add_argument("--shapes", type=int, default=1, help="of each kernel, the first so many")
    options = parser.parse_args()
    by_name = {case.name: case for case in recorded(options.recorded)}
    known = {case.kernel for case in by_name.values()}
    cases = []
    for name, one in compiled(options.kernels or [k for k in CASES if k in known], options.shapes):
        quick, whole, took = foreseen(one)
        cases.append({**compared(by_name[name], quick, whole), "foresee_ms": round(took, 3)})
        print(json.dumps(cases[-1]), flush=True)
    result = {
        "environment": environment(),
        "recorded": json.loads(options.recorded.read_text(encoding="utf-8")).get("environment"),
        "foreseen": summary(cases, "foreseen"),
        "machine code": summary(cases, "machine code"),
        "cases": cases,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in result.items() if k != "cases"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
