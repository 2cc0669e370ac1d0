"""Compares ``kerntune.autotune`` with ``triton.autotune`` on one NVIDIA GPU: ten kernels at three shapes each.

    python -m benchmarks.suite.tuning_suite OUT.json [--part cold,added,quality]
        [--kernels matmul,softmax]

Parts are merged into OUT.json; those that aren't asked for stay as they are. ``--dry`` compiles every config for sm_90
without a GPU. ``python -m benchmarks.suite.tables OUT.json`` prints what came of it.

cold     each kernel and shape: seconds of the first call, in a fresh process with empty caches; the processes that
         compile included, imports not; one tuner after the other, the first one alternating. Where a first call does
         not wait for some configs, calls go on until these have been tried: seconds until then, what that call took
added    one config added to 48: the same process, and a new one that has the caches of the first
quality  every config of every kernel and shape timed in turn, its static figures: what winners are held against.
         With --instrument profiler: the best ones again by timestamps of torch's profiler, as part ``profiled``
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import merge
from benchmarks.suite import parts, quality
from benchmarks.suite.cases import CASES
from benchmarks.suite.tables import report

PARTS = {
    "cold": parts.cold,
    "added": parts.added,
    "quality": quality.quality,
    "profiled": quality.profiled,
}

START = time.perf_counter()


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="the result file")
    parser.add_argument("--part", default="cold,added,quality", help="parts to run (default: all)")
    parser.add_argument("--kernels", default=",".join(CASES), help="of these only (default: all)")
    parser.add_argument("--rounds", type=int, default=1, help="cold runs of each kernel, shape and tuner")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no further cold runs are begun after this")
    parser.add_argument("--no-peer", action="store_true", help="leave triton.autotune out of 'added'")
    parser.add_argument("--together", type=int, default=12, help="processes that are prepared at the same time")
    parser.add_argument("--instrument", choices=("kerntune", "profiler"), default="kerntune", help="of 'quality'")
    parser.add_argument("--dry", action="store_true", help="compile everything for sm_90, no GPU needed")
    parser.add_argument("--every", type=int, default=1, help="with --dry: every n-th config only")
    parser.add_argument("--shapes", type=int, default=None, help="with --dry, or the profiler: the first shapes only")
    options = parser.parse_args()
    options.kernels, options.part = options.kernels.split(","), options.part.split(",")
    if options.instrument == "profiler":
        options.part = ["profiled" if part == "quality" else part for part in options.part]
    if not options.dry and options.out is None:
        parser.error("give the result file")
    return options


def tell(row: dict[str, Any]) -> None:
    """A row as one line of progress, with the seconds since the start."""
    rest = {k: v for k, v in row.items() if k not in ("configs", "timing", "index", "timed", "host_peak_bytes")}
    if isinstance(configs := row.get("configs"), list):
        failed = [c["config"] for c in configs if "failure" in c]
        rest |= {"configs": len(configs), "failed": failed, "best_ns": min(c.get("time_ns", 0) for c in configs)}
    print(f"[{time.perf_counter() - START:6.1f} s] {' '.join(f'{k}={v}' for k, v in rest.items())}", flush=True)


def run_part(name: str, options: argparse.Namespace, stored: dict[str, Any]) -> dict[str, Any]:
    """One part; rows are written as they come. Rows of other kernels that the file has stay."""
    begin, rows = time.perf_counter(), []
    before = stored.get(name, [])
    found = stored
    for row in PARTS[name](options):
        rows.append(row)
        tell(row)
        new = {r.get("case") for r in rows}
        found = merge(options.out, **{name: [*(r for r in before if r.get("case") not in new), *rows]})
    seconds = {**found.get("seconds", {}), name: round(time.perf_counter() - begin, 1)}
    return merge(options.out, seconds=seconds)


def main() -> int:
    """Run the parts one after the other."""
    options = arguments()
    if options.dry:
        failed = 0
        for row in quality.dry(options):
            tell(row)
            failed += sum("failure" in c for c in row["configs"])
        return min(failed, 1)
    stored = json.loads(options.out.read_text()) if options.out.exists() else {}
    stored = merge(options.out, **{**stored, "environment": harness.environment(**harness.gpu_environment())})
    for name in options.part:
        stored = run_part(name, options, stored)
    print(report(stored))
    return 0


if __name__ == "__main__":
    sys.exit(main())
