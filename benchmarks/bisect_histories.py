"""Planted slowdowns in histories of 64 commits: does ``kerntune bisect`` name each, and how many versions does it time?

    python benchmarks/bisect_histories.py [--gpu | --scripted | --static] [--histories 40] [--commits 64]
        [--seconds 150] [--at-once 1] [--processes 1] [--out FILE]

Each history is a repository made here. Half of its commits change the kernel's code, but not its time (another
constant). Of the others a third each changes a comment of the kernel, a file that the test doesn't read, and the name
of a variable: these compile to the same code. One commit, at a random place, is slower by 3 %: on a GPU 3 % of the
programs are there twice, a scripted one says so. With ``--static`` it spills instead, and nothing is timed: the static
rules decide, for ``cuda:90``. Of every history: whether the planted commit was named, how many versions were timed, and
how many of these have code that was timed before. Triton's cache is the user's, so equal source is compiled once.

Each result is written as it comes; a later call goes on where the file ends. ``--seconds`` begins no history after so
long. ``--at-once`` takes several histories at a time; on a GPU kerntune's own lock has them timed in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from kerntune.base.codec import write_atomic

HERE = Path(__file__).parent
ROOT = HERE.parent

SCRIPTED = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    if config.getoption("--kerntune-target"):
        return None
    return FakeBackend(Script([Rule(constexprs={"SLOW": True}, time_ns=20_600.0), Rule(time_ns=20_000.0)]))
"""

KERNEL = """
import torch, triton, triton.language as tl
# comment {comment}

@triton.jit
def scale_kernel(x, y, n, blocks, FACTOR: tl.constexpr, SLOW: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    if SLOW:
        block = block % blocks
    {at} = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + {at}, mask={at} < n)
    tl.store(y + {at}, value * FACTOR, mask={at} < n)

def scale(x):
    y = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), {block})
    grid = (blocks + {slow} * (blocks * 3 // 100),)
    scale_kernel[grid](x, y, x.numel(), blocks, FACTOR={factor}, SLOW={slow}, BLOCK={block}, num_warps={warps})
    return y
"""

TESTS = """
import pytest, torch
from kernels import scale

@pytest.mark.autotune
def test_scale(autotune):
    x = torch.ones({size}, device=autotune.device)
    assert autotune(scale, x).shape == x.shape
"""


