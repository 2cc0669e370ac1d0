"""One cold call in a fresh process whose process for first launches is started in one of several ways.

Started by :mod:`benchmarks.quarantine_cost` as :mod:`benchmarks.suite.child` is by its own; a job's ``variant`` names
ways, joined by ``+``:

off     first launches in the tuning process
now     as kerntune starts it
niced   the other process, for good, at niceness 10
serial  it opens the device before it imports anything of kerntune's, and imports when that is done: one thread, not two
slim    it sees its own GPU alone, by UUID, has one hardware queue instead of eight, and loads modules lazily
fewer   one compiling process less
late    it starts when all candidates are specialized, not before the compiling processes
ahead   what Triton imports at a process's first launch (:data:`FIRST_LAUNCH`) is imported before compiling processes
        start, not while they do
gluon   it is imported before the call, whose time this is no part of

These are switched here, from outside; kerntune has one way.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.suite.child import decorator, prepare, say

FIRST_LAUNCH = "triton.experimental.gluon.nvidia.hopper"
"""Some 50 modules with it: more than half of what specializing 30 candidates takes."""

USAGE = {"user_ms": "ru_utime", "system_ms": "ru_stime"}
COUNTS = {"faults": "ru_minflt", "gave_up": "ru_nvcsw", "lost": "ru_nivcsw"}
"""Of a thread: page faults, and how often it waited for something and lost its processor."""


def used() -> dict[str, float]:
    """What this thread has used so far."""
    from benchmarks.quarantine_look import ran_and_waited

    now, (ran, waited) = resource.getrusage(resource.RUSAGE_THREAD), ran_and_waited()
    found = {name: 1e3 * getattr(now, field) for name, field in USAGE.items()}
    found |= {name: getattr(now, field) for name, field in COUNTS.items()}
    return {**found, "wall_ms": 1e3 * time.perf_counter(), "ran_ms": ran, "waited_ms": waited}


def machine() -> dict[str, float]:
    """Seconds of the processors that this process may use, since the machine started: at work, taken by the host."""
    busy, stolen, mine = 0, 0, {f"cpu{k}" for k in os.sched_getaffinity(0)}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in mine:
            ticks = list(map(int, fields))
            busy, stolen = busy + sum(ticks[:3]) + sum(ticks[5:7]), stolen + ticks[7]
    return {"busy_s": busy / os.sysconf("SC_CLK_TCK"), "stolen_s": stolen / os.sysconf("SC_CLK_TCK")}


class Stretches:
    """What the tuning's own thread uses in some functions: of each the first call, or all of them."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    def watch(self, name: str, owner: Any, function: str) -> None:
        """Note the first call of a function from now on."""
        plain = vars(owner)[function]

        @functools.wraps(plain)
        def watched(*args: Any, **words: Any) -> Any:
            if name in self.found:
                return plain(*args, **words)
            self.found[name] = {}
            before, cores = used(), machine()
            try:
                return plain(*args, **words)
            finally:
                after, then = used(), machine()
                figures = {k: after[k] - v for k, v in before.items()} | {k: then[k] - v for k, v in cores.items()}
                self.found[name] = {k: round(v, 2) for k, v in figures.items()}

        setattr(owner, function, watched)


def start_so(ways: list[str], folder: Path) -> None:
    """Have this process's tunings start the other process in these ways."""
    from kerntune.timing.worker import look_process
    from kerntune.tuning import context

    os.environ["KERNTUNE_ISOLATE"] = "off" if "off" in ways else "auto"
    os.environ["QUARANTINE_WAYS"] = "+".join(ways)
    os.environ["QUARANTINE_STAMPS"] = str(folder / "stamps")
    os.environ["QUARANTINE_PATH"] = os.pathsep.join(filter(None, sys.path))
    backend = context.this_gpu()
    assert backend is not None
    os.environ["QUARANTINE_GPU"] = f"GPU-{backend.spec.uuid}"
    plain = look_process.module_command

    def command(module: str, *words: str) -> list[str]:
        if "serial" in ways:
            return [sys.executable, "-E", "-S", str(Path(__file__).with_name("quarantine_look.py")), *words[1:]]
        return plain("benchmarks.quarantine_look", *words[1:])

    look_process.module_command = command  # type: ignore[assignment]
    if "fewer" in ways:
        context.COMPILER.farm.workers -= 1
    if "late" in ways:
        begin_late()
    if "gluon" in ways:
        importlib.import_module(FIRST_LAUNCH)
    if "ahead" in ways:
        import_ahead()


