"""Has ``kerntune.tune_many``: it tunes all keys of many kernels, on all GPUs of this host or by an executor.

The user sees how many are done: in place on a terminal, in a line now and then elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, Union

from kerntune.base.formatting import visible
from kerntune.base.live_line import LiveLine, count_text
from kerntune.base.tuning_job import TuningJob
from kerntune.errors import CacheError, StoreError, UsageError
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.many.describing import describe, tuner_among_layers
from kerntune.tuning.many.gpu_pools import GpuPools, chosen_gpus
from kerntune.tuning.many.hand_out import HandOut, JobExecutor
from kerntune.tuning.many.job_run import JobEnd, JobRequest, KeyOutcome, outcome_of
from kerntune.tuning.many.shapes_file import SHAPES, ShapesFile

Jobs = Union[str, "os.PathLike[str]", Iterable[TuningJob]]

Tell = Callable[[KeyOutcome], None]


@dataclass(frozen=True)
class TunedMany:
    """What became of many jobs, in the order in which they ended."""

    outcomes: tuple[KeyOutcome, ...]

    @property
    def failed(self) -> tuple[KeyOutcome, ...]:
        """Those that have no winner though they should: each with its ``error``."""
        return tuple(o for o in self.outcomes if not o.good)

    def count(self, ended: JobEnd) -> int:
        """How many ended so."""
        return sum(o.ended is ended for o in self.outcomes)


def tuning_job(kernel: Any, grid: Any, *args: Any, **kwargs: Any) -> TuningJob:
    """The call ``kernel[grid](*args, **kwargs)`` of a tuned kernel as a job for :func:`tune_many`. Nothing is launched.

    Of tensors, sizes, strides, dtypes and alignment count: ``torch.empty(n, device="meta")`` will do, and takes no
    memory. :class:`UsageError` for a call that can't be described, which says why: the kernel must be a module's, and
    arguments numbers, texts, tensors, dtypes, TMA descriptors, kernels, or tuples and lists of these.
    """
    tuner = tuner_among_layers(kernel)
    if tuner is None:
        how = "put @kerntune.autotune or @triton.autotune above @triton.jit"
        raise UsageError(f"{kernel!r} has no tuner: {how}")
    job = describe(tuner, args, {**kwargs, "grid": grid})
    if job.unknown:
        raise UsageError(job.unknown)
    return job


def tune_many(
    jobs: Jobs,
    *,
    executor: JobExecutor | None = None,
    gpus: Sequence[int | str] | None = None,
    modules: Sequence[str] = (),
    paths: Sequence[str] = (),
    force: bool = False,
    progress: bool = True,
    tell: Tell | None = None,
) -> TunedMany:
    """Tune all keys of many kernels: ``jobs`` of :func:`tuning_job`, or a file that ``kerntune shapes record`` wrote.

    Each process imports the modules of the kernels (with ``modules`` only these and what is in them; ``paths`` are
    where Python looks first), makes arguments like those described (floats random, integers in range of every tensor's
    sizes), tunes, and stores the winner. A stored winner is not tuned again unless ``force``: a second call does what
    is left of the first. Winners of other machines come back with the results and are stored here as well.

    By default each GPU of this host (or each of ``gpus``, by its place among the visible ones) has one process, which
    sees it first. As these are spawned, a script needs its ``if __name__ == "__main__"``. ``executor`` is anything with
    ``submit()`` whose results have ``done()`` and ``result()``: a pool of :mod:`concurrent.futures`, Dask's
    ``Client.get_executor()``, submitit's, mpi4py's. Each of its workers should have a GPU of its own; those that share
    one wait for each other.

    A job whose process died is given out again, twice at most; then it is in :attr:`TunedMany.failed`, with those that
    can't be tuned. After Ctrl-C (KeyboardInterrupt, raised again) what was done stays stored. ``tell`` is called with
    each outcome; ``progress`` is printed on standard error.
    """
    requests = requests_of(jobs, modules, paths, force)
    with contextlib.ExitStack() as stack:
        if executor is None:
            pools = GpuPools(chosen_gpus(gpus), environment={SHAPES: ""}, spoiled=_spoiled)
            executor = stack.enter_context(pools)
        shown = KeyProgress(len(requests)) if progress else None
        if shown is not None:
            stack.callback(shown.close)
        found, out = [], HandOut(requests, executor)
        stack.callback(out.cancel)  # if the caller goes on no more, nothing else is begun
        for outcome in out:
            keep(outcome, force)
            found.append(outcome)
            for one in (tell, None if shown is None else shown.tell):
                if one is not None:
                    one(outcome)
    return TunedMany(tuple(found))


def _spoiled(result: Any) -> bool:
    with contextlib.suppress(StoreError):  # reported where the outcome is read
        return outcome_of(result).spoiled
    return False


def requests_of(jobs: Jobs, modules: Sequence[str], paths: Sequence[str], force: bool) -> list[JobRequest]:
    """Each job once. :class:`UsageError` for a file with damaged lines, before anything is tuned."""
    if isinstance(jobs, (str, os.PathLike)):
        known, damaged = ShapesFile(Path(jobs)).read()
        if damaged:
            what = "some calls can't be read; remove their lines, or record them anew"
            raise UsageError("\n".join([what, *damaged]))
        jobs = known
    found: dict[Any, JobRequest] = {}
    for job in jobs:
        if not isinstance(job, TuningJob):
            raise UsageError(f"{job!r} is no job; make it with kerntune.tuning_job(kernel, grid, *args)")
        identity = (job.module, job.kernel, job.key) if job.rounded else job.digest()
        found.setdefault(identity, JobRequest(job, tuple(modules), tuple(paths), force))
    return list(found.values())


def keep(outcome: KeyOutcome, force: bool = False) -> None:
    """Store a winner here, too, unless it is: processes of this machine have done so, those of others have not."""
    if outcome.winner is None:
        return
    cache = WinnerCache()
    with contextlib.suppress(CacheError):  # the process that tuned it has warned of that
        stored = cache.get(outcome.winner.key)
        if stored is None or (force and stored != outcome.winner):
            cache.offer(outcome.winner, instead_of=stored)


class KeyProgress:
    """How many of ``total`` jobs are done; errors are printed as they come, and the counts at the end."""

    def __init__(self, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total, self._counts = total, Counter[JobEnd]()
        self._clock, self._begin = clock, clock()
        self.live = LiveLine(self._put, in_place=self._stream.isatty(), clock=clock).start()
        self.live.tell(self.line())

    def tell(self, outcome: KeyOutcome) -> None:
        """One more is done."""
        self._counts[outcome.ended] += 1
        if outcome.error:
            self._print(f"kerntune: {outcome.error}")
        self.live.tell(f"{self.line()} (last: {outcome.kernel})")

    def close(self) -> None:
        """Say how many are done."""
        self.live.close()
        if self._counts:
            self._print(self.line())

    def line(self) -> str:
        """``kerntune: 12 of 64 keys, 3 min left: 9 tuned, 2 stored before, 1 failed``."""
        parts = [f"{self._counts[ended]} {WORDS[ended]}" for ended in JobEnd if self._counts[ended]]
        count = count_text(self._counts.total(), self._total, "keys", self._clock() - self._begin)
        return f"kerntune: {count}: {', '.join(parts) or 'none done'}"

    def _print(self, text: str) -> None:
        self.live.hide()
        self._put(f"{visible(text)}\n")

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


WORDS = {
    JobEnd.TUNED: "tuned",
    JobEnd.STORED: "stored before",
    JobEnd.NOTHING: "with nothing to tune",
    JobEnd.FAILED: "failed",
    JobEnd.LOST: "lost",
}
