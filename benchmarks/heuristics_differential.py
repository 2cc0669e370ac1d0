"""Compares every family with torch's own heuristics over all cases and writes counts to benchmarks/results/.

Run it in an environment with torch 2.13: ``python benchmarks/heuristics_differential.py [family ...]``. It exits with
1 and prints the first disagreements if there are any. All of it takes two minutes of one core.
"""

from __future__ import annotations

import datetime
import itertools
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402  (after the path is set)
import triton  # noqa: E402
from heuristics.inductor_cases import CASES, ours  # noqa: E402
from heuristics.inductor_oracle import ask, backend, flat_all  # noqa: E402
from heuristics.inductor_runtime import RUNTIME  # noqa: E402

from kerntune.device import DeviceSpec  # noqa: E402
from kerntune.hints import KernelHints  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "heuristics_differential.json"
SHOWN = 5
TIMED = 37
REPEATS = 3
"""Every 37th case is timed, best of three: other work on the machine is not the proposal's cost."""


def compare(family: str) -> dict[str, Any]:
    """Counts of one family: cases, agreements, both refused, disagreements, and the CPU time of our proposals."""
    counts = {"cases": 0, "same_configs": 0, "both_refuse": 0, "differ": 0}
    times: list[float] = []
    examples: list[str] = []
    cases = sorted(CASES[family](), key=lambda case: case[2].target.backend)
    for name, group in itertools.groupby(cases, key=lambda case: case[2].target.backend):
        with backend(name):
            for kind, hints, device in group:
                configs = ours(kind, hints, device)
                if counts["cases"] % TIMED == 0:
                    times.append(min(timed(kind, hints, device) for _ in range(REPEATS)))
                mine = None if configs is None else flat_all(configs)
                theirs = ask(kind, hints, device)
                counts["cases"] += 1
                if mine != theirs:
                    counts["differ"] += 1
                    if len(examples) < SHOWN:
                        examples.append(f"{kind} {device.target} {hints}\n  ours   {mine}\n  theirs {theirs}")
                else:
                    counts["both_refuse" if mine is None else "same_configs"] += 1
    if examples:
        print(*examples, sep="\n")
    return {**counts, "our_microseconds_cpu": {"mean": _microseconds(statistics.mean(times)), **_quantiles(times)}}


def timed(kind: str, hints: KernelHints, device: DeviceSpec) -> float:
    """Seconds of CPU time of one proposal."""
    start = time.thread_time()
    ours(kind, hints, device)
    return time.thread_time() - start


def _quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {f"p{p}": _microseconds(ordered[len(ordered) * p // 100]) for p in (50, 90, 99)}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def compare_runtime(part: str) -> dict[str, Any]:
    """Counts of one part that isn't a family: combos, scaling, descent, given configs."""
    counts = {"cases": 0, "same_configs": 0, "both_refuse": 0, "differ": 0}
    for label, decide in RUNTIME[part]():
        mine, theirs = decide()
        counts["cases"] += 1
        counts["same_configs" if mine == theirs else "differ"] += 1
        if mine != theirs and counts["differ"] <= SHOWN:
            print(f"{label}\n  ours   {mine}\n  theirs {theirs}")
    return dict(counts)


def main() -> int:
    """Compare, and put each family's counts into the result as soon as they are there."""
    differ = 0
    for family in sys.argv[1:] or [*CASES, *RUNTIME]:
        counts = compare(family) if family in CASES else compare_runtime(family)
        print(family, counts, flush=True)
        record(family, counts)
        differ += counts["differ"]
    return 1 if differ else 0


def record(family: str, counts: dict[str, Any]) -> None:
    """Replace one family's counts; those of another environment are dropped."""
    here = environment()
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    same = {k: v for k, v in found.get("environment", {}).items() if k != "date"}
    old = found["families"] if same == {k: v for k, v in here.items() if k != "date"} else {}
    known = {**old, family: counts}
    families = {name: known[name] for name in [*CASES, *RUNTIME] if name in known}
    RESULT.write_text(json.dumps({"environment": here, "families": families}, indent=2) + "\n")


def environment() -> dict[str, str]:
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "machine": platform.machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