def import_ahead() -> None:
    """The import happens before compiling processes start."""
    from kerntune.compiling.compiler import Compiler

    warm = Compiler.warm

    def import_and_warm(compiler: Compiler, jobs: int) -> None:
        importlib.import_module(FIRST_LAUNCH)
        warm(compiler, jobs)

    Compiler.warm = import_and_warm  # type: ignore[method-assign]


def begin_late() -> None:
    """The process is begun when all candidates are specialized."""
    from kerntune.capture import Capture
    from kerntune.tuning.isolation import Isolation

    begin, probe_all, held = Isolation.begin, Capture.probe_all, dict[str, Isolation]()
    open_ = []

    def begin_then(isolation: Isolation) -> None:
        if open_:
            begin(isolation)
        held["it"] = isolation

    def probe_first(*args: Any, **words: Any) -> Any:
        found = probe_all(*args, **words)
        open_.append(True)
        if "it" in held:
            begin(held["it"])
        return found

    Isolation.begin, Capture.probe_all = begin_then, probe_first  # type: ignore[method-assign]


def timed(tuner: Any, call: Any, folder: Path) -> dict[str, Any]:
    """The first call, until its launch is done: seconds, steps, what some of them used, the other process's stamps in
    milliseconds from the call's begin."""
    import torch

    from benchmarks.suite.case import config_text
    from benchmarks.suite.phases import Phases
    from kerntune.capture import Capture, launch
    from kerntune.tuning import context

    stretches, phases = Stretches(), Phases()
    stretches.watch("probe", Capture, "probe_all")
    stretches.watch("first specialization", launch, "_specialize")
    cores, before = machine(), used()
    phases.begin()
    begin = time.perf_counter()
    try:
        tuner[call.grid](*call.arguments)
        torch.cuda.synchronize()
    except Exception as exc:
        return {"seconds": None, "error": f"{type(exc).__name__}: {exc}"[:500]}
    seconds, after, then = time.perf_counter() - begin, used(), machine()
    found = phases.end()
    context.COMPILER.close()  # nothing is compiled while others are measured
    stretches.found["call"] = {k: round(after[k] - v, 2) for k, v in before.items()}
    stretches.found["call"] |= {k: round(then[k] - v, 2) for k, v in cores.items()}
    return {
        "seconds": round(seconds, 4),
        "winner": config_text(tuner.best_config),
        "phases": found,
        "used": stretches.found,
        "other_process": stamps(folder / "stamps", begin),
    }


def stamps(path: Path, begin: float) -> list[dict[str, Any]]:
    """The lines of the other process."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [{**row, "at": round(1e3 * (row["at"] - begin), 1)} for row in rows]


@contextlib.contextmanager
def device(scripted: bool) -> Iterator[None]:
    """A real one, or one whose times mean nothing, so that this program can be tried without."""
    import torch

    if not scripted:
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        yield
        return
    from kerntune.gpu.scripted import FakeBackend, Rule, Script
    from kerntune.tuning import context

    backend = FakeBackend(Script([Rule(time_ns=50_000.0)], isolated=True))
    this_gpu: Callable[[], Any] = lambda: backend  # noqa: E731
    context.this_gpu = this_gpu
    with backend.activate():
        yield


def main(job: dict[str, Any]) -> None:
    """Prepare, tune at a line of stdin, and wait for another."""
    import torch

    with tempfile.TemporaryDirectory(prefix="quarantine-child-") as folder, device(job["scripted"]):
        say("context")
        if not sys.stdin.readline():
            return
        call, case = prepare(job)
        tuner = case.tuned(decorator("kerntune"), case.configs(job["listed"]))
        start_so(job["variant"].split("+"), Path(folder))
        torch.cuda.synchronize()
        say("ready")
        if not sys.stdin.readline():
            return
        say("done", **timed(tuner, call, Path(folder)))
        sys.stdin.readline()  # its context stays until all of its batch are done


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
