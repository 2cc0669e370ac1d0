"""Whether a change that moves code costs users time: two revisions of this repository, measured in turn.

    python -m benchmarks.before_after.before_after BEFORE AFTER [--rounds 60] [--jobs 6] [--only TEXT] [--demo]
        [--suite]

Each revision (or the ``.tar`` that ``git archive`` has made of it) is extracted into a temporary folder and used
through ``PYTHONPATH``, under one Python and with caches of its own. ``ratio`` is the Hodges-Lehmann estimate over the
rounds, with its 95 % interval; ``within`` is whether the interval's upper end is at most :data:`LIMIT`. Every figure
has seconds that passed (``wall``) and processor seconds of all its processes (``cpu``), which other work on the machine
moves less.

Dispatch, imports and a worker's start take many rounds (``--rounds``) of one process a side, whose order turns from
round to round. Where a process lies in memory moves a dispatch by several percent, and the same revision has another
place in each process; so every process draws its own: an environment of random size, which moves the stack (Mytkowicz
et al.: Producing wrong data without doing anything obviously wrong, ASPLOS 2009), the system's random addresses,
Python's random hash seed, and for a dispatch several kernels with memory of random sizes between them (Curtsinger and
Berger: Stabilizer, ASPLOS 2013). The interval then has what places do to both sides. ``--jobs`` rounds run at the same
time, each on a core of its own.

What takes seconds (cold tuning, gate, plugin off, demo, suite) is measured in ``--slow-rounds`` rounds of four, in the
order before, after, after, before, so that a steady change of the machine's speed cancels: a round's ratio is the
geometric mean of its two ``after`` over that of its two ``before``.

Figures: a tuned kernel's call in three ways (``dispatch``: per call, nothing is launched), ``cold tuning`` (pytest
over three tests, one kernel each, on the scripted GPU, with empty caches), ``gate`` (the same with baselines and filled
caches), ``plugin off`` (pytest over 500 trivial tests where kerntune is installed and ``--kerntune`` isn't given;
``bare`` are the processor's seconds with ``-p no:kerntune``, measured in turn with the others, and ``added`` what the
installed plugin adds to them, with its interval), ``worker start``, imports, and if asked for ``demo`` and ``suite``
(``make demo`` and ``make test-all`` without making the environment; ``suite`` also gives seconds a passed test, since
the revisions have different tests). ``modules`` are the numbers of modules that imports
load: they don't depend on the machine's load. BEFORE may be AFTER: what is then beyond one is the method's own error,
and the limit can be shown only on a machine where it is less. ``before_after_child.py`` measures what takes place
inside of one process.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import platform
import queue
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from kerntune.base.stats import hodges_lehmann, median

CHILD = Path(__file__).with_name("before_after_child.py")
OUT = ROOT / "benchmarks" / "results" / "before_after.json"

LEVEL, LIMIT = 0.95, 1.02
"""Two percent is what a move of code may cost (the interval's upper end, so that it is shown and not only not seen)."""

TURN = ("before", "after", "after", "before")

PLACES = {"before": "a", "after": "b"}
"""Folders, of names of equal length: the size of a process's environment moves its stack, and that its speed (Mytkowicz
et al.: Producing wrong data without doing anything obviously wrong, ASPLOS 2009)."""

QUICK = (
    "dispatch", "worker start", "import kerntune", "import compile worker", "import timing worker", "import gate",
    "import command", "import plugin",
)  # fmt: skip
"""Groups of figures that a process of the child measures."""

ROUNDS, SLOW_ROUNDS = 60, 10

MOST_PADDING = 4096
"""Bytes by which an environment may be longer: a page, so that the stack takes every place in one."""

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script


def pytest_kerntune_backend(config):
    return FakeBackend(Script([Rule(constexprs={"BLOCK": 128}, time_ns=20_000.0), Rule(time_ns=24_000.0)]))
"""

TESTS = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128, 256) for w in (2, 4)]


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def row_sums(x, y, n, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * n + i, mask=i < n, other=0.0))
    tl.store(y + row, total)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row, top, total = tl.program_id(0), -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.max(tl.load(x + row * n + i, mask=i < n, other=-float("inf"))))
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.exp(tl.load(x + row * n + i, mask=i < n, other=-float("inf")) - top))
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(y + row * n + i, tl.exp(tl.load(x + row * n + i, mask=i < n) - top) / total, mask=i < n)


def test_scale(autotune):
    x = torch.randn(4096, device="cuda")
    autotune(lambda: scale[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, torch.empty_like(x), 4096))


def test_row_sums(autotune):
    x = torch.randn(64, 1000, device="cuda")
    autotune(lambda: row_sums[(64,)](x, x.new_empty(64), 1000))


def test_softmax(autotune):
    x = torch.randn(64, 1000, device="cuda")
    autotune(lambda: softmax[(64,)](x, torch.empty_like(x), 1000))
"""

TRIVIAL_TESTS = "import pytest\n\n\n@pytest.mark.parametrize('n', range(500))\ndef test_nothing(n):\n    pass\n"

Times = dict[str, float]
Round = dict[str, list[Times]]


class Checkout:
    """One revision's files in a folder, and an environment in which they are imported."""

    def __init__(self, revision: str, scratch: Path, side: str) -> None:
        self.commit, content = archived(revision)
        place = scratch / PLACES[side]
        self.folder, self.caches = place / "checkout", place / "caches"
        self.folder.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(self.folder, filter="data")

    def environment(self, caches: Path | None = None) -> dict[str, str]:
        """Variables for a process; ``caches`` is the folder of its caches, the checkout's own if it isn't given."""
        left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "CI", "PYTEST_ADDOPTS")
        return {
            **{k: v for k, v in os.environ.items() if k not in left_out},
            "PYTHONPATH": os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "KERNTUNE_CACHE_DIR": str((caches or self.caches) / "kerntune"),
            "TRITON_CACHE_DIR": str((caches or self.caches) / "triton"),
            "TRITON_DEFAULT_FP_FUSION": "1",
        }

    def inside(self, group: str, core: int | None = None) -> Any:
        """What the child finds, in a process of its own with an environment of random size, on ``core``."""
        command = [sys.executable, str(CHILD), group, *([] if core is None else [str(core)])]
        environment = {**self.environment(), "BEFORE_AFTER_PADDING": "-" * random.randrange(MOST_PADDING)}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{group} in {self.folder}: {done.stderr}{done.stdout}")
        return json.loads(done.stdout.splitlines()[-1])

    def pytest(
        self, *words: str, folder: Path | None = None, caches: Path | None = None, may_fail: bool = False
    ) -> Times:
        """A run of pytest in ``folder`` (by default the checkout). SystemExit if a test fails and none may."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
        with tempfile.TemporaryFile() as output:
            start = time.perf_counter()
            process = subprocess.Popen(
                command,
                cwd=folder or self.folder,
                env=self.environment(caches),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            text = output.read().decode(errors="replace")
        if process.returncode not in ((0, 1) if may_fail else (0,)):
            raise SystemExit(f"{' '.join(command)} in {folder or self.folder}:\n{text}")
        passed = re.search(r"(\d+) passed", text)
        if passed is None:
            raise SystemExit(f"no test passed:\n{text}")
        return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "passed": float(passed[1])}

    def cold_tuning(self) -> Times:
        """Three kernels of six configs each, tuned on the scripted GPU with empty caches and no baselines."""
        with tempfile.TemporaryDirectory(prefix="kerntune-cold-") as name:
            folder = project_in(Path(name), TESTS)
            (folder / "conftest.py").write_text(CONFTEST)
            return self.pytest("--kerntune", folder=folder, caches=folder)

    def gate(self) -> Times:
        """The three kernels once more, held against the baselines that the first run of this checkout has stored."""
        folder = self.folder.with_name("gate")
        if not folder.exists():
            project_in(folder, TESTS)
            (folder / "conftest.py").write_text(CONFTEST)
            self.pytest("--kerntune", folder=folder, caches=folder)
        return self.pytest("--kerntune", folder=folder, caches=folder)

    def plugin_off(self) -> Times:
        """500 trivial tests with the installed plugin, which has nothing to do, and without it."""
        folder = project_in(self.folder.with_name("trivial"), TRIVIAL_TESTS)
        bare = self.pytest("-p", "no:kerntune", folder=folder)
        return {**self.pytest(folder=folder), "bare": bare["cpu"]}

    def demo(self) -> Times:
        """``make demo`` with the caches that earlier rounds have filled: what is left is kerntune's own work."""
        return self.pytest("examples", "--kerntune")

    def suite(self) -> Times:
        """``make test-all``."""
        found = self.pytest("tests", "-n", "auto", "--dist", "worksteal", may_fail=True)
        return {**found, **{f"{key} a test": found[key] / found["passed"] for key in ("wall", "cpu")}}


