"""What taking turns alone gives: ``do_bench`` of both sides in turn in one process, against one process for each side.

    python benchmarks/verdict_record.py RECORDED.json --turns 40 --processes 12
    python benchmarks/verdict_turns.py RECORDED.json OUT.json [--decisions 2000]

Both rules read the same times: executions of both sides in turn, each between two events after a flush of the L2 cache.
The paired rule takes the median of side b over that of side a of the same process; the control draws the processes of
the two sides apart. Each with one process, and with as many as kerntune's first look takes: then the median over them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import median, stdev
from typing import Any

import numpy as np
from scipy.stats import beta

from kerntune.timing.paired_processes import PROCESSES

LIMITS = (0.02, 0.05)
"""Changes from which on a rule reports one."""


def change(a: Sequence[float], b: Sequence[float]) -> float:
    """Logarithm of the ratio of medians."""
    return log(median(b) / median(a))


def paired(rows: Sequence[dict[str, Any]], rng: np.random.Generator, processes: int) -> float:
    """The median change over so many processes, each of which timed both sides."""
    chosen = rng.choice(len(rows), processes, replace=False)
    return median(change(rows[i]["a_turn"], rows[i]["b_turn"]) for i in chosen)


def apart(rows: Sequence[dict[str, Any]], rng: np.random.Generator, processes: int) -> float:
    """The same of side a of so many processes, and side b of as many others."""
    chosen = rng.choice(len(rows), 2 * processes, replace=False)
    return median(change(rows[i]["a_turn"], rows[j]["b_turn"]) for i, j in zip(chosen[::2], chosen[1::2], strict=True))


RULES = {"in turn in one process": paired, "one process a side": apart}


def rows_of(recorded: dict[str, Any], decisions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """A row for each case, variant, rule, number of processes and limit."""
    for index, (name, case) in enumerate(recorded["cases"].items()):
        rng = np.random.default_rng([seed, index])
        for variant, found in case["variants"].items():
            rows = [r for r in found if "a_turn" in r]
            for processes in (1, PROCESSES):
                for rule, draw in RULES.items() if len(rows) >= 2 * processes else ():
                    seen = [draw(rows, rng, processes) for _ in range(decisions)]
                    for limit in LIMITS:
                        yield row(name, variant, rule, processes, limit, seen)


def row(case: str, variant: str, rule: str, processes: int, limit: float, seen: Sequence[float]) -> dict[str, Any]:
    """Decisions counted: false alarms where nothing is slower, slowdowns found where one was planted."""
    planted = variant.startswith("slow")
    hits = sum(x > log(1 + limit) or (not planted and x < -log(1 + limit)) for x in seen)
    ends = (0.05, hits, len(seen) - hits + 1) if planted else (0.95, hits + 1, len(seen) - hits)
    return {
        "case": case, "variant": variant, "rule": rule, "processes": processes, "limit": limit,
        "decisions": len(seen), "hits": hits, "share": round(hits / len(seen), 4),
        "bound": round(float(np.nan_to_num(beta.ppf(*ends), nan=float(hits > 0))), 4),
        "median_change": round(median(seen), 5), "sd": round(stdev(seen), 5),
    }  # fmt: skip


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--decisions", type=int, default=2000)
    args = parser.parse_args()
    recorded = json.loads(args.recorded.read_text())
    rows = list(rows_of(recorded, args.decisions))
    kept = {key: recorded.get(key) for key in ("environment", "sessions", "protocol")}
    counts = {
        f"{name} {variant}": sum("a_turn" in r for r in found)
        for name, case in recorded["cases"].items()
        for variant, found in case["variants"].items()
    }
    args.out.write_text(json.dumps({**kept, "recorded_processes": counts, "rows": rows}, indent=1) + "\n")
    for r in rows:
        print(f"{r['case']:24} {r['variant']:10} {r['rule']:24} {r['processes']} at {r['limit']:.0%}: {r['share']:.2%}")


if __name__ == "__main__":
    main()
