"""Judges pairs on a GPU, twice in fresh processes: are the speed-ups the same, and how long does a verdict take?

    python -m benchmarks.judge.on_gpu OUT.json [--rounds 2] [--only NAME] [--exploits] [--seconds 500]

With ``--exploits`` also the corpus, and exploits that need a GPU's clock: none may be FASTER. What the time doesn't
suffice for is counted. Seconds are from the draw of the seeds on, when all is compiled and recorded.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import harness
from benchmarks.judge.cases import Case, exploit_cases
from kerntune.referee.candidate_speed import GpuSpeeds
from kerntune.referee.judgement import Bench, CandidateJudgement, judge
from kerntune.referee.sealed_process import SealedProcesses
from kerntune.referee.sealing import landlock_version

LARGE = "x: f32[8388608]; y: f32[8388608]"
ROWS = "x: f16[4096,2048]"

PAIRS = (
    ("add", "honest.py::add", "references.py::add", LARGE),
    ("gelu", "honest.py::gelu", "references.py::gelu", "x: bf16[8388608]"),
    ("swiglu", "honest.py::swiglu", "references.py::swiglu", "x: bf16[8388608]; y: bf16[8388608]"),
    ("relu_", "honest.py::relu_", "references.py::relu_", "x: f32[8388608]"),
    ("softmax", "honest.py::softmax", "references.py::softmax", ROWS),
    ("layer_norm", "honest.py::layer_norm", "references.py::layer_norm", f"{ROWS}; w: f16[2048]; b: f16[2048]"),
    ("rms_norm", "honest.py::rms_norm", "references.py::rms_norm", "x: bf16[4096,2048]; w: bf16[2048]"),
    ("matmul", "honest.py::matmul", "references.py::matmul", "a: f16[1024,1024]; b: f16[1024,1024]"),
    ("transpose", "honest.py::transpose", "references.py::transpose", "x: f16[2048,4096]"),
    ("embedding", "honest.py::embedding", "references.py::embedding", "idx: i64[8192] < 32000; table: f16[32000,512]"),
    ("cross_entropy", "honest.py::cross_entropy", "references.py::cross_entropy",
     "x: f32[2048,8192]; t: i64[2048] < 8192"),
    ("small_softmax", "honest.py::softmax", "references.py::softmax", "x: f16[128,256]"),
    ("t:add", "honest.py::add", "honest.py::heuristic_add", LARGE),
    ("t:same_add", "honest.py::add", "honest.py::add", LARGE),
    ("t:persistent_add", "honest.py::persistent_add", "honest.py::add", "x: f32[65536]; y: f32[65536]"),
    ("t:same_softmax", "honest.py::softmax", "honest.py::softmax", ROWS),
    ("t:split_k", "honest.py::split_k_workspace", "honest.py::matmul", "a: f16[256,4096]; b: f16[4096,256]"),
    ("t:atomic", "honest.py::split_k_atomic", "honest.py::matmul", "a: f32[512,512]; b: f32[512,512]"),
    ("t:small_add", "honest.py::add", "honest.py::heuristic_add", "x: f32[20000]; y: f32[20000]"),
    ("t:log_softmax", "honest.py::log_softmax", "honest.py::log_softmax", "x: f16[8192,1024]"),
)  # fmt: skip
"""Name, candidate, reference and inputs; the reference of those with ``t:`` launches Triton's kernels alone."""

CLOCKED = ("leaves_out_a_tenth", "leaves_out_half", "done_flag")


