"""A process that runs launches which may fault, hang or abort; :mod:`kerntune.timing.worker` starts it.

Its words are the parent's process id, the descriptor of staging memory of the host, then what
:meth:`kerntune.gpu.base.Gpu.first_launch_arguments` says of the device. It dies with its parent, and holds nothing but
copies.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence

import msgspec

from kerntune.base.device import Target, typical_device
from kerntune.base.frames import Reader, send
from kerntune.base.orphans import end_with_parent
from kerntune.base.recording import Artifacts, Recording
from kerntune.errors import BackendError, KerntuneError, MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gpu.base import Buffer, Executor
from kerntune.gpu.guards import GuardedBuffer, GuardReader
from kerntune.gpu.memory import Memory, Source, used_storages
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.staging import Receiver
from kerntune.timing.worker.requests import (
    ChangedGuard,
    FirstLaunchesRequest,
    FirstLaunchFailed,
    FirstLaunchMessage,
    FirstLaunchReply,
    FirstLaunchRequest,
    ForgetRequest,
    Ready,
    RequestFailed,
    Staged,
    StageRequest,
)

SPOILED = 3
"""Exit code of a worker whose device answers nothing any more."""


class FirstLaunchWorker:
    """A device, and the storages of one call on it: their first content, and guarded memory to run in."""

    def __init__(self, gpu: Executor, file: int) -> None:
        self._gpu, self._receiver, self._reader = gpu, Receiver(gpu, file), GuardReader(gpu)
        self._loader, self._nothing = Loader(gpu), Source(gpu.allocate(0), shared=True)
        self._pristine: dict[int, Buffer] = {}
        self._guarded: dict[int, GuardedBuffer] = {}
        self._running = 0
        """The place of the launch that runs, among those of a request."""

    def prepare(self) -> None:
        """What the first launch needs, before anything is asked. A help, no need."""
        with contextlib.suppress(KerntuneError):
            self._reader.prepare()

    def answers(self, request: FirstLaunchMessage) -> Iterator[FirstLaunchMessage]:
        """The replies to a request, each as it is known."""
        for one in request.requests if isinstance(request, FirstLaunchesRequest) else (request,):
            yield self.answer(one)

    def answer(self, request: FirstLaunchMessage) -> FirstLaunchMessage:
        """The reply to a request. A failed launch that leaves the device usable isn't ``spoiled``."""
        if isinstance(request, StageRequest):
            return self._stage(request)
        if isinstance(request, ForgetRequest):
            self._pristine.clear()
            self._guarded.clear()
            self._reader.forget()
            self._loader.close()
            return Staged()
        if isinstance(request, FirstLaunchRequest):
            return self._first_launch(request)
        what = type(request).__name__
        return RequestFailed(f"a process for first launches can't answer {what}", replayable=False)

    def _stage(self, request: StageRequest) -> FirstLaunchMessage:
        try:
            for storage, (nbytes, residue) in request.layout.items():
                if storage not in self._guarded or self._guarded[storage].nbytes != nbytes:
                    self._pristine[storage] = self._gpu.allocate(nbytes)
                    self._guarded[storage] = GuardedBuffer(self._gpu, nbytes, residue)
            pieces = [(piece, self._pristine[piece.storage]) for piece in request.pieces]
            self._receiver.take(request.kind, request.handle, pieces)
        except KerntuneError as exc:
            return RequestFailed(str(exc))
        return Staged()

    def _first_launch(self, request: FirstLaunchRequest) -> FirstLaunchMessage:
        """What is loaded stays until the tuning is over: the driver would unload it while the other process waits."""
        self._running = 0
        try:
            return self._run(request.recording, request.artifacts)
        except (MeasurementError, BackendError, ReplayError, OutOfResourcesError) as exc:
            resources, no_memory = isinstance(exc, OutOfResourcesError), isinstance(exc, MeasurementError)
            return FirstLaunchFailed(str(exc), self._is_lost(), resources, self._running, no_memory)

    def _run(self, recording: Recording, artifacts: Artifacts) -> FirstLaunchReply:
        """Each launch by itself, in order, so that a fault and a changed guard zone have one that made them."""
        memory = Memory(self._gpu, recording.storages, self._sources(recording))
        singles = [msgspec.structs.replace(recording, launches=(x,)).pruned() for x in recording.working]
        ns, guards = 0.0, list[ChangedGuard]()
        for self._running, single in enumerate(singles):
            program = Program(self._loader, single, memory, artifacts)
            self._gpu.synchronize()
            begin = self._gpu.event()
            program.enqueue()
            ns += self._gpu.elapsed_ns(begin, self._gpu.event())
            for x in self._reader.damages(self._guarded):
                self._guarded[x.storage].mend()
                guards.append(ChangedGuard(self._running, x.storage, x.first, x.last, x.count))
        return FirstLaunchReply(ns, tuple(guards))

    def _sources(self, recording: Recording) -> list[Source]:
        used = set(used_storages(recording))
        return [self._source(i) if i in used else self._nothing for i in range(len(recording.storages))]

    def _source(self, storage: int) -> Source:
        if storage not in self._guarded:
            raise ReplayError(f"storage {storage} was not staged")
        return Source(self._pristine[storage], shared=False, home=self._guarded[storage].buffer)

    def _is_lost(self) -> bool:
        try:
            self._gpu.synchronize()
        except BackendError:
            return True
        return False


def serve_first_launches(gpu: Executor, file: int, outbox: int) -> int:
    """Answer requests on standard input until it closes; the exit code."""
    looker = FirstLaunchWorker(gpu, file)
    send(outbox, Ready(gpu.spec.name))
    requests: Reader[FirstLaunchMessage] = Reader(0, FirstLaunchMessage)
    looker.prepare()
    for reply in (reply for request in requests for reply in looker.answers(request)):
        send(outbox, reply)
        if isinstance(reply, FirstLaunchFailed) and reply.spoiled:
            return SPOILED
    return 0


def open_device(words: Sequence[str]) -> Executor:
    """The device that :meth:`kerntune.gpu.base.Gpu.first_launch_arguments` tells of."""
    if words[0] != "--script":
        from kerntune.gpu.driver_gpu import DriverGpu

        return DriverGpu(int(words[0]))
    from kerntune.gpu.script import Script
    from kerntune.gpu.scripted import FakeGpu

    return FakeGpu(typical_device(Target.parse(words[2])), Script.from_json(words[1]))


def main(words: Sequence[str]) -> int:
    """Serve one parent. What others print goes to standard error; an abort writes no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_parent(0, int(words[0]))
    outbox = os.dup(1)
    os.dup2(2, 1)
    try:
        gpu = open_device(words[2:])
    except KerntuneError as exc:
        send(outbox, RequestFailed(str(exc), replayable=False))
        return 1
    return serve_first_launches(gpu, int(words[1]), outbox)
