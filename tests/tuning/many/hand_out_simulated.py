"""Workers in simulated time: how often kernels are met again by the order in which keys are given out.

Each GPU gets 8 kernels of 8 keys; the kernels' seconds are used in turn, varied at random by a tenth. ``pools``: this
host's GPUs, each of which takes what ``WorkByKind`` has for it. ``dask``: workers that do first what they were asked to
do (``submit_on``), then the oldest of the rest. ``first_free``: the same without a preference. Start-up and what an
executor needs for a job are left out. Efficiency is the seconds of one GPU for its keys by those of all for theirs.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.tuning.many.gpu_pools import WorkByKind
from kerntune.tuning.many.hand_out import HandOut, kind_of
from kerntune.tuning.many.job_run import JobEnd, JobRequest, KeyOutcome, encoded, request_of

KERNELS, EACH = 8, 8
"""For each GPU: kernels, and keys of a kernel."""

WAYS = ("pools", "dask", "first_free")


@dataclass(frozen=True)
class Costs:
    """Seconds by kernel of its first key and of later ones, and what a first visit of another process adds."""

    first: Sequence[float]
    later: Sequence[Sequence[float]]
    visit: float


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
        outcome = KeyOutcome(job.digest(), job.name, job.key, JobEnd.TUNED, worker=str(worker))
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
