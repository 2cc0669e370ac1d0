"""Judges pairs on a GPU, twice in fresh processes: are the speed-ups the same, and how long does a verdict take?

    python -m benchmarks.judge.on_gpu OUT.json [--rounds 2] [--budget 6] [--only NAME] [--seconds 430]
    python -m benchmarks.judge.on_gpu OUT.json --rounds 0 --exploits [--honest] [--together 3] [--share 0/2] [--skip X]
    python -m benchmarks.judge.on_gpu OUT.json --rounds 0 --packages [--together 3]
    python -m benchmarks.judge.on_gpu OUT.json --join SHARE.json SHARE.json

All pairs are judged once, then all again, one by one. With ``--exploits`` also the corpus, and exploits that need a
GPU's clock: none may be FASTER, and those that were found right are named; with ``--honest`` the corpus' honest
candidates; with ``--packages`` kernels of installed packages, and calls of them with a planted error. These are judged
some at a time, without the lock: speeds need not be precise. Two GPUs judge a share each (``CUDA_VISIBLE_DEVICES``);
what an earlier result has can be left out (``--skip X.json``). What the time doesn't suffice for is counted. The file
is written after each verdict. Seconds of a verdict are without those of recording and compiling. ``timeline`` has each
sealed process with the seconds of its begin and end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import queue
import statistics
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from benchmarks import harness
from benchmarks.judge.cases import Case, exploit_cases, honest_cases
from benchmarks.judge.package_cases import package_cases
from kerntune.gpu import device_lock
from kerntune.referee import candidate_speed, content_errors, judgement, replay_comparer
from kerntune.referee.candidate_speed import GpuSpeeds
from kerntune.referee.judgement import Bench, CandidateJudgement, judge
from kerntune.referee.prewarmed import PrewarmedProcesses
from kerntune.referee.sealed_process import Answered, use_freed_memory_again
from kerntune.referee.sealing import landlock_version
from kerntune.referee.tasks import TimeAnswer
from kerntune.timing.paired_processes import by_place

LARGE = "x: f32[8388608]; y: f32[8388608]"
ROWS = "x: f16[4096,2048]"

PAIRS = (
    ("add", "honest.py::add", "add", LARGE),
    ("gelu", "honest.py::gelu", "gelu", "x: bf16[8388608]"),
    ("swiglu", "honest.py::swiglu", "swiglu", "x: bf16[8388608]; y: bf16[8388608]"),
    ("relu_", "honest.py::relu_", "relu_", "x: f32[8388608]"),
    ("softmax", "honest.py::softmax", "softmax", ROWS),
    ("layer_norm", "honest.py::layer_norm", "layer_norm", f"{ROWS}; w: f16[2048]; b: f16[2048]"),
    ("rms_norm", "honest.py::rms_norm", "rms_norm", "x: bf16[4096,2048]; w: bf16[2048]"),
    ("matmul", "honest.py::matmul", "matmul", "a: f16[1024,1024]; b: f16[1024,1024]"),
    ("transpose", "honest.py::transpose", "transpose", "x: f16[2048,4096]"),
    ("embedding", "honest.py::embedding", "embedding", "idx: i64[8192] < 32000; table: f16[32000,512]"),
    ("cross_entropy", "honest.py::cross_entropy", "cross_entropy",
     "x: f32[2048,8192]; t: i64[2048] < 8192"),
    ("small_softmax", "honest.py::softmax", "softmax", "x: f16[128,256]"),
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


EXPLOIT_RECORD_SECONDS = 20.0
"""Some hang: a recording has two minutes otherwise."""

RIGHT = ("FASTER", "SAME", "SLOWER", "UNDECIDED", "UNTIMED")


class Watch:
    """What a verdict's processes do, and when: seconds from the verdict's begin."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.timeline: list[tuple[str, float, float]] = []
        self.stages: list[dict[str, float]] = []
        """Of the timing processes."""

        self.ratios: list[list[float]] = []
        """The candidate's time by the reference's, of each of them at each placement."""

        self.timed_as: set[str] = set()
        self.printed: list[str] = []
        self.recording = 0.0

    def now(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self._began

    def note(self, role: str, begin: float, answered: Answered) -> None:
        """A process has ended."""
        with self._lock:
            self.timeline.append((role, round(begin, 2), round(self.now(), 2)))
            if answered.printed.strip():
                self.printed.append(f"{role}: {answered.printed[-2000:]}")
            if role == "time" and answered.data is not None:
                answer = msgspec.msgpack.decode(answered.data, type=TimeAnswer)
                self.stages.append({name: round(seconds, 2) for name, seconds in answer.stages.items()})
                self.timed_as.add(answer.timed_as)
                ratios = [b / a for a, b in zip(answer.reference_ns, answer.candidate_ns, strict=True)]
                self.ratios.append([round(statistics.median(x), 5) for x in by_place(ratios, answer.placements)])

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Held meanwhile."""
        ask, recorded = PrewarmedProcesses.ask, CandidateJudgement._recorded

        def noted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
            def doing(*args: Any, **words: Any) -> Any:
                begin = self.now()
                found = work(*args, **words)
                found = list(found) if isinstance(found, Iterator) else found
                with self._lock:
                    self.timeline.append((name, round(begin, 2), round(self.now(), 2)))
                return found

            return doing

        def asked(processes: PrewarmedProcesses, role: str, *args: Any, **words: Any) -> Answered:
            begin = self.now()
            answered = ask(processes, role, *args, **words)
            self.note(role, begin, answered)
            return answered

        def recording(judging: CandidateJudgement, *args: Any, **words: Any) -> Any:
            begin = self.now()
            try:
                return recorded(judging, *args, **words)
            finally:
                self.recording += self.now() - begin

        with (
            mock.patch.object(PrewarmedProcesses, "ask", asked),
            mock.patch.object(CandidateJudgement, "_recorded", recording),
            mock.patch.object(replay_comparer, "contents_of", noted("contents", replay_comparer.contents_of)),
            mock.patch.object(content_errors, "errors_of", noted("errors", content_errors.errors_of)),
        ):
            yield


def judged(bench: Bench, case: Case, budget: float, alone: bool) -> dict[str, Any]:
    """One verdict as a row; what its processes do is watched where no other is made meanwhile."""
    watch = Watch()
    with watch.watching() if alone else contextlib.nullcontext():
        verdict = judge(*case.files, case.inputs, bench=bench, budget=budget)
    seconds = watch.now()
    shape = next((s for s in verdict.shapes if s.word is verdict.word), verdict.shapes[0])
    usual = verdict.word.value in RIGHT and not shape.text and watch.timed_as <= {"replayed", "unrolled"}
    told = {} if usual else {"printed": watch.printed}
    return {
        "name": case.name, "family": case.family, "verdict": verdict.word.value,
        "reason": None if verdict.reason is None else verdict.reason.value, "text": shape.text,
        "speedup": shape.speedup, "reference_ns": shape.reference_ns, "candidate_ns": shape.candidate_ns,
        "timed_as": sorted(watch.timed_as), "warm": shape.warm, "bandwidth": shape.bandwidth,
        "must_move": shape.must_move, "launches": [(x.kernel, x.ns) for x in shape.launches], "remarks": shape.remarks,
        "seconds": round(seconds - watch.recording, 2), "recording_seconds": round(watch.recording, 2),
        "timeline": sorted(watch.timeline, key=lambda x: x[1]), "stages": watch.stages,
        "ratios": watch.ratios, **told,
    }  # fmt: skip


def row_of(bench: Bench, case: Case, budget: float, alone: bool) -> dict[str, Any]:
    """The same; where the judge itself fails, with the whole traceback."""
    try:
        return judged(bench, case, budget, alone)
    except Exception:
        found = traceback.format_exc()
        print(found, file=sys.stderr, flush=True)
        return {"name": case.name, "family": case.family, "verdict": "ERROR", "speedup": None, "text": found}


def line_of(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    speedup = " ".join(f"{x:.4f}" for x in row["speedup"] or ())
    how = ",".join(row.get("timed_as", ()))
    parts = [f"{row['verdict']:9} {row['name']:18} {speedup:20} {how:12} {row.get('seconds', 0):5} s"]
    parts += [f"{row[key]}" for key in ("reason", "text", "printed", "timeline", "stages") if row.get(key)]
    return "  ".join(parts)


def main() -> int:
    """Judge, print a line each, write the file as rows come."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--exploits", action="store_true")
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--packages", action="store_true")
    parser.add_argument("--budget", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=430.0)
    parser.add_argument("--together", type=int, default=3)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--skip", type=Path)
    parser.add_argument("--join", type=Path, nargs="+")
    args = parser.parse_args()
    if args.join:
        return join(args.out, [json.loads(path.read_text(encoding="utf-8")) for path in args.join])
    share, shares = map(int, args.share.split("/"))
    known = {row["name"] for row in json.loads(args.skip.read_text(encoding="utf-8"))["rows"]} if args.skip else set()
    use_freed_memory_again()  # as the command does
    end, rows, left = time.monotonic() + args.seconds, list[dict[str, Any]](), 0
    pairs = [Case(name, "pair", a, b, (line,)) for name, a, b, line in PAIRS]
    rounds = [list(pairs) for _ in range(args.rounds)]
    if args.honest:
        rounds.append(honest_cases())
    if args.packages:
        rounds.append(package_cases())
    if args.exploits:
        clocked = [Case(n, "clock", f"exploits/on_gpu.py::{n}", "softmax", (ROWS,)) for n in CLOCKED]
        clocked.append(Case("structure_seen", "content", "exploits/structure_seen.py", "structured_task.py", ()))
        rounds.append([*clocked, *exploit_cases()])
    for number, cases in enumerate(rounds):
        wanted = [c for c in cases if c.name not in known and (not args.only or c.name in args.only)][share::shares]
        corpus = number >= args.rounds
        with contextlib.ExitStack() as stack:
            if corpus:
                stack.enter_context(together())
            benches = [Bench(bool(landlock_version()), GpuSpeeds()) for _ in range(args.together if corpus else 1)]
            for bench in benches:
                stack.callback(bench.close)
            for bench in benches:
                bench.start()
            about = environment(benches[0])
            for row in rows_of(benches, wanted, args.budget, end):
                if row is None:
                    left += 1
                else:
                    rows.append({"round": number, **row})
                    print(line_of(rows[-1]), flush=True)
                harness.write(args.out, {**about, **summary(rows, left), "rows": rows})
    print(json.dumps(summary(rows, left), indent=1))
    return 0


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Held while verdicts are made beside each other: nothing waits for the others' times, and no process opens the GPU
    early, since most exploits need none."""
    with (
        mock.patch.object(candidate_speed, "ROOMY", math.inf),
        mock.patch.object(judgement, "RECORD_SECONDS", EXPLOIT_RECORD_SECONDS),
        mock.patch.object(device_lock, "hold", return_value=contextlib.nullcontext()),
    ):
        yield


def join(out: Path, found: list[dict[str, Any]]) -> int:
    """One file of several shares', each row with its share's commit; of two with one name the later share's."""
    about = {name: found[-1][name] for name in ("environment", "sealed")}
    by_case = {
        (row["name"], row["round"] if row["family"] == "pair" else 0): {"commit": share["environment"]["commit"], **row}
        for share in found
        for row in share["rows"]
    }
    rows = list(by_case.values())
    judged_names = {row["name"] for row in rows}
    left = sum(case.name not in judged_names for case in (*honest_cases(), *exploit_cases()))
    harness.write(out, {**about, **summary(rows, left), "rows": rows})
    return 0


