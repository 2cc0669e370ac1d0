"""Kills runs of ``pytest --kerntune`` on the scripted GPU with SIGKILL at random moments, and looks at what is left.

    python -m benchmarks.fuzz.kill_random OUT.json [--count 500] [--seed 1] [--limit 2] [--seconds 600]
    python -m benchmarks.fuzz.kill_random OUT.json --merge A.json B.json

Each run is a fork of this process, which has imported torch and Triton, in a folder of its own: it records baselines
(``record``), or refreshes those of another kernel text (``refresh``). Compilations are real, for sm_90, in compiling
processes; first launches run in a process of their own. Every other run believes that it has sixteen cores: it forks
itself then, as on large machines. This process adopts what a killed run leaves behind (``PR_SET_CHILD_SUBREAPER``), so
every process is seen. Each run notes the candidates that it has timed; those that the cache doesn't have are lost.

The JSON has, a row a kill: what was under way, the moment in seconds, how many processes there were, seconds until the
last one was gone, those that were left after ``--limit`` seconds, temporary folders, those of them that are there after
the next start, candidates timed and lost, files that can't be read, and the machine's load.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import triton.language as tl  # noqa: F401

import kerntune
import pytest_kerntune.session  # noqa: F401
from benchmarks import harness
from benchmarks.harness import plugin_options
from kerntune.base.codec import to_json
from kerntune.base.folders import TemporaryFolder
from kerntune.errors import StoreError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.kernels.compat import triton_compiler, versions
from kerntune.tuning.cache import TrialCache, WinnerCache
from kerntune.tuning.race import Estimates, Trial

PR_SET_CHILD_SUBREAPER = 36

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script([Rule(time_ns=2_000_000.0)], isolated=True))
"""

TEST = """
import pytest, torch, triton, triton.language as tl

CONFIGS = [triton.Config({{"BLOCK": b}}, num_warps=w) for b in (64, 128, 256, 512) for w in (1, 2, 4)]

@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * {factor}, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y

@pytest.mark.autotune
def test_scale(autotune):
    x = torch.ones(4096, device=autotune.device)
    assert autotune(scale, x).shape == x.shape
"""

CONFIGS = 12

OPTIONS = (
    "--kerntune", "--kerntune-cache-dir=cache", "--kerntune-update=all", "-W", "ignore:TRITON_DEFAULT_FP_FUSION",
    *(f"-pno:{name}" for name in ("cacheprovider", "randomly", "hypothesispytest", "benchmark", "xdist")),
)  # fmt: skip


@dataclass(frozen=True)
class Killed:
    """What one kill left."""

    kind: str
    cores: int
    moment_s: float
    ended_before: bool
    processes: int
    gone_after_s: float
    left: list[str]
    folders: list[str]
    folders_after_next_start: list[str]
    timed: int
    lost: int
    load: float
    unreadable: list[str]
    half_written: list[str]


class Run:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, kind: str, cores: int) -> None:
        self.folder, self.kind, self.cores = folder, kind, cores
        self.known_trials = 0
        (folder / "tmp").mkdir(parents=True)
        (folder / "conftest.py").write_text(CONFTEST)
        self.write("2.0")

    def write(self, factor: str) -> None:
        """The test file, with another kernel text for another factor."""
        (self.folder / "test_it.py").write_text(TEST.format(factor=factor))

    def start(self) -> int:
        """The process id of a fork that runs pytest."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            code = self._pytest()
        finally:
            os._exit(code)

    def _pytest(self) -> int:
        self._alone()
        return int(pytest.main([*plugin_options(), *OPTIONS, str(self.folder)]))

    def _alone(self) -> None:
        """In a session, a folder and with caches of its own."""
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without
        output = os.open(self.folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(output, number)
        os.chdir(self.folder)
        os.environ.update(TMPDIR=str(self.folder / "tmp"), TRITON_CACHE_DIR=str(self.folder / "triton"))
        os.environ.pop("CI", None)
        tempfile.tempdir = None
        os.sched_getaffinity = lambda pid: set(range(self.cores))  # type: ignore[assignment,misc]
        sys.path.insert(0, str(self.folder))
        self._note_trials()

    def _note_trials(self) -> None:
        """Write a byte for each candidate that was timed."""
        admit, notes = Estimates.take, os.open(self.folder / "timed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def noted(self: Estimates, trial: Trial) -> None:
            admit(self, trial)
            os.write(notes, b".")

        Estimates.take = noted  # type: ignore[method-assign]

    def timed(self) -> int:
        """How many candidates were timed."""
        notes = self.folder / "timed"
        return notes.stat().st_size if notes.exists() else 0

    def next_start(self) -> list[str]:
        """Do what the next run does first of all with temporary folders; those that are left."""
        pid = os.fork()
        if not pid:
            tempfile.tempdir = str(self.folder / "tmp")
            TemporaryFolder("run").remove()
            os._exit(0)
        os.waitpid(pid, 0)
        return [p.name for p in (self.folder / "tmp").glob("*") if p.is_dir()]

    def whole(self) -> float:
        """Seconds that a run takes that isn't killed. It leaves nothing running either."""
        begin = time.monotonic()
        status = os.waitpid(self.start(), 0)[1]
        seconds = time.monotonic() - begin
        if status:
            raise SystemExit(f"a run failed: {(self.folder / 'output.txt').read_text()[-3000:]}")
        return seconds


