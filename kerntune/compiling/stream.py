"""Compiles a list of launches and yields kernels in the order in which they are done."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from dataclasses import dataclass, field
from typing import Any, Union

from kerntune.base.codec import encodable
from kerntune.base.warn import warn
from kerntune.compiling.binary.identity import FIRST_STAGES, strip_locations
from kerntune.compiling.compiler_tokens import TOKENS
from kerntune.compiling.farm import Farm, FarmAnswer, NotStarted
from kerntune.compiling.forking import may_fork
from kerntune.compiling.frontend import (
    CompileRequest,
    Lowered,
    hashes_are_ready,
    lower,
    prepare_hashes,
    request_of,
    shape_of,
    why_in_process,
)
from kerntune.compiling.frontend_forks import Crashed, FrontEndResult, fork_count, lower_in_forks
from kerntune.compiling.protocol import CompileFailed, Done
from kerntune.compiling.triton_cache import (
    Store,
    is_stored,
    made_of,
    notify_listeners,
    notify_post_compile,
    take_damage,
)
from kerntune.compiling.worker_process import Died, is_fault, remedy, with_words
from kerntune.errors import CompileError, EnvironmentFault, TrialError
from kerntune.kernels.source import kernel_file
from kerntune.kernels.specialize import Specialized

FEW = 2
"""So few launches wait until Triton's cache can be searched: an unneeded front end and process cost more, unless
processes are forks of this one."""

_IN_PROCESS = threading.Lock()
"""One compilation at a time in this process: Triton 3.6 makes wrong code if threads compile for several targets."""

CompileResult = tuple[Specialized, Union[Any, CompileError]]
"""A launch with :class:`kerntune.compiling.triton_cache.Made` or Triton's ``CompiledKernel``, or with the error if
there is none."""


@dataclass
class _Run:
    """One stream under way: finished results, jobs on the farm, and the jobs by their identity."""

    stopped: Future[None]
    finished: list[CompileResult] = field(default_factory=list)
    futures: dict[Future[FarmAnswer], list[Lowered]] = field(default_factory=dict)
    equals: dict[str, list[Lowered]] = field(default_factory=dict)
    unsearched: list[tuple[CompileRequest, Future[FarmAnswer] | None]] = field(default_factory=list)
    """Requests that went to the farm before Triton's cache could be searched for them."""


