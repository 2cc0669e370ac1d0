"""Changes of the code that tests once missed, one at a time: each must fail a test of its module.

    python benchmarks/named_mutants.py OUT.json [--only race]

They are kept beside the random ones of ``mutants.py`` since each stands for a rule of its own. The text before is the
code as it is now: where it is gone, the row says so. Mutants and tests are in a copy of the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LIMIT_S = 300

TREE = ("kerntune", "pytest_kerntune", "tests", "benchmarks", "docs", "README.md", "CHANGELOG.md", "pyproject.toml")


@dataclass(frozen=True)
class Named:
    """``before`` becomes ``after`` in a module, at its first place; ``tests`` are to notice."""

    rule: str
    module: str
    before: str
    after: str
    tests: tuple[str, ...]


CHECKED = ("tests/gate/test_searched.py", "tests/gate/test_gpu_check.py")

NAMED = (
    Named("a refuted winner is not the trusted run", "kerntune/gate/call_tuning.py",
          "                self._rewind(i, it.before)\n", "", CHECKED),
    Named("addresses of the call stay while it is judged", "kerntune/gate/gpu_check.py",
          "with case.capture.plan.homes_preserved():", "if True:", CHECKED),
    Named("times of other protocols are no drift", "kerntune/gate/comparison.py",
          "fair = comparable(baseline, sample)", "fair = True", ("tests/gate/test_comparison.py", *CHECKED)),
    Named("new code has no old calibration", "kerntune/gate/baseline_builder.py",
          "if before is not None and same_work(before.recording, now) else None", "if before is not None else None",
          ("tests/gate/test_anchor.py", *CHECKED)),
    Named("no baseline of what can't be compiled", "kerntune/gate/static_check.py",
          "should_write(verdict, update, policy) and not broken", "should_write(verdict, update, policy)",
          ("tests/gate/test_static_check.py",)),
    Named("a lone rtol or atol leaves the other 0", "kerntune/gate/reference.py",
          "if (rtol is None) != (atol is None):", "if False:", ("tests/gate/test_reference.py",)),
    Named("late slots are taken again", "kerntune/tuning/race.py",
          "        if not slot.late:\n", "        if True:\n", ("tests/tuning/test_race.py",)),
    Named("times of rounds are settled", "kerntune/tuning/race.py",
          "    _settle_times(finalists, best)\n", "", ("tests/tuning/test_race.py",)),
    Named("one name that is compared makes memory compared", "kerntune/tuning/verification.py",
          "all(map(self.ignored, names))", "any(map(self.ignored, names))", ("tests/tuning/test_verification.py",)),
    Named("times under throttling don't count without it", "kerntune/tuning/stored_trials.py",
          'TIME_FIELDS = (*FAILURE_FIELDS, "throttle")', "TIME_FIELDS = FAILURE_FIELDS", ("tests/tuning",)),
    Named("a worker ends with its parent", "kerntune/compiling/compile_worker.py",
          "watch = end_with_parent(inbox, parent or os.getppid(), folder)",
          "import threading; watch = threading.Thread(target=int); watch.start()",
          ("tests/compiling/test_worker_process.py",)),
    Named("a failure that may pass is not remembered", "kerntune/compiling/stream.py",
          "if not answer.passing and not is_fault(why):", "if not is_fault(why):",
          ("tests/compiling/test_stream.py",)),
)  # fmt: skip


def outcome(mutant: Named, tree: Path) -> dict[str, object]:
    """Whether a test fails with the change, and which."""
    path = tree / mutant.module
    text = path.read_text()
    row: dict[str, object] = {"rule": mutant.rule, "module": mutant.module}
    if mutant.before not in text:
        return {**row, "killed": None, "by": "the code is gone"}
    begin = time.monotonic()
    path.write_text(text.replace(mutant.before, mutant.after, 1))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
        env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        row |= {"killed": done.returncode == 1, "by": failed[0][:200] if failed else done.stdout[-300:]}
    except subprocess.TimeoutExpired:
        row |= {"killed": True, "by": f"no end within {LIMIT_S} s"}
    finally:
        path.write_text(text)
    return {**row, "seconds": round(time.monotonic() - begin, 1)}


def main() -> int:
    """Try all; the number of those that no test noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="those whose module or rule has this in it")
    args = parser.parse_args()
    earlier = json.loads(args.out.read_text())["rows"] if args.out.exists() and args.only else []
    chosen = [m for m in NAMED if args.only in m.module + m.rule]
    rows = [r for r in earlier if r["rule"] not in {m.rule for m in chosen}]
    with tempfile.TemporaryDirectory(prefix="kerntune-named-") as folder:
        for name in TREE:
            source = ROOT / name
            shutil.copytree(source, Path(folder, name)) if source.is_dir() else shutil.copy2(source, folder)
        for mutant in chosen:
            rows.append(outcome(mutant, Path(folder)))
            print(rows[-1], flush=True)
            day = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "python": platform.python_version()}
            args.out.write_text(json.dumps({"environment": day, "rows": rows}, indent=1) + "\n")
    return sum(row["killed"] is False for row in rows)


if __name__ == "__main__":
    sys.exit(main())
