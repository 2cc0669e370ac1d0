"""What the decorators' default preset costs and gains: candidates, compiling without a cache, the share of the best.

    python -m benchmarks.heuristics.heuristic_cost [--out FILE] [--sweeps held-out]     no GPU; some minutes of one core

For each preset and each recorded sweep (``heuristic_sweep.py``): how many configs today's rules propose for
its kernels, what share of the sweep's best the best of them reaches by the recorded times, and the processor time and
wall time of compiling them all for sm_90, kernel after kernel, with an empty cache. Processor time is of all processes:
on a busy machine it says more than the wall's. Each combination is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import RESULTS

SWEEPS = {"tuned": "heuristic_sweep", "held-out": "heuristic_sweep_held_out"}
PRESETS = ("inductor-2.13", "measured-2026")


def cpu_seconds() -> float:
    """Of this process and of those it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measured(sweep: str, preset: str) -> dict[str, Any]:
    """One preset's proposals for one sweep, looked up and compiled."""
    import triton

    from benchmarks.heuristics.heuristic_sweep import SHAPES, judged
    from benchmarks.suite.tables import geometric_mean, proposal_rows
    from kerntune.base.device import Target
    from kerntune.capture import Capture
    from kerntune.compiling.compiler import Compiler
    from kerntune.gpu.fake_cuda.static_backend import StaticBackend
    from kerntune.kernels.compat import tuners

    backend = StaticBackend(Target.parse("cuda:90"))
    with backend.activate():
        result = json.loads((RESULTS / f"{SWEEPS[sweep]}.json").read_text())
        rows = proposal_rows({"kernels": judged(result, backend, preset=preset)})
        found = {row["kernel"]: row[preset] for row in rows}
        jobs, counts, counting = [], {}, Compiler()
        for name in found:
            case = SHAPES[sweep][name]
            call = case.call(case.shape, "cuda")
            with Capture(backend, counting, thread=threading.get_ident()).active():
                configs = case.proposals(call, preset=preset)
            tuner = triton.autotune([tuners.triton_config(c) for c in configs], key=[], **case.options)(case.kernel)
            capture = Capture(backend, counting, thread=threading.get_ident())
            site = capture.site_of(tuner, call.arguments, {"grid": call.grid, "warmup": False})
            with capture.active():
                capture.launch(site)
                jobs.append([capture.probe(site, i).specialized for i in range(len(site.candidates))])
            counts[name] = len(configs)
        counting.close()
        with tempfile.TemporaryDirectory(prefix="kerntune-benchmark-") as folder:
            os.environ["TRITON_CACHE_DIR"] = folder
            compiler = Compiler()
            wall, cpu = time.perf_counter(), cpu_seconds()
            for specialized in jobs:
                compiler.compile_all(specialized)
            compiler.close()
            wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {
        "sweep": sweep,
        "preset": preset,
        "kernels": len(found),
        "candidates": sum(counts.values()),
        "share": round(geometric_mean(found.values()), 4),
        "worst": round(min(found.values()), 4),
        "compile_cpu_s": round(cpu, 1),
        "compile_wall_s": round(wall, 1),
        "by_kernel": {name: {"candidates": counts[name], "share": round(found[name], 4)} for name in found},
    }


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "heuristic_cost.json")
    parser.add_argument("--sweeps", default=",".join(SWEEPS))
    parser.add_argument("--one", nargs=2, metavar=("SWEEP", "PRESET"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(*options.one)))
        return 0
    from benchmarks.harness import layout

    rows = []
    for sweep in options.sweeps.split(","):
        for preset in PRESETS:
            with tempfile.TemporaryDirectory(prefix="kerntune-benchmark-") as folder:
                child = [sys.executable, "-m", "benchmarks.heuristics.heuristic_cost", "--one", sweep, preset]
                told = {**os.environ, "TRITON_CACHE_DIR": folder}
                run = subprocess.run(child, env=told, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(run.stdout.splitlines()[-1]))
            print({k: v for k, v in rows[-1].items() if k != "by_kernel"}, flush=True)
    options.out.write_text(
        layout({"environment": harness.environment(**harness.gpu_environment()), "rows": rows}) + "\n"
    )
    from benchmarks import provenance

    provenance.stamp(options.out.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