def environment() -> dict[str, str]:
    """Where and when this was measured."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return {"date": day, "gpu": gpu, "torch": torch.__version__, "triton": triton.__version__}


@dataclass(frozen=True)
class Made:
    """A history: the names of its commits, the position of the slow one, and of each the code that it compiles to."""

    names: list[str]
    planted: int
    codes: list[str]


def make(folder: Path, commits: int, kind: str, rng: random.Random) -> Made:
    """A history of so many commits after the first, one of them planted."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    planted = rng.randint(1, commits)
    (folder / "conftest.py").write_text(SCRIPTED if kind == "scripted" else "")
    (folder / "test_it.py").write_text(TESTS.format(size=1 << 26 if kind == "gpu" else 1 << 14))
    (folder / ".gitignore").write_text("__pycache__\n")
    git("init", "-q", "-b", "main")
    changing = set(rng.sample([i for i in range(1, commits + 1) if i != planted], commits // 2 - 1))
    factor, comment, other, at, made = 2, 0, 0, "at", Made([], planted, [])
    for i in range(commits + 1):
        factor += i in changing
        if i not in changing and i != planted:
            edit = rng.choice(("comment", "other", "name"))
            comment, other = comment + (edit == "comment"), other + (edit == "other")
            at = f"at{i}" if edit == "name" else at
        slow = i >= planted
        block, warps = (8192, 1) if slow and kind == "static" else (1024, 4)
        text = KERNEL.format(
            comment=comment, at=at, factor=f"{factor}.0", slow=slow and kind != "static", block=block, warps=warps
        )
        (folder / "kernels.py").write_text(text)
        (folder / "other.py").write_text(f"VALUE = {other}\n")
        git("add", "-A")
        git("commit", "-qm", f"commit {i}")
        made.names.append(git("rev-parse", "HEAD"))
        made.codes.append(f"{factor} {slow}")
    return made


def bisected(folder: Path, made: Made, kind: str, processes: int) -> dict[str, Any]:
    """One bisection: what it named, and what it took."""
    command = [sys.executable, "-m", "kerntune.cli", "bisect", made.names[0], made.names[-1]]
    command += ["--target", "cuda:90"] if kind == "static" else []
    command += ["--processes", str(processes)] if processes else []
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    begin = time.perf_counter()
    with open(folder.with_suffix(".txt"), "w+") as out:
        started = subprocess.Popen([*command, "--", "test_it.py"], cwd=folder, env=env, stdout=out, stderr=out)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read()
    first = re.search(r"^first bad: .*: commit (\d+)$", said, re.MULTILINE)
    timed = [int(number) for number in re.findall(r"^timed .*: commit (\d+): ", said, re.MULTILINE)]
    alone = re.search(r"^(\d+) runs? took long, in a process", said, re.MULTILINE)
    found = int(first[1]) if first else None
    codes = [made.codes[0], *(made.codes[i] for i in timed)]
    return {
        "planted": made.planted,
        "found": found,
        "right": found == made.planted,
        "timed": len(timed),
        "timed_again": len(codes) - len(set(codes)),
        "runs_alone": int(alone[1]) if alone else 0,
        "seconds": round(time.perf_counter() - begin, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "change": next((line.strip() for line in said.splitlines() if "REGRESSED" in line), "")[:200],
        "output": "" if found == made.planted else said[-4000:],
    }


def history(number: int, kind: str, commits: int, seed: int, processes: int = 0) -> dict[str, Any]:
    """Make and bisect one; the same for the same numbers."""
    with tempfile.TemporaryDirectory(prefix="kerntune-histories-") as folder:
        repository = Path(folder, "repository")
        repository.mkdir()
        made = make(repository, commits, kind, random.Random(f"{seed} {number}"))
        return {"history": number, **bisected(repository, made, kind, processes)}


def known(out: Path, commits: int, seed: int) -> list[dict[str, Any]]:
    """The histories of an earlier call with the same numbers."""
    made = json.loads(out.read_text()) if out.exists() else {}
    return made["histories"] if (made.get("commits"), made.get("seed")) == (commits, seed) else []


def write(out: Path, commits: int, seed: int, rows: list[dict[str, Any]]) -> None:
    """All that is known so far."""
    summary = {
        "right": sum(r["right"] for r in rows),
        "of": len(rows),
        "most_timed": max(r["timed"] for r in rows),
        "timed_again": sum(r["timed_again"] for r in rows),
        "seconds_median": sorted(r["seconds"] for r in rows)[len(rows) // 2],
    }
    rows = sorted(rows, key=lambda r: r["history"])
    made = {"environment": environment(), "commits": commits, "seed": seed, "summary": summary, "histories": rows}
    write_atomic(out, json.dumps(made, indent=1).encode() + b"\n")


def main() -> int:
    """Make and bisect the histories; 1 if one was dated wrongly, or more was timed than is needed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--gpu", dest="kind", action="store_const", const="gpu", default="gpu", help="as without it")
    kinds.add_argument("--static", dest="kind", action="store_const", const="static", help="a static rule finds it")
    kinds.add_argument("--scripted", dest="kind", action="store_const", const="scripted", help="on a scripted GPU")
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--commits", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e6, help="begin no history after so long")
    parser.add_argument("--at-once", type=int, default=1, help="histories that are bisected at the same time")
    parser.add_argument("--processes", type=int, default=0, help="of each bisection (default: a quarter of the cores)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or HERE / "results" / f"bisect_histories_{args.kind}.json"
    rows, end = known(out, args.commits, args.seed), time.monotonic() + args.seconds
    left = [i for i in range(args.histories) if i not in {r["history"] for r in rows}]

    def one(number: int) -> dict[str, Any] | None:
        return history(number, args.kind, args.commits, args.seed, args.processes) if time.monotonic() < end else None

    with ThreadPoolExecutor(max_workers=args.at_once) as pool:
        for ended in as_completed([pool.submit(one, number) for number in left]):
            if (row := ended.result()) is not None:
                rows.append(row)
                print(row, flush=True)
                write(out, args.commits, args.seed, rows)
    return 0 if all(r["right"] and r["timed"] <= 6 and not r["timed_again"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
