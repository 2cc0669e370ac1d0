"""How long the examples take without a GPU when nothing has changed: one checkout against another, in turn.

    python benchmarks/second_run.py BEFORE AFTER OUT.json [--pairs 8] [--target cuda:90]

BEFORE and AFTER are checkouts of kerntune. In each, ``pytest examples --kerntune --kerntune-target=TARGET`` runs once
unrecorded (a first run: it compiles the kernels and fills both caches), then ``--pairs`` times, the order within a pair
at random. All runs share one Python, one folder of byte code and no other cache than their side's own. Of each run:
seconds that passed (``wall``), and of processor time of all its processes (``cpu``), which other work on the machine
moves less. ``less`` is one minus the ratio of AFTER to BEFORE: the Hodges-Lehmann estimate over the pairs, with its
95 % interval.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kerntune.base.stats import hodges_lehmann, median

LEVEL = 0.95
SIDES = ("before", "after")


def run(checkout: Path, scratch: Path, side: str, target: str) -> dict[str, float]:
    """One run in a checkout. SystemExit if a test fails."""
    command = [sys.executable, "-m", "pytest", "examples", "--kerntune", f"--kerntune-target={target}", "-q"]
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=checkout, env=surroundings(checkout, scratch, side), stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} in {checkout}:\n{output.read().decode(errors='replace')}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime}


def surroundings(checkout: Path, scratch: Path, side: str) -> dict[str, str]:
    """An environment in which that checkout is imported, with caches of its own."""
    own = {
        "PYTHONPATH": str(checkout),
        "PYTHONPYCACHEPREFIX": str(scratch / "bytecode"),
        "KERNTUNE_CACHE_DIR": str(scratch / side / "kerntune"),
        "TRITON_CACHE_DIR": str(scratch / side / "triton"),
    }
    left_out = ("PYTHONDONTWRITEBYTECODE", "CI", "PYTEST_ADDOPTS")
    return {**{k: v for k, v in os.environ.items() if k not in left_out}, **own}


def compared(pairs: list[dict[str, dict[str, float]]], what: str) -> dict[str, object]:
    """One figure of all pairs."""
    ratios = [math.log(pair["after"][what] / pair["before"][what]) for pair in pairs]
    found = hodges_lehmann(ratios, LEVEL)
    return {
        "before_s": round(median([pair["before"][what] for pair in pairs]), 3),
        "after_s": round(median([pair["after"][what] for pair in pairs]), 3),
        "less": round(1 - math.exp(found.point), 4),
        "less_interval": [round(1 - math.exp(found.high), 4), round(1 - math.exp(found.low), 4)],
    }


def commit(checkout: Path) -> str:
    """What a checkout has, with a sign if it was edited."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--target", default="cuda:90")
    args = parser.parse_args()
    checkouts = {"before": args.before.resolve(), "after": args.after.resolve()}
    order, pairs = random.Random(0), []
    with tempfile.TemporaryDirectory(prefix="kerntune-second-run-") as folder:
        first = {side: run(checkouts[side], Path(folder), side, args.target) for side in SIDES}
        for _ in range(args.pairs):
            sides = order.sample(SIDES, 2)
            found = {side: run(checkouts[side], Path(folder), side, args.target) for side in sides}
            pairs.append({side: found[side] for side in SIDES})
            print(json.dumps(pairs[-1]), flush=True)
    result = {
        "target": args.target,
        "commits": {side: commit(checkouts[side]) for side in SIDES},
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "level": LEVEL,
        "wall": compared(pairs, "wall"),
        "cpu": compared(pairs, "cpu"),
        "first_runs": first,
        "pairs": pairs,
    }
    args.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(json.dumps({"wall": result["wall"], "cpu": result["cpu"]}, indent=1))


if __name__ == "__main__":
    main()
