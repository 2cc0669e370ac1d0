"""Planted slowdowns in histories of 64 commits: does ``kerntune bisect`` name each, and how many versions does it time?

    python benchmarks/bisect_histories.py [--histories 40] [--commits 64] [--static] [--scripted] [--out FILE]

Each history is a repository made here: half of its commits change the kernel's code without changing its time (another
constant), the others change a comment. One commit, at a random place, makes every 16th program repeat its work: 6 %
more (on a scripted GPU 3 %). With ``--static`` it spills instead, and nothing is timed: the static rules decide, for
``cuda:90``. Each result is written as it comes. A GPU is needed unless ``--static`` or ``--scripted`` is given.
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
def scale_kernel(x, y, n, FACTOR: tl.constexpr, SLOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value * FACTOR, mask=at < n)
    if SLOW:
        if tl.program_id(0) % 16 == 0:
            again = tl.load(x + at, mask=at < n, volatile=True)
            tl.store(y + at, again * FACTOR, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), {block}),)
    scale_kernel[grid](x, y, x.numel(), FACTOR={factor}, SLOW={slow}, BLOCK={block}, num_warps={warps})
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


def make(folder: Path, commits: int, planted: int, static: bool, scripted: bool, rng: random.Random) -> list[str]:
    """A history of so many commits after the first, one of them planted; their names."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    if scripted:
        (folder / "conftest.py").write_text(SCRIPTED)
    (folder / "test_it.py").write_text(TESTS.format(size=1 << 14 if scripted or static else 1 << 26))
    (folder / ".gitignore").write_text("__pycache__\n")
    git("init", "-q", "-b", "main")
    changing = set(rng.sample([i for i in range(1, commits + 1) if i != planted], commits // 2 - 1))
    factor, names = 2, []
    for i in range(commits + 1):
        factor += i in changing
        bad = i >= planted
        block, warps = (32768, 1) if bad and static else (1024, 4)
        text = KERNEL.format(comment=i, factor=f"{factor}.0", slow=bad and not static, block=block, warps=warps)
        (folder / "kernels.py").write_text(text)
        git("add", "-A")
        git("commit", "-qm", f"commit {i}")
        names.append(git("rev-parse", "HEAD"))
    return names


def bisected(folder: Path, names: list[str], planted: int, static: bool) -> dict[str, Any]:
    """One bisection: what it named, and what it took."""
    command = [sys.executable, "-m", "kerntune.cli", "bisect", names[0], names[-1]]
    command += ["--target", "cuda:90"] if static else []
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, "--", "test_it.py"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    first = re.search(r"^first bad: .*: commit (\d+)$", done.stdout, re.MULTILINE)
    timed = re.search(r"^(\d+) versions? timed", done.stdout, re.MULTILINE)
    found = int(first[1]) if first else None
    return {
        "planted": planted,
        "found": found,
        "right": found == planted,
        "timed": int(timed[1]) if timed else 0,
        "seconds": round(time.perf_counter() - begin, 1),
        "output": "" if found == planted else (done.stdout + done.stderr)[-2000:],
    }


def main() -> int:
    """Make and bisect the histories; 1 if one was dated wrongly or took more than six timed versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--commits", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--static", action="store_true", help="a slowdown that a static rule finds; nothing is timed")
    parser.add_argument("--scripted", action="store_true", help="on a scripted GPU")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    kind = "static" if args.static else "scripted" if args.scripted else "gpu"
    out = args.out or HERE / "results" / f"bisect_histories_{kind}.json"
    rng, rows = random.Random(args.seed), []
    for _ in range(args.histories):
        planted = rng.randint(1, args.commits)
        with tempfile.TemporaryDirectory(prefix="kerntune-histories-") as folder:
            names = make(Path(folder), args.commits, planted, args.static, args.scripted, rng)
            rows.append(bisected(Path(folder), names, planted, args.static))
        print(rows[-1], flush=True)
        summary = {
            "right": sum(r["right"] for r in rows),
            "of": len(rows),
            "most_timed": max(r["timed"] for r in rows),
            "seconds_median": sorted(r["seconds"] for r in rows)[len(rows) // 2],
        }
        report = {"environment": environment(), "commits": args.commits, "summary": summary, "histories": rows}
        write_atomic(out, json.dumps(report, indent=1).encode() + b"\n")
    return 0 if all(r["right"] and r["timed"] <= 6 for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
