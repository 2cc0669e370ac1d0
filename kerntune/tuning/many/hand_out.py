"""Gives jobs to an executor, again where a process died, and hands on each outcome as it comes.

Jobs of one kind have the same code to compile: the kernel and the types of its arguments are the same. One job of each
kind is given out first, the others when that one has come back. What the first one compiles, the compiler's cache on
disk has for the others. If two of a kind began together, each of their processes would compile all of its configs.

Dask can be asked to have a job done by one worker. A job of a kind that a worker has had is kept for it, while that
leaves no other worker idle.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import queue
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kerntune import __version__
from kerntune.base.tuning_job import (
    ArgumentText,
    ConstantText,
    DescriptorText,
    ScalarText,
    SequenceText,
    TensorText,
    TuningJob,
)
from kerntune.errors import StoreError
from kerntune.tuning.many.job_run import JobEnd, JobRequest, KeyOutcome, encoded, outcome_of, run_job

MOST_TRIES = 3
"""How often a job is given out at most: once, and twice more where a process that had it died."""

WINDOW = 1024
"""Jobs that are given out at once: an executor's queue need not hold a million."""

FIRST_POLL_S, LONGEST_POLL_S = 0.02, 1.0
"""Seconds between two looks at results that don't call back, at first and at most: submitit's ask a file system."""


class Result(Protocol):
    """What ``submit()`` gives: :mod:`concurrent.futures`', Dask's, mpi4py's, submitit's."""

    def done(self) -> bool:
        """Whether there is a result, or an exception."""

    def result(self) -> Any:
        """The result, or what kept it from being."""


class JobExecutor(Protocol):
    """Anything that has work done elsewhere. One with a method ``submit_of(kind, function, *arguments)`` gets the kind
    of each job: jobs of a kind have the same code, and a process that has loaded it should get more of them. One with
    ``submit_on(worker, function, *arguments)`` and ``workers()`` is asked to have a job done by a worker that has its
    code (:class:`DaskExecutor`)."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Have ``function(*arguments)`` done; a :class:`Result`."""


@dataclass
class _SubmittedJob:
    """A job that was given out, its result to be, and the worker that it is kept for (empty: for none)."""

    job: WaitingJob
    result: Result
    kept_for: str


class HandOut:
    """Iterate over it: the outcomes as they come. :meth:`cancel` withdraws what no process has begun.

    Any exception of a result means that the process is gone that had the job: :func:`run_job` itself raises none for
    what goes wrong with a call. Such a job is given out again, :data:`MOST_TRIES` times in all. Of jobs with the same
    code to compile one goes first, and the others when it has come back (:class:`WaitingJobs`).
    """

    def __init__(self, requests: Sequence[JobRequest], executor: JobExecutor, window: int = WINDOW) -> None:
        executor = with_affinity(executor)
        self._waiting = WaitingJobs(requests)
        ask = getattr(executor, "workers", None) if hasattr(executor, "submit_on") else None  # else it means anything
        self._affinity = WorkerAffinity(len(requests), ask or (lambda: 0))
        self._executor, self._window = executor, window
        self._given: dict[int, _SubmittedJob] = {}
        self._numbers = itertools.count()
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._silent: set[int] = set()
        """Those whose results don't call back, and must be asked."""

    def __iter__(self) -> Iterator[KeyOutcome]:
        poll = FIRST_POLL_S
        while self._waiting or self._given:
            self._fill()
            number = self._wait(poll)
            if number is None:
                poll = min(2 * poll, LONGEST_POLL_S)
                continue
            poll = FIRST_POLL_S
            self._silent.discard(number)
            outcome = self._take(self._given.pop(number))
            if outcome is not None:
                yield outcome

    def cancel(self) -> None:
        """Withdraw what was not begun, as far as the executor can."""
        self._waiting.clear()
        for given in self._given.values():
            cancel = getattr(given.result, "cancel", None)
            if cancel is not None:
                cancel()

    def _fill(self) -> None:
        while self._waiting and len(self._given) < self._window:
            if (job := self._waiting.take()) is None:
                return
            kept_for = self._affinity.choose(job.kind)
            result, number = self._submitted(job, kept_for), next(self._numbers)
            self._given[number] = _SubmittedJob(job, result, kept_for)
            if hasattr(result, "add_done_callback"):
                result.add_done_callback(lambda _, number=number: self._ended.put(number))
            else:
                self._silent.add(number)

    def _submitted(self, job: WaitingJob, kept_for: str) -> Result:
        data, submit_of = encoded(job.request), getattr(self._executor, "submit_of", None)
        try:
            if kept_for:
                return self._executor.submit_on(kept_for, run_job, data)  # type: ignore[attr-defined,no-any-return]
            if submit_of is not None:
                return submit_of(job.kind, run_job, data)  # type: ignore[no-any-return]
            return self._executor.submit(run_job, data)  # type: ignore[no-any-return]
        except (RuntimeError, OSError) as exc:  # a pool one of whose processes died takes nothing more
            refused: Future[bytes] = Future()
            refused.set_exception(exc)
            return refused

    def _wait(self, seconds: float) -> int | None:
        """The number of a result that is there; None if results must be asked, and none was there for so long."""
        ended = next((n for n in sorted(self._silent) if self._given[n].result.done()), None)
        if ended is not None:
            return ended
        try:
            return self._ended.get(timeout=seconds if self._silent else None)
        except queue.Empty:
            return None

    def _take(self, given: _SubmittedJob) -> KeyOutcome | None:
        try:
            data = given.result.result()
        except Exception as exc:
            self._affinity.died(given.job.kind, given.kept_for)
            if given.job.times < MOST_TRIES:
                self._waiting.again(given.job)
                return None
            self._waiting.ended(given.job)
            self._affinity.ended(given.job.kind, "", "")
            return lost_outcome(given.job.request.job, given.job.times, exc)
        self._waiting.ended(given.job)
        job = given.job.request.job
        try:
            found = outcome_of(data)
        except StoreError as exc:
            error = f"{job}: {exc}; do the executor's workers have this very kerntune ({__version__})?"
            found = KeyOutcome(job.digest(), job.name, job.key, JobEnd.FAILED, error=error)
        self._affinity.ended(given.job.kind, given.kept_for, found.worker)
        return msgspec.structs.replace(found, given_out=given.job.times)


