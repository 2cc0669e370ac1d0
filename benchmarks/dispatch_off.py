"""What a prepared launch costs while dumps, logs, profiles and reports are off: beside an earlier revision.

    python benchmarks/dispatch_off.py --against REV      no GPU: writes benchmarks/results/dispatch_off.json

The driver is the stand-in of the tests, so the time is the host's alone: finding the prepared launch and handing its
arguments to the launcher, most of which is the stand-in's own. Processes of both revisions take turns; each gives the
shortest of its rounds, in processor time. ``after`` is the same process once an observer has come and gone.
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
import json, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests"]
from tests.kernels.dispatch.fake_driver import FakeTensor, fake_cuda
from tests.kernels.dispatch.test_launch_path import choose, tuned
CALLS, ROUNDS = 4000, 30
def rounds(kernel, args, cuda):
    found = []
    for _ in range(ROUNDS):
        begin = time.process_time_ns()
        for _ in range(CALLS):
            kernel[(4,)](*args)
        found.append((time.process_time_ns() - begin) / CALLS)
        cuda.launches.clear()
    return min(found)
with fake_cuda(driven=False) as cuda:
    kernel, args = tuned(), (FakeTensor(256), FakeTensor(512), 16, 1.0, 3)
    choose(kernel, args, {})
    for _ in range(5):
        kernel[(4,)](*args)
    out = {"off": rounds(kernel, args, cuda)}
    try:
        from kerntune.kernels.dispatch.observers import unwatch, watch
    except ImportError:
        pass
    else:
        class Seen:
            def launch(self, seen, run):
                return run()
        one = Seen()
        watch(one)
        kernel[(4,)](*args)
        unwatch(one)
        for _ in range(5):
            kernel[(4,)](*args)
        out["after"] = rounds(kernel, args, cuda)
    print(json.dumps(out))
"""


def measured(tree: Path) -> dict[str, float]:
    """Nanoseconds a call in a fresh process of one revision."""
    env = {**os.environ, "PYTHONPATH": str(tree), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, "-c", CHILD, str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=tree)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REV", required=True)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "dispatch_off.json")
    options = parser.parse_args()
    before, now, after = [], [], []
    with git.worktree(options.against, ROOT) as tree:
        for _ in range(options.pairs):
            before.append(measured(tree)["off"])
            found = measured(ROOT)
            now.append(found["off"])
            after.append(found["after"])
    figures = {"before_ns": median(before), "off_ns": median(now), "after_an_observer_ns": median(after)}
    ratios = sorted(b / a for a, b in zip(before, now, strict=True))
    date = datetime.now(timezone.utc).date().isoformat()
    result = {"date": date, "against": options.against, **figures, "ratios": ratios, "ratio": median(ratios)}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
