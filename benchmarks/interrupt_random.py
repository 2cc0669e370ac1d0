"""Interrupts runs on the scripted GPU (Ctrl-C: SIGINT to the process group) at random moments; how soon they end.

    python benchmarks/interrupt_random.py OUT.json [--count 40] [--seed 1] [--kinds library,plugin,...]

Needs no GPU and uses none; the part ``interrupts`` of ``benchmarks/quarantine.py`` does. Each run is a fork of this
process, as in ``benchmarks/kill_random.py``; what was imported before counts as garbage to look through, as in a run of
its own:

library   a program that tunes with ``kerntune.autotune``
plugin    ``pytest --kerntune`` that tunes and records
busy      the same while compilers are busy: it believes that it has sixteen cores, and compiles 48 configs
refresh   ``pytest --kerntune --kerntune-update=all`` of another kernel text
static    ``pytest --kerntune --kerntune-target=cuda:90`` in a process of its own, with nothing compiled before
torch     a process that imports torch and triton, no kerntune, and sleeps: what Python takes to end with them

The JSON has a row an interrupt: the moment in seconds, seconds until the process had ended and until the last process
below it was gone, seconds of processor time that the process took for its end (what it takes on an idle machine), the
machine's load, processes that were left, temporary folders, and files that can't be read.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kill_random
from kill_random import PR_SET_CHILD_SUBREAPER, Run, descendants, files_of, import_all, running, words_of
from plugin_options import plugin_options

from kerntune.base.codec import to_json
from kerntune.kernels import compat

KINDS = ("library", "plugin", "busy", "refresh", "static", "torch")
LIMIT_S = 60.0
"""A run that has not ended by then is killed."""

PROGRAM = """
import torch, triton, triton.language as tl
import kerntune
from kerntune.gpu.scripted import FakeBackend, Rule, Script
from kerntune.tuning import context

@kerntune.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128, 256, 512) for w in (1, 2, 4)],
                   key=["n"])
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

backend = FakeBackend(Script([Rule(time_ns=2_000_000.0)], isolated=True))
context.this_gpu = lambda: backend
with backend.activate():
    for n in (4096, 8192):
        x = torch.empty(n, device="cuda")
        scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, torch.empty_like(x), n)
"""


@dataclass(frozen=True)
class Interrupted:
    """What one interrupt came to."""

    kind: str
    moment_s: float
    ended_before: bool
    processes: int
    ended_after_s: float
    gone_after_s: float
    processor_s: float
    load: float
    status: int
    left: list[str]
    folders: list[str]
    unreadable: list[str]
    half_written: list[str]


class Program(Run):
    """A run of the library."""

    def _pytest(self) -> int:
        gc.unfreeze()
        self._alone()
        os.environ["KERNTUNE_CACHE_DIR"] = str(self.folder / "cache")
        (self.folder / "program.py").write_text(PROGRAM)
        import runpy

        try:
            runpy.run_path(str(self.folder / "program.py"), run_name="__main__")
        except KeyboardInterrupt:
            return 130
        finally:
            _at_exit()
        return 0


class Test(Run):
    """A run of the plugin, which ends as a program does."""

    def _pytest(self) -> int:
        gc.unfreeze()
        try:
            return super()._pytest()
        finally:
            _at_exit()


STATIC_TEST = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

@pytest.mark.parametrize("block", [2**i for i in range(5, 13)])
def test_scale(autotune, block):
    x = torch.ones(4096, device="cuda")
    autotune(lambda: scale_kernel[(triton.cdiv(4096, block),)](x, torch.empty_like(x), 4096, block))
"""

SLEEP_S = 3.0


class OwnProcess(Run):
    """A run in a Python of its own: what it ends with was imported by it, and Python's own end counts."""

    def __init__(self, folder: Path, kind: str, cores: int) -> None:
        super().__init__(folder, kind, cores)
        (folder / "conftest.py").unlink()
        (folder / "test_it.py").write_text(STATIC_TEST)

    def _pytest(self) -> int:
        self._alone()
        os.environ.update(KERNTUNE_CACHE_DIR=str(self.folder / "cache"), PYTHONPATH=os.pathsep.join(sys.path[1:]))
        sleeps = ["-c", f"import torch, triton, time; time.sleep({SLEEP_S})"]
        target = ["--kerntune", "--kerntune-target=cuda:90", f"--kerntune-baselines={self.folder / 'baselines'}"]
        tests = ["-m", "pytest", *plugin_options(), "-p", "no:cacheprovider", *target, str(self.folder)]
        os.execv(sys.executable, [sys.executable, *(sleeps if self.kind == "torch" else tests)])


def _at_exit() -> None:
    """What Python does at its end: wait for threads, call what was registered."""
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()


