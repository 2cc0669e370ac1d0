"""What ``static_prune`` saves and costs on a GPU: tunings of the suite's kernels with and without it.

    python benchmarks/static_prune.py OUT.json [kernel ...] [--seconds 60] [--dry]

Every config is compiled first (untimed), so the seconds are of looks, race and verification alone, which is all that
leaving configs out can save. Each variant tunes anew, in turn, the least of REPEATS times; ``winner_ns`` are of its own
race. ``predicted_rank`` is the winner's place by the resource model. ``--dry`` runs on the scripted GPU, to try the
script."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kerntune
from benchmarks.suite.case import Call, Case, Shape, config_text
from benchmarks.suite.cases import CASES
from benchmarks.suite.kernel_by_kernel import measure_each
from kerntune.tuning import autotuner_run
from kerntune.tuning.tuning_result import Tuned

VARIANTS = ("off", "spills", "spills model", "50%", "25%")
REPEATS = 2


def tuned(case: Case, shape: Shape, call: Call, prune: str) -> tuple[Any, Tuned, float]:
    """A tuner's outcome for the call, and the seconds that it took."""
    seen: list[Tuned] = []
    plain = autotuner_run.tune_call

    def told(*args: Any, **words: Any) -> Tuned:
        seen.append(plain(*args, **words))
        return seen[-1]

    options = {"cache_results": False, "static_prune": prune, "patience": "all"}
    tuner = case.tuned(lambda **words: kerntune.autotune(**words, **options), case.configs(shape))
    autotuner_run.tune_call = told
    try:
        begin = time.perf_counter()
        tuner[call.grid](*call.arguments)
        return tuner, seen[0], time.perf_counter() - begin
    finally:
        autotuner_run.tune_call = plain


def measured(name: str) -> dict[str, Any]:
    """All variants of one kernel, at its first shape."""
    case, shape = CASES[name], CASES[name].shapes[0]
    call = case.call(shape, "cuda")
    tuned(case, shape, call, "off")  # compiles
    out: dict[str, Any] = {"case": case.label(shape), "configs": len(case.configs(shape)), "variants": {}}
    for number in range(REPEATS):
        for prune in VARIANTS:
            tuner, found, seconds = tuned(case, shape, call, prune)
            row = {
                "seconds": round(seconds, 4),
                "left_out": len(found.left_out),
                "winner": config_text(tuner.best_config),
                "winner_ns": round(found.times_ns[found.winner], 1),
                "predicted_rank": found.predicted_rank,
            }
            before = out["variants"].get(prune)
            out["variants"][prune] = row if number == 0 or seconds < before["seconds"] else before
    return out


def main() -> int:
    """Write OUT.json after each case."""
    return measure_each(__doc__, list(CASES), 60.0, measured)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        sys.exit(main())