def kill(run: Run, moment: float, limit: float) -> Killed:
    """Start a run, kill it after ``moment`` seconds, and wait up to ``limit`` seconds for the rest to end."""
    pid = run.start()
    time.sleep(moment)
    alive = descendants()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    while (left := running(alive)) and time.monotonic() - begin < limit:
        time.sleep(0.005)
    seconds = time.monotonic() - begin
    words = [f"{one} {words_of(one)}" for one in left]
    for one in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    folders = [p.name for p in (run.folder / "tmp").glob("*") if p.is_dir()]
    while running(alive):
        time.sleep(0.005)
    unreadable, half = files_of(run.folder)
    stored = len(TrialCache(run.folder / "cache").entries()) - run.known_trials
    return Killed(
        run.kind, run.cores, round(moment, 3), pid not in alive, len(alive), round(seconds, 3), words, folders,
        run.next_start(), run.timed(), max(0, run.timed() - stored), os.getloadavg()[0], unreadable, half,
    )  # fmt: skip


def descendants() -> list[int]:
    """Processes below this one that run; those that have ended are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    parents = dict(processes())
    found: list[int] = []
    below = {os.getpid()}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below}
        found += sorted(below)
    return found


def running(seen: list[int]) -> list[int]:
    """Of those seen before and all below this process, those that run: one that is being adopted is below none."""
    below = descendants()
    now = {pid for pid, _ in processes()}
    return sorted({*below, *(pid for pid in seen if pid in now)})


def processes() -> Iterator[tuple[int, int]]:
    """Process ids and their parents', but for zombies."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    yield int(entry), int(parent)


def words_of(pid: int) -> str:
    """Its command line, shortened."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return ""


def files_of(folder: Path) -> tuple[list[str], list[str]]:
    """Files of the cache and the baselines that can't be read, and temporary files beside them."""
    wrong: list[str] = []
    for cache in (WinnerCache(folder / "cache"), TrialCache(folder / "cache")):
        with contextlib.redirect_stderr(io.StringIO()):
            list(cache.entries())
        wrong += cache.damaged
    try:
        for path, _ in BaselineStore(folder / "baselines").summaries():
            if path.name.startswith("."):
                wrong.append(path.name)
    except StoreError as exc:
        wrong.append(str(exc))
    half = [p.name for top in ("cache", "baselines") for p in (folder / top).rglob(".*.*") if p.is_file()]
    return wrong, [name for name in half if not name.startswith(".lock")]


def import_all() -> None:
    """What runs would import one by one, so that most of their moments are in what they do."""
    for module in pkgutil.walk_packages(kerntune.__path__, "kerntune."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--merge", type=Path, nargs="*", help="write what these earlier results come to together")
    args = parser.parse_args()
    if args.merge:
        found = [json.loads(path.read_bytes()) for path in args.merge]
        rows, args.seed = [row for one in found for row in one["rows"]], sorted(one["seed"] for one in found)
        args.out.write_bytes(to_json(result(rows, sum(one["went_on_afterwards"] for one in found), args)))
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    import_all()
    triton_compiler.triton_key()  # half a second of each run
    gc.freeze()
    rows, continued, end = [], 0, time.monotonic() + args.seconds
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="kill-random-") as top:
        recorded = Run(Path(top) / "recorded", "record", 2)
        longest = recorded.whole()
        for number in range(args.count):
            if time.monotonic() > end:
                break
            kind, cores = ("record", "refresh")[number % 2], (2, 16)[number // 2 % 2]
            run = Run(Path(top) / f"{number}", kind, cores)
            if kind == "refresh":
                for name in ("cache", "triton", "baselines"):
                    shutil.copytree(recorded.folder / name, run.folder / name)
                run.write("3.0")
                run.known_trials = len(TrialCache(run.folder / "cache").entries())
            row = kill(run, chance.uniform(0.0, longest), args.limit)
            rows.append(asdict(row))
            if number % 20 == 0:
                longest = run.whole()  # it goes on; and a machine is not as busy all the time
                continued += 1
            if row.left or row.folders_after_next_start or row.unreadable or row.lost > 1:
                print(number, row, flush=True)
            shutil.rmtree(run.folder)
            if number % 10 == 9:
                args.out.write_bytes(to_json(result(rows, continued, args)))
    args.out.write_bytes(to_json(result(rows, continued, args)))


def result(rows: list[dict[str, Any]], continued: int, args: argparse.Namespace) -> dict[str, Any]:
    """The figures, and each kill."""
    gone, loads = sorted(row["gone_after_s"] for row in rows), sorted(row["load"] for row in rows)
    return {
        "kills": len(rows),
        "date": harness.today(),
        "environment": {
            "python": sys.version.split()[0],
            "torch": str(torch.__version__),
            "triton": versions.triton_version(),
            "machine": f"{os.cpu_count()} cores, shared with other work",
            "load": {"median": loads[len(loads) // 2], "most": loads[-1]},
        },
        "seed": args.seed,
        "limit_s": args.limit,
        "while_running": sum(not row["ended_before"] for row in rows),
        "with_processes_left": sum(bool(row["left"]) for row in rows),
        "with_temporary_folders_left": sum(bool(row["folders"]) for row in rows),
        "with_temporary_folders_after_the_next_start": sum(bool(row["folders_after_next_start"]) for row in rows),
        "most_trials_lost": max(row["lost"] for row in rows),
        "killed_while_candidates_were_timed": sum(0 < row["timed"] < CONFIGS for row in rows),
        "with_unreadable_files": sum(bool(row["unreadable"]) for row in rows),
        "with_half_written_files_beside": sum(bool(row["half_written"]) for row in rows),
        "gone_after_s": {"median": gone[len(gone) // 2], "p99": gone[int(0.99 * (len(gone) - 1))], "most": gone[-1]},
        "most_processes": max(row["processes"] for row in rows),
        "went_on_afterwards": continued,
        "rows": rows,
    }


if __name__ == "__main__":
    main()
