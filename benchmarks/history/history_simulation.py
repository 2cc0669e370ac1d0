"""How often a history tells of steps that aren't there, and how well it dates those that are: simulated series.

    python -m benchmarks.history.history_simulation OUT.json [--seeds 20] [--series 1000] [--runs 200]
        [--kinds chain,times]
    python -m benchmarks.history.history_simulation OUT.json --flat 400

Noise as measured on an H200 (docs/verdicts.md): a session's times differ by 1.5 %, processes by 0.1 %, hosts by 3 %. A
paired change sees the processes alone: both sides run in the same session on the same host. What is simulated goes
through ``kerntune.gate.history.series.found_in`` as stored runs do. Four kinds of history: against one anchor; against
baselines that are recorded anew every 25 runs; against the run before (a chain); and half of the runs with unchanged
code. Unpaired times are beside them for comparison. Needs no GPU and no quiet machine: nothing is timed. A row is
written as soon as it is known, and a later call goes on with the rows that ``OUT.json`` lacks.

``--flat`` makes only the part ``flat`` of the file: flat cases whose processes are 0.05 to 1 % apart, normal, in two
states or skewed, while 0.1 % is what their calibrations know. Each run's value and standard deviation come from
simulated processes through ``kerntune.timing.paired_processes.pooled``, as a run's interval does.
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

from benchmarks import harness
from benchmarks.verdicts.simulate_verdicts import SHAPES, UNKNOWN_SDS, World, biases
from kerntune.gate.history.points import shift_of
from kerntune.gate.history.series import LEAST_SD, CaseShift, ChangeSeries, found_in
from kerntune.gate.history.summary import FALSE_RATE
from kerntune.timing.paired_processes import BLOCKS, PROCESSES, SHOWN_LEVEL, pooled

PROCESS_SD = 0.001
SESSION_SD = 0.015
HOST_SD = 0.03

STEP = 0.015
CREEP = 0.003
CREEP_RUNS = 10
REFRESH = 25

FLAT = (("anchor", 6), ("anchor", 60), ("chain", 30))
"""Kinds and lengths of flat histories."""

BANK, BLOCK_SD = 1000, 0.0025
"""Runs of which the flat cases are drawn, and the standard deviation of a block's ratio."""

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


def points(world: World, bias: float | None, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard deviations of runs of a flat case, of a first look each."""
    errors = biases(rng, world, (count, PROCESSES, 1)) + rng.normal(0, BLOCK_SD, (count, PROCESSES, BLOCKS))
    shown = [pooled(each, SHOWN_LEVEL, bias) for each in errors.tolist()]
    shifts = [shift_of(one, "reference") for one in shown]
    return np.array([s.value for s in shifts if s]), np.array([s.sd for s in shifts if s])


def flat_case(kind: str, runs: int, value: np.ndarray, sd: np.ndarray, rng: np.random.Generator) -> ChangeSeries:
    """A case of ``runs`` of these points, against one anchor or in a chain."""
    drawn, at, none = rng.integers(0, len(value), runs), np.arange(runs), np.zeros(runs, dtype=int)
    if kind == "anchor":
        return ChangeSeries(at, at + 1, none, none, value[drawn], sd[drawn], none)
    return ChangeSeries(at, at + 2, at + 1, at + 1, value[drawn], sd[drawn], none)


def flat(cases: int) -> dict[str, object]:
    """How many flat cases of a set of one have a move, at the rate that is said."""
    rows, begun = [], harness.commit()
    for index, (sd, shape) in enumerate((sd, shape) for sd in UNKNOWN_SDS for shape in SHAPES):
        rng = np.random.default_rng([1, index])
        for bias, known in ((PROCESS_SD, "0.1 %"), (None, "none")):
            value, deviation = points(World(sd, 0.0, shape=shape), bias, BANK, rng)
            for kind, runs in FLAT:
                made = [flat_case(kind, runs, value, deviation, rng) for _ in range(cases)]
                hits = sum(bool(found_in(one, {}, FALSE_RATE)) for one in made)
                row = {"process_sd": sd, "shape": shape, "calibrated": known, "kind": kind, "runs": runs}
                rows.append({**row, **rate(hits, cases)})
                print(rows[-1], flush=True)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": begun,
        "false_rate": FALSE_RATE,
        "block_sd": BLOCK_SD,
        "rows": rows,
    }


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
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of history, separated by commas")
    parser.add_argument(
        "--flat", type=int, metavar="CASES", help="make only this part of OUT.json, so many cases a row"
    )
    args = parser.parse_args()
    if args.flat:
        made = json.loads(args.out.read_text()) if args.out.exists() else {}
        harness.write(args.out, {**made, "flat": flat(args.flat)})
        return

    def level(rng: np.random.Generator) -> tuple[np.ndarray, int]:
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
            row["false_steps"] = count(kind, args, level, lambda found, at: bool(found))
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
    earlier_parts = json.loads(args.out.read_text()) if args.out.exists() else {}
    made.update({name: part for name, part in earlier_parts.items() if name == "flat"})
    harness.write(args.out, made)


if __name__ == "__main__":
    main()
