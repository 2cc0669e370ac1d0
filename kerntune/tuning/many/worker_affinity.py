"""Which worker of an executor should get a job: one that has the job's code, while that keeps no other one idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

SHARE = 0.75
"""Of the jobs that are left, by workers: more than this share is not kept for one, so that those that are faster have
something to take. With two workers and keys of 0.1 to 0.7 s nothing waits at the end, and few kinds are met twice."""


class WorkerAffinity:
    """The jobs of a kind stay with the worker that had its first one, up to :data:`SHARE`; any worker may have the
    others.

    ``jobs`` are to be done, by ``workers()``, which is asked as kinds come back, and workers that had no job yet: a
    cluster may grow meanwhile. 0 means that it isn't known, and that no job is kept for a worker.
    """

    def __init__(self, jobs: int, workers: Callable[[], int]) -> None:
        self._left, self._workers, self._ask = jobs, 0, workers
        self._at: dict[str, str] = {}
        """By kind, the worker that has had it."""

        self._kept: Counter[str] = Counter()
        """By worker, the jobs that are kept for it and have not ended."""

        self._met: set[str] = set()

    def choose(self, kind: str) -> str:
        """The worker to keep a job of this kind for; empty if any may have it. Tell :meth:`ended` or :meth:`died`."""
        worker = self._at.get(kind, "")
        if not worker or not self._workers or self._kept[worker] + 1 > SHARE * self._left / self._workers:
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