def lost_outcome(job: TuningJob, times: int, exc: BaseException) -> KeyOutcome:
    """The outcome of a job whose processes all died."""
    error = (
        f"{job}: each of {times} processes that tuned it ended ({type(exc).__name__}: {exc}); tune it alone to see "
        "why, or with KERNTUNE_ISOLATE=always, which launches each config in a process of its own first"
    )
    return KeyOutcome(job.digest(), job.name, job.key, JobEnd.LOST, error=error, given_out=times)


@dataclass(frozen=True)
class WaitingJob:
    """A job that is to be given out, its kind, and how often it will have been."""

    request: JobRequest
    kind: str
    times: int = 1


class WaitingJobs:
    """In the order in which to give them out: the first ones of kinds, those with the most jobs first, then the others
    of kinds whose first one has :meth:`ended`."""

    def __init__(self, requests: Sequence[JobRequest]) -> None:
        jobs = [WaitingJob(request, kind_of(request.job)) for request in requests]
        many = Counter(job.kind for job in jobs)
        self._held: dict[str, list[WaitingJob]] = {}
        """By kind, those that wait for its first one."""

        first: dict[str, WaitingJob] = {}
        for job in jobs:
            if first.setdefault(job.kind, job) is not job:
                self._held.setdefault(job.kind, []).append(job)
        self._ready = deque(sorted(first.values(), key=lambda job: -many[job.kind]))

    def __bool__(self) -> bool:
        """Whether there are any, be they ready or not."""
        return bool(self._ready or self._held)

    def take(self) -> WaitingJob | None:
        """The next one; None while all that are left wait for others to come back."""
        return self._ready.popleft() if self._ready else None

    def again(self, job: WaitingJob) -> None:
        """Give it out before all others: its process died."""
        self._ready.appendleft(WaitingJob(job.request, job.kind, job.times + 1))

    def ended(self, job: WaitingJob) -> None:
        """It has come back, however it ended: others of its kind wait no longer."""
        self._ready += self._held.pop(job.kind, ())

    def clear(self) -> None:
        """There are none any more."""
        self._ready.clear()
        self._held.clear()


DIVISIBLE = 16
"""Triton compiles for integers, and for addresses in bytes, that are divisible by this, and for others."""


def kind_of(job: TuningJob) -> str:
    """A text that is equal for jobs whose code is equal, as far as a description tells: the kernel, the configs' own
    words, and of each argument what Triton compiles for. An integer that is a ``tl.constexpr`` of the kernel looks like
    any other here: such jobs are one kind, and compile each for itself."""
    parts = (f"{a.name}:{_of(a.value)}" for a in job.arguments)
    words = ";".join([job.name, *map(str, job.configs), *parts])
    return f"{job.name}:{hashlib.sha256(words.encode()).hexdigest()[:16]}"


