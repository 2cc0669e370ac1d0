"""Efficiency of ``pytest -n G --kerntune`` on a host with G GPUs, by the costs that don't divide: 2 to 64.

    python benchmarks/many_gpus_simulated.py [--out FILE] [--cases 60]

Three costs are measured on this machine: what xdist's controller spends on a case (its CPU time in runs of 60 and of
360 scripted cases on two workers, the difference by case), what the two-sided lock of a GPU costs without a wait, and
what a token for a compiler does. The work of a case is what an H200 took for it (``cold_public_h200.json``, seconds
of 15 public kernels, in turn). Then xdist's own scheduler distributes cases over G workers in simulated time: the
controller is one server that takes each case's reports in turn, each GPU works on its own.

Efficiency is cases per second of G GPUs over G times those of one, ``--cases`` for each GPU (a multiple of 15, so that
each has the same work); start-up is apart, and each GPU brings its cores. The
limit on paper is where the controller is busy all the time: seconds of work by seconds of the controller, in GPUs.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

RESULT = Path(__file__).parent / "results" / "many_gpus_simulated.json"
WORK = Path(__file__).parent / "results" / "cold_public_h200.json"
GPUS = (1, 2, 4, 8, 16, 32, 64)
REQUIRED = 0.95
PAPER_GPUS, PAPER_KEYS = 1000, 10**6

CONFTEST = "import scripted\nscripted.install()\n"
TESTS = """
import pytest
from kerntune.base.case_result import TrialReport
from kerntune.base.config import Config
from scripted import kernel

TRIALS = tuple(TrialReport("add_kernel", Config({{"BLOCK": 64 * i}}, num_warps=4), 1e4 + i) for i in range(1, 16))

@pytest.mark.parametrize("n", range({count}))
def test_case(autotune, n):
    autotune(kernel("PASS", trials=TRIALS, times_ns=tuple(1e4 + i / 7 for i in range(40))))
"""
CONTROLLER = """
import resource, sys
import pytest
code = pytest.main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print("CPU", used.ru_utime + used.ru_stime)
sys.exit(code)
"""


# what is measured


def controller_cpu(count: int) -> float:
    """CPU seconds of the controller of a run of so many cases on two workers."""
    from plugin_options import plugin_options

    folder = Path(tempfile.mkdtemp(prefix="kerntune-benchmark-"))
    try:
        shutil.copy(ROOT / "tests/pytest_kerntune/scripted.py", folder / "scripted.py")
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_cases.py").write_text(TESTS.format(count=count))
        (folder / "pytest.ini").write_text("[pytest]\n")
        words = [*plugin_options(), "-q", "-n2", "-p", "no:cacheprovider", "--kerntune", "--kerntune-json=run.json"]
        done = subprocess.run(
            [sys.executable, "-c", CONTROLLER, *words], cwd=folder, check=False, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
        return float(done.stdout.rpartition("CPU ")[2])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def each(work: Any, count: int) -> float:
    """Seconds of one call, the median of five rounds."""
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        rounds.append((time.perf_counter() - begin) / count)
    return statistics.median(rounds)


def lock_seconds() -> float:
    """Sharing a GPU for a capture, and having it alone for a measurement."""
    from kerntune.gpu import device_lock

    device_lock.device_node = lambda uuid: None  # type: ignore[assignment]

    def both() -> None:
        with device_lock.share("0", "a GPU", 1.0):
            pass
        with device_lock.hold("0", "a GPU", 1.0):
            pass

    return each(both, 500)


def token_seconds() -> float:
    """A token that is there."""
    from kerntune.compiling.compiler_tokens import TOKENS

    def one() -> None:
        with TOKENS.token(lambda: False):
            pass

    return each(one, 500)


# what is simulated


class Node:
    """A worker of xdist, as its scheduler sees it: tests that wait, and whether there are more."""

    def __init__(self, number: int) -> None:
        self.number, self.waiting, self.shutting_down = number, deque[int](), False
        self.gateway = SimpleNamespace(id=f"gw{number}", spec="popen")
        self.busy = False

    def send_runtest_some(self, indices: list[int]) -> None:
        """More tests."""
        self.waiting.extend(indices)

    def shutdown(self) -> None:
        """No more tests."""
        self.shutting_down = True

    def next(self) -> int | None:
        """The test that it can begin: xdist's worker has to know the one after it, or that there is none."""
        if self.busy or not self.waiting or (len(self.waiting) < 2 and not self.shutting_down):
            return None
        self.busy = True
        return self.waiting.popleft()


def scheduler(nodes: list[Node], count: int) -> Any:
    """xdist's default one."""
    from xdist.scheduler import LoadScheduling

    config = SimpleNamespace(getvalue=lambda name: ["popen"] * len(nodes), getoption=lambda name: None)
    found = LoadScheduling(config, SimpleNamespace(loadsched=lambda *words: None))
    names = [f"test_{i}" for i in range(count)]
    for node in nodes:
        found.add_node(node)
        found.add_node_collection(node, names)
    found.schedule()
    return found


def makespan(gpus: int, work: list[float], controller_s: float) -> float:
    """Seconds until the controller has taken the last case."""
    nodes = [Node(number) for number in range(gpus)]
    shared = scheduler(nodes, len(work))
    events: list[tuple[float, int, Node, int]] = []
    numbers, free, now = itertools.count(), 0.0, 0.0

    def begin(at: float) -> None:
        for node in nodes:
            if (test := node.next()) is not None:
                heapq.heappush(events, (at + work[test], next(numbers), node, test))

    begin(0.0)
    while events:
        now, _, node, test = heapq.heappop(events)
        node.busy = False
        free = max(free, now) + controller_s  # its reports wait for those before
        shared.mark_test_complete(node, test, work[test])
        begin(now)
    return max(free, now)


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--cases", type=int, default=60)
    words = parser.parse_args()
    few, many = 60, 360
    controller_s = (controller_cpu(many) - controller_cpu(few)) / (many - few)
    times = [row["kerntune_s"] for row in json.loads(WORK.read_text())["cases"]]
    one = makespan(1, list(itertools.islice(itertools.cycle(times), words.cases)), controller_s)
    rows = []
    for gpus in GPUS:
        seconds = makespan(gpus, list(itertools.islice(itertools.cycle(times), words.cases * gpus)), controller_s)
        rows.append({"gpus": gpus, "seconds": round(seconds, 2), "efficiency": round(one / seconds, 4)})
    mean = statistics.mean(times)
    report = {
        "date": str(date.today()),
        "environment": {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0)),
                        "load": round(os.getloadavg()[0], 1)},
        "cases_per_gpu": words.cases,
        "work_s": {"mean": round(mean, 3), "least": min(times), "most": max(times), "cases": len(times)},
        "controller_s_per_case": round(controller_s, 6),
        "lock_s_per_case": round(lock_seconds(), 7),
        "token_s": round(token_seconds(), 7),
        "rows": rows,
        "paper": {
            "gpus_that_keep_the_controller_busy": round(mean / controller_s),
            "hours_of_a_million_keys_on_1000_gpus": round(PAPER_KEYS * mean / PAPER_GPUS / 3600, 2),
            "hours_of_the_controller_for_a_million_keys": round(PAPER_KEYS * controller_s / 3600, 2),
        },
    }  # fmt: skip
    words.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 0 if rows[-1]["efficiency"] >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
