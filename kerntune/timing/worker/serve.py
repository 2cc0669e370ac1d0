"""The side of a process that times pairs: a device, one request after the other.

Memory and code are laid out anew for each request, so that the requests of one process differ as processes do.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Sequence
from dataclasses import astuple

from kerntune.base.frames import Reader, send
from kerntune.base.numerics import MADE_UP
from kerntune.base.orphans import end_with_parent
from kerntune.base.recording import Artifacts, Recording
from kerntune.errors import BackendError, KerntuneError, MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gpu.base import Buffer, Executor, Function
from kerntune.gpu.memory import Memory, make_source
from kerntune.gpu.program import Loader, Program
from kerntune.timing.paired import Pairing, slots_alike, stored_content
from kerntune.timing.worker.requests import Message, PairReply, PairRequest, Ready, RequestFailed

MAX_PADS = 12
"""Allocations made before a request's own; about half of them are freed again, so that there are holes too."""

PAD_BITS = (9, 23)
"""Sizes from 512 B to 8 MiB, their logarithm uniform: below and above the 2 MiB pages that CUDA maps memory in
(CUDA driver API, ``cuMemGetAllocationGranularity``)."""

MAX_LOADS = 3
"""A binary is loaded up to so many times before it is loaded to run, so that its place in code memory varies."""


class Scatter:
    """Random allocations and code before a request's own in the device's memory, held until :meth:`close`."""

    def __init__(self, gpu: Executor, chance: random.Random) -> None:
        self._gpu, self._chance = gpu, chance
        self._pads: list[Buffer] = []
        self._loaded: list[Function] = []

    def memory(self) -> None:
        """Allocate pads of random sizes and free a random half of them."""
        sizes = [1 << self._chance.randint(*PAD_BITS) for _ in range(self._chance.randint(0, MAX_PADS))]
        pads: list[Buffer] = []
        with contextlib.suppress(MeasurementError):  # a full device has no memory for more pads
            for size in sizes:
                pads.append(self._gpu.allocate(self._chance.randint(size // 2, size)))
        self._pads = [p for p in pads if self._chance.random() < 0.5]

    def code(self, sides: Sequence[Recording], artifacts: Artifacts) -> None:
        """Load the sides' binaries a random number of times each, in random order."""
        known = {b.sha256: b for side in sides for b in side.binaries if b.sha256 in artifacts}
        binaries = [b for b in known.values() if not b.unreplayable]
        wanted = [b for b in binaries for _ in range(self._chance.randint(0, MAX_LOADS))]
        self._chance.shuffle(wanted)
        self._loaded += [self._gpu.load(b, artifacts[b.sha256]) for b in wanted]

    def close(self) -> None:
        """Free all of it."""
        for function in self._loaded:
            self._gpu.unload(function)
        self._pads.clear()


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

    ``chance`` decides where memory and code lie (:mod:`kerntune.timing.worker.serve`).
    """
    if request.a.hidden_pointers or request.b.hidden_pointers:
        raise ReplayError("it follows addresses, which lead somewhere else in this process")
    scatter, sides, artifacts = Scatter(gpu, chance or random.Random()), (request.a, request.b), request.artifacts
    loaders = Loader(gpu), Loader(gpu)  # a side each, so that equal code is loaded twice too, as different code is
    try:
        scatter.memory()
        scatter.code(sides, artifacts)
        sources = [make_source(gpu, s, stored_content(s, artifacts)) for s in request.storages]
        memory = Memory(gpu, request.storages, sources, spaced=request.spaced)
        a, b = (Program(loader, x, memory, artifacts) for loader, x in zip(loaders, sides, strict=True))
        pair = Pairing(gpu, slots_alike(a, b, request.timer), request.seed).run(request.blocks)
        results = None
        if request.results:
            from kerntune.gpu.result_compare import compare_results  # the first of a case's processes alone compares

            results = compare_results(a, b, MADE_UP)
        return PairReply(pair.a_ns, pair.b_ns, astuple(pair.foreign), results)
    finally:
        for loader in loaders:
            loader.close()
        scatter.close()
