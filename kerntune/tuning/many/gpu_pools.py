"""An executor for the GPUs of this host: each has a pool of one process, so that one that breaks takes no other.

A process gets the work whose code it has loaded, and helps the others when it has no more.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Generic, TypeVar

from kerntune.base.changed_items import changed_items
from kerntune.base.orphans import end_with_parent
from kerntune.errors import UsageError
from kerntune.gpu.host_gpus import CUDA, listed, turned

Work = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]

UUIDS = ("GPU-", "MIG-")
"""How the ids begin by which ``CUDA_VISIBLE_DEVICES`` names devices."""


def chosen_gpus(asked: Sequence[int | str] | None, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The GPUs to work on, as ``CUDA_VISIBLE_DEVICES`` names them: all that are visible, or those ``asked`` for by
    their place among them (or by UUID). :class:`UsageError` if there is none, or one that isn't there."""
    seen = tuple(listed(environ))
    if not seen:
        raise UsageError(
            "there is no GPU here to tune on; run it where there is one (CUDA_VISIBLE_DEVICES names those that NVML "
            "doesn't find), or give an executor (kerntune tune --dask HOST:PORT, executor= of kerntune.tune_many)"
        )
    if asked is None:
        return seen
    found = [_entry(str(one).strip(), seen) for one in asked]
    if not found or len(set(found)) < len(found):
        raise UsageError(f"the GPUs are {', '.join(map(str, asked)) or 'none'}; name each once, as --gpus 0,1")
    return tuple(found)


def _entry(text: str, seen: Sequence[str]) -> str:
    if text.isdecimal():
        if int(text) >= len(seen):
            raise UsageError(f"there is no GPU {text}: {len(seen)} are visible here, counted from 0")
        return seen[int(text)]
    if text not in seen and not text.startswith(UUIDS):
        raise UsageError(
            f"{text!r} is no GPU; name each by its number, counted from 0, or by its UUID, as --gpus 0,1 or "
            "--gpus GPU-5f3a1c2e"
        )
    return text


class _Process(SpawnProcess):
    changed: Mapping[str, str] = {}

    def start(self) -> None:
        """The driver reads its environment when it starts, so a process must be born with it: ``multiprocessing`` gives
        it this one's, which is another one for this moment."""
        with _ENVIRONMENT, changed_items(os.environ, self.changed):
            super().start()


_ENVIRONMENT = threading.Lock()


class _Context(SpawnContext):
    """Spawns processes with changes to their environment, and knows them from their start on."""

    def __init__(self, changed: Mapping[str, str]) -> None:
        self._changed = dict(changed)
        self._made: list[_Process] = []

    @property
    def pids(self) -> tuple[int, ...]:
        """Those that run."""
        return tuple(p.pid for p in list(self._made) if p.pid and p.is_alive())

    def Process(self, *args: Any, **words: Any) -> _Process:  # type: ignore[override]
        process = _Process(*args, **words)
        process.changed = self._changed
        self._made.append(process)
        return process


def _begin() -> None:
    """First of all in a worker: a process group of its own, which ends with its parent, and which Ctrl-C at the
    terminal isn't sent to."""
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    end_with_parent(parent.sentinel, parent.pid)  # its pipe hangs up, also where it ended before this line


@dataclass
class _Pool:
    """One GPU's process, started for its first work, and anew after it has ended."""

    gpu: str
    environment: Mapping[str, str]
    _executor: ProcessPoolExecutor | None = None
    _context: _Context | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the process, while there is one."""
        return () if self._context is None else self._context.pids

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The function's result. ``BrokenProcessPool`` if the process ended before; the next one gets a new process."""
        if self._executor is None:
            self._context = context = _Context(self.environment)
            self._executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        return self._executor.submit(function, *arguments).result()

    def end(self) -> None:
        """End the process, and what it has started, at once, be it only starting itself."""
        executor, self._executor = self._executor, None
        for pid in self.pids:
            _kill(pid)
        self._context = None
        if executor is not None:
            executor.shutdown(wait=False)


def _kill(pid: int) -> None:
    """A process and its group; before :func:`_begin` it has none of its own."""
    with contextlib.suppress(ProcessLookupError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(pid, signal.SIGKILL)


@dataclass
class GpuPools:
    """``submit()`` of :mod:`concurrent.futures`, for as many processes as GPUs; work is done in the order in which it
    came, by whichever is free, but for what :meth:`submit_of` says.

    A process sees all GPUs with its own one first. Work whose process ended raises ``BrokenProcessPool``; the others
    go on, and the GPU gets a new process. After a result that is ``spoiled`` (its device runs nothing any more) it
    does, too.
    """

    gpus: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    spoiled: Callable[[Any], bool] = lambda result: False

    def __post_init__(self) -> None:
        self._waiting: WorkByKind[Work] = WorkByKind()
        self._ended = False
        seen = listed(os.environ)
        lists = {gpu: ",".join(turned(seen, gpu)) for gpu in self.gpus}
        self._pools = [_Pool(gpu, {**self.environment, CUDA: lists[gpu]}) for gpu in self.gpus]
        self._threads = [threading.Thread(target=self._serve, args=(pool,), daemon=True) for pool in self._pools]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(pid for pool in self._pools for pid in pool.pids)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Have ``function(*arguments)`` done in a process of the next free GPU."""
        return self.submit_of("", function, *arguments)

    def submit_of(self, kind: str, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """The same; a process that has had work of this kind takes it before other work, and before other processes
        do while they have work of their own kinds."""
        future: Future[Any] = Future()
        self._waiting.put(kind, (future, function, arguments))
        return future

    def close(self) -> None:
        """End all processes at once, whatever they do. Results that were given stay."""
        self._ended = True
        self._waiting.end()
        for pool in self._pools:
            pool.end()

    def __enter__(self) -> GpuPools:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self, pool: _Pool) -> None:
        while (work := self._waiting.take(pool.gpu)) is not None:
            future, function, arguments = work
            if self._ended or not future.set_running_or_notify_cancel():
                continue
            try:
                result = pool.run(function, arguments)
                if self.spoiled(result):
                    pool.end()
            except BaseException as exc:  # the future must have it, and this thread go on
                pool.end()
                future.set_exception(exc)
            else:
                future.set_result(result)
        pool.end()


T = TypeVar("T")


class WorkByKind(Generic[T]):
    """A queue for several takers, each with a name of its own. A taker gets, of what waits,

    1. the oldest work of a kind that no taker has had: to compile it takes long, and keeps the processors busy;
    2. work of a kind that it has had, whose code it has loaded already;
    3. work of the kind of which the most is left.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[T]] = {}
        self._had: dict[str, set[object]] = {}
        self._ended = False

    def put(self, kind: str, work: T) -> None:
        """Add work."""
        with self._changed:
            self._waiting.setdefault(kind, deque()).append(work)
            self._changed.notify()

    def take(self, taker: object) -> T | None:
        """The taker's next work, once there is some; None after the :meth:`end`, when none is left."""
        with self._changed:
            while not self._waiting:
                if self._ended:
                    return None
                self._changed.wait()
            kind = next((k for k in self._waiting if k not in self._had), None)
            if kind is None:
                own = [k for k in self._waiting if taker in self._had[k]]
                kind = own[0] if own else max(self._waiting, key=lambda k: len(self._waiting[k]))
            self._had.setdefault(kind, set()).add(taker)
            work = self._waiting[kind].popleft()
            if not self._waiting[kind]:
                del self._waiting[kind]
            return work

    def end(self) -> None:
        """No taker waits any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