def environment(bench: Bench) -> dict[str, Any]:
    """Where it ran."""
    found = harness.environment(commit=harness.commit(), device=bench.speeds.device)
    return {"environment": found, "sealed": bench.sealed}


def rows_of(
    benches: Sequence[Bench], cases: Sequence[Case], budget: float, end: float
) -> Iterator[dict[str, Any] | None]:
    """A row a case, as many at a time as there are benches; None for what there is no time for."""
    free = queue.SimpleQueue[Bench]()
    for bench in benches:
        free.put(bench)

    def one(case: Case) -> dict[str, Any] | None:
        if time.monotonic() > end:
            return None
        bench = free.get()
        try:
            return row_of(bench, case, budget, alone=len(benches) == 1)
        finally:
            free.put(bench)

    with ThreadPoolExecutor(len(benches)) as threads:
        for future in as_completed([threads.submit(one, case) for case in cases]):
            yield future.result()


def summary(rows: list[dict[str, Any]], left: int) -> dict[str, Any]:
    """How far the two rounds' speed-ups are apart, and what exploits got."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["family"] == "pair" and row["speedup"] is not None:
            by_name.setdefault(row["name"], []).append(row)
    both = {n: r for n, r in by_name.items() if len(r) >= 2}
    apart = {n: abs(r[0]["speedup"][0] / r[1]["speedup"][0] - 1) for n, r in both.items()}
    limit = {n: 0.008 if min(r[0]["candidate_ns"], r[0]["reference_ns"]) < 5_000 else 0.002 for n, r in both.items()}
    pairs, honest, exploits = ([r for r in rows if kind(r) == k] for k in ("pair", "honest", "exploit"))
    return {
        "pairs_judged_twice": len(both),
        "within_limit": sum(apart[n] <= limit[n] for n in apart),
        "beyond_limit": [n for n in apart if apart[n] > limit[n]],
        "apart_percent": {n: round(100 * a, 3) for n, a in apart.items()},
        "seconds_most": max((row["seconds"] for row in pairs if "seconds" in row), default=None),
        "above_10_seconds": [row["name"] for row in pairs if row.get("seconds", 0) > 10],
        "honest": len(honest), "honest_verdicts": dict(Counter(r["verdict"] for r in honest)),
        "exploits": len(exploits), "exploit_verdicts": dict(Counter(r["verdict"] for r in exploits)),
        "exploits_faster": [r["name"] for r in exploits if r["verdict"] == "FASTER"],
        "exploits_right": [r["name"] for r in exploits if r["verdict"] in RIGHT],
        "errors": [r["name"] for r in rows if r["verdict"] == "ERROR"],
        "left_out_for_time": left,
    }  # fmt: skip


def kind(row: dict[str, Any]) -> str:
    """A pair, an honest candidate, or an exploit."""
    return row["family"] if row["family"] in ("pair", "honest") else "exploit"


if __name__ == "__main__":
    raise SystemExit(main())
