"""``kerntune.tune_many`` under random kills and restarts, and what handing out costs. No GPU.

    python -m benchmarks.tune_many benchmarks/results/tune_many.json [--rounds 8] [--keys 40] [--pools 2]
    python -m benchmarks.tune_many benchmarks/results/tune_many_h200.json --real --keys 64    (on one GPU, then on two)

*Kills.* Each round tunes ``keys`` on ``pools`` scripted GPUs with a cache of its own. Processes that tune are killed at
random moments (SIGKILL), and the command itself gets Ctrl-C (SIGINT) once, after which it is started again, until it
ends by itself. Every key must have a winner then; a key may have been begun once more for each death of a process that
had it, and for the Ctrl-C that ended it; never more. *Handing out.* Jobs of a fixed time that only sleep, on 2 to 64
processes: the share of the time that these sleep. Results are written after each round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODULE = "benchmarks.tune_many"
LIMIT_S = 300.0
WORK_S = 0.5
INTERRUPTED = 130
SIZES = (2, 8, 32, 64)


def once(keys: int, pools: int) -> int:
    """The command that is killed: tune all keys."""
    from benchmarks.tune_many_kernels import jobs
    from kerntune.tuning.many.outcome import Ended
    from kerntune.tuning.many.tune_many import tune_many

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    described = jobs(keys)
    os.environ["KERNTUNE_BENCHMARK_WORKER"] = "1"  # its processes have scripted GPUs
    print("ready", flush=True)
    try:
        done = tune_many(described, gpus=list(range(pools)), paths=(str(ROOT),), progress=False)
    except KeyboardInterrupt:
        return INTERRUPTED
    print(json.dumps({e.value: done.count(e) for e in Ended}), flush=True)
    return 0 if not done.failed else 1


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has had, also one that has ended and was not waited for."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Run:
    """One round: what was begun and ended, who was killed."""

    def __init__(self, folder: Path, args: argparse.Namespace, seed: int) -> None:
        self.folder, self.args, self.random = folder, args, random.Random(seed)
        self.log = folder / "log"
        self.killed: set[int] = set()
        self.interrupted: set[int] = set()
        self.ends_s: list[float] = []
        self.ends_cpu_s: list[float] = []
        self.moments = sorted(self.random.randrange(args.keys) for _ in range(args.kills))
        self.half = self.random.uniform(0.2, 0.8) * args.keys

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def start(self) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "KERNTUNE_CACHE_DIR": str(self.folder / "cache"),
            "TRITON_CACHE_DIR": str(self.folder.parent / "triton"),
            "KERNTUNE_BENCHMARK_LOG": str(self.log),
            "KERNTUNE_BENCHMARK_SECONDS": "0.2",
        }
        words = [sys.executable, "-m", MODULE, "--once", "--keys", str(self.args.keys), "--pools", str(self.args.pools)]
        return subprocess.Popen(words, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE)

    def under_way(self) -> dict[int, int]:
        """Processes that tune now, with their keys."""
        found: dict[int, int] = {}
        for what, key, pid in self.lines():
            if what == "begin":
                found[int(pid)] = int(key)
            else:
                found.pop(int(pid), None)
        return {pid: key for pid, key in found.items() if pid not in self.killed | self.interrupted}

    def play(self) -> dict[str, Any]:
        begin, starts, interrupts = time.monotonic(), 0, 1
        code: int | None = None
        while code != 0 and time.monotonic() - begin < LIMIT_S and starts < 10:
            process, starts = self.start(), starts + 1
            code = self.disturb(process, interrupts > 0)
            interrupts -= code == INTERRUPTED
        return {**self.result(), "starts": starts, "last code": code, "seconds": round(time.monotonic() - begin, 1)}

    def disturb(self, process: subprocess.Popen[str], interrupt: bool) -> int:
        """Kill a process that tunes whenever so many keys are done, and send one Ctrl-C, until the command ends; its
        exit code."""
        while process.poll() is None:
            time.sleep(self.random.uniform(0.0, 0.3))
            done = sum(what == "end" for what, _, _ in self.lines())
            victims = list(self.under_way())
            if not victims:
                continue
            if interrupt and done >= self.half:
                self.interrupted.update(victims)
                at, cpu = time.monotonic(), cpu_of(process.pid)
                process.send_signal(signal.SIGINT)
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                self.ends_s.append(round(time.monotonic() - at, 2))
                self.ends_cpu_s.append(round(cpu_of(process.pid) - cpu, 2))
            elif self.moments and done >= self.moments[0]:
                self.moments.pop(0)
                victim = self.random.choice(victims)
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed.add(victim)
        return process.wait()

    def result(self) -> dict[str, Any]:
        from kerntune.tuning.cache import WinnerCache

        begun, ended = Counter[int](), Counter[int]()
        excused = Counter[int]()
        for what, key, pid in self.lines():
            (begun if what == "begin" else ended)[int(key)] += 1
            last = int(pid) in self.killed | self.interrupted
            excused[int(key)] += (1 if what == "begin" else -1) if last else 0
        winners = {w.key.arguments for w in WinnerCache(self.folder / "cache").entries()}
        return {
            "keys": self.args.keys,
            "winners": len(winners),
            "lost": self.args.keys - len(winners),
            "processes killed": len(self.killed),
            "begun more than once": sum(n > 1 for n in begun.values()),
            "tuned twice": sum(n > 1 for n in ended.values()),
            "begun again without a death": sum(n > 1 + excused[key] for key, n in begun.items()),
            "seconds from Ctrl-C to the end": self.ends_s,
            "of these, seconds of CPU": self.ends_cpu_s,
            "load of the machine": round(os.getloadavg()[0], 1),
        }


def kills(args: argparse.Namespace, write: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="kerntune-many-") as scratch:
        for number in range(args.rounds):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            write("kills", Run(folder, args, number).play())


def nap(data: bytes) -> bytes:
    """A job that only takes its time. Its processes import nothing of Triton or torch: 64 start on few cores."""
    job = json.loads(data)["job"]
    time.sleep(WORK_S)
    return json.dumps({"job": job["kernel"], "kernel": job["kernel"], "key": job["key"], "ended": "tuned"}).encode()


def handing_out(write: Any) -> None:
    from kerntune.base.tuning_job import SCHEMA, TuningJob
    from kerntune.tuning.many.gpu_pools import GpuPools
    from kerntune.tuning.many.hand_out import HandOut
    from kerntune.tuning.many.outcome import JobRequest

    for size in SIZES:
        with GpuPools([str(n) for n in range(size)]) as pools:
            begin = time.perf_counter()
            [f.result() for f in [pools.submit(time.sleep, 3.0) for _ in range(size)]]
            started = time.perf_counter() - begin - 3.0
            requests = [JobRequest(TuningJob(SCHEMA, "m", f"k{n}", key="k" * 200)) for n in range(8 * size)]
            begin, cpu = time.perf_counter(), time.process_time()
            assert len(list(HandOut(requests, pools, function=nap))) == len(requests)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        write(
            "handing out",
            {
                "processes": size,
                "jobs": len(requests),
                "seconds of each": WORK_S,
                "seconds": round(seconds, 2),
                "efficiency": round(8 * WORK_S / seconds, 3),
                "start-up in seconds": round(started, 1),
                "load of the machine": round(os.getloadavg()[0], 1),
                "CPU of the handing process for each job in ms": round(1e3 * cpu / len(requests), 3),
            },
        )


def real(args: argparse.Namespace, write: Any) -> None:
    """64 keys on one GPU, then on both: throughput with the start-up apart."""
    from benchmarks.tune_many_kernels import jobs
    from kerntune.tuning.many.tune_many import tune_many

    for gpus in ([0], [0, 1]):
        with tempfile.TemporaryDirectory(prefix="kerntune-many-") as scratch:
            os.environ["KERNTUNE_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = f"{scratch}/winners", f"{scratch}/triton"
            begin = time.perf_counter()
            ends: list[float] = []
            tell = partial(_note_end, ends, begin)
            done = tune_many(jobs(args.keys), gpus=gpus, paths=(str(ROOT),), tell=tell)
            write(
                "real",
                {
                    "gpus": len(gpus),
                    "keys": args.keys,
                    "first key after": round(ends[0], 2),
                    "keys a second after it": round((len(ends) - len(gpus)) / (ends[-1] - ends[0]), 3),
                    "failed": [o.error for o in done.failed],
                    "device": done.outcomes[0].device,
                },
            )


def _note_end(ends: list[float], begin: float, outcome: object) -> None:
    ends.append(time.perf_counter() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--pools", type=int, default=2)
    parser.add_argument("--kills", type=int, default=4, help="processes that are killed in a round, at random keys")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        return once(args.keys, args.pools)
    found: dict[str, Any] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "settings": {k: v for k, v in vars(args).items() if k not in ("output", "once")},
    }

    def write(part: str, row: dict[str, Any]) -> None:
        found.setdefault(part, []).append(row)
        print(part, row, flush=True)
        if args.output:
            Path(args.output).write_text(json.dumps(found, indent=1) + "\n")

    if args.real:
        real(args, write)
        return 0
    kills(args, write)
    handing_out(write)
    rounds = found["kills"]
    wrong = ("lost", "tuned twice", "begun again without a death", "last code")
    bad = [r for r in rounds if any(r[name] for name in wrong) or r["starts"] < 2]  # Ctrl-C ended none
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
