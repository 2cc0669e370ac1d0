"""Efficiency of ``tune_many`` on 2 to 64 GPUs by the order in which keys are given out, in simulated time.

    python -m benchmarks.hand_out_simulated [--out FILE] [--rounds 3] [--most 64]

The seconds of a key are those of the 64 keys of 8 kernels that one H200 took (``many_gpus_h200.json``, part ``dask``,
one GPU): the kernel's first key, which compiles; a later one; and a later one in a process that meets the kernel there
for the first time, which is the mean of those in the run on both GPUs above the mean of later keys. Each GPU gets 8
kernels of 8 keys, so 64 GPUs have 512 kernels; the kernels' seconds are used in turn, varied at random by a tenth.

``pools``: this host's GPUs, each of which takes what ``WorkByKind`` has for it. ``dask``: workers that do first what
they were asked to do (``submit_on``), then the oldest of the rest; what Dask's work stealing would do is left out.
``first_free``: the same without a preference, as it was before. Start-up and what an executor needs for a job are left
out. Efficiency is the seconds of one GPU for its keys by those of all for theirs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import random
import statistics
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.tuning.many.hand_out import HandOut
from kerntune.tuning.many.job_kind import kind_of
from kerntune.tuning.many.outcome import Ended, JobRequest, KeyOutcome, encoded, request_of
from kerntune.tuning.many.work_by_kind import WorkByKind

RESULT = Path(__file__).parent / "results" / "hand_out_simulated.json"
RECORDED = Path(__file__).parent / "results" / "many_gpus_h200.json"
GPUS = (2, 4, 8, 16, 32, 64)
KERNELS, EACH = 8, 8
"""For each GPU: kernels, and keys of a kernel."""

WAYS = ("pools", "dask", "first_free")
REQUIRED = 0.95


@dataclass(frozen=True)
class Costs:
    """Seconds by kernel of its first key and of later ones, and what a first visit of another process adds."""

    first: Sequence[float]
    later: Sequence[Sequence[float]]
    visit: float


def recorded(path: Path = RECORDED) -> Costs:
    """What an H200 took."""
    sides = json.loads(path.read_text())["dask"]
    one: dict[str, list[float]] = {}
    for kernel, _, seconds in sides["one"]["each"]:
        one.setdefault(kernel, []).append(seconds)
    met, compiled, visits, others = set(), set(), [], []
    for kernel, process, seconds in sides["all"]["each"]:
        if kernel in compiled:
            (others if (kernel, process) in met else visits).append(seconds)
        compiled.add(kernel)
        met.add((kernel, process))
    visit = statistics.mean(visits) - statistics.mean(others) if visits else 0.0
    return Costs([row[0] for row in one.values()], [row[1:] for row in one.values()], visit)


class SimulatedWorkers:
    """An executor in simulated time. ``way`` is one of :data:`WAYS`."""

    def __init__(self, count: int, costs: Costs, way: str = "dask", seed: int = 0) -> None:
        self.now, self.visits = 0.0, 0
        self._count, self._costs, self._random = count, costs, random.Random(seed)
        self._own: list[deque[Any]] = [deque() for _ in range(count)]
        self._any: deque[Any] = deque()
        self._kinds: WorkByKind[Any] = WorkByKind()
        self._waiting = self._unread = 0
        self._running: list[Any] = []
        self._idle = set(range(count))
        self._met: set[tuple[str, int]] = set()
        self._compiled: dict[str, int] = {}
        if way == "pools":
            self.submit_of = self._submit_of
        elif way == "dask":
            self.submit_on, self.workers = self._submit_on, lambda: count

    def submit(self, function: Any, /, data: bytes) -> Any:
        """For any worker."""
        return self._put(self._any, data)

    def _submit_on(self, worker: str, function: Any, /, data: bytes) -> Any:
        return self._put(self._own[int(worker)], data)

    def _submit_of(self, kind: str, function: Any, /, data: bytes) -> Any:
        future: Future[bytes] = Future()
        self._kinds.put(kind, (future, data))
        self._waiting += 1
        return _Asked(future, self)

    def _put(self, queue: deque[Any], data: bytes) -> Any:
        future: Future[bytes] = Future()
        queue.append((future, data))
        return _Asked(future, self)

    def _next(self, worker: int) -> Any:
        if self._waiting:
            self._waiting -= 1
            return self._kinds.take(worker)
        queue = self._own[worker] or self._any
        return queue.popleft() if queue else None

    def step(self) -> None:
        """Until the next job has ended, unless one that has is still to be looked at."""
        if self._unread:
            return
        for worker in sorted(self._idle):
            if (work := self._next(worker)) is not None:
                self._idle.discard(worker)
                end = self.now + self._seconds(request_of(work[1]).job, worker)
                heapq.heappush(self._running, (end, worker, *work))
        self.now, worker, future, data = heapq.heappop(self._running)
        self._idle.add(worker)
        self._unread += 1
        job = request_of(data).job
        outcome = KeyOutcome(job.digest(), job.name, job.key, Ended.TUNED, worker=str(worker))
        future.set_result(encoded(outcome))

    def looked_at(self) -> None:
        """A result was taken."""
        self._unread -= 1

    def _seconds(self, job: TuningJob, worker: int) -> float:
        kind = kind_of(job)
        row = int(job.kernel.removeprefix("kernel")) % len(self._costs.first)
        known, before = (kind, worker) in self._met, self._compiled.get(kind, 0)
        self._met.add((kind, worker))
        self._compiled[kind] = before + 1
        self.visits += not known
        later = self._costs.later[row]
        seconds = (
            later[before % len(later)] + (0.0 if known else self._costs.visit) if before else self._costs.first[row]
        )
        return seconds * self._random.uniform(0.9, 1.1)


class _Asked:
    """A result that is asked for: simulated time goes on until there is one."""

    def __init__(self, future: Future[bytes], workers: SimulatedWorkers) -> None:
        self._future, self._workers = future, workers

    def done(self) -> bool:
        if not self._future.done():
            self._workers.step()
        return self._future.done()

    def result(self) -> bytes:
        self._workers.looked_at()
        return self._future.result()


def keys(kernels: int, each: int = EACH) -> list[JobRequest]:
    """All kernels in turn, as a run meets them."""
    both = [(kernel, number) for number in range(each) for kernel in range(kernels)]
    one = TuningJob(SCHEMA, "module", "kernel", file="/a/module.py")
    return [JobRequest(msgspec.structs.replace(one, kernel=f"kernel{k}", key=f"({n},)")) for k, n in both]


def simulated(gpus: int, costs: Costs, way: str, seed: int = 0) -> tuple[float, float]:
    """Seconds, and first visits by kernel."""
    workers = SimulatedWorkers(gpus, costs, way, seed)
    kernels = KERNELS * gpus
    assert sum(1 for _ in HandOut(keys(kernels), workers)) == kernels * EACH
    return workers.now, workers.visits / kernels


def efficiency(gpus: int, costs: Costs, way: str, rounds: int = 3) -> dict[str, float]:
    """Of so many GPUs, the mean of some rounds, and the visits of a kernel."""
    one = statistics.mean(simulated(1, costs, way, seed)[0] for seed in range(rounds))
    several = [simulated(gpus, costs, way, seed) for seed in range(rounds)]
    found = {
        "efficiency": one / statistics.mean(s for s, _ in several),
        "visits": statistics.mean(v for _, v in several),
    }
    return {name: round(value, 4) for name, value in found.items()}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=GPUS[-1], help="GPUs")
    words = parser.parse_args()
    costs = recorded()
    report: dict[str, Any] = {
        "date": str(date.today()),
        "environment": {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))},
        "costs": {"first_s": list(costs.first), "later_s": round(statistics.mean(map(statistics.mean, costs.later)), 4),
                  "visit_s": round(costs.visit, 4), "of": RECORDED.name},
    }  # fmt: skip
    for way in WAYS:
        report[way] = {str(g): efficiency(g, costs, way, words.rounds) for g in GPUS if g <= words.most}
        print(way, json.dumps(report[way]), flush=True)
        words.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(row["efficiency"] >= REQUIRED for way in WAYS[:2] for row in report[way].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
