"""A process that runs launches which may fault, hang or abort; :mod:`kerntune.timing.worker` starts it.

Its words are the parent's process id, the descriptor of staging memory of the host, then what
:meth:`kerntune.gpu.base.Gpu.looking_process` says of the device. It dies with its parent, and holds nothing but copies.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence

import msgspec

from kerntune.base.device import Target, typical_device
from kerntune.base.frames import Reader, send
from kerntune.base.recording import Artifacts, Recording
from kerntune.compiling.forking import die_with
from kerntune.errors import BackendError, KerntuneError, MeasurementError, OutOfResourcesError, ReplayError
from kerntune.gpu.base import Buffer, Executor
from kerntune.gpu.guards import GuardedBuffer, GuardReader
from kerntune.gpu.memory import Memory, Source, used_storages
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.staging import Receiver
from kerntune.timing.worker.look_requests import (
    ChangedGuard,
    ForgetRequest,
    LookFailed,
    LookMessage,
    LookReply,
    LookRequest,
    LooksRequest,
    Staged,
    StageRequest,
)
from kerntune.timing.worker.requests import Ready, RequestFailed

SPOILED = 3
"""Exit code of a worker whose device answers nothing any more."""


class Looker:
    """A device, and the storages of one call on it: their first content, and guarded memory to run in."""

    def __init__(self, gpu: Executor, file: int) -> None:
        self._gpu, self._receiver, self._reader = gpu, Receiver(gpu, file), GuardReader(gpu)
        self._loader, self._nothing = Loader(gpu), Source(gpu.allocate(0), shared=True)
        self._pristine: dict[int, Buffer] = {}
        self._guarded: dict[int, GuardedBuffer] = {}
        self._running = 0
        """The place of the launch that runs, among those of a look."""

    def prepare(self) -> None:
        """What the first look needs, before anything is asked. A help, no need."""
        with contextlib.suppress(KerntuneError):
            self._reader.prepare()

    def answers(self, request: LookMessage) -> Iterator[LookMessage]:
        """The replies to a request, each as it is known."""
        for one in request.looks if isinstance(request, LooksRequest) else (request,):
            yield self.answer(one)

    def answer(self, request: LookMessage) -> LookMessage:
        """The reply to a request. A failed look that leaves the device usable isn't ``spoiled``."""
        if isinstance(request, StageRequest):
            return self._stage(request)
        if isinstance(request, ForgetRequest):
            self._pristine.clear()
            self._guarded.clear()
            self._reader.forget()
            self._loader.close()
            return Staged()
        if isinstance(request, LookRequest):
            return self._look(request)
        return RequestFailed(f"a process for first looks can't answer {type(request).__name__}", replayable=False)

    def _stage(self, request: StageRequest) -> LookMessage:
        try:
            for storage, (nbytes, residue) in request.layout.items():
                self._make_room(storage, nbytes, residue)
            pieces = [(piece, self._pristine[piece.storage]) for piece in request.pieces]
            self._receiver.take(request.kind, request.handle, pieces)
        except KerntuneError as exc:
            return RequestFailed(str(exc))
        return Staged()

    def _make_room(self, storage: int, nbytes: int, residue: int) -> None:
        if storage not in self._guarded or self._guarded[storage].nbytes != nbytes:
            self._pristine[storage] = self._gpu.allocate(nbytes)
            self._guarded[storage] = GuardedBuffer(self._gpu, nbytes, residue)

    def _look(self, request: LookRequest) -> LookMessage:
        """What is loaded stays until the tuning is over: the driver would unload it while the other process waits."""
        self._running = 0
        try:
            return self._run(request.recording, request.artifacts)
        except (MeasurementError, BackendError, ReplayError, OutOfResourcesError) as exc:
            return LookFailed(
                str(exc),
                self._is_lost(),
                isinstance(exc, OutOfResourcesError),
                self._running,
                isinstance(exc, MeasurementError),
            )

    def _run(self, recording: Recording, artifacts: Artifacts) -> LookReply:
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
            guards += self._changed_guards(self._running)
        return LookReply(ns, tuple(guards))

    def _sources(self, recording: Recording) -> list[Source]:
        used = set(used_storages(recording))
        return [self._source(i) if i in used else self._nothing for i in range(len(recording.storages))]

    def _source(self, storage: int) -> Source:
        if storage not in self._guarded:
            raise ReplayError(f"storage {storage} was not staged")
        return Source(self._pristine[storage], shared=False, home=self._guarded[storage].buffer)

    def _changed_guards(self, launch: int) -> list[ChangedGuard]:
        found = self._reader.damages(self._guarded)
        for damage in found:
            self._guarded[damage.storage].mend()
        return [ChangedGuard(launch, x.storage, x.first, x.last, x.count) for x in found]

    def _is_lost(self) -> bool:
        try:
            self._gpu.synchronize()
        except BackendError:
            return True
        return False


def serve(gpu: Executor, file: int, outbox: int) -> int:
    """Answer requests on standard input until it closes; the exit code."""
    looker = Looker(gpu, file)
    send(outbox, Ready(gpu.spec.name))
    requests: Reader[LookMessage] = Reader(0, LookMessage)
    looker.prepare()
    for reply in (reply for request in requests for reply in looker.answers(request)):
        send(outbox, reply)
        if isinstance(reply, LookFailed) and reply.spoiled:
            return SPOILED
    return 0


def open_device(words: Sequence[str]) -> Executor:
    """The device that :meth:`kerntune.gpu.base.Gpu.looking_process` tells of."""
    if words[0] != "--script":
        from kerntune.gpu.driver_gpu import DriverGpu

        return DriverGpu(int(words[0]))
    from kerntune.gpu.scripted import FakeGpu, Script

    return FakeGpu(typical_device(Target.parse(words[2])), Script.from_json(words[1]))


def main(words: Sequence[str]) -> int:
    """Serve one parent. What others print goes to standard error; an abort writes no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    die_with(int(words[0]))
    outbox = os.dup(1)
    os.dup2(2, 1)
    try:
        gpu = open_device(words[2:])
    except KerntuneError as exc:
        send(outbox, RequestFailed(str(exc), replayable=False))
        return 1
    return serve(gpu, int(words[1]), outbox)