def judged(bench: Bench, case: Case, budget: float) -> dict[str, Any]:
    """One verdict as a row."""
    spent = 0.0
    recorded = CandidateJudgement._recorded

    def timed(self: CandidateJudgement, *args: Any) -> Any:
        nonlocal spent
        begin = time.monotonic()
        try:
            return recorded(self, *args)
        finally:
            spent += time.monotonic() - begin

    roles: Counter[str] = Counter()
    ask = SealedProcesses.ask

    def asked(self: SealedProcesses, role: str, *args: Any, **words: Any) -> Any:
        begin = time.monotonic()
        try:
            return ask(self, role, *args, **words)
        finally:
            roles[role] += time.monotonic() - begin
            roles[f"{role} processes"] += 1

    begin = time.monotonic()
    with (
        mock.patch.object(CandidateJudgement, "_recorded", timed),
        mock.patch.object(SealedProcesses, "ask", asked),
    ):
        verdict = judge(*case.files, case.inputs, bench=bench, budget=budget)
    shape = verdict.shapes[0]
    seconds = time.monotonic() - begin
    return {
        "name": case.name, "family": case.family, "verdict": verdict.word.value,
        "reason": None if verdict.reason is None else verdict.reason.value, "text": shape.text,
        "speedup": shape.speedup, "reference_ns": shape.reference_ns, "candidate_ns": shape.candidate_ns,
        "warm": shape.warm, "bandwidth": shape.bandwidth, "must_move": shape.must_move,
        "launches": [(x.kernel, x.ns) for x in shape.launches], "remarks": shape.remarks,
        "seconds": round(seconds - spent, 2), "recording_seconds": round(spent, 2),
        "roles": {name: round(value, 2) for name, value in roles.items()},
    }  # fmt: skip


def main() -> int:
    """Judge, print a line each, write the file as rows come."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--exploits", action="store_true")
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=1e6)
    args = parser.parse_args()
    pairs = [Case(name, "pair", a, b, (line,)) for name, a, b, line in PAIRS]
    clocked = [Case(n, "clock", f"exploits/on_gpu.py::{n}", "references.py::softmax", (ROWS,)) for n in CLOCKED]
    clocked.append(Case("structure_seen", "content", "exploits/structure_seen.py", "structured_task.py", ()))
    rounds = [list(pairs) for _ in range(args.rounds)]
    if args.exploits:
        rounds.append([*clocked, *exploit_cases()])
    end, rows, left = time.monotonic() + args.seconds, [], 0
    for number, cases in enumerate(rounds):
        bench = Bench(bool(landlock_version()), GpuSpeeds())
        try:
            bench.start()
            for case in cases:
                if args.only and case.name not in args.only:
                    continue
                if time.monotonic() > end:
                    left += 1
                    continue
                row = {"round": number, **judged(bench, case, args.budget)}
                rows.append(row)
                print(json.dumps(row), flush=True)
                report = summary(rows, left, bench)
                harness.write(args.out, {**report, "rows": rows})
        finally:
            bench.close()
    print(json.dumps(summary(rows, left, bench), indent=1))
    return 0


def summary(rows: list[dict[str, Any]], left: int, bench: Bench) -> dict[str, Any]:
    """How far the two rounds' speed-ups are apart, and what exploits got."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["family"] == "pair" and row["speedup"] is not None:
            by_name.setdefault(row["name"], []).append(row)
    both = {n: r for n, r in by_name.items() if len(r) >= 2}
    apart = {n: abs(r[0]["speedup"][0] / r[1]["speedup"][0] - 1) for n, r in both.items()}
    limit = {n: 0.008 if min(r[0]["candidate_ns"], r[0]["reference_ns"]) < 5_000 else 0.002 for n, r in both.items()}
    exploits = [row for row in rows if row["family"] != "pair"]
    return {
        "environment": harness.environment(commit=harness.commit(), device=bench.speeds.device),
        "sealed": bench.sealed, "pairs_judged_twice": len(both),
        "within_limit": sum(apart[n] <= limit[n] for n in apart),
        "apart_percent": {n: round(100 * a, 3) for n, a in apart.items()},
        "seconds_most": max((row["seconds"] for row in rows if row["family"] == "pair"), default=None),
        "exploits": len(exploits), "exploits_faster": [r["name"] for r in exploits if r["verdict"] == "FASTER"],
        "left_out_for_time": left,
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
