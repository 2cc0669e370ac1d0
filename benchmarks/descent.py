"""Descent from a heuristic's best, on recorded sweeps: how near it comes to the best config, and in how many trials.

    python benchmarks/descent.py                     no GPU: writes benchmarks/results/descent.json
    python benchmarks/descent.py --gpu OUT.json      a GPU: four of the kernels, their descents and their best configs
    python benchmarks/descent.py --gpu OUT.json --scripted     the same steps on the scripted GPU

A sweep (``benchmarks/heuristic_sweep.py``) has a time for each config of a kernel's space. The start is the fastest
config that a preset proposes, which isn't counted as a trial, since it is raced anyway. A neighbour that the sweep
lacks counts as a trial that can't be used, so shares are lower bounds. Where a sweep has one number of stages only
(kernels without a loop to pipeline), that field is frozen: other numbers compile to the same code.

On a GPU, a decorator with ``descend=True`` tunes each kernel; what it comes to, its fastest proposal, and the configs
that were fastest in the recorded sweep then take turns as CUDA graphs (``benchmarks/graph_pairs.py``). ``share`` is the
fastest recorded config's time over the descent's, measured now; ``start_share`` the same of the fastest proposal. The
recorded sweep stands for an exhaustive search, so the share may be above 1. A row is written as each is done.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
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


GPU_KERNELS = ("gelu_1d", "sums_outer", "moments_outer", "softmax_persistent")
RECORDED = 3
"""Configs of the recorded sweep that a descent on a GPU is held against."""


def measured_row(name: str, scripted: bool) -> dict[str, Any]:
    """A descent on this machine's GPU, from the proposals of the default preset."""
    from benchmarks.graph_pairs import device_ratio
    from benchmarks.suite.proposed_cases import PROPOSED

    case = PROPOSED[name]
    call = case.call(case.shape, "cuda")
    begin = time.monotonic()
    words: dict[str, Any] = {**case.words, **case.options, "cache_results": False}
    listed, kernel = case.decorator(**words)(case.kernel), case.decorator(**words, descend=True)(case.kernel)
    for one in (listed, kernel):
        one[call.grid](*call.arguments)
    row = {
        "kernel": name,
        "proposed": str(listed.best_config),
        "descended": str(kernel.best_config),
        "trials": len(kernel.configs_timings) - len(listed.candidates(*call.arguments)),
        "tuned_s": round(time.monotonic() - begin, 2),
    }
    if scripted:
        return row

    def launcher(config: Any) -> Any:
        return lambda: case.kernel[call.grid](*call.arguments, **config)

    ours = launcher(kernel.best_config.all_kwargs())
    row["proposed_ratio"] = device_ratio(launcher(listed.best_config.all_kwargs()), ours)
    found = []
    for text in recorded_best(name):
        found.append({"config": text, **device_ratio(launcher(config_of(text).all_kwargs()), ours)})
    best = min(one["ratio"] for one in found)
    row |= {"recorded": found, "share": min(best, 1.0), "best_ratio": best}
    row["start_share"] = min(best, 1.0) / row["proposed_ratio"]["ratio"]
    return row | {"seconds": round(time.monotonic() - begin, 2)}


def recorded_best(name: str) -> list[str]:
    """The fastest configs of a kernel in the recorded sweep, at the shapes of the suite."""
    sweep = json.loads((RESULTS / SWEEPS[0]).read_text())
    (row,) = (one for one in sweep["kernels"] if one["kernel"] == name)
    timed = sorted((c["time_ns"], c["config"]) for c in row["configs"] if c.get("time_ns"))
    return [config for _, config in timed[:RECORDED]]


def on_gpu(out: Path, scripted: bool) -> int:
    """The kernels of :data:`GPU_KERNELS`; what fails is in the file, with its traceback."""
    from benchmarks.registers import device

    rows: list[dict[str, Any]] = []
    with device(scripted):
        for name in GPU_KERNELS:
            try:
                rows.append(measured_row(name, scripted))
            except Exception:  # the other rows are worth having
                rows.append({"kernel": name, "error": traceback.format_exc()})
            print(
                json.dumps({k: v for k, v in rows[-1].items() if k not in ("recorded", "proposed_ratio")}), flush=True
            )
            shares = [row["share"] for row in rows if "share" in row]
            mean = round(geometric_mean(shares), 4) if shares else None
            date = datetime.now(timezone.utc).date().isoformat()
            result = {"date": date, "scripted": scripted, "share": mean, "kernels": rows}
            out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any("error" in row for row in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "descent.json")
    parser.add_argument("--gpu", type=Path, metavar="OUT.json")
    parser.add_argument("--scripted", action="store_true")
    options = parser.parse_args()
    if options.gpu:
        return on_gpu(options.gpu, options.scripted)
    found = tables()
    for one in found:
        print({k: v for k, v in one.items() if k != "kernels"})
    date = datetime.now(timezone.utc).date().isoformat()
    options.out.write_text(json.dumps({"date": date, "trials": TRIALS, "tables": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
