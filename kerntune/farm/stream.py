"""Launches in, kernels out, in the order in which they are done."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from typing import Any, Union

from kerntune.errors import CompileError
from kerntune.farm.farm import Farm, NotStarted, Outcome
from kerntune.farm.frontend import Lowered, Request, lower, request_of, shape_of, why_in_process
from kerntune.farm.hooks import tell, tell_post_compile
from kerntune.farm.process import Died, with_words
from kerntune.farm.protocol import Done, Failed
from kerntune.farm.store import done_again, is_stored, store
from kerntune.kernels.source import kernel_file
from kerntune.kernels.specialize import Specialized

_IN_PROCESS = threading.Lock()
"""One compilation at a time in this process: Triton 3.6 makes wrong code when threads compile for several targets."""

Result = tuple[Specialized, Union[Any, CompileError]]
"""A launch with Triton's ``CompiledKernel``, or with why there is none."""


class Compilations:
    """Compiles launches on a farm, equal jobs once, and leaves the kernels in Triton's disk cache."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self._made: dict[str, dict[str, str] | str] = {}
        """By a job's identity: the files of its kernel, or why there is none."""

        self.seconds: dict[str, float] = {}
        """What the stages of a kernel took, by the hash that Triton's cache goes by; nothing for what it answered."""

        self._said: set[str] = set()

    def stream(self, launches: Sequence[Specialized]) -> Iterator[Result]:
        """Each launch's result as it comes, cached ones first. The front end runs here, before the first result."""
        finished: list[Result] = []
        requests: list[Request] = []
        for launch in launches:
            self._admit(launch, finished, requests)
        futures: dict[Future[Outcome], list[Lowered]] = {}
        try:
            self._submit(requests, finished, futures)
            yield from finished
            for future in as_completed(list(futures)):
                yield from self._finish(future.result(), futures.pop(future))
        finally:
            for future in futures:
                future.cancel()

    def _admit(self, launch: Specialized, finished: list[Result], requests: list[Request]) -> None:
        """Sort a launch by where it is compiled: nowhere (it is in the cache), here, or on the farm."""
        try:
            request = request_of(launch)
            if is_stored(request) or why_in_process(launch):
                finished.append(self._here(request))
            else:
                requests.append(request)
        except Exception as exc:
            finished.append((launch, refusal(launch, exc)))

    def _submit(
        self, requests: list[Request], finished: list[Result], futures: dict[Future[Outcome], list[Lowered]]
    ) -> None:
        """Run the front end, longest-expected first, and hand each distinct job to the farm at once."""
        equals: dict[str, list[Lowered]] = {}
        self.farm.warm(len(requests))
        requests.sort(key=lambda r: -self.farm.expectation.seconds(shape_of(r.launch)))
        for request in requests:
            try:
                lowered = lower(request)
                again = self._again(lowered)
                identity = lowered.identity()
                if again is not None:
                    finished.append(again)
                elif identity in equals:
                    equals[identity].append(lowered)
                else:
                    equals[identity] = [lowered]
                    futures[self.farm.submit(lowered.job, lowered.shape)] = equals[identity]
            except Exception as exc:
                finished.append((request.launch, refusal(request.launch, exc)))

    def _again(self, lowered: Lowered) -> Result | None:
        """What an equal job of an earlier stream came to, if there was one."""
        made = self._made.get(lowered.identity())
        if isinstance(made, str):
            return lowered.request.launch, refusal(lowered.request.launch, made)
        done = done_again(made, lowered) if made else None
        return None if done is None else self._keep(lowered, done)

    def _finish(self, outcome: Outcome, equal: list[Lowered]) -> Iterator[Result]:
        if isinstance(outcome, NotStarted):
            yield from self._instead(outcome.reason, equal)
        elif isinstance(outcome.answer, Failed) and outcome.answer.refused:
            yield from self._instead(outcome.answer.reason, equal)
        elif isinstance(outcome.answer, Done):
            sys.stderr.write(outcome.output)  # dumps and remarks that were asked for by environment variables
            for lowered in equal:
                yield self._keep(lowered, outcome.answer)
        else:
            died = isinstance(outcome.answer, Died)
            why = self._made[equal[0].identity()] = with_words(outcome.answer.reason, outcome.output, last=died)
            for lowered in equal:
                yield lowered.request.launch, refusal(lowered.request.launch, why)

    def _instead(self, reason: str, equal: list[Lowered]) -> Iterator[Result]:
        if reason not in self._said:
            self._said.add(reason)
            warnings.warn(f"kernels are compiled in this process, one by one: {reason}", RuntimeWarning, stacklevel=2)
        for lowered in equal:
            try:
                yield self._here(lowered.request)
            except Exception as exc:
                yield lowered.request.launch, refusal(lowered.request.launch, exc)

    def _keep(self, lowered: Lowered, done: Done) -> Result:
        stored = store(lowered, done)
        if done.times:
            self.seconds[lowered.request.hash] = done.seconds
        self._made[lowered.identity()] = stored.group
        tell(lowered.request, done, stored)
        return lowered.request.launch, stored.kernel

    def _here(self, request: Request) -> Result:
        import triton

        with _IN_PROCESS:
            options = dict(vars(request.launch.options))
            kernel = triton.compile(request.source, target=request.target, options=options)
        tell_post_compile(request)
        return request.launch, kernel


def refusal(launch: Specialized, why: Exception | str) -> CompileError:
    """The error of one launch: kernel, file, target, and the compiler's words."""
    text = why if isinstance(why, str) else _text(why)
    error = CompileError(f"kernel {launch.name} ({kernel_file(launch.jit)}) for {launch.target}: {text}")
    if isinstance(why, Exception):
        error.__cause__ = _without_frames(why)
    return error


def _without_frames(error: Exception) -> Exception:
    """The same exception; the front end's frames hold MLIR modules, and a remembered error would keep them."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _text(error: BaseException) -> str:
    """An exception's text and that of its first cause: Triton's front end shows the line and leaves out the reason."""
    text = str(error).strip() or type(error).__name__
    while error.__cause__ is not None:
        error = error.__cause__
    first = str(error).strip()
    return text if first in text else f"{text}\n{first}"
