"""A scripted GPU: stand-in tensors, real compilation, a virtual clock that follows a script.

For tests of everything above the driver, kerntune's own and those of its users' tools: no GPU, no real time.
"""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING

from kerntune import __version__
from kerntune.base.device import DeviceSpec, Environment, Target, typical_device
from kerntune.base.recording import Binary, Param
from kerntune.errors import BackendError, MeasurementError, OutOfResourcesError
from kerntune.gpu.base import Function, GpuEvent, GpuGraph
from kerntune.gpu.device_lock import LockedDevice
from kerntune.gpu.foreign_work import OUT, SYMBOL
from kerntune.gpu.host_gpus import CUDA, listed
from kerntune.gpu.result_kernels import PREFIX as RESULT_PREFIX
from kerntune.gpu.script import (
    ABORT,
    HANG,
    ILLEGAL_ADDRESS,
    OUT_OF_MEMORY,
    RIGHT,
    WRONG,
    FakeEvent,
    FakeFunction,
    Rule,
    Script,
)
from kerntune.gpu.scripted_memory import FakeMemory
from kerntune.gpu.scripted_work import BufferPlace, FakeBuffer, FakeWork, Mark, Repeated, Scattered, run_result_kernel

if TYPE_CHECKING:
    from kerntune.gpu.fake_cuda import StandIns


TURN_NS, CLOCK_NS = 2_000_000, 32
"""A process's turn on a shared device, and a step of the device's clock."""

FLUSH_NS = 30_000.0  # as on an H200

Beside = list[tuple[FakeBuffer, int, bytes]]
"""Writes into others' memory: whose, from which place on, and what."""


class FakeGraph:
    """Launches to repeat."""

    def __init__(self, gpu: FakeGpu, works: Sequence[FakeWork]) -> None:
        self._gpu, self._work = gpu, FakeWork.of(works)

    def replay(self) -> None:
        self._gpu.run(self._work)