def made(folder: Path, kind: str, recorded: Path | None) -> Run:
    """A run of a kind; a refresh begins with what ``recorded`` holds."""
    made_by = {"library": Program, "static": OwnProcess, "torch": OwnProcess}.get(kind, Test)
    run = made_by(folder, kind, 16 if kind == "busy" else 2)
    if kind == "busy":
        text = kill_random.TEST.replace("(64, 128, 256, 512)", "(32, 64, 128, 256, 512, 1024, 2048, 4096)")
        (folder / "test_it.py").write_text(text.replace("(1, 2, 4)", "(1, 2, 4, 8, 16, 32)").format(factor="2.0"))
    if recorded is not None:
        for name in ("cache", "triton", "baselines"):
            shutil.copytree(recorded / name, folder / name)
        run.write("3.0")
    return run


def interrupt(run: Run, moment: float) -> Interrupted:
    """Start a run, interrupt its group after ``moment`` seconds, and wait for its end."""
    pid = run.start()
    time.sleep(moment)
    alive = descendants()
    before, begin = processor_s(pid), time.monotonic()
    ended_before = pid not in alive
    if not ended_before:
        os.killpg(pid, signal.SIGINT)
    status, ended = 0, begin
    while not ended_before:
        ended = time.monotonic()
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            before = processor_s(pid) - before
            status = os.waitpid(pid, 0)[1]
            break
        if ended - begin > LIMIT_S:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    while (left := running(alive)) and time.monotonic() - ended < 2.0:
        time.sleep(0.005)
    gone, words = time.monotonic(), [f"{one} {words_of(one)}" for one in left]
    for one in left:
        os.kill(one, signal.SIGKILL)
    unreadable, half = files_of(run.folder)
    folders = [p.name for p in (run.folder / "tmp").glob("*") if p.is_dir()]
    return Interrupted(
        run.kind, round(moment, 3), ended_before, len(alive), round(ended - begin, 3), round(gone - begin, 3),
        0.0 if ended_before else round(before, 3), os.getloadavg()[0], os.waitstatus_to_exitcode(status), words,
        folders, unreadable, half,
    )  # fmt: skip


def processor_s(pid: int) -> float:
    """What a process took so far, without its children; also of one that has ended and isn't reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of each kind."""
    found = {}
    for kind in KINDS:
        mine = [r for r in rows if r["kind"] == kind and not r["ended_before"]]
        if mine:
            ended = sorted(r["ended_after_s"] for r in mine)
            gone, cpu = (sorted(r[name] for r in mine) for name in ("gone_after_s", "processor_s"))
            found[kind] = {
                "interrupts": len(mine),
                "ended_after_s": {"median": ended[len(ended) // 2], "most": ended[-1]},
                "gone_after_s": {"median": gone[len(gone) // 2], "most": gone[-1]},
                "processor_s": {"median": cpu[len(cpu) // 2], "most": cpu[-1]},
                "over_2_s": sum(s > 2.0 for s in gone),
                "left": sum(bool(r["left"]) for r in mine),
                "folders": sum(bool(r["folders"]) for r in mine),
                "unreadable": sum(bool(r["unreadable"]) for r in mine),
                "half_written": sum(bool(r["half_written"]) for r in mine),
            }  # fmt: skip
    return found


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    import_all()
    compat.triton_key()
    gc.freeze()
    chance, rows = random.Random(args.seed), list[dict[str, Any]]()
    top = tempfile.mkdtemp(prefix="interrupt-random-")  # a TemporaryDirectory would be removed by the runs' exit
    try:
        recorded = made(Path(top) / "recorded", "plugin", None)
        recorded.whole()
        for kind in args.kinds.split(","):
            start = recorded.folder if kind == "refresh" else None
            longest = made(Path(top) / f"{kind}-whole", kind, start).whole()
            for number in range(args.count):
                run = made(Path(top) / f"{kind}-{number}", kind, start)
                first = longest - SLEEP_S / 2 if kind == "torch" else 0.0
                row = asdict(interrupt(run, chance.uniform(first, longest)))
                if row["left"] or row["folders"] or row["unreadable"] or row["gone_after_s"] > 2.0:
                    print(row, flush=True)
                    print((run.folder / "output.txt").read_text()[-3000:], flush=True)
                rows.append(row)
                shutil.rmtree(run.folder, ignore_errors=True)
            args.out.write_bytes(to_json(result(rows, args)))
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(json.dumps(summary(rows), indent=1))


def result(rows: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """The figures, and each interrupt."""
    versions = {"python": sys.version.split()[0], "triton": compat.triton_version()}
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} at the end"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "environment": {**versions, "machine": machine},
        "seed": args.seed,
        "summary": summary(rows),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
