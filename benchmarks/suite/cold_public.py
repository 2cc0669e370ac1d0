"""First calls of public kernels, cold: ``triton.autotune`` as it is, and under ``kerntune.install()``, in turn.

    python -m benchmarks.suite.cold_public OUT.json [--cases liger_dyt,fla_l2norm] [--engines triton,kerntune]

Each case (``cold_public_cases.py``) in fresh processes with empty caches; imports, CUDA context and inputs are outside
the time that is taken, and so is ``kerntune.install()``, which begins what any first launch waits for. Needs
liger-kernel, fla-core and einops beside torch, and one GPU. ``winner_ratio`` of a kernel: what kerntune's winner took
by what the stock tuner's winner took, in the stock tuner's own measurements (one ``do_bench`` each: the least of many
is short by chance, and some readings are far out) and in kerntune's. Rows that aren't asked for stay as they are in
OUT.json. ``--again`` only works out the cases of the rows there are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import merge
from benchmarks.suite.children import Child, in_turn

PROGRAM = ("-m", "benchmarks.suite.cold_public_child")
ENGINES = ("triton", "kerntune")


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", default="", help="default: all")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--limit", type=float, default=40.0, help="seconds for one case in one process")
    parser.add_argument("--seconds", type=float, default=230.0, help="no further case is begun after this")
    parser.add_argument("--together", type=int, default=12, help="processes that are prepared at the same time")
    parser.add_argument("--again", action="store_true", help="run nothing")
    return parser.parse_args()


def jobs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Both engines of a case one after the other, the first one alternating."""
    from benchmarks.suite.cold_public_cases import CASES

    found = []
    for i, name in enumerate(options.cases.split(",") if options.cases else CASES):
        for engine in options.engines.split(",")[:: -1 if i % 2 else 1]:
            found.append({"case": name, "engine": engine})
    return found


def rows_of(listed: list[dict[str, Any]], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows as they come: processes are prepared several at a time, and tune one after the other."""
    start, end = partial(Child, program=PROGRAM), time.monotonic() + options.seconds
    for job, found in in_turn(listed, options.together, start, options.limit, end):
        yield {"case": job["case"], "engine": job["engine"], **found}


def cases_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Both engines' rows of a case side by side."""
    found = []
    for name in dict.fromkeys(row["case"] for row in rows):
        both = {row["engine"]: row for row in rows if row["case"] == name and "error" not in row}
        if set(both) >= set(ENGINES):
            found.append(_side_by_side(name, both["triton"], both["kerntune"]))
    return found


def _side_by_side(name: str, stock: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    tuned = {tuner["kernel"]: tuner for tuner in ours["tuners"]}
    lists = {one["kernel"]: len(one["timings_ms"]) or one["configs"] for one in stock["tuners"]}
    ratios = {t["kernel"]: _winner_ratios(t, tuned.get(t["kernel"])) for t in stock["tuners"]}
    return {
        "case": name,
        "configs": lists,
        "triton_s": stock["seconds"],
        "kerntune_s": ours["seconds"],
        "triton_steps_s": stock["steps"],
        "kerntune_steps_s": ours["steps"],
        "times_faster": round(stock["seconds"] / ours["seconds"], 2),
        "winner_ratio": {kernel: ratio for kernel, ratio in ratios.items() if ratio},
        "late": sum(tuner["late"] for tuner in ours["tuners"]),
    }


def _winner_ratios(stock: dict[str, Any], ours: dict[str, Any] | None) -> dict[str, float]:
    """The ratio by engine whose measurements they are; none for an engine that lacks a time of one of the two
    winners."""
    if ours is None:
        return {}
    both = {"triton": stock["timings_ms"], "kerntune": ours["timings_ms"]}
    winners = ours["winner"], stock["winner"]
    return {
        engine: round(timings[winners[0]] / timings[winners[1]], 3)
        for engine, timings in both.items()
        if set(winners) <= timings.keys()
    }


def line(case: dict[str, Any]) -> str:
    """A case on one line of the table."""
    lists = "+".join(map(str, case["configs"].values()))
    steps = " + ".join(f"{s:.2f}" for s in case["kerntune_steps_s"])
    ratios = ["/".join(f"{value:.3f}" for value in one.values()) for one in case["winner_ratio"].values()]
    return (
        f"{case['case']:20} {lists:24} {case['triton_s']:7.2f} s {case['kerntune_s']:6.2f} s ({steps})"
        f" {case['times_faster']:6.2f}x  winner {' '.join(ratios)}  late {case['late']}"
    )


def main() -> int:
    """Run, write after each row, print the table."""
    options = arguments()
    stored = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows: list[dict[str, Any]] = stored.get("rows", [])
    begin = time.perf_counter()
    if options.again:
        merge(options.out, cases=cases_of(rows))
        options.seconds = -1.0
    where = harness.environment(**harness.gpu_environment())
    for row in rows_of(jobs(options), options):
        rows = [r for r in rows if (r["case"], r["engine"]) != (row["case"], row["engine"])] + [row]
        merge(options.out, environment=where, cases=cases_of(rows), rows=rows)
        said = row.get("error") or f"{row['seconds']} s {row['steps']}"
        print(f"[{time.perf_counter() - begin:6.1f}] {row['case']} {row['engine']}: {said}", flush=True)
    print("\n".join(map(line, cases_of(rows))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