def project_in(folder: Path, tests: str) -> Path:
    """The folder, with a file of tests and an empty configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "test_these.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def archived(revision: str) -> tuple[str, bytes]:
    """A revision's commit and its tar file. A path that ends with ``.tar`` is one that ``git archive`` has made, for a
    machine without the repository; its commit stands in its header."""
    if revision.endswith(".tar"):
        content = Path(revision).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            return archive.pax_headers.get("comment", "")[:10], content
    commit = git("rev-parse", "--short=10", f"{revision}^{{commit}}").decode().strip()
    return commit, git("archive", "--format=tar", commit)


def git(*words: str) -> bytes:
    """What git prints."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout


def slow_figures(demo: bool, suite: bool) -> dict[str, Callable[[Checkout], Times]]:
    """What is measured by runs of pytest, by name."""
    found = {"cold tuning": Checkout.cold_tuning, "gate": Checkout.gate, "plugin off": Checkout.plugin_off}
    if demo:
        found["demo"] = Checkout.demo
    if suite:
        found["suite"] = Checkout.suite
    return found


def round_of(measure: Callable[[Checkout], Times], sides: dict[str, Checkout]) -> Round:
    """One round: two measurements a side, in the order of :data:`TURN`."""
    found: Round = {"before": [], "after": []}
    for side in TURN:
        found[side].append(measure(sides[side]))
    return found