class Compilations:
    """Compiles launches on a farm, equal jobs once, and leaves the kernels in Triton's disk cache."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self._said: set[str] = set()
        self._sound: set[str] = set()
        """Hashes of the entries of Triton's cache that were checked for damage."""

        self._damage: list[str] = []
        """Damage found there that isn't reported yet."""

        self._store = Store()
        self._stops: weakref.WeakSet[Future[None]] = weakref.WeakSet()
        """Of the streams under way."""

    def end(self) -> None:
        """Have all streams and processes end, and return before they have."""
        for stopped in list(self._stops):
            stop(stopped)
        self.farm.end()

    def warm(self, jobs: int) -> None:
        """Start what ``jobs`` launches will need, without waiting for it."""
        self.farm.warm(jobs)
        prepare_hashes()

    def stream(
        self,
        launches: Sequence[Specialized],
        made_before: Collection[int] = (),
        stopped: Future[None] | None = None,
    ) -> Iterator[CompileResult]:
        """Each launch's result when it is done, cached ones first. The front end runs here, between the first results.

        Kernels are in Triton's cache after :meth:`flush`. Launches whose ``id`` is in ``made_before`` are probably
        there already: they wait until it can be searched. Once ``stopped`` is done, from whatever thread, no
        more results come, and what has not begun is cancelled.
        """
        run = _Run(stopped or Future())
        self._stops.add(run.stopped)
        try:
            requests = self._requests(launches, run)
            new = [r for r in requests if id(r.launch) not in made_before]
            for _ in self._submit(new, run, patient=not made_before and len(new) <= FEW and not may_fork()):
                yield from self._done_so_far(run)
            for _ in self._submit([r for r in requests if id(r.launch) in made_before], run, patient=True):
                yield from self._done_so_far(run)
            yield from self._done_so_far(run)
            while run.futures and not run.stopped.done():
                _wait(run)
                if run.unsearched and hashes_are_ready():
                    self._take_back(run)
                yield from self._done_so_far(run)
        finally:
            for future in run.futures:
                future.cancel()

    def flush(self) -> None:
        """Wait until all kernels so far are in Triton's cache."""
        self._store.flush()

    def _requests(self, launches: Sequence[Specialized], run: _Run) -> list[CompileRequest]:
        requests = []
        for launch in launches:
            try:
                requests.append(request_of(launch))
            except Exception as exc:
                run.finished.append((launch, refusal(launch, exc)))
        return sorted(requests, key=lambda r: -shape_of(r.launch).cost)

    def _done_so_far(self, run: _Run) -> Iterator[CompileResult]:
        self._report_damage()
        finished, run.finished = run.finished, []
        yield from finished
        for future in [f for f in run.futures if f.done()]:
            if run.stopped.done():  # and maybe the processes with it, which says nothing of what they were to compile
                return
            yield from self._finish(future, run)

    def _submit(self, requests: Sequence[CompileRequest], run: _Run, patient: bool = False) -> Iterator[None]:
        """Run the front end and hand each distinct job to the farm as it is made; a pause after each.

        While Triton's cache can't be searched yet (:func:`prepare_hashes`), jobs go to the farm unsearched; those that
        it turns out to contain are taken back once it can. ``patient`` requests wait.
        """
        prepare_hashes()
        searched = patient or hashes_are_ready()
        if searched:
            requests = [r for r in requests if not self._is_known(r, run)]
        for request, result in self._lowered_in_forks(requests):
            if run.stopped.done():
                return
            if not searched and result is None and hashes_are_ready():
                self._take_back(run)
                if self._is_known(request, run):
                    continue
            future = None
            try:
                future = self._lower(request, run, result)
            except Exception as exc:
                run.finished.append((request.launch, refusal(request.launch, exc)))
            run.unsearched += [] if searched else [(request, future)]
            yield

    @staticmethod
    def _lowered_in_forks(requests: Sequence[CompileRequest]) -> Iterator[tuple[CompileRequest, FrontEndResult]]:
        """Requests with the results of forked copies, or with None for those to lower here."""
        forks = fork_count(len(requests))
        if forks < 2 or any(why_in_process(r.launch) for r in requests):
            return ((r, None) for r in requests)
        return lower_in_forks(requests, forks)

    def _is_known(self, request: CompileRequest, run: _Run) -> bool:
        try:
            if self._is_stored(request):
                run.finished.append(self._here(request))
                return True
        except Exception as exc:
            run.finished.append((request.launch, refusal(request.launch, exc)))
            return True
        return False

    def _take_back(self, run: _Run) -> None:
        """Cancel jobs whose kernels are in Triton's cache after all, unless a process has begun them."""
        for request, future in run.unsearched:
            alone = future is not None and len(run.futures.get(future, ())) == 1
            if future is not None and alone and self._needs_no_compiler(request) and future.cancel():
                (lowered,) = run.futures.pop(future)
                run.equals.pop(lowered.identity())
                self._is_known(request, run)
        run.unsearched.clear()

    def _is_stored(self, request: CompileRequest) -> bool:
        """Whether Triton's cache has a request's kernel, whole. Damage is set aside."""
        if not is_stored(request):
            return False
        if request.hash not in self._sound:
            damage = take_damage(request)
            if damage:
                launch = request.launch
                self._damage.append(f"kernel {launch.name} ({kernel_file(launch.jit)}): {damage}")
                return False
            self._sound.add(request.hash)
        return True

    def _report_damage(self) -> None:
        found, self._damage = self._damage, []
        for text in dict.fromkeys(found):
            warn(text)

    def _needs_no_compiler(self, request: CompileRequest) -> bool:
        """Whether a request is in Triton's cache, or can't be searched for there."""
        try:
            return self._is_stored(request)
        except Exception:
            return True

    def _lower(self, request: CompileRequest, run: _Run, result: FrontEndResult = None) -> Future[FarmAnswer] | None:
        if isinstance(result, Crashed):
            raise CompileError(result.reason)
        if why_in_process(request.launch):
            self._is_stored(request)  # what is damaged there must go
            run.finished.append(self._here(request))
            return None
        lowered = result or lower(request)
        identity = lowered.identity()
        if identity in run.equals:
            run.equals[identity].append(lowered)
            return None
        future = self.farm.submit(lowered.job, lowered.shape)
        run.futures[future] = run.equals[identity] = [lowered]
        return future

    def _finish(self, future: Future[FarmAnswer], run: _Run) -> Iterator[CompileResult]:
        outcome, equal = future.result(), run.futures.pop(future)
        run.equals.pop(equal[0].identity())
        if isinstance(outcome, NotStarted):
            yield from self._instead(outcome.reason, equal)
        elif isinstance(outcome.answer, CompileFailed) and outcome.answer.refused:
            yield from self._instead(outcome.answer.reason, equal)
        elif isinstance(outcome.answer, Done):
            sys.stderr.write(outcome.output)  # dumps and remarks that environment variables have enabled
            for lowered in equal:
                yield self._kept(lowered, outcome.answer)
        else:
            answer = outcome.answer
            why = with_words(answer.reason, outcome.output, last=isinstance(answer, Died))
            for lowered in equal:
                yield lowered.request.launch, _of_job(lowered, why, answer.passing)

    def _instead(self, reason: str, equal: list[Lowered]) -> Iterator[CompileResult]:
        if reason not in self._said:
            self._said.add(reason)
            warn(f"kernels are compiled in this process, one by one: {reason}")
        for lowered in equal:
            try:
                self._is_stored(lowered.request)  # what is damaged there must go
                yield self._here(lowered.request)
            except Exception as exc:
                yield lowered.request.launch, refusal(lowered.request.launch, exc)

    def _kept(self, lowered: Lowered, done: Done) -> CompileResult:
        try:
            lowered.request.source.hash()  # raises as Triton's would; only storing waits for the whole hash
            made = made_of(lowered, done, self._store.put(lowered, done))
            notify_listeners(made, done)
        except Exception as exc:  # Triton refuses to hash some kernels: what they name may change
            return lowered.request.launch, refusal(lowered.request.launch, exc)
        return lowered.request.launch, made

    def _counted(self, request: CompileRequest) -> contextlib.AbstractContextManager[object]:
        """A compiler in this process is one of the host's; what Triton's cache has needs none."""
        return contextlib.nullcontext() if self._needs_no_compiler(request) else TOKENS.token(lambda: False)

    def _here(self, request: CompileRequest) -> CompileResult:
        """Run ``triton.compile`` in this process, which searches its cache first."""
        import triton

        with _IN_PROCESS, self._counted(request):
            options = dict(vars(request.launch.options))
            kernel = triton.compile(request.source, target=request.target, options=options)
        notify_post_compile(request)
        return request.launch, kernel


