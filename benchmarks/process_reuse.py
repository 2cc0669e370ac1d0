"""Whether a process that serves many requests is as good as many fresh ones, each of which serves one.

    python benchmarks/process_reuse.py OUT.json [--processes 8] [--requests 8] [--cases add softmax]

Twins (equal code of two identities) are held against each other: in ``--processes`` processes ``--requests`` times
each. Per case: the standard deviation of the estimates of one process (``within``), and what processes add to it
(``between``: one-way analysis of variance, the square root of the variance component, 0 where the data show none); the
same of each process's first requests, which is what fresh processes would give; and the F test's p-value.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from decision_time import environment
from scipy.stats import f as f_distribution
from timed_cases import Case, cases

from kerntune.base.stats import hodges_lehmann, median
from kerntune.capture import Capture
from kerntune.capture.memory_plan import describe
from kerntune.capture.recorder import record
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.cuda import CudaBackend
from kerntune.timing.paired import common_plan
from kerntune.timing.paired_processes import BLOCKS, PairedWork, log_ratios
from kerntune.timing.worker.pool import Worker
from kerntune.timing.worker.requests import PairReply


def work_of(backend: CudaBackend, compiler: Compiler, case: Case) -> PairedWork:
    """The case and its twin, on one memory plan."""
    args, found = case.make(), []
    for twin in (False, True):
        capture = Capture(backend, compiler)
        with capture.active():
            case.fn(*args, **case.options(twin))
        found.append(record(capture, backend.targets[0]))
    storages, contents = describe(found[1].recording.storages, found[1].sources, backend)
    _, before = common_plan(found[1].recording, found[0].recording)
    return PairedWork(before, found[1].recording, storages, {**found[0].artifacts, **found[1].artifacts, **contents})


def asked(worker: Worker, work: PairedWork, seed: int) -> tuple[float, float, float]:
    """The log-ratio that one request gives, the median time in us, and the seconds it took."""
    start = time.perf_counter()
    reply = worker.ask(work.request(BLOCKS, seed))
    if not isinstance(reply, PairReply):
        raise SystemExit(f"a worker answered {reply}")
    taken = time.perf_counter() - start
    return hodges_lehmann(log_ratios(reply)).point, median(reply.a_ns + reply.b_ns) / 1e3, taken


def figures(ratios: np.ndarray) -> dict[str, object]:
    """Of estimates, a row a process."""
    processes, requests = ratios.shape
    inside = float(ratios.var(axis=1, ddof=1).mean())
    outside = float(ratios.mean(axis=1).var(ddof=1)) * requests
    ratio = outside / inside
    return {
        "sd_within": inside**0.5,
        "sd_between": max(0.0, (outside - inside) / requests) ** 0.5,
        "sd_first_requests": float(ratios[:, 0].std(ddof=1)),
        "sd_all": float(ratios.std(ddof=1)),
        "mean": float(ratios.mean()),
        "p_value": float(f_distribution.sf(ratio, processes - 1, processes * (requests - 1))),
    }


def of_case(work: PairedWork, workers: list[Worker], requests: int) -> dict[str, object]:
    """All processes in turn, so that what drifts in time isn't taken for a process's own."""
    seen = [[asked(w, work, seed=100 * i + j) for i, w in enumerate(workers)] for j in range(requests)]
    ratios, times, seconds = (np.array([[x[k] for x in row] for row in seen]).T for k in range(3))
    return {
        "us": float(np.median(times)),
        **figures(ratios),
        "seconds_per_request": statistics.median(seconds.ravel().tolist()),
        "seconds_of_first_requests": statistics.median(seconds[:, 0].tolist()),
        "log_ratios": np.round(ratios, 7).tolist(),
        "medians_us": np.round(times, 4).tolist(),
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--cases", nargs="*", default=[""])
    args = parser.parse_args()
    backend, compiler = CudaBackend(), Compiler()
    chosen = [c for c in cases() if any(c.name.startswith(x) for x in args.cases)]
    works = {c.name: work_of(backend, compiler, c) for c in chosen}
    compiler.close()
    workers = [Worker(backend.gpu.ordinal) for _ in range(args.processes)]
    out: dict[str, object] = {"environment": environment(), "blocks": BLOCKS, "cases": {}}
    try:
        with backend.gpu.lock():
            for worker in workers:
                worker.wait()
            for name, work in works.items():
                found = of_case(work, workers, args.requests)
                out["cases"][name] = found  # type: ignore[index]
                print(name, {k: f"{v:.3g}" for k, v in found.items() if isinstance(v, float)}, flush=True)
    finally:
        for worker in workers:
            worker.close()
        args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
