"""Judges the corpus without a GPU, or with the speeds of a scripted one, and writes what each candidate got.

``python -m benchmarks.judge.corpus [--only NAME] [OUT.json]``
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
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
    shape = next((s for s in verdict.shapes if s.word is verdict.word), verdict.shapes[0])
    return {
        "name": case.name,
        "family": case.family,
        "verdict": verdict.word.value,
        "reason": None if verdict.reason is None else verdict.reason.value,
        "text": shape.text,
        "seconds": round(time.monotonic() - began, 1),
    }


def line_of(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    start = f"{row['verdict']:9} {row['reason'] or '':16} {row['family']:28} {row['name']:20}"
    return f"{start} {row['seconds']:5}  {row['text'][:110]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Judge, print a line each, write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("out", nargs="?")
    args = parser.parse_args(argv)
    bench, rows = scripted_bench(), []
    try:
        for case in [*honest_cases(), *exploit_cases()]:
            if not args.only or case.name in args.only or case.family in args.only:
                row = judged(bench, case)
                rows.append(row)
                print(line_of(row), flush=True)
    finally:
        bench.close()
    honest = [r for r in rows if r["family"] == "honest"]
    exploits = [r for r in rows if r["family"] != "honest"]
    result = {
        "environment": environment(),
        "speeds": "scripted",
        "honest": {"count": len(honest), "speed_verdicts": sum(r["verdict"] in SPEED_WORDS for r in honest),
                   "wrong": sum(r["verdict"] == "WRONG" for r in honest)},
        "exploits": {"count": len(exploits), "families": len({r["family"] for r in exploits}),
                     "verdicts": dict(Counter(r["verdict"] for r in exploits)),
                     "accepted": [r["name"] for r in exploits if r["verdict"] == "FASTER"]},
        "rows": rows,
    }  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}, indent=1))
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
