"""The jobs that are still to be given out: one of each kind first, the others when that one has come back.

What the first one of a kind compiles, the compiler's cache on disk has for the others. If two of a kind began together,
each of their processes would compile all of its configs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from kerntune.tuning.many.job_kind import kind_of
from kerntune.tuning.many.outcome import JobRequest


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
