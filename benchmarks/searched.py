"""What a search over a declared space finds, and after how many trials, compared with all of the space: on a GPU.

    python benchmarks/searched.py OUT.json [KERNEL ...] [--seconds 100] [--dry]

Of each kernel of ``SPACES`` every legal config is tried in one tuning; then come searches for some trials, each with
empty caches. The time of a search's winner is the one from the tuning that tried everything.
``--dry``: on the scripted GPU.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kerntune
from benchmarks.suite.case import Case, config_text
from benchmarks.suite.cases import CASES
from benchmarks.suite.kernel_by_kernel import measure_each
from kerntune.base.config import Config
from kerntune.compiling.compiler import Compiler
from kerntune.search import Choice, Range, Search, Space
from kerntune.tuning import context

WARPS = Range("num_warps", 1, 16)


def _fits_a_tile(config: Config) -> bool:
    """What a Hopper GPU's registers and shared memory may hold, fp16 operands and an fp32 sum."""
    bm, bn, bk = (int(config.kwargs[name]) for name in ("BM", "BN", "BK"))  # type: ignore[arg-type]
    held = bm * bn / (32 * config.num_warps)
    return 16 <= held <= 256 and 2 * (bm + bn) * bk * (config.num_stages - 1) <= 200_000


SPACES = {
    "bias_gelu": Space(
        (Range("BLOCK", 64, 16384), WARPS), (lambda c: 1 <= c.kwargs["BLOCK"] / (32 * c.num_warps) <= 64,)
    ),
    "transpose": Space(
        (Range("BM", 8, 256), Range("BN", 8, 256), WARPS),
        (lambda c: 2 <= c.kwargs["BM"] * c.kwargs["BN"] / (32 * c.num_warps) <= 64,),
    ),
    "matmul": Space(
        (
            Range("BM", 32, 256),
            Range("BN", 32, 256),
            Range("BK", 32, 128),
            Choice("num_warps", (4, 8)),
            Range("num_stages", 2, 5, by_one=True),
        ),
        (_fits_a_tile,),
        Config({"GROUP": 8}),
    ),
}

SHAPES = {"matmul": 1}
"""Which of a kernel's shapes; else the first."""

TRIALS, SEEDS = (32, 64), (0, 1)


def tuned(case: Case, call: Any, search: Search) -> tuple[Any, float]:
    """The tuner after a first call, and the seconds that it took with nothing compiled before."""
    context.COMPILER = Compiler()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        decorator = kerntune.autotune([], key=list(case.key), search=search, cache_results=False, **case.options)
        tuner, begin = decorator(case.kernel), time.perf_counter()
        tuner[call.grid](*call.arguments)
        seconds = time.perf_counter() - begin
        context.COMPILER.close()
    return tuner, seconds


def measured(name: str) -> dict[str, Any]:
    """All of a kernel's space, and searches in it."""
    case = CASES[name]
    shape = case.shapes[SHAPES.get(name, 0)]
    call = case.call(shape, "cuda")
    whole, seconds = tuned(case, call, Search(SPACES[name]))
    times = {config_text(config): ms for config, (ms, *_) in whole.configs_timings.items()}
    best = min(times.values())
    out: dict[str, Any] = {"case": case.label(shape), "configs": len(times), "seconds": round(seconds, 2)}
    out |= {"best_ms": best, "best": config_text(whole.best_config), "searches": []}
    for trials, seed in [(trials, seed) for trials in TRIALS for seed in SEEDS if trials < len(times)]:
        tuner, seconds = tuned(case, call, Search(SPACES[name], trials=trials, seed=seed))
        winner = config_text(tuner.best_config)
        row = {"trials": trials, "seed": seed, "seconds": round(seconds, 2), "winner": winner}
        out["searches"].append(row | {"times_best": round(times[winner] / best, 4)})
    return out


def main() -> int:
    """Write OUT.json after each kernel."""
    return measure_each(__doc__, list(SPACES), 100.0, measured)


if __name__ == "__main__":
    sys.exit(main())
