"""Measures what a gate without a GPU costs: compilations cold and warm, a run over examples/, and their memory.

    python benchmarks/static_speed.py OUT.json [--rounds 3]

On two cores (the first two, where there are more). Each figure is of a process of its own:

* ``compile``: ``COMPILATIONS`` distinct kernel x config x target, taken evenly from all that the examples' tests and
  their candidate configs launch on ``TARGETS``, compiled and read (static metrics); with an empty cache, and again with
  the cache that this left. ``seconds`` is from the first request to the last metric, ``process_seconds`` all of it,
  imports and capture included.
* ``examples``: ``pytest examples --kerntune --kerntune-target=cuda:90``, with an empty cache and again.

``peak_mib`` is the largest sum of resident memory of the process and all its descendants, looked at every
``LOOK_EVERY_S``; ``cpu_seconds`` is their processor time, which other programs on the machine disturb less.
Exits with 1 if the median of a figure is over its limit (``LIMITS``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from plugin_options import plugin_options

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROOT = Path(__file__).resolve().parents[1]
CORES = 2
COMPILATIONS = 100
TARGETS = ("cuda:90", "cuda:100", "hip:gfx942")
LOOK_EVERY_S = 0.05
LIMITS = {
    ("compile", "cold", "seconds"): 60.0,
    ("compile", "warm", "seconds"): 5.0,
    ("examples", "cold", "process_seconds"): 40.0,
    ("examples", "warm", "process_seconds"): 40.0,
}
PEAK_MIB = 1430
"""1.5 GB, for all."""


def collect(out: Path) -> int:
    """The child of ``compile``: capture, choose, compile, read; its seconds to ``out``."""
    import pytest

    found = Launches()
    found.install()
    with tempfile.TemporaryDirectory() as scratch:
        options = ["--kerntune", f"--kerntune-baselines={scratch}/none", f"--kerntune-target={','.join(TARGETS)}", "-q"]
        code = pytest.main(
            [*options, *plugin_options(), "-p", "no:cacheprovider", str(ROOT / "examples")], plugins=[found]
        )
    out.write_text(json.dumps(found.result))
    return int(code)


class Launches:
    """Collects what the tests would launch, and compiles a share of it when they are through."""

    def __init__(self) -> None:
        from kerntune.compiling.compiler import Compiler

        self.known: dict[str, Any] = {}
        self.early = Compiler()
        """For the few whose proposed configs depend on what a first candidate compiles to: those don't count."""

        self.result: dict[str, Any] = {}

    def install(self) -> None:
        """Stand in for ``Session.check``."""
        from kerntune.gate import session

        session.Session.check = lambda s, c, p=print: self.check(s, c)  # type: ignore[method-assign]

    def check(self, session: Any, call: Any) -> Any:
        """Note every launch and every candidate for every target."""
        from ops_sides import Observed

        from kerntune.gate.call import Checked

        class Unfitted(Observed):
            def _refuse_misfit(self, compiled: Any) -> None:
                """Every candidate fits: nothing is compiled before the clock starts."""

        capture = Unfitted(session.backend, Uncompiled(self.early), call.candidates)
        with capture.active():
            value = call.fn(*call.args, **call.kwargs)
            for pending in capture.launches:
                self._note(pending.specialized.values())
                self._note(self._candidates(capture, pending.site))
        return Checked(value, ())

    def _candidates(self, capture: Any, site: Any) -> Iterator[Any]:
        for index in range(len(site.candidates) if site else 0):
            for target in capture.backend.targets:
                yield capture.probe(site, index, target).specialized

    def _note(self, launches: Any) -> None:
        self.known.update((x.key(), x) for x in launches)

    def pytest_sessionfinish(self) -> None:
        """Compile and read, timed."""
        from ops_sides import static_figures

        from kerntune.base.device import typical_device
        from kerntune.compiling.compiler import Compiled, Compiler

        launches = [x for key, x in self.known.items() if key not in self.early._done]
        self.early.close()
        step = len(launches) / COMPILATIONS
        chosen = [launches[int(i * step)] for i in range(COMPILATIONS)]
        compiler, start = Compiler(), time.perf_counter()
        done: dict[str, list[Compiled]] = {}
        for launch, result in compiler.compile_stream(chosen):
            assert isinstance(result, Compiled), result
            done.setdefault(str(launch.target), []).append(result)
        compiled = time.perf_counter() - start
        for kernels in done.values():
            static_figures(kernels, typical_device(_target(kernels)))
        seconds = time.perf_counter() - start
        compiler.close()
        self.result = {
            "seconds": round(seconds, 2),
            "compile_seconds": round(compiled, 2),
            "by_target": {target: len(kernels) for target, kernels in done.items()},
            "of": len(launches),
        }


