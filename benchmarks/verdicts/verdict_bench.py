"""What ``verdict_record.py`` measures with: a case's recordings, batches of fresh processes, planting to measure."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import expm1, log
from pathlib import Path
from statistics import mean, median
from types import ModuleType
from typing import Any

import msgspec

from benchmarks import harness
from benchmarks.verdicts.verdict_kernels import Case
from benchmarks.verdicts.verdict_process import slowed
from kerntune.base.recording import Recording
from kerntune.base.stats import hodges_lehmann
from kerntune.capture import Capture
from kerntune.capture.memory_plan import describe
from kerntune.capture.recorder import record
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.base import Backend
from kerntune.kernels.compat import triton_compiler
from kerntune.timing.paired import common_plan
from kerntune.timing.paired_processes import paired_work
from kerntune.timing.worker.requests import PairRequest

PROCESS = Path(__file__).with_name("verdict_process.py")

MOST_STEPS = 1 << 22
SEARCH_BLOCKS = 12


class NotSlowedError(Exception):
    """No slowdown of the wanted size can be planted in a case."""


@dataclass(frozen=True)
class Prepared:
    """A case's recordings, on one memory plan: ``base``, ``twin`` and, where slowdowns are planted, ``slowed``."""

    case: Case
    sides: dict[str, Recording]
    work: PairRequest

    def request(self, side: str, amount: int | None = None) -> PairRequest:
        """The base form beside another one, made slower by ``amount``. Blocks and seed come with the command."""
        b = self.sides[side] if amount is None else slowed(self.sides[side], amount, self.case.plant)
        return paired_work(self.sides["base"], b, self.work.storages, self.work.artifacts)


def prepare(backend: Backend, compiler: Compiler, modules: dict[str, ModuleType], case: Case) -> Prepared:
    """Compile and record the forms of a case; every form runs once."""
    import torch

    torch.manual_seed(0)
    tensors = case.inputs(lambda *shape, **options: torch.randn(*shape, device=backend.torch_device, **options))
    sides: dict[str, Recording] = {}
    artifacts: dict[str, bytes] = {}
    storages: Any = ()
    for side, form in (("base", "base"), ("twin", "twin"), ("slowed", case.plant)):
        if not form:
            continue
        capture = Capture(backend, compiler)
        with triton_compiler.without_line_info(), capture.active():
            getattr(modules[form], case.op)(case.spin if side == "slowed" else 0, *tensors)
        recorded = record(capture)
        artifacts.update(recorded.artifacts)
        if not sides:
            storages, contents = describe(recorded.recording.storages, recorded.sources, backend)
            artifacts.update(contents)
        sides[side] = recorded.recording
    plans = {side: common_plan(sides["base"], x) for side, x in sides.items()}
    if any(len(plan) != len(storages) for plan, _ in plans.values()):
        raise SystemExit(f"{case.name}: its forms use other memory than the base does")
    sides = {side: x for side, (_, x) in plans.items()}
    whole = PairRequest(sides["base"], sides["base"], tuple(storages), artifacts)  # with the artifacts of every form
    return Prepared(case, sides, whole)


class Fresh:
    """A process that has done nothing before. It makes its memory's contents as soon as it runs."""

    def __init__(self, request: PairRequest, ordinal: int = 0) -> None:
        env = harness.child_environment()
        env["OMP_NUM_THREADS"] = env["OPENBLAS_NUM_THREADS"] = "1"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._request = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the process
        self._request.write(msgspec.msgpack.encode(request))
        self._request.flush()
        self._process = subprocess.Popen(
            [sys.executable, str(PROCESS), str(ordinal), self._request.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=env,
        )  # fmt: skip

    def begin(self, **command: Any) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Its answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"a process ended: {self._errors.read()[-3000:].decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **command: Any) -> dict[str, Any]:
        """Both."""
        self.begin(**command)
        return self.end()

    def stop(self) -> None:
        """Without waiting."""
        self._process.kill()

    def wait(self) -> None:
        """Until its device memory is free again."""
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors, self._request):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


class Batch:
    """Fresh processes that get ready together and measure one by one."""

    def __init__(self, requests: Sequence[PairRequest], start: Callable[[PairRequest], Any] = Fresh) -> None:
        self._processes = [start(r) for r in requests]

    def ready(self) -> None:
        """All initialize the device; no process measures meanwhile."""
        for process in self._processes:
            process.begin(do="device")
        for process in self._processes:
            process.end()

    def each(self, first: int = 0, **command: Any) -> Iterator[dict[str, Any]]:
        """The reply of each, one after the other; their orders of blocks are numbered from ``first``."""
        for seed, process in enumerate(self._processes, first):
            yield process.ask(seed=seed, **command)

    def stop(self) -> None:
        """End all of them at once, without waiting."""
        for process in self._processes:
            process.stop()

    def close(self) -> None:
        """Until they have ended."""
        self.stop()
        for process in self._processes:
            process.wait()


def effect(answer: dict[str, Any]) -> float:
    """The change that one process saw: 0.03 is 3 % slower."""
    return expm1(hodges_lehmann([log(b / a) for a, b in zip(answer["a"], answer["b"], strict=True)]).point)


def steps_for(target: float, seen: Callable[[int], float], known: dict[int, float]) -> int:
    """How many steps make a slowdown of ``target``; ``seen`` measures one, ``known`` gathers what was measured.

    Doubles until the effect is beyond the target, then narrows by straight lines between its nearest neighbours.
    """
    steps = max([s for s, x in known.items() if x < target], default=8) or 8
    while not any(x >= target for x in known.values()):
        steps *= 2
        if steps > MOST_STEPS:
            raise NotSlowedError(f"{steps} steps more don't slow this kernel by {target:.1%}")
        known[steps] = seen(steps)
    for _ in range(6):
        low = max((s for s, x in known.items() if x < target), default=0)
        high = min(s for s, x in known.items() if x >= target and s > low)
        below, above = known.get(low, 0.0), known[high]
        share = min(0.85, max(0.15, (target - below) / (above - below)))
        middle = low + round((high - low) * share)
        if middle in (low, high) or min(target - below, above - target) < target / 60:
            break
        known[middle] = seen(middle)
    return min(known, key=lambda s: abs(known[s] - target))


def search(
    prepared: Prepared, targets: dict[str, float], start: Callable[[PairRequest], Any] = Fresh
) -> dict[str, int]:
    """Steps for each target, as one process sees them."""
    batch = Batch([prepared.request("slowed")], start)
    try:
        batch.ready()
        known: dict[int, float] = {}

        def seen(amount: int) -> float:
            command = {"do": "effect", "blocks": SEARCH_BLOCKS, "amount": amount, "plant": prepared.case.plant}
            return mean(map(effect, batch.each(**command)))

        return {name: steps_for(target, seen, known) for name, target in targets.items()}
    finally:
        batch.close()


def true_effects(
    prepared: Prepared, steps: dict[str, int], processes: int, blocks: int, start: Callable[[PairRequest], Any] = Fresh
) -> dict[str, list[float]]:
    """What each of several fresh processes, which give nothing else, sees of each planted slowdown."""
    batch = Batch([prepared.request("slowed")] * processes, start)
    try:
        batch.ready()
        command = {"do": "effect", "blocks": blocks, "plant": prepared.case.plant}
        return {name: [effect(x) for x in batch.each(**command, amount=n)] for name, n in steps.items()}
    finally:
        batch.close()


def corrected(steps: int, found: Sequence[float], target: float) -> int:
    """Steps that should do what these, as several processes saw, did not quite."""
    return max(1, round(steps * target / max(median(found), target / 3)))
