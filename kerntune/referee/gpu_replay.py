"""Replays on a GPU, in sealed processes: what single executions leave."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, cast

import msgspec

from kerntune.errors import BackendError, KerntuneError, OutOfResourcesError
from kerntune.gpu.base import Buffer, Executor, Gpu, GpuGraph
from kerntune.gpu.compare import DeviceBytes
from kerntune.gpu.driver_gpu import DriverGpu
from kerntune.gpu.guards import GuardedBuffer, GuardReader
from kerntune.gpu.memory import Memory, Source
from kerntune.gpu.program import Loader, Program
from kerntune.referee.hostile_recording import given_contents
from kerntune.referee.live_reference import open_by_torch
from kerntune.referee.operator_replay import run_operator, tensor_at
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import (
    CallRefused,
    DeviceAnswer,
    ReplayAnswer,
    ReplaySide,
    ReplayTask,
    Rolls,
    Variation,
)
from kerntune.timing.sampling import measured_bandwidth

HASHED_AT_ONCE = 4
"""Contents that are hashed beside each other: to hash takes longer than to read from the device."""

READ_ZONES = 64
"""Guarded storages in all executions up to which reading their zones is quicker than loading a kernel that compares."""

ORDINAL = 0
"""Of the devices that ``CUDA_VISIBLE_DEVICES`` leaves."""


def device_answer(task: bytes) -> DeviceAnswer:
    """What GPU there is."""
    try:
        gpu = DriverGpu(ORDINAL)
        return DeviceAnswer(gpu.spec, measured_bandwidth(gpu), gpu.free_bytes())
    except KerntuneError as exc:
        return DeviceAnswer(problem=str(exc))


def prewarm(with_torch: bytes) -> None:
    """Open the device, with torch where a user's code is to run. Where that fails, so will the task, and says so."""
    with contextlib.suppress(KerntuneError, RuntimeError):
        if msgspec.msgpack.decode(with_torch, type=bool):
            open_by_torch()
        else:
            DriverGpu(ORDINAL)


class VariedSources:
    """First contents on the device. Varied storages have theirs twice in a row, so that any rolled content is one
    piece, or several contents."""

    def __init__(self, gpu: Executor, side: ReplaySide, variation: Variation) -> None:
        self._gpu, self.variation = gpu, variation
        self.sizes = [s.nbytes for s in side.recording.storages]
        self.given = [side.poison if content is None else content for content in given_contents(side)]
        self._buffers = [self._made(i) for i in range(len(self.sizes))]

    def _made(self, storage: int) -> Buffer:
        given, nbytes = self.given[storage], self.sizes[storage]
        if storage in self.variation.storages:
            nbytes = max(2 * nbytes, len(given))
        buffer = self._gpu.allocate(nbytes)
        self._gpu.repeat(buffer, given)
        return buffer

    def plain(self) -> list[Source]:
        """As a memory takes them."""
        return [Source(self._gpu.part(b, 0, n), shared=False) for b, n in zip(self._buffers, self.sizes, strict=True)]

    def content(self, storage: int, rolls: Rolls) -> Buffer:
        """What a storage holds before an execution."""
        distance = dict(zip(self.variation.storages, rolls, strict=True)).get(storage, 0)
        return self._gpu.part(self._buffers[storage], distance, self.sizes[storage])

    def damaged(self) -> bool:
        """Whether any first content has changed."""
        return any(
            not _begins_over_and_over(self._gpu.read(b, b.nbytes), g)
            for b, g in zip(self._buffers, self.given, strict=True)
            if b.nbytes
        )


def _begins_over_and_over(content: bytes, given: bytes) -> bool:
    """Whether ``content`` is ``given`` over and over, the last one cut off."""
    return content.startswith(given[: len(content)]) and content[len(given) :] == content[: -len(given)]