class FakeGpu(FakeMemory, LockedDevice):
    """A :class:`~kerntune.gpu.base.Gpu` on a virtual clock."""

    def __init__(self, spec: DeviceSpec, script: Script, stand_ins: StandIns | None = None, ordinal: int = 0) -> None:
        super().__init__(spec, script, stand_ins)
        self.ordinal = ordinal
        self._random = random.Random(f"{script.seed}:{ordinal}" if ordinal else script.seed)
        self._clock = 0.0
        self._waited_at = -inf
        """When the device last had nothing to do between two pieces of work."""

        self.modules = 0
        """Kernels that are loaded now."""

        self._recording: list[FakeWork] | None = None
        self.launches = 0
        self.other_work: Callable[[float], bool] = lambda limit_s: True
        """Whether other work on the device ends within so many seconds."""

        self._launched: dict[int, int] = {}
        """How often kernels were launched, by rule."""

    def first_launch_arguments(self) -> tuple[str, ...]:
        if self.script.unprotected:
            raise BackendError("; ".join(self.script.unprotected))
        return () if not self.script.isolated else ("--script", self.script.to_json(), str(self.spec.target))

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext() if self._stand_ins is None else self._stand_ins.numbers.context()(self.ordinal)

    def unprotected(self) -> list[str]:
        return list(self.script.unprotected)

    def environment(self) -> Environment:
        """The real versions, the scripted device."""
        from kerntune.kernels.compat import versions

        triton, torch = versions.triton_version(), versions.torch_version()
        return Environment(triton, torch, kerntune=__version__, device=self.spec.name)

    def load(self, binary: Binary, data: bytes) -> Function:
        """Refuses what the script or the device's shared memory refuses."""
        rule = self.script.rule(binary)
        if rule.fails:
            raise OutOfResourcesError(rule.fails)
        if binary.shared > self.spec.shared_memory_per_block:
            raise OutOfResourcesError(
                f"needs {binary.shared} B shared memory a block, the device has {self.spec.shared_memory_per_block} B"
            )
        self.modules += 1
        return FakeFunction(binary)

    def unload(self, function: Function) -> None:
        self.modules -= 1

    def prepare(
        self, function: Function, grid: tuple[int, int, int], params: Sequence[Param], addresses: Sequence[int | None]
    ) -> Callable[[], None]:
        """A launch takes its scripted time and marks the buffers it points to."""
        assert isinstance(function, FakeFunction)
        if function.binary.symbol == SYMBOL:
            return partial(self._watch, self._containing(addresses[0] or 0), float(params[1].value or 0))
        if function.binary.symbol.startswith(RESULT_PREFIX):
            return partial(run_result_kernel, function.binary.symbol, self._named(params, addresses))
        rule = function.rule(self.script)
        byte = rule.leaves if rule.leaves is not None else WRONG if rule.wrong else RIGHT
        left: dict[FakeBuffer, tuple[Mark, ...]] = {
            b: (Mark(byte, i),) for i, a in enumerate(addresses) if a and (b := self._containing(a))
        }
        if left and rule.spares:
            left.popitem()
        if left and (rule.flips or rule.skips):
            last = list(left)[-1]
            left[last] = (left[last][0]._replace(flips=rule.flips, skips=rule.skips),)
        beside: Beside | None = self._beside(addresses, *rule.beside) if rule.beside is not None else []
        work = FakeWork(1, rule.time_ns, rule.time_ns, left)

        def call() -> None:
            self._misbehave(rule, beside)
            if self._recording is None:
                self.run(work)
                if rule.varies:
                    last = list(left)[-1]
                    last.content = Scattered(self.launches, byte)
            else:
                self._recording.append(work)

        return call

    def _named(self, params: Sequence[Param], addresses: Sequence[int | None]) -> dict[str, BufferPlace | int]:
        """By parameter, the number, or the buffer that a pointer points into, and how far."""
        found: dict[str, BufferPlace | int] = {}
        for param, address in zip(params, addresses, strict=True):
            buffer = self._containing(address) if address else None
            place = None if buffer is None else (buffer, (address or 0) - buffer.address)
            found[param.name] = place if place is not None else int(param.value or 0)
        return found

    def _watch(self, out: FakeBuffer | None, ns: float) -> None:
        """What the kernel of :mod:`kerntune.gpu.foreign_work` finds: a turn of others after each one of ours."""
        assert out is not None
        self._clock += ns
        turns = ceil(ns / TURN_NS) if self.script.foreign else 0
        lost = int(ns * self.script.foreign)
        data = OUT.pack(turns, lost, lost // max(turns, 1), int(ns) // CLOCK_NS, int(ns))
        out.put(Repeated(data), len(data))

    def _beside(self, addresses: Sequence[int | None], offset: int, count: int) -> Beside | None:
        """Whose memory a launch writes beside its last pointer's, from which place on, and what; None if some
        of that place has no memory."""
        last = next((b for a in reversed(addresses) if a and (b := self._containing(a))), None)
        if last is None:
            return []
        begin, found = last.address + (offset if offset < 0 else last.nbytes + offset), []
        for buffer in self._buffers.between(begin, begin + count):
            low = max(begin, buffer.address)
            high = min(begin + count, buffer.address + buffer.nbytes)
            if buffer is not last:
                found.append((buffer, low - buffer.address, bytes([WRONG]) * (high - low)))
        own = max(0, min(begin + count, last.address + last.nbytes) - max(begin, last.address))
        mapped = own + sum(len(data) for _, _, data in found)
        return found if mapped >= count or not self.script.unmapped else None

    def _misbehave(self, rule: Rule, beside: Beside | None) -> None:
        launched = self._launched[id(rule)] = self._launched.get(id(rule), 0) + 1
        if beside is None:
            self.lost = ILLEGAL_ADDRESS
            return
        for buffer, offset, data in beside:
            buffer.put_at(offset, data)
        if not rule.fault or launched <= rule.after:
            return
        if rule.fault == OUT_OF_MEMORY:
            raise MeasurementError(f"no room on {self.spec.name} for a workspace")
        if rule.fault == ABORT:
            os.abort()
        while rule.fault == HANG:
            time.sleep(3600.0)
        self.lost = rule.fault

    def run(self, work: FakeWork) -> None:
        if pause := self.script.pause(self.launches):
            self._clock += pause
            self._waited_at = self._clock
        self.launches += work.launches
        self._clock += self.script.shift * (work.time_ns + self._random.gauss(0, self.script.noise * work.spread_ns))
        work.leave()

    def event(self) -> GpuEvent:
        self.synchronize()
        return FakeEvent(self._clock)

    def reached(self, event: GpuEvent) -> bool:
        """If the device has waited for the host since."""
        assert isinstance(event, FakeEvent)
        return event.at < self._waited_at

    def elapsed_ns(self, start: GpuEvent, end: GpuEvent) -> float:
        """Exact."""
        assert isinstance(start, FakeEvent)
        assert isinstance(end, FakeEvent)
        return end.at - start.at

    def graph(self, work: Callable[[], None]) -> GpuGraph:
        """Collects launches instead of running them."""
        self._recording = []
        try:
            work()
            return FakeGraph(self, self._recording)
        finally:
            self._recording = None

    def call_graph(self, *calls: Callable[[], object]) -> GpuGraph:
        """A user's call launches nothing here, so there is nothing to record."""
        raise RuntimeError("calls can't be recorded on a scripted GPU")

    def flush_l2(self) -> None:
        """Takes time that no event pair encloses, and as long as an H200: fewer flushes outlast what the host does."""
        self._clock += FLUSH_NS

    def reset_persisting_l2(self) -> None:
        """Nothing stays here."""

    def rest(self, seconds: float = 0.5) -> None:
        """Never tired."""

    def idle(self, limit_s: float) -> bool:
        return self.other_work(limit_s)


class FakeBackend:
    """Stand-in tensors and a scripted GPU, by default an H200-like one; or several of one host, each with a clock and
    memory of its own (:func:`scripted_host`)."""

    name = "fake"
    torch_device = "cuda"
    ordinal = 0
    spec: DeviceSpec
    gpu: FakeGpu

    def __init__(self, script: Script | None = None, target: str = "cuda:90", device_name: str = "Fake GPU") -> None:
        spec = typical_device(Target.parse(target)).but(name=device_name)
        self._be_one_of((spec,), script or Script())

    def _be_one_of(self, specs: Sequence[DeviceSpec], script: Script) -> None:
        from kerntune.gpu.fake_cuda import StandIns

        self.stand_ins = self.tensors = StandIns(specs[0], others=specs[1:])
        self._of_host = [self, *(copy.copy(self) for _ in specs[1:])]
        for number, (one, spec) in enumerate(zip(self._of_host, specs, strict=True)):
            one.ordinal, one.spec, one._of_host = number, spec, self._of_host
            one.gpu = FakeGpu(spec, script, self.stand_ins, number)

    @property
    def count(self) -> int:
        return len(self._of_host)

    def current(self) -> int:
        return self.stand_ins.numbers.current()

    def on(self, ordinal: int) -> FakeBackend:
        return self._of_host[ordinal]

    def activate(self) -> AbstractContextManager[None]:
        return self.stand_ins.activate()

    def end_reason(self, error: BaseException) -> str | None:
        from kerntune.gpu.fake_cuda import static_reason

        return static_reason(error)


def scripted_host(devices: int | Sequence[str], script: Script | None = None) -> FakeBackend:
    """The first visible device of a host with so many scripted GPUs, equal ones or one of each target (``cuda:90``).

    Each has an id of its own, by which processes share it: two that make the same host have the same GPUs.
    ``CUDA_VISIBLE_DEVICES`` chooses and orders them by number or UUID, as real ones.
    """
    targets = ["cuda:90"] * devices if isinstance(devices, int) else list(devices)
    specs = [_numbered(target, number) for number, target in enumerate(targets)]
    seen = [found for entry in listed(os.environ, CUDA, len(specs)) if (found := _named(specs, entry)) is not None]
    made = FakeBackend(script, str(seen[0].target))
    made._be_one_of(seen, script or Script())
    return made


def _named(specs: Sequence[DeviceSpec], entry: str) -> DeviceSpec | None:
    if entry.isdecimal():
        return specs[int(entry)] if int(entry) < len(specs) else None
    return next((spec for spec in specs if f"GPU-{spec.uuid}".startswith(entry)), None)


def _numbered(target: str, number: int) -> DeviceSpec:
    """Equal targets are equal models, others are others."""
    spec = typical_device(Target.parse(target))
    return spec.but(name=f"Fake {spec.name}", uuid=f"fa4e{number:04x}-0000-0000-0000-000000000000")
