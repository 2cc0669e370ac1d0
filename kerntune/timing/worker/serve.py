"""The worker's side: a device, one request after the other."""

from __future__ import annotations

import os
import random
from dataclasses import astuple

from kerntune.base.frames import Reader, send
from kerntune.base.numerics import MADE_UP, ComparedResults
from kerntune.base.orphans import end_with_parent
from kerntune.errors import BackendError, KerntuneError, OutOfResourcesError, ReplayError
from kerntune.gpu.base import Executor
from kerntune.gpu.memory import Memory, make_source
from kerntune.gpu.program import Loader, Program
from kerntune.timing.paired import Pairing, stored_content
from kerntune.timing.worker.layout import Scatter
from kerntune.timing.worker.requests import Message, PairReply, PairRequest, Ready, RequestFailed


def serve(ordinal: int) -> None:
    """Answer requests on standard input until it closes. Libraries' output goes to standard error."""
    from kerntune.gpu.driver_gpu import DriverGpu

    outbox = os.dup(1)
    os.dup2(2, 1)
    end_with_parent(0, os.getppid())
    try:
        gpu = DriverGpu(ordinal)
    except BackendError as exc:
        send(outbox, RequestFailed(str(exc), replayable=False))
        return
    send(outbox, Ready(gpu.spec.name))
    import numpy  # noqa: F401 - it makes most contents of memory, and is loaded while the first request is prepared

    chance = random.Random()
    requests: Reader[Message] = Reader(0, Message)
    for request in requests:
        send(outbox, answer(gpu, request, chance))


def answer(gpu: Executor, request: Message, chance: random.Random | None = None) -> Message:
    """The reply to a request; failures are replies too."""
    if not isinstance(request, PairRequest):
        return RequestFailed(f"a worker can't answer {type(request).__name__}", replayable=False)
    try:
        return run_pair(gpu, request, chance)
    except (ReplayError, OutOfResourcesError) as exc:
        return RequestFailed(str(exc), replayable=False)
    except KerntuneError as exc:
        return RequestFailed(str(exc))


def run_pair(gpu: Executor, request: PairRequest, chance: random.Random | None = None) -> PairReply:
    """Lay out memory, load both sides and time them in turn; everything is freed again.

    ``chance`` decides where memory and code lie (:mod:`kerntune.timing.worker.layout`).
    """
    if request.a.hidden_pointers or request.b.hidden_pointers:
        raise ReplayError("it follows addresses, which lead somewhere else in this process")
    loaders, scatter = (Loader(gpu), Loader(gpu)), Scatter(gpu, chance or random.Random())
    try:
        scatter.memory()
        scatter.code((request.a, request.b), request.artifacts)
        return _timed(gpu, request, loaders)
    finally:
        for loader in loaders:
            loader.close()
        scatter.close()


def _timed(gpu: Executor, request: PairRequest, loaders: tuple[Loader, Loader]) -> PairReply:
    """Each side has a loader of its own, so that equal code is loaded twice too, as different code is."""
    sources = [make_source(gpu, s, stored_content(s, request.artifacts)) for s in request.storages]
    memory, sides = Memory(gpu, request.storages, sources, spaced=request.spaced), (request.a, request.b)
    a, b = (Program(loader, x, memory, request.artifacts) for loader, x in zip(loaders, sides, strict=True))
    pair = Pairing(a, b, request.seed, request.timer).run(request.blocks, 0.99)
    return PairReply(pair.a_ns, pair.b_ns, astuple(pair.foreign), _results(a, b) if request.results else None)


def _results(a: Program, b: Program) -> ComparedResults:
    from kerntune.gpu.result_compare import compare_results  # the first of a case's processes alone compares

    return compare_results(a, b, MADE_UP)
