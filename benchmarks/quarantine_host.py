"""What first launches in a process of their own take of the host's processors, on the scripted GPU.

    python benchmarks/quarantine_host.py OUT.json [--configs 48]

No GPU is needed, and none is measured: these are the host's parts of the cost that ``benchmarks/quarantine.py`` (part
``cost``) measures on one. Processor time, since other work on a machine moves it less than it moves time on the clock.

start     seconds of processor time until a process can answer: Python, imports; the same with numpy, for comparison
tuning    one tuning of many configs with first launches elsewhere and here: the process's own processor seconds; the
          other process's; how often it was asked, and seconds of this process in it; seconds on the clock until the
          first answer, of which it waited so many for the other process to start
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

STARTS = 9
LOOKS = "import kerntune.timing.worker.looks, kerntune.gpu.driver_gpu"


def start_s(code: str) -> float:
    """Median processor seconds of a new Python that runs ``code``."""
    found = []
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(statistics.median(found), 4)


def of_process(pid: int) -> float:
    """Processor seconds of another process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


class Asked:
    """Notes what is asked of the other process."""

    def __init__(self) -> None:
        from kerntune.timing.worker.look_process import LookProcess

        self.counts: dict[str, int] = {}
        self.processor_s, self.clock_s = dict[str, float](), dict[str, float]()
        self.waited_s = self.theirs_s = 0.0
        real, wait = LookProcess._exchange, LookProcess.wait

        def ask(process: Any, request: Any, limit_s: float) -> Any:
            if not process._ready:  # its first message
                return real(process, request, limit_s)
            kind, begin, clock = type(request).__name__, time.thread_time(), time.monotonic()
            reply = real(process, request, limit_s)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            for times, seconds in (
                (self.processor_s, time.thread_time() - begin),
                (self.clock_s, time.monotonic() - clock),
            ):
                times[kind] = round(times.get(kind, 0.0) + seconds, 4)
            self.theirs_s = of_process(process.pid)
            return reply

        def waited(process: Any) -> None:
            begin = time.monotonic()
            wait(process)
            self.waited_s += time.monotonic() - begin

        LookProcess._exchange, LookProcess.wait = ask, waited  # type: ignore[method-assign]


def tuning(count: int, mode: str, asked: Asked) -> dict[str, Any]:
    """One tuning, in empty caches."""
    import torch
    import triton

    import kerntune
    from benchmarks import quarantine_kernels as kernels
    from kerntune.gpu.scripted import FakeBackend, Rule, Script
    from kerntune.tuning import context

    backend = FakeBackend(Script([Rule(time_ns=50_000.0)], isolated=True))
    context.this_gpu = lambda: backend
    blocks = [(64 << k, warps, stages) for k in range(6) for warps in (1, 2, 4, 8) for stages in (2, 3)]
    configs = [
        triton.Config({"FAULT": 0, "BLOCK": block}, num_warps=warps, num_stages=stages)
        for block, warps, stages in blocks[:count]
    ]
    with backend.activate(), tempfile.TemporaryDirectory() as folder:
        os.environ.update(KERNTUNE_CACHE_DIR=f"{folder}/kerntune", TRITON_CACHE_DIR=f"{folder}/triton")
        x = torch.randn(1 << 22, device="cuda")
        tuner = kerntune.autotune(configs=configs, key=["n"], isolate=mode)(kernels.faulty_kernel)
        own, clock = time.process_time(), time.monotonic()
        tuner[kernels.faulty_grid](x, torch.empty_like(x), x.numel())
        row = {"own_processor_s": round(time.process_time() - own, 3), "clock_s": round(time.monotonic() - clock, 3)}
    if mode == "off":
        return row
    return row | {
        "their_processor_s": round(asked.theirs_s, 3),
        "asked": asked.counts,
        "processor_s": asked.processor_s,
        "answered_in_s": asked.clock_s,
        "waited_for_start_s": round(asked.waited_s, 3),
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--configs", type=int, default=48)
    args = parser.parse_args()
    from benchmarks.suite.results import environment, merge

    merge(args.out, environment=environment(), load=os.getloadavg()[0])
    programs = {"python": "pass", "looks": LOOKS, "with_numpy": f"import numpy; {LOOKS}"}
    merge(args.out, start={name: start_s(code) for name, code in programs.items()})
    asked = Asked()
    tuning(2, "off", asked)  # what is imported at the first tuning counts for neither
    merge(args.out, tuning={mode: tuning(args.configs, mode, asked) for mode in ("off", "auto")})


if __name__ == "__main__":
    main()
