"""How often a history tells of steps that aren't there, and how well it dates those that are: simulated series.

    python benchmarks/history_simulation.py OUT.json [--seeds 20] [--series 1000] [--runs 200] [--kinds chain,times]

Noise as measured on an H200 (docs/verdicts.md): a session's times differ by 1.5 %, processes by 0.1 %, hosts by 3 %. A
paired change sees the processes alone: both sides run in the same session on the same host. What is simulated goes
through ``kerntune.gate.history.series.found_in`` as stored runs do. Four kinds of history: against one anchor; against
baselines that are recorded anew every 25 runs; against the run before (a chain); and half of the runs with unchanged
code. Unpaired times are beside them for comparison. Needs no GPU and no quiet machine: nothing is timed. A row is
written as soon as it is known, and a later call goes on with the rows that ``OUT.json`` lacks.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.stats import beta

from kerntune.gate.history.series import LEAST_SD, CaseShift, ChangeSeries, found_in
from kerntune.gate.history.summary import FALSE_RATE

PROCESS_SD = 0.001
SESSION_SD = 0.015
HOST_SD = 0.03

STEP = 0.015
CREEP = 0.003
CREEP_RUNS = 10
REFRESH = 25

KINDS = ("anchor", "refreshed", "chain", "unchanged", "times")


def history(kind: str, level: np.ndarray, rng: np.random.Generator) -> ChangeSeries:
    """One case's points. ``level`` is the logarithm of its true time in each run."""
    runs = len(level)
    reference = {
        "anchor": np.zeros(runs, dtype=int),
        "unchanged": np.zeros(runs, dtype=int),
        "refreshed": np.maximum(np.arange(runs) // REFRESH * REFRESH - 1, 0),
        "chain": np.maximum(np.arange(runs) - 1, 0),
    }[kind]
    moved = np.diff(level, prepend=level[0]) != 0
    new = moved | (rng.random(runs) < 0.5) if kind == "unchanged" else np.ones(runs, dtype=bool)
    work = np.cumsum(new) + 1
    error = rng.normal(0, PROCESS_SD, runs)
    value = level - level[reference] + np.where(work == work[reference], 0.0, error)
    sd = np.where(work == work[reference], 0.0, max(PROCESS_SD, LEAST_SD))
    known = np.zeros(runs, dtype=int) if kind in ("anchor", "unchanged") else work[reference]
    return ChangeSeries(np.arange(runs), work, reference, known, value, sd, np.zeros(runs, dtype=int))


def unpaired(level: np.ndarray, rng: np.random.Generator) -> ChangeSeries:
    """The times themselves, as dashboards keep them: each run is a session on one of four hosts."""
    hosts = rng.normal(0, HOST_SD, 4)
    value = level + rng.normal(0, SESSION_SD, len(level)) + hosts[rng.integers(0, 4, len(level))]
    runs, none = np.arange(len(level)), np.zeros(len(level), dtype=int)
    return ChangeSeries(runs, runs + 1, none, none, value, np.full(len(level), SESSION_SD), none)


def rate(hits: int, of: int) -> dict[str, float | int]:
    """A share with its 95 % interval (Clopper and Pearson)."""
    low = float(beta.ppf(0.025, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, of - hits)) if hits < of else 1.0
    return {"hits": hits, "of": of, "share": hits / of, "low": low, "high": high}


def count(
    kind: str,
    args: argparse.Namespace,
    level: Callable[[np.random.Generator], tuple[np.ndarray, int]],
    right: Callable[[tuple[CaseShift, ...], int], bool],
) -> dict[str, float | int]:
    hits = 0
    for rng in generators(args):
        made, at = level(rng)
        points = unpaired(made, rng) if kind == "times" else history(kind, made, rng)
        hits += right(found_in(points, {}, FALSE_RATE / args.series), at)
    return rate(hits, args.seeds * args.series)


def generators(args: argparse.Namespace) -> Iterator[np.random.Generator]:
    for seed in range(args.seeds):
        for one in np.random.SeedSequence(seed).spawn(args.series):
            yield np.random.default_rng(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of history, separated by commas")
    args = parser.parse_args()

    def flat(rng: np.random.Generator) -> tuple[np.ndarray, int]:
        return np.zeros(args.runs), 0

    def stepped(rng: np.random.Generator) -> tuple[np.ndarray, int]:
        at = int(rng.integers(2, args.runs - 1))
        return np.where(np.arange(args.runs) >= at, np.log1p(STEP), 0.0), at

    def crept(rng: np.random.Generator) -> tuple[np.ndarray, int]:
        at = int(rng.integers(5, args.runs - CREEP_RUNS - 5))
        return np.log1p(CREEP) * np.clip(np.arange(args.runs) - at, 0, CREEP_RUNS), at

    def dated(found: tuple[CaseShift, ...], at: int) -> bool:
        return len(found) == 1 and not found[0].drift and abs(found[0].after - at) <= 1

    def told(found: tuple[CaseShift, ...], at: int) -> bool:
        """One drift, whose span covers most of the ten runs, and whose size is right by a third."""
        if len(found) != 1 or not found[0].drift:
            return False
        over = min(found[0].after, at + CREEP_RUNS) - max(found[0].before, at)
        return over >= CREEP_RUNS // 2 and abs(found[0].size / ((1 + CREEP) ** CREEP_RUNS - 1) - 1) < 1 / 3

    def rows_of(kind: str) -> dict[str, dict[str, float | int]]:
        row = {"step_dated": count(kind, args, stepped, dated)}
        if kind != "times":
            row["false_steps"] = count(kind, args, flat, lambda found, at: bool(found))
        if kind in ("anchor", "unchanged"):
            row["creep_told"] = count(kind, args, crept, told)
        return row

    rows = earlier(args)
    for kind in [k for k in KINDS if k in args.kinds.split(",") and k not in rows]:
        rows[kind] = rows_of(kind)
        print(kind, rows[kind], flush=True)
        write(args, rows)


def earlier(args: argparse.Namespace) -> dict[str, dict[str, dict[str, float | int]]]:
    """The rows of a file that was made with the same numbers of seeds, series and runs."""
    if not args.out.exists():
        return {}
    made = json.loads(args.out.read_text())
    asked = {"seeds": args.seeds, "series": args.series, "runs": args.runs}
    return made["rows"] if asked.items() <= made.items() else {}


def write(args: argparse.Namespace, rows: dict[str, dict[str, dict[str, float | int]]]) -> None:
    """What is known so far: the file is whole after each kind of history."""
    made = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "environment": {"python": platform.python_version(), "numpy": np.__version__},
        "false_rate_of_a_set": FALSE_RATE,
        "noise": {"process": PROCESS_SD, "session": SESSION_SD, "host": HOST_SD},
        "planted": {"step": STEP, "creep": CREEP, "creep_runs": CREEP_RUNS},
        "runs": args.runs,
        "series": args.series,
        "seeds": args.seeds,
        "rows": rows,
    }
    args.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
