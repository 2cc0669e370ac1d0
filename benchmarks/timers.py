"""The noise of each timer: the same twins under each timer, many times, and the profiler's timestamps as a cross-check.

    python benchmarks/timers.py OUT.json [--requests 16] [--cases add softmax] [--timers graph events]

Twins (equal code of two identities, so the truth is no change) are compared in this process, with memory and code laid
out anew each time. Per case and timer: the standard deviation of the estimates (``sd``), what the blocks alone would
explain of it (``se``), the median time, and the seconds that a request takes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
from decision_time import environment
from process_reuse import work_of
from timed_cases import cases

from kerntune.base.stats import hodges_lehmann, median
from kerntune.compiling.compiler import Compiler
from kerntune.errors import KerntuneError
from kerntune.gpu.cuda import CudaBackend
from kerntune.gpu.memory import Memory, make_source
from kerntune.gpu.program import Loader, Program
from kerntune.timing.paired_processes import BLOCKS, ONE_SIGMA, PairedWork, log_ratios
from kerntune.timing.sampling import PROFILER, slot_for, take_sample
from kerntune.timing.worker.serve import run_pair


def repeated(backend: CudaBackend, work: PairedWork, timer: str, requests: int, blocks: int) -> dict[str, Any]:
    """What ``requests`` paired requests give under a timer."""
    points, errors, times, seconds = [], [], [], []
    for seed in range(requests):
        start = time.perf_counter()
        reply = run_pair(backend.gpu, msgspec.structs.replace(work.request(blocks, seed), timer=timer), random.Random())
        seconds.append(time.perf_counter() - start)
        found = hodges_lehmann(log_ratios(reply), ONE_SIGMA)
        points.append(found.point)
        errors.append((found.high - found.low) / 2)
        times.append(median(reply.a_ns + reply.b_ns) / 1e3)
    return {
        "us": statistics.median(times),
        "sd": statistics.stdev(points),
        "se": statistics.median(errors),
        "mean": statistics.mean(points),
        "sd_of_medians": statistics.stdev(times) / statistics.mean(times),
        "seconds": statistics.median(seconds),
    }


def profiled(backend: CudaBackend, work: PairedWork) -> float:
    """The profiler's median time of one side, in microseconds."""
    loader = Loader(backend.gpu)
    try:
        sources = [make_source(backend.gpu, s) for s in work.storages]
        program = Program(loader, work.b, Memory(backend.gpu, work.storages, sources), work.artifacts)
        return median(take_sample(slot_for(program, 0.0, PROFILER), quick=True).times_ns) / 1e3
    finally:
        loader.close()


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--cases", nargs="*", default=[""])
    parser.add_argument("--timers", nargs="*", default=["graph", "events"])
    args = parser.parse_args()
    backend, compiler = CudaBackend(), Compiler()
    out: dict[str, Any] = {"environment": environment(), "blocks": args.blocks, "requests": args.requests, "cases": {}}
    works = {c.name: work_of(backend, compiler, c) for c in cases() if any(c.name.startswith(x) for x in args.cases)}
    compiler.close()
    with backend.gpu.lock():
        for name, work in works.items():
            row = {t: repeated(backend, work, t, args.requests, args.blocks) for t in args.timers}
            out["cases"][name] = row
            print(name, {t: {k: f"{v:.4g}" for k, v in x.items()} for t, x in row.items()}, flush=True)
            args.out.write_text(json.dumps(out, indent=1) + "\n")
        for name, work in works.items():  # last, for the profiler slows what comes after it
            try:
                out["cases"][name]["profiler"] = {"us": profiled(backend, work)}
            except KerntuneError as exc:
                out["cases"][name]["profiler"] = {"error": str(exc)}
            print(name, out["cases"][name]["profiler"], flush=True)
    args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
