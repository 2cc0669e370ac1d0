"""What the host takes for a decided call of a choice above calling the winner directly, beside an earlier revision.

    python benchmarks/choice_calls.py --against REV      no GPU: writes benchmarks/results/choice_calls.json

The calls are those of ``choices.py``: as many tensors of one and two dimensions as its operations have, all in the key,
but on the host. The winner is a Python function that makes an empty result, as one that launches a tuned kernel begins.
Both ways take turns in short blocks in one process; a process gives the median difference of neighbouring blocks, and
that as a share of an ``empty_like`` on the same machine, by which machines can be compared. Processes of both revisions
take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kerntune.gate import git  # noqa: E402  # after the path

CHILD = """
import inspect, json, sys, time
from statistics import median
sys.path.insert(0, sys.argv[1])
import torch
import kerntune
assert kerntune.__file__.startswith(sys.argv[1])
CALLS, BLOCKS = 300, 101

def one(x): return torch.empty_like(x)
def two(x, w): return torch.empty_like(x)
def three(x, w, b): return torch.empty_like(x)
def other(*args): raise AssertionError

x, w = torch.empty(64, 128), torch.empty(128)
FORMS = {"1 tensor": (one, (x,)), "2 tensors": (two, (x, w)), "3 tensors": (three, (x, w, w))}

def block(f, args):
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        f(*args)
    return (time.perf_counter_ns() - begin) / CALLS

def differences(a, b, args):
    found = []
    for i in range(BLOCKS):
        pair = [block(f, args) for f in ((a, b) if i % 2 else (b, a))]
        found.append(pair[0] - pair[1] if i % 2 else pair[1] - pair[0])
    return median(found)

out = {}
for name, (direct, args) in FORMS.items():
    choice = kerntune.choice([direct, torch.nn.functional.relu], key=list(inspect.signature(direct).parameters))(direct)
    values = dict(zip(inspect.signature(direct).parameters, args))
    choice.operation._remember(values, direct)
    choice.operation._chosen = None  # a miss would fail
    choice(*args)
    above = differences(choice, direct, args)
    empty = median(block(torch.empty_like, args[:1]) for _ in range(BLOCKS))
    out[name] = {"above_ns": above, "of_empty_like": above / empty}
print(json.dumps(out))
"""


def measured(tree: Path) -> dict[str, dict[str, float]]:
    """Of each form of call, in a fresh process of one revision."""
    command = [sys.executable, "-c", CHILD, str(tree)]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=tree)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def medians(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Over processes."""
    return {form: {n: round(median(one[form][n] for one in found), 3) for n in found[0][form]} for form in found[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REV", required=True)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "choice_calls.json")
    options = parser.parse_args()
    before, now = [], []
    with git.worktree(options.against, ROOT) as tree:
        for _ in range(options.pairs):
            before.append(measured(tree))
            now.append(measured(ROOT))
    ratios = {
        form: sorted(round(b[form]["above_ns"] / a[form]["above_ns"], 3) for a, b in zip(before, now, strict=True))
        for form in now[0]
    }
    result = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "against": options.against,
        "before": medians(before),
        "now": medians(now),
        "ratios": ratios,
        "ratio": {form: median(found) for form, found in ratios.items()},
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
