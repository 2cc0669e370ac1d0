"""A fresh process of ``verdict_record.py``: two recordings on one memory, timed in turn as a worker of kerntune's does.

    python benchmarks/verdict_process.py ORDINAL REQUEST

REQUEST is a file with a ``PairRequest``. Commands come in as JSON lines, an answer goes out for each. The pairs are
``kerntune.replay.Pairing``'s own. Apart from a worker it makes the memory's contents before it touches the device,
so that many processes get ready at a time and disturb nobody, and it times plain launches too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from kerntune.backend.base import Executor
from kerntune.launch import Loader, Program
from kerntune.memory import Memory, Source, content_bytes
from kerntune.recording import Recording, Storage, Stored
from kerntune.replay import Pairing
from kerntune.worker.messages import PairRequest, receive

WARM_UP_LAUNCHES = 5


def with_spin(recording: Recording, spin: int) -> Recording:
    """The recording with another value of the argument ``spin``, wherever a launch has one that isn't zero."""
    replace = msgspec.structs.replace

    def changed(param: Any) -> Any:
        return replace(param, value=spin) if param.name == "spin" and param.value else param

    launches = tuple(replace(x, params=tuple(map(changed, x.params))) for x in recording.launches)
    return replace(recording, launches=launches)


class Bench:
    """Both sides of a request on one device. :meth:`device` first; the contents were made before."""

    def __init__(self, request: PairRequest, gpu: Callable[[], Executor]) -> None:
        self._request, self._open = request, gpu
        self._contents = [content_bytes(s, self._stored(s)) for s in request.storages]

    def _stored(self, storage: Storage) -> bytes | None:
        return self._request.artifacts.get(storage.content.sha256) if isinstance(storage.content, Stored) else None

    def device(self) -> None:
        """Take the device, fill its memory, load both sides."""
        self._gpu = self._open()
        self._loader = Loader(self._gpu)
        sources = [self._source(s, data) for s, data in zip(self._request.storages, self._contents, strict=True)]
        self._contents.clear()
        self._memory = Memory(self._gpu, self._request.storages, sources)
        self._a, self._b = (self._program(x) for x in (self._request.a, self._request.b))
        self._gpu.synchronize()

    def _source(self, storage: Storage, data: bytes | None) -> Source:
        buffer = self._gpu.allocate(storage.nbytes)
        if data is None:
            self._gpu.fill(buffer, 0)
        else:
            self._gpu.write(buffer, data)
        return Source(buffer, shared=not storage.written)

    def _program(self, recording: Recording) -> Program:
        return Program(self._loader, recording, self._memory, self._request.artifacts)

    def pair(self, blocks: int, seed: int, spin: int | None = None) -> tuple[list[float], list[float]]:
        """Block times of both sides in ns; ``spin`` replaces that of side b."""
        b = self._b if spin is None else self._program(with_spin(self._request.b, spin))
        found = Pairing(self._a, b, seed).run(blocks, 0.99)
        return list(found.a_ns), list(found.b_ns)

    def plain(self, launches: int) -> dict[str, list[float]]:
        """Single executions of both sides, each alone: between two events after a flush of the L2 cache, as Triton's
        ``do_bench`` times them (``a_event``, ``b_event``), and by the host's clock until the device is idle, as a
        benchmark of a Python function does (``a_host``, ``b_host``)."""
        out: dict[str, list[float]] = {}
        for name, program in (("a", self._a), ("b", self._b)):
            for _ in range(WARM_UP_LAUNCHES):
                program.enqueue()
            out[f"{name}_event"] = self._by_events(program, launches)
            out[f"{name}_host"] = self._by_clock(program, launches)
        return out

    def _by_events(self, program: Program, launches: int) -> list[float]:
        gpu, pairs = self._gpu, []
        for _ in range(launches):
            program.restore()
            gpu.flush_l2()
            start = gpu.event()
            program.enqueue()
            pairs.append((start, gpu.event()))
        return [gpu.elapsed_ns(x, y) for x, y in pairs]

    def _by_clock(self, program: Program, launches: int) -> list[float]:
        times = []
        for _ in range(launches):
            program.restore()
            self._gpu.synchronize()
            start = time.perf_counter_ns()
            program.enqueue()
            self._gpu.synchronize()
            times.append(float(time.perf_counter_ns() - start))
        return times

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """What a command gives: ``device``, ``measure`` or ``effect``."""
        if command["do"] == "device":
            self.device()
            return {}
        start = time.perf_counter()
        a, b = self.pair(command["blocks"], command["seed"], command.get("spin"))
        paired = time.perf_counter()
        plain = self.plain(command["plain"]) if command.get("plain") else {}
        seconds = [round(paired - start, 3), round(time.perf_counter() - paired, 3)]
        return {"a": a, "b": b, "plain": plain, "seconds": seconds}


def main() -> None:
    """See the module's text."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(cores)[len(cores) // 4 :]))  # the rest is for whoever measures meanwhile

    def gpu() -> Executor:
        from kerntune.backend.driver_gpu import DriverGpu

        os.sched_setaffinity(0, cores)
        return DriverGpu(int(sys.argv[1]))

    with open(sys.argv[2], "rb") as file:
        request = receive(file)
    assert isinstance(request, PairRequest)
    bench = Bench(request, gpu)
    for line in source:
        print(json.dumps(bench.answer(json.loads(line))), file=target, flush=True)


if __name__ == "__main__":
    main()
