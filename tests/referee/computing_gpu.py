"""A device whose kernels are functions of a test, a recording for it, and processes that answer as sealed ones do."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.msgpack import encode as encoded

from kerntune.base.device import Target, typical_device
from kerntune.base.recording import Launch, Param, Recording, Storage, View, Zeros
from kerntune.gpu.base import binary_of_ptx
from kerntune.gpu.program import Loader
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.referee import gpu_replay, gpu_times
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.declared_inputs import content_of, parse_line
from kerntune.referee.hostile_recording import CheckedCall
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.reasons import Refusal
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import ExpectedSeed, ReplaySide, TimeTask
from kerntune.referee.timed_contents import (
    RightCandidate,
    variation_of,
)
from kerntune.timing import paired_processes

TARGET = Target.parse("cuda:90")
CASE = parse_line("x: f32[1024]")
NBYTES = 4096
POISON = b"\xf1\x7f" * 4
FLIPPED = bytes(255 - i for i in range(256))

Compute = Callable[[int, bytes], "bytes | None"]


def right(number: int, x: bytes) -> bytes:
    """All bits flipped."""
    return x.translate(FLIPPED)


class ComputingGpu(FakeGpu):
    """Its launches run ``compute`` on the first argument's memory, and put what that gives into the last one's. The
    number is that of the execution."""

    def __init__(self, compute: Compute = right, beside: bool = False, ns: float = 1_000_000.0) -> None:
        super().__init__(typical_device(TARGET), Script())
        self.compute, self.beside, self.executions, self.ns = compute, beside, 0, ns
        self.collected: list[Callable[[], None]] | None = None
        self.did: list[str] = []
        """What was done, in order: ``reset``, ``flush``, ``graph of 2``, ``calls of 2``."""

    def prepare(self, function: Any, grid: Any, params: Any, addresses: Sequence[int | None]) -> Callable[[], None]:
        if function.binary.symbol != CALL.recording.binaries[0].symbol:  # one of kerntune's own kernels
            return super().prepare(function, grid, params, addresses)
        buffers = [b for a in addresses if a and (b := self._containing(a)) is not None]

        def call() -> None:
            if self.collected is not None:
                self.collected.append(call)
                return
            self.executions += 1
            found = self.compute(self.executions, self.read(buffers[0]))
            if found is not None:
                self.write(buffers[-1], found)
            if self.beside:
                next(self._buffers.between(buffers[-1].address + NBYTES, 1 << 62)).put_at(0, b"\0")
            self._clock += self.ns

        return call

    def graph(self, work: Callable[[], None]) -> Any:
        self.collected = calls = list[Callable[[], None]]()
        try:
            work()
        finally:
            self.collected = None
        return self._replaying(f"graph of {len(calls)}", calls)

    def call_graph(self, *calls: Callable[[], object]) -> Any:
        def timed(call: Callable[[], object]) -> None:
            call()
            self._clock += self.ns

        return self._replaying(f"calls of {len(calls)}", [partial(timed, call) for call in calls])

    def _replaying(self, what: str, calls: Sequence[Callable[[], object]]) -> Any:
        gpu = self

        class Graph:
            def replay(self) -> None:
                gpu.did.append(what)
                for call in calls:
                    call()

        return Graph()

    def flush_l2(self) -> None:
        self.did.append("flush")
        super().flush_l2()

    def reset_persisting_l2(self) -> None:
        self.did.append("reset")


def checked_call() -> CheckedCall:
    sha = hashlib.sha256(b"k").hexdigest()
    binary = msgspec.structs.replace(binary_of_ptx("k", 4), arch="sm_90a", sha256=sha, ttir_sha256=sha)
    launch = Launch("k", "", 0, (1, 1, 1), (Param("x", "*fp32", 0), Param("o", "*fp32", 1)), (0, 1), (0, 1))
    storages = tuple(Storage(NBYTES, "float32", Zeros(), read=True, written=True) for _ in range(2))
    views = tuple(View(i, "float32", (1024,), (1,)) for i in range(2))
    recording = Recording(TARGET, (launch,), (binary,), storages, views)
    return CheckedCall(recording, {binary.sha256: b"\x7fELF"}, (0,), (views[1],), (), ())


CALL = checked_call()
VARIATION = variation_of(CASE, CALL)
SOURCE = UserCallable("r.py", "f", FUNCTION)


def side(content: bytes) -> ReplaySide:
    return ReplaySide(CALL.recording, CALL.artifacts, CALL.contents((content,)), (), POISON)


class Processes:
    """Answers as sealed processes do, each on a device of its own."""

    def __init__(self, compute: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
        self.roles: list[str] = []
        monkeypatch.setattr(gpu_times, "gpu_of", lambda with_torch: ComputingGpu(compute))
        for name, value in (("BLOCKS", 6), ("MORE_UNKNOWN_BLOCKS", 6), ("MORE_UNKNOWN", 2)):
            monkeypatch.setattr(paired_processes, name, value)
        self._compute = compute

    def ask(self, role: str, task: Any, *args: Any, **words: Any) -> Answered:
        self.roles.append(role)
        if role == "time":
            return Answered(encoded(gpu_times.timed(encoded(task))), SealedEnd(), "")
        return Answered(encoded(gpu_replay._replayed(ComputingGpu(self._compute), task)), SealedEnd(), "")


def candidate(
    deadline: float = float("inf"),
    repeatable: bool = True,
    reference: CheckedCall | Refusal = CALL,
    source: UserCallable = SOURCE,
) -> RightCandidate:
    contents = [content_of(CASE.tensors[0], seed) for seed in range(5)]
    expected = tuple(ExpectedSeed((c,), ()) for c in contents)
    results = tuple((right(0, c), c) for c in contents)
    return RightCandidate(CASE, CALL, source, reference, expected, results, repeatable, [POISON] * 5, deadline)


def varied(gpu: FakeGpu, task: TimeTask, sources: gpu_replay.VariedSources) -> gpu_times.VariedProgram:
    """A candidate's program, and what is kept of its executions."""
    sizes = [sources.sizes[i] for i in task.wanted]
    kept = gpu_times.KeptExecutions(gpu, task, sizes, random.Random(2))
    return gpu_times.VariedProgram(Loader(gpu), task, sources, kept, random.Random(1))
