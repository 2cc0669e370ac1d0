"""A fresh process of ``verdict_record.py``: pairs as a worker of kerntune's times them, and plain launches.

    python -m benchmarks.verdicts.verdict_process ORDINAL REQUEST

REQUEST is a file with a ``PairRequest``. Commands come in as JSON lines, an answer goes out for each. Pairs are
``kerntune.timing.worker.serve.run_pair``'s own. Unlike a worker it initializes the device on a command, so that many
processes start at a time and disturb no measurement.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from kerntune.base.recording import Launch, Recording, Stored
from kerntune.gpu.base import Executor
from kerntune.gpu.memory import Memory, make_source
from kerntune.gpu.program import Loader, Program
from kerntune.timing.worker.requests import PairRequest
from kerntune.timing.worker.serve import run_pair

WARM_UP_S = 0.01
"""Of plain launches."""


def slowed(recording: Recording, amount: int, plant: str) -> Recording:
    """The recording made slower by ``amount`` steps a program, or by so many programs; only launches that were
    captured to be."""
    replace = msgspec.structs.replace

    def changed(launch: Launch) -> Launch:
        if not any(p.name == "spin" and p.value for p in launch.params):
            return launch
        if plant == "programs":
            return replace(launch, grid=(launch.grid[0] + amount, *launch.grid[1:]))
        params = tuple(replace(p, value=amount) if p.name == "spin" else p for p in launch.params)
        return replace(launch, params=params)

    return replace(recording, launches=tuple(map(changed, recording.launches)))


class Bench:
    """Both sides of a request on one device, which :meth:`device` takes."""

    def __init__(self, request: PairRequest, gpu: Callable[[], Executor]) -> None:
        self._request, self._open = request, gpu

    def device(self) -> None:
        """Take the device."""
        self._gpu = self._open()
        self._gpu.synchronize()

    def pair(
        self, blocks: int, seed: int, amount: int | None = None, plant: str = ""
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Block times of both sides in ns; with an ``amount`` side b is made slower by it."""
        b = self._request.b if amount is None else slowed(self._request.b, amount, plant)
        found = run_pair(self._gpu, msgspec.structs.replace(self._request, b=b, blocks=blocks, seed=seed))
        return found.a_ns, found.b_ns

    def plain(self, side: str, launches: int) -> dict[str, list[float]]:
        """Single executions of side ``a`` or ``b``, each alone: between two events after a flush of the L2 cache, as
        Triton's ``do_bench`` times them (``a_event``), and by the host's clock until the device is idle, as a benchmark
        of a Python function does (``a_host``)."""
        program = self._program(side)
        until = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < until:
            program.enqueue()
            self._gpu.synchronize()
        return {
            f"{side}_event": self._by_events(program, launches),
            f"{side}_host": self._by_clock(program, launches),
        }

    def _program(self, side: str) -> Program:
        request, gpu = self._request, self._gpu
        contents = [x.content.sha256 if isinstance(x.content, Stored) else "" for x in request.storages]
        stored = [request.artifacts.get(sha) for sha in contents]
        sources = [make_source(gpu, x, data) for x, data in zip(request.storages, stored, strict=True)]
        memory = Memory(gpu, request.storages, sources)
        return Program(Loader(gpu), request.a if side == "a" else request.b, memory, request.artifacts)

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
        a, b = self.pair(command["blocks"], command["seed"], command.get("amount"), command.get("plant", ""))
        paired = time.perf_counter()
        side = "ab"[command["seed"] % 2]  # one a process: the second would find the device as the first left it
        plain = self.plain(side, command["plain"]) if command.get("plain") else {}
        seconds = [round(paired - start, 3), round(time.perf_counter() - paired, 3)]
        return {"a": a, "b": b, "plain": plain, "seconds": seconds}


def main() -> None:
    """See the module's text."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(cores)[len(cores) // 4 :]))  # the others are for the process that measures

    def gpu() -> Executor:
        from kerntune.gpu.driver_gpu import DriverGpu

        os.sched_setaffinity(0, cores)
        return DriverGpu(int(sys.argv[1]))

    with open(sys.argv[2], "rb") as file:
        request = msgspec.msgpack.decode(file.read(), type=PairRequest)
    bench = Bench(request, gpu)
    for line in source:
        print(json.dumps(bench.answer(json.loads(line))), file=target, flush=True)


if __name__ == "__main__":
    main()