class Uncompiled:
    """A compiler that compiles for kerntune's decorators alone, not for a capture that only checks what fits."""

    def __init__(self, compiler: Any) -> None:
        self._compiler = compiler

    def compile(self, launch: Any) -> Any:
        """The compiled kernel, if a decorator calls."""
        asks = sys._getframe(1).f_globals["__name__"] == "kerntune.tuning.api.heuristic_tuner"
        return self._compiler.compile(launch) if asks else None


def _target(kernels: list[Any]) -> Any:
    from kerntune.base.device import Target

    arch = kernels[0].binary.arch
    return Target.parse(f"hip:{arch}" if kernels[0].binary.kind == "hsaco" else f"cuda:{arch.strip('sm_a')}")


def measured(command: list[str], cache: Path, inside: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """Run a command: seconds, processor seconds and the largest memory of all its processes."""
    environ = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": _path()}
    environ.pop("CI", None)
    before, start = _cpu(), time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    peak: list[int] = [0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    output = process.communicate()[0].decode()
    seconds = time.perf_counter() - start
    watcher.join()
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}\n{output[-3000:]}")
    return {
        **inside(),
        "process_seconds": round(seconds, 2),
        "cpu_seconds": round(_cpu() - before, 2),
        "peak_mib": peak[0] >> 20,
    }


def _path() -> str:
    return os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _watch(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(map(_resident, descendants(process.pid))))
        time.sleep(LOOK_EVERY_S)


def descendants(pid: int) -> list[int]:
    """A process and all that it and its children started."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        for task in _listed(Path(f"/proc/{found[-1]}/task")):
            todo += [int(x) for x in _text(task / "children").split()]
    return found


def _resident(pid: int) -> int:
    fields = _text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has ended meanwhile
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def compile_round(folder: Path) -> dict[str, Any]:
    """Cold, then warm."""
    out = folder / "child.json"
    command = [sys.executable, __file__, str(out), "--child"]
    return {x: measured(command, folder / "cache", lambda: json.loads(out.read_text())) for x in ("cold", "warm")}


def examples_round(folder: Path) -> dict[str, Any]:
    """Cold, then warm, against the committed baselines or without any: nothing is written."""
    options = ["--kerntune", "--kerntune-target=cuda:90", f"--kerntune-baselines={folder}/none", "-q"]
    command = [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", *plugin_options(), "examples"]
    return {x: measured(command, folder / "cache") for x in ("cold", "warm")}


def rounds(number: int) -> dict[str, Any]:
    """All figures of every round."""
    out: dict[str, Any] = {"compile": [], "examples": []}
    for _ in range(number):
        for name, run in (("compile", compile_round), ("examples", examples_round)):
            with tempfile.TemporaryDirectory() as folder:
                out[name].append(run(Path(folder)))
            print(name, out[name][-1], flush=True)
    return out


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """The median of each limited figure, its limit, and the largest memory."""
    out = {}
    for (name, heat, figure), limit in LIMITS.items():
        median = statistics.median(x[heat][figure] for x in found[name])
        out[f"{name} {heat} {figure}"] = {"median": median, "limit": limit, "held": median <= limit}
    peak = max(x[heat]["peak_mib"] for runs in found.values() for x in runs for heat in x)
    out["peak_mib"] = {"largest": peak, "limit": PEAK_MIB, "held": peak <= PEAK_MIB}
    return out


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    if args.child:
        return collect(args.out)
    from ops_sides import environment, write

    found = rounds(args.rounds)
    verdict = judged(found)
    write(args.out, {"environment": environment(cores_used=CORES), "held": verdict, "rounds": found})
    print(json.dumps(verdict, indent=1))
    return int(not all(x["held"] for x in verdict.values()))


if __name__ == "__main__":
    raise SystemExit(main())
