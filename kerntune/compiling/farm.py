"""Compiles in parallel in persistent processes, so that a compiler that crashes or hangs costs one candidate.

The time after which a compilation counts as hung follows the slowest one that has ended. A thread of its own
advances what makes jobs, so that its consumer may do something else meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, Union

from kerntune.compiling.compiler_tokens import TOKENS, tell_if_none
from kerntune.compiling.fork_client import ForkClient
from kerntune.compiling.forking import may_fork
from kerntune.compiling.frontend import Shape
from kerntune.compiling.protocol import CompileFailed, CompilerEnvironment, Done, Job, current_environment
from kerntune.compiling.worker_process import Died, JobOutcome, Process, says_error

FLOOR_SECONDS = 30.0
"""No compilation is ended sooner on a machine with a core for each process: the slowest of 147 specializations took
under 2 s on two shared cores, liger-kernel's group_norm 13 s where each core had four processes."""

SLOWEST_TIMES = 10.0
"""A compilation ten times slower than the slowest one that has ended counts as a hang."""


def load_per_core() -> float:
    """How many processes want each core of this machine, 1 to 10: compilations take so many times longer."""
    try:
        return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), 10.0)
    except OSError:  # the system doesn't say
        return 1.0


class Deadline:
    """Seconds to wait for one compilation: ``max(floor x the load, 10 x the slowest so far)``."""

    def __init__(
        self, floor: float = FLOOR_SECONDS, factor: float = SLOWEST_TIMES, load: Callable[[], float] = load_per_core
    ) -> None:
        self._floor, self._factor, self._load, self._slowest = floor, factor, load, 0.0

    def saw(self, seconds: float) -> None:
        """Learn from a compilation that ended by itself, with or without an error."""
        self._slowest = max(self._slowest, seconds)

    @property
    def seconds(self) -> float:
        """How long the next one may take."""
        return max(self._floor * self._load(), self._factor * self._slowest)

    def __str__(self) -> str:
        seconds = self.seconds
        floor = self._floor * self._load()
        why = f", {self._factor:.0f} times the slowest so far" if seconds > floor else ""
        return f"{seconds:.0f} s{why}"


MAX_WORKERS = 16
"""The parent's front end (about 10 ms a config, one at a time) makes no jobs for more of them."""

IDLE_SECONDS = 60.0
"""A worker without work ends after this long, which frees 100 MB; starting another takes 0.15 to 0.45 s."""

WORTH_A_FORK_SERVER = 3
"""So many processes start sooner as forks of one that has imported Triton than each by itself; a single one does where
this process itself can be forked."""

GIB = 1 << 30
MIN_MEMORY, MAX_MEMORY = 4 * GIB, 16 * GIB
"""Bounds of one worker's address space: 0.3 GiB with Triton imported, 0.45 GiB on the largest kernel tried."""

_MEMORY = re.compile(r"bad_alloc|MemoryError|(out of|allocate) memory", re.IGNORECASE)

_PASS_FAILED = "PassManager::run failed"
"""MLIR reports this for a pass that failed and for one that crashed: it catches SIGSEGV and SIGABRT, and goes on."""


@dataclass(frozen=True)
class NotStarted:
    """No worker could take the job; the reason."""

    reason: str


FarmAnswer = Union[JobOutcome, NotStarted]


@dataclass(order=True)
class _Order:
    rank: float
    number: int
    job: Job = field(compare=False)
    surroundings: CompilerEnvironment = field(compare=False)
    future: Future[FarmAnswer] = field(compare=False)