class ReplayedProgram(Program):
    """A side's program, with torch's operators between its launches."""

    def __init__(self, loader: Loader, side: ReplaySide, memory: Memory) -> None:
        super().__init__(loader, side.recording, memory, side.artifacts)
        self.operators = side.operators

    def bound(self, replica: int) -> list[Callable[[], None]]:
        """As every program's, and operators before the launches that they come before."""
        working = [i for i, launch in enumerate(self.recording.launches) if 0 not in launch.grid]
        calls = [(i, 1, call) for i, call in zip(working, super().bound(replica), strict=True)]
        calls += [(row.before, 0, partial(run_operator, row, self._tensors(replica))) for row in self.operators]
        return [call for *_, call in sorted(calls, key=lambda one: one[:2])]

    def _tensors(self, replica: int) -> Callable[[int], Any]:
        @lru_cache
        def tensor_of(index: int) -> Any:
            view = self.recording.views[index]
            buffer = self.place(replica, view.storage)
            return tensor_at(view, DeviceBytes(buffer.address, buffer.nbytes))

        return tensor_of

    def graph(self, runs: int, replicas: int) -> GpuGraph:
        """As every program's; through torch where its operators allocate."""
        if not self.operators:
            return super().graph(runs, replicas)
        return cast("Gpu", self.gpu).call_graph(*(partial(self.enqueue, i % replicas) for i in range(runs)))


def gpu_of(with_torch: bool) -> Executor:
    """The device; of torch as well where that runs there."""
    if not with_torch:
        return DriverGpu(ORDINAL)
    from kerntune.gpu.cuda import CudaGpu

    return CudaGpu(ORDINAL)


# results


def replayed_on_gpu(task: ReplayTask) -> ReplayAnswer:
    """Each execution alone, its code loaded anew, between guard zones. Failures are answers too."""
    try:
        return _replayed(gpu_of(bool(task.side.operators)), task)
    except OutOfResourcesError as exc:
        return ReplayAnswer(refused=refused_for(Reason.COMPILE, exc))
    except BackendError as exc:
        return ReplayAnswer(refused=refused_for(Reason.FAULT, exc))
    except KerntuneError as exc:
        return ReplayAnswer(refused=refused_for(Reason.REPLAY, exc))


def _replayed(gpu: Executor, task: ReplayTask) -> ReplayAnswer:
    side, storages = task.side, task.side.recording.storages
    reader = GuardReader(gpu, on_device=len(storages) * len(task.rolls) > READ_ZONES)
    sources = VariedSources(gpu, side, task.variation)
    guarded = {i: GuardedBuffer(gpu, s.nbytes) for i, s in enumerate(storages)}
    left, outside = list[list[Future[bytes]]](), 0
    with Digests(gpu, task.whole) as digests:
        for rolls in (*task.rolls, task.rolls[0]) if task.whole else task.rolls:
            given = [sources.content(i, rolls) for i in range(len(storages))]
            first = [Source(x, shared=False, home=guarded[i].buffer) for i, x in enumerate(given)]
            memory, loader = Memory(gpu, storages, first), Loader(gpu)
            ReplayedProgram(loader, side, memory).enqueue()
            gpu.synchronize()
            buffers = [gpu.part(guarded[i].buffer, 0, storages[i].nbytes) for i in task.wanted]
            left.append([digests.of(buffer) for buffer in buffers])
            outside += sum(damage.count for damage in reader.damages(guarded))
            loader.close()
    contents = [tuple(x.result() for x in each) for each in left]
    repeated = contents.pop() if task.whole else contents[0]
    before = [side.contents[i] if task.rolls == ((),) else None for i in task.wanted]
    flat = tuple(None if x == b else x for each in contents for x, b in zip(each, before, strict=True))
    return ReplayAnswer(flat, outside + sources.damaged(), repeated == contents[0])


class Digests:
    """What buffers hold, or its SHA-256: of one while the next is read."""

    def __init__(self, gpu: Executor, whole: bool) -> None:
        self._gpu, self._whole = gpu, whole

    def __enter__(self) -> Digests:
        self._threads = ThreadPoolExecutor(HASHED_AT_ONCE)
        return self

    def of(self, buffer: Buffer) -> Future[bytes]:
        """Read a buffer now."""
        content = self._gpu.read(buffer, buffer.nbytes)
        return self._threads.submit(lambda: content if self._whole else hashlib.sha256(content).digest())

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()


def refused_for(reason: Reason, exc: Exception) -> CallRefused:
    """A failure as an answer."""
    return CallRefused(reason.value, str(exc)[:1000])