def stop(stopped: Future[None]) -> None:
    """Let a stream end early, from whatever thread, without waiting for that."""
    with contextlib.suppress(InvalidStateError):  # it was asked to before
        stopped.set_result(None)


def _wait(run: _Run) -> None:
    """Wait until a job is done, the run is stopped, or Triton's cache can be searched."""
    others: set[Future[Any]] = {run.stopped, *([prepare_hashes()] if run.unsearched else [])}
    wait({*run.futures, *others}, return_when=FIRST_COMPLETED)


def is_passing(error: TrialError) -> bool:
    """Whether the same compilation may succeed another time, so that the error must not be stored."""
    return isinstance(error, EnvironmentFault) or (error.__cause__ is not None and is_fault(error.__cause__))


def refusal(launch: Specialized, why: Exception | str, fault: bool = False) -> CompileError:
    """The error of one launch: kernel, file, target, and the compiler's message; with ``fault``, or if ``why`` is one,
    an :class:`EnvironmentFault` that says what to do."""
    text = why if isinstance(why, str) else _text(why)
    path = kernel_file(launch.jit)
    name = f"kernel {launch.name} ({encodable(path)}) for {launch.target}"
    error = CompileError(f"{name}: {text}")
    if encodable(path) != path:  # Triton's bindings refuse it for every kernel
        cause = f"Triton can't take its path under an ASCII locale ({text.splitlines()[0]})"
        error = _machines_fault(name, cause, "set PYTHONUTF8=1, or a locale of UTF-8 (LC_ALL=C.UTF-8)")
    elif fault or is_fault(why):
        error = _machines_fault(name, text, remedy(why))
    if isinstance(why, Exception):
        error.__cause__ = _without_frames(why)
    return error


def _machines_fault(name: str, cause: str, to_do: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{name} could not be compiled, which is this machine's doing and says nothing of the kernel: {cause}\n"
        f"What to do: {to_do}; then run again"
    )


def _of_job(lowered: Lowered, why: str, fault: bool = False) -> CompileError:
    error = refusal(lowered.request.launch, why, fault)
    if lowered.job.ext in FIRST_STAGES:
        error.ttir_sha256 = hashlib.sha256(strip_locations(lowered.job.ir).encode()).hexdigest()
    return error


def _without_frames(error: Exception) -> Exception:
    """The same exception without traceback: the front end's frames hold MLIR modules, and a stored error would keep
    them."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _text(error: BaseException) -> str:
    """An exception's text and that of its first cause: Triton's front end shows the line without the reason."""
    text = str(error).strip() or type(error).__name__
    while error.__cause__ is not None:
        error = error.__cause__
    first = str(error).strip()
    return text if first in text else f"{text}\n{first}"