def pair_of(measure: Callable[[Checkout], Any], sides: dict[str, Checkout], number: int) -> dict[str, Any]:
    """Round ``number``: one measurement a side, the first side of every other round second."""
    order = ("before", "after") if number % 2 == 0 else ("after", "before")
    return {side: measure(sides[side]) for side in order}


def quick_rounds(group: str, sides: dict[str, Checkout], count: int, jobs: int) -> dict[str, list[Round]]:
    """The rounds of each figure of a group, ``jobs`` at a time, each on a core of its own."""
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[:jobs]:
        cores.put(core)

    def one(number: int) -> dict[str, Any]:
        core = cores.get()
        try:
            return pair_of(lambda checkout: checkout.inside(group, core), sides, number)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(jobs) as pool:
        pairs = list(pool.map(one, range(count)))
    return {
        name: [{side: [pair[side][name]] for side in ("before", "after")} for pair in pairs]
        for name in pairs[0]["before"]
    }


def compared(rounds: list[Round], what: str) -> dict[str, Any]:
    """Both sides' medians, their ratio with its interval, and whether that is within the limit."""

    def logs(found: list[Times]) -> float:
        return sum(math.log(times[what]) for times in found) / len(found)

    found = hodges_lehmann([logs(one["after"]) - logs(one["before"]) for one in rounds], LEVEL)
    out: dict[str, Any] = {
        side: float(f"{median([times[what] for one in rounds for times in one[side]]):.4g}")
        for side in ("before", "after")
    }
    ends = [
        math.exp(found.low) if found.low > -math.inf else None,
        math.exp(found.high) if found.high < math.inf else None,
    ]
    out["ratio"] = round(math.exp(found.point), 4)
    out["interval"] = [None if end is None else round(end, 4) for end in ends]
    out["within"] = ends[1] is not None and ends[1] <= LIMIT
    return out


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Every kind of seconds that a figure has."""
    kinds = [kind for kind in rounds[0]["before"][0] if kind != "passed"]
    found = {"rounds": len(rounds), **{kind: compared(rounds, kind) for kind in kinds}}
    return {**found, "added": added(rounds)} if "bare" in kinds else found


def added(rounds: list[Round]) -> dict[str, list[float]]:
    """A side's processor seconds beyond those without the plugin: the estimate, and the ends of its interval."""
    found = {}
    for side in ("before", "after"):
        beyond = hodges_lehmann([times["cpu"] - times["bare"] for one in rounds for times in one[side]], LEVEL)
        found[side] = [round(x, 4) for x in (beyond.point, beyond.low, beyond.high)]
    return found


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of dispatch, imports, starts (default: 60)")
    parser.add_argument("--slow-rounds", type=int, default=SLOW_ROUNDS, help="of what takes seconds (default: 10)")
    parser.add_argument("--suite-rounds", type=int, default=1, help="rounds of suite, four runs each (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time, a core each (default: 1)")
    parser.add_argument("--only", default="", help="groups of figures with this text in their name")
    parser.add_argument("--demo", action="store_true", help="make demo as well")
    parser.add_argument("--suite", action="store_true", help="make test-all as well")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kerntune-before-after-") as folder:
        measure_all(args, {side: Checkout(getattr(args, side), Path(folder), side) for side in ("before", "after")})


def measure_all(args: argparse.Namespace, sides: dict[str, Checkout]) -> None:
    """All figures that are asked for; the file is written after each group."""
    result: dict[str, Any] = {
        "commits": {side: checkout.commit for side, checkout in sides.items()},
        "date": harness.today(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "jobs": args.jobs,
        "level": LEVEL,
        "limit": LIMIT,
        "modules": {side: checkout.inside("counts") for side, checkout in sides.items()},
        "figures": {},
    }

    def add(found: dict[str, list[Round]]) -> None:
        for name, rounds in found.items():
            result["figures"][name] = summary(rounds)
            print(name, json.dumps(result["figures"][name]), flush=True)
        harness.write(args.out, result)

    print(json.dumps(result["modules"], indent=1), flush=True)
    for group in QUICK:
        if args.only in group:
            pair_of(lambda checkout, group=group: checkout.inside(group), sides, 0)  # byte code and C, unrecorded
            add(quick_rounds(group, sides, args.rounds, args.jobs))
    for name, measure in slow_figures(args.demo, args.suite).items():
        if args.only in name:
            if name != "suite":
                pair_of(measure, sides, 0)
            count = args.suite_rounds if name == "suite" else args.slow_rounds
            add({name: [round_of(measure, sides) for _ in range(count)]})


if __name__ == "__main__":
    main()