def _of(value: ArgumentText) -> str:
    if isinstance(value, TensorText):
        aligned = (value.offset + value.misaligned) % DIVISIBLE == 0
        return f"{value.dtype}{'' if aligned else ' misaligned'}{' host' if value.host else ''}"
    if isinstance(value, ScalarText):
        return _of_scalar(value)
    if isinstance(value, ConstantText):
        return repr(value.value)
    if isinstance(value, SequenceText):
        return f"{value.kind}({','.join(map(_of, value.items))})"
    if isinstance(value, DescriptorText):
        return f"descriptor {value.base.dtype} {value.block_shape}"
    return repr(value)


def _of_scalar(value: ScalarText) -> str:
    if value.kind == "float":
        return value.kind
    if value.kind != "int" or not value.text.lstrip("-").isdecimal():
        return f"{value.kind} {value.text}"
    number = int(value.text)
    bits = 32 if -(1 << 31) <= number < 1 << 31 else 64
    return "int 1" if number == 1 else f"int{bits}{'' if number % DIVISIBLE else ' divisible'}"


MOST_KEPT_SHARE = 0.75
"""Of the jobs that are left, by workers: more than this share is not kept for one, so that those that are faster have
something to take. With two workers and keys of 0.1 to 0.7 s nothing waits at the end, and few kinds are met twice."""


class WorkerAffinity:
    """The jobs of a kind stay with the worker that had its first one, up to :data:`MOST_KEPT_SHARE`. Any worker may
    have the others.

    ``jobs`` are to be done, by ``workers()``, which is asked as kinds come back, and workers that had no job yet: a
    cluster may grow meanwhile. 0 means that it isn't known, and that no job is kept for a worker.
    """

    def __init__(self, jobs: int, workers: Callable[[], int]) -> None:
        self._left, self._ask = jobs, workers
        self._workers: int  # set with the first worker of a kind
        self._at: dict[str, str] = {}
        """By kind, the worker that has had it."""

        self._kept: Counter[str] = Counter()
        """By worker, the jobs that are kept for it and have not ended."""

        self._met: set[str] = set()

    def choose(self, kind: str) -> str:
        """The worker to keep a job of this kind for; empty if any may have it. Tell :meth:`ended` or :meth:`died`."""
        worker = self._at.get(kind, "")
        if not worker or not self._workers or self._kept[worker] + 1 > MOST_KEPT_SHARE * self._left / self._workers:
            return ""
        self._kept[worker] += 1
        return worker

    def ended(self, kind: str, kept: str, worker: str) -> None:
        """A job has come back from ``worker`` (empty if that isn't known); it was ``kept`` for one, or for none."""
        self._left -= 1
        self._kept[kept] -= bool(kept)
        if worker and (kind not in self._at or worker not in self._met):
            self._at.setdefault(kind, worker)
            self._met.add(worker)
            self._workers = self._ask()

    def died(self, kind: str, kept: str) -> None:
        """A job's worker is gone: any worker may have what is left of its kind, until one of it has come back."""
        self._kept[kept] -= bool(kept)
        self._at.pop(kind, None)


class DaskExecutor:
    """Around what ``Client.get_executor()`` gives (``distributed.cfexecutor.ClientExecutor``).

    Dask's scheduler decides: ``workers=`` with ``allow_other_workers=True`` is a preference, which its work stealing
    overrides, and so does the loss of that worker.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Have ``function(*arguments)`` done by any worker."""
        return self._executor.submit(function, *arguments)

    def submit_on(self, worker: str, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Have it done by the worker with this address if possible."""
        return self._executor.submit(function, *arguments, workers=[worker], allow_other_workers=True)

    def workers(self) -> int:
        """How many there are now; 0 if that can't be known, or if the user has said which ones are to work."""
        if "workers" in getattr(self._executor, "_kwargs", {"workers": "unknown"}):
            return 0
        with contextlib.suppress(Exception):  # of another version of Dask, or of its connection
            return len(self._executor._client.nthreads())
        return 0


def with_affinity(executor: Any) -> Any:
    """The same executor, or a :class:`DaskExecutor` around Dask's."""
    package = type(executor).__module__.partition(".")[0]
    return DaskExecutor(executor) if package == "distributed" else executor