class Farm:
    """Up to ``workers`` processes (one per core, at most 16), started when there is work for them. All farms of a host
    together run as many compilers at once as there are tokens (:mod:`kerntune.compiling.compiler_tokens`).

    A job whose process dies, hangs or runs out of memory is answered with :class:`Died`; the process is replaced and
    the other jobs go on. Safe for several threads; a forked child starts processes of its own.
    """

    def __init__(
        self,
        workers: int | None = None,
        memory: int | None = None,
        deadline: Deadline | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.workers = workers or worker_count()
        self.memory = memory_limit(self.workers) if memory is None else memory
        self.deadline = deadline or Deadline()
        self._idle = idle_seconds
        self._numbers = itertools.count()
        self._empty()
        _ALL.add(self)

    def _empty(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._orders: queue.PriorityQueue[_Order] = queue.PriorityQueue()
        self._threads: dict[threading.Thread, Process | None] = {}
        self._fork_client: ForkClient | None = None
        self._open = 0
        self._closed = False
        self._unavailable = ""

    def like(self) -> Farm:
        """Another farm with the same limits."""
        return Farm(self.workers, self.memory, self.deadline, self._idle)

    def warm(self, jobs: int) -> None:
        """Start the processes that ``jobs`` jobs will need, without waiting for them."""
        self._own()
        with self._lock:
            missing = min(jobs, self.workers) - len(self._threads)
            if missing >= (1 if may_fork() else WORTH_A_FORK_SERVER) and not self._closed:
                self._begin_forks()
            while len(self._threads) < min(jobs, self.workers) and not (self._closed or self._unavailable):
                self._hire()

    def submit(self, job: Job, shape: Shape) -> Future[FarmAnswer]:
        """Compile a job; those expected to take longest come first. The future never raises; it can be cancelled."""
        self._own()
        tell_if_none()
        surroundings = current_environment()
        future: Future[FarmAnswer] = Future()
        with self._lock:
            if self._closed or self._unavailable:
                future.set_result(NotStarted(self._unavailable or "the compile farm is closed"))
                return future
            self._orders.put(_Order(-shape.cost, next(self._numbers), job, surroundings, future))
            self._open += 1
            if self._open > len(self._threads) < self.workers:
                if not self._threads and self.workers > 1:  # more processes will follow
                    self._begin_forks(own_fork=False)
                self._hire()
        return future

    def end(self) -> list[threading.Thread]:
        """Have every process end, and return before they are gone: the threads that see to that. Jobs under way end as
        :class:`Died`, those that wait as :class:`NotStarted`."""
        self._own()
        with self._lock:
            self._closed = True
            threads, fork_client = dict(self._threads), self._fork_client
            self._refuse_all("the compile farm is closed")
            for _ in threads:
                self._orders.put(_END)
        if fork_client is not None:
            fork_client.end_start()
        for process in threads.values():
            if process is not None:
                process.interrupt()
        return list(threads)

    def close(self) -> None:
        """As :meth:`end`, and wait until all are gone."""
        for thread in self.end():
            if thread is not threading.current_thread():
                thread.join()
        self._close_fork_client()

    @property
    def queued(self) -> int:
        """How many jobs wait for a process."""
        return self._orders.qsize()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        with self._lock:
            return [p.pid for p in self._threads.values() if p is not None and p.pid]

    # under the lock

    def _hire(self) -> None:
        given = (current_environment(),)
        thread = threading.Thread(target=self._serve, args=given, name="kerntune-compile", daemon=True)
        self._threads[thread] = None
        thread.start()

    def _begin_forks(self, own_fork: bool | None = None) -> None:
        if self._fork_client is None:
            with contextlib.suppress(OSError):
                self._fork_client = ForkClient(current_environment(), own_fork)

    def _refuse_all(self, reason: str) -> None:
        while not self._orders.empty():
            order = self._orders.get_nowait()
            self._open -= order is not _END
            if order is not _END and order.future.set_running_or_notify_cancel():
                order.future.set_result(NotStarted(reason))

    def _own(self) -> None:
        if self._pid != os.getpid():  # forked: the processes and threads are the parent's
            self._empty()

    # in a thread for each process

    def _serve(self, surroundings: CompilerEnvironment) -> None:
        process: Process | None = None
        with TOKENS.token(lambda: self._closed):
            process, reason = self._start(surroundings)
        try:
            while not reason and (order := self._next()) is not None:
                with TOKENS.token(lambda: self._closed):
                    if order.future.set_running_or_notify_cancel():
                        process, reason = self._ready(process, order.surroundings)
                        self._settle(order, process, reason)
                    else:
                        self._finished()
        finally:
            if process is not None:
                process.kill()
            self._leave(reason)
            if not self._threads:
                self._close_fork_client()

    def _start(self, surroundings: CompilerEnvironment) -> tuple[Process | None, str]:
        process = Process(surroundings, self.memory, self._fork_client)
        with self._lock:
            if self._closed:
                return None, ""
            self._threads[threading.current_thread()] = process
        reason = process.start()
        return (None, reason) if reason else (process, "")

    def _next(self) -> _Order | None:
        while True:
            try:
                order = self._orders.get(timeout=self._idle)
            except queue.Empty:
                with self._lock:
                    if self._orders.empty():
                        self._threads.pop(threading.current_thread(), None)
                        return None
                continue
            return None if order is _END else order

    def _ready(self, process: Process | None, surroundings: CompilerEnvironment) -> tuple[Process | None, str]:
        if process is not None and process.alive and process.surroundings == surroundings:
            return process, ""
        if process is not None:
            process.kill()
        return self._start(surroundings)

    def _settle(self, order: _Order, process: Process | None, reason: str) -> None:
        outcome: FarmAnswer = NotStarted(reason or "the compile farm is closed")
        if process is not None:
            start = time.monotonic()
            found = process.ask(order.job, self.deadline.seconds, str(self.deadline))
            outcome = self._judged(found, process, time.monotonic() - start)
        self._finished()
        order.future.set_result(outcome)

    def _judged(self, outcome: JobOutcome, process: Process, seconds: float) -> JobOutcome:
        answer = outcome.answer
        if isinstance(answer, (Died, CompileFailed)) and _MEMORY.search(answer.reason + outcome.output):
            process.kill()
            limit = f"{answer.reason} (a compiling process may use {self.memory / GIB:.3g} GiB)"
            return JobOutcome(Died(limit), outcome.output)
        if isinstance(answer, Died):
            return outcome
        with self._lock:
            self.deadline.saw(seconds)
        if isinstance(answer, Done) and self.memory and answer.address_space > self.memory / 2:
            process.kill()  # memory that it has kept would count against the next job
        if isinstance(answer, CompileFailed) and _PASS_FAILED in answer.reason:
            process.kill()
        if isinstance(answer, Done) and says_error(outcome.output):
            return JobOutcome(CompileFailed("the compiler reported an error and went on"), outcome.output)
        return outcome

    def _close_fork_client(self) -> None:
        with self._lock:
            fork_client, self._fork_client = self._fork_client, None
        if fork_client is not None:
            fork_client.close()

    def _finished(self) -> None:
        with self._lock:
            self._open -= 1

    def _leave(self, reason: str) -> None:
        with self._lock:
            self._threads.pop(threading.current_thread(), None)
            if reason and not self._threads:
                self._unavailable = reason
                self._refuse_all(reason)


_NO_JOB = Job("", "", "", "", "", 0, {}, "", b"")
_END = _Order(float("-inf"), -1, _NO_JOB, CompilerEnvironment((), ""), Future())
"""Tells a thread to end; sorts before every job."""

_ALL: weakref.WeakSet[Farm] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for farm in list(_ALL):
        farm.close()


def worker_count() -> int:
    """One per core that this process may use, at most :data:`MAX_WORKERS`."""
    return min(MAX_WORKERS, len(os.sched_getaffinity(0)))


def memory_limit(workers: int) -> int:
    """Bytes of address space for one worker: its share of the machine's memory, within :data:`MIN_MEMORY` and max."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(MIN_MEMORY, min(MAX_MEMORY, total // workers))


T = TypeVar("T")


class _IteratorEnd:
    """Comes after the last result."""


class PrefetchedIterator(Generic[T]):
    """Results of an iterator in their order, for one consumer. ``done`` is set once the thread has all of them, whether
    the consumer has taken them or not."""

    def __init__(self, results: Iterator[T], stop: Callable[[], object] = lambda: None, name: str = "pulled") -> None:
        self.done: Future[None] = Future()
        self._queue: SimpleQueue[Union[T, _IteratorEnd, BaseException]] = SimpleQueue()
        self._head: list[Union[T, _IteratorEnd, BaseException]] = []
        self._stop = stop
        threading.Thread(target=self._pull, args=(results,), name=name, daemon=True).start()

    def _pull(self, results: Iterator[T]) -> None:
        try:
            for result in results:
                self._queue.put(result)
        except BaseException as exc:
            self._queue.put(exc)
        finally:
            self._queue.put(_IteratorEnd())
            self.done.set_result(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether a result, or the end, arrives within so many seconds."""
        if not self._head:
            try:
                self._head.append(self._queue.get(timeout=seconds))
            except Empty:
                return False
        return True

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self.wait()
        head = self._head[0]
        if isinstance(head, _IteratorEnd):
            raise StopIteration
        self._head.clear()
        if isinstance(head, BaseException):
            raise head
        return head

    def stop(self) -> None:
        """Let the iterator end early, without waiting for that."""
        self._stop()
