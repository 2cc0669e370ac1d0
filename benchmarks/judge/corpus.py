"""Judges the corpus without a GPU, or with the speeds of a scripted one, and writes what each candidate got.

``python -m benchmarks.judge.corpus [--only NAME] [--together 1] [--seconds 0] [OUT.json]``

``--together``: so many at a time. After so many ``--seconds`` none is begun, and it is said how many are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import takewhile, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.harness import environment
from benchmarks.judge.cases import Case, exploit_cases, honest_cases
from kerntune.base.device import Target, typical_device
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee.candidate_speed import ScriptedSpeeds
from kerntune.referee.judgement import Bench, judge
from kerntune.referee.scripted_pair import LIVE

SPEED_WORDS = ("FASTER", "SLOWER", "SAME", "UNDECIDED")


def scripted_bench() -> Bench:
    """A scripted GPU on which any candidate's launch takes less time than a reference of torch's."""
    rules = [Rule(LIVE, time_ns=500_000.0), Rule("plain_dropout_kernel", time_ns=500_000.0)]
    gpu = FakeGpu(typical_device(Target.parse("cuda:90")), Script(rules))
    return Bench(speeds=ScriptedSpeeds(gpu))


def judged(bench: Bench, case: Case) -> dict[str, Any]:
    """One candidate's verdict as a row of the result."""
    began = time.monotonic()
    verdict = judge(*case.files, case.inputs, bench=bench, budget=20.0)
    remarks = (*verdict.remarks, *(r for s in verdict.shapes for r in s.remarks))
    untold = bool(case.remark) and all(case.remark not in one for one in remarks)
    shape = next((s for s in verdict.shapes if s.word is verdict.word), verdict.shapes[0])
    return {
        "name": case.name,
        "family": case.family,
        "verdict": verdict.word.value,
        "reason": None if verdict.reason is None else verdict.reason.value,
        "text": f"no remark says: {case.remark}" if untold else shape.text,
        "untold": untold,
        "seconds": round(time.monotonic() - began, 1),
    }


def line_of(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    start = f"{row['verdict']:9} {row['reason'] or '':16} {row['family']:28} {row['name']:20}"
    return f"{start} {row['seconds']:5}  {row['text'][:110]}"


def rows_of(cases: Sequence[Case], end: float) -> list[dict[str, Any]]:
    """Verdicts of some candidates, begun until ``end`` (:func:`time.monotonic`); each is printed."""
    bench, rows = scripted_bench(), list[dict[str, Any]]()
    try:
        for case in takewhile(lambda case: time.monotonic() < end, cases):
            rows.append(judged(bench, case))
            print(line_of(rows[-1]), flush=True)
    finally:
        bench.close()
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Judge, print a line each, write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("out", nargs="?")
    args = parser.parse_args(argv)
    every = [*honest_cases(), *exploit_cases()]
    cases = [case for case in every if not args.only or {case.name, case.family} & {*args.only}]
    end = time.monotonic() + (args.seconds or math.inf)
    shares = [cases[i :: args.together] for i in range(args.together)]
    with ProcessPoolExecutor(args.together, get_context("spawn")) as processes:
        parts = list(processes.map(rows_of, shares, [end] * args.together))
    rows = [row for group in zip_longest(*parts) for row in group if row is not None]
    honest = [r for r in rows if r["family"] == "honest"]
    exploits = [r for r in rows if r["family"] != "honest"]
    result = {
        "environment": environment(),
        "speeds": "scripted",
        "honest": {"count": len(honest), "speed_verdicts": sum(r["verdict"] in SPEED_WORDS for r in honest),
                   "wrong": sum(r["verdict"] == "WRONG" for r in honest), "untold": sum(r["untold"] for r in honest)},
        "exploits": {"count": len(exploits), "families": len({r["family"] for r in exploits}),
                     "verdicts": dict(Counter(r["verdict"] for r in exploits)),
                     "accepted": [r["name"] for r in exploits if r["verdict"] == "FASTER"]},
        "left_out_for_time": len(cases) - len(rows),
        "rows": rows,
    }  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}, indent=1))
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
