"""Descent from a heuristic's best, on recorded sweeps: how near it comes to the best config, and in how many trials.

    python benchmarks/descent.py          no GPU: writes benchmarks/results/descent.json

A sweep (``benchmarks/heuristic_sweep.py``) has a time for each config of a kernel's space. The start is the fastest
config that a preset proposes, which isn't counted as a trial, since it is raced anyway. A neighbour that the sweep
lacks counts as a trial that can't be used, so shares are lower bounds. Where a sweep has one number of stages only
(kernels without a loop to pipeline), that field is frozen: other numbers compile to the same code.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from statistics import geometric_mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.heuristic_sweep import judged
from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.search import Descent, Measured
from kerntune.search.declared_descent import TRIALS

RESULTS = Path(__file__).parent / "results"
SWEEPS = ("heuristic_sweep.json", "heuristic_sweep_held_out.json")
PRESETS = ("inductor-2.13", "measured-2026")
H200 = typical_device(Target("cuda", "90"))


def config_of(text: str) -> Config:
    """``XBLOCK=1024 num_warps=4``."""
    pairs = (part.split("=") for part in text.split())
    return Config.from_mapping({name: int(value) if value.isdigit() else value for name, value in pairs})


def descended(row: dict[str, Any], proposals: list[int]) -> dict[str, Any]:
    """A sweep's kernel, from the best of these proposals."""
    configs = [config_of(c["config"]) for c in row["configs"]]
    times = {c.key(): one.get("time_ns") for c, one in zip(configs, row["configs"], strict=True)}
    best, missing = min(t for t in times.values() if t), []

    def measure(config: Config) -> Measured:
        if config.key() not in times:
            missing.append(str(config))
        time_ns = times.get(config.key())
        return Measured(time_ns, "" if time_ns else "not in the sweep")

    starts = [configs[i] for i in proposals]
    stages = {c.num_stages for c in configs}
    frozen = ("num_stages",) if len(stages) == 1 else ()
    if row["kernel"].endswith("_persistent"):  # the block is the row, as the decorator has it
        frozen += ("RBLOCK",)
    found = Descent(tuple(starts), H200, frozen=frozen).run(measure, lambda configs: None, starts)
    start = min(t for c in starts if (t := times[c.key()]))
    return {
        "kernel": row["kernel"],
        "start": round(best / start, 4),
        "end": round(best / (found.best.time_ns or start), 4),
        "trials": len(found.trials) - len(set(starts)),
        "not_in_sweep": len(missing),
        "config": str(found.best.config),
    }


def tables() -> list[dict[str, Any]]:
    """Each sweep from each preset's proposals."""
    from kerntune.gpu.compile_only import StaticBackend

    backend = StaticBackend((Target("cuda", "90"),))
    found = []
    for name in SWEEPS:
        result = json.loads((RESULTS / name).read_text())
        for preset in PRESETS:
            with backend.activate():
                rows = judged(result, backend, preset=preset)
            kernels = [descended(row, row["proposals"][preset]) for row in rows]
            ends, trials = [k["end"] for k in kernels], [k["trials"] for k in kernels]
            found.append(
                {
                    "sweep": name,
                    "preset": preset,
                    "start": round(geometric_mean([k["start"] for k in kernels]), 4),
                    "end": round(geometric_mean(ends), 4),
                    "worst": min(ends),
                    "most_trials": max(trials),
                    "mean_trials": round(sum(trials) / len(trials), 1),
                    "kernels": kernels,
                }
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "descent.json")
    options = parser.parse_args()
    found = tables()
    for one in found:
        print({k: v for k, v in one.items() if k != "kernels"})
    date = datetime.now(timezone.utc).date().isoformat()
    options.out.write_text(json.dumps({"date": date, "trials": TRIALS, "tables": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
