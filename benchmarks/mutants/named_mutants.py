"""Changes of the code that tests once missed, one at a time: each must fail the test of its rule.

    python -m benchmarks.mutants.named_mutants OUT.json [--only race]

They are kept beside the random ones of ``mutants.py`` since each stands for a rule of its own. The text before is the
code as it is now: where it is gone, the row says so. Mutants and tests are in a copy of the tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import ROOT

LIMIT_S = 300

TREE = ("kerntune", "pytest_kerntune", "tests", "benchmarks", "docs", "README.md", "CHANGELOG.md", "pyproject.toml")

FAILED = 1
"""Pytest's exit code; 4 and 5 are tests that don't exist."""


@dataclass(frozen=True)
class Named:
    """``before`` becomes ``after`` in a module, at its first place; ``test``, which asserts the rule, is to notice."""

    rule: str
    module: str
    before: str
    after: str
    test: str


GATE, COMPILING, TUNING = "tests/gate/test_", "tests/compiling/test_", "tests/tuning/test_"

NAMED = (
    Named("a refuted winner is not the trusted run", "kerntune/gate/call_tuning.py",
          "                self._rewind(i, it.before)\n", "",
          GATE + "gpu_check.py::test_after_a_refuted_winner_the_captured_run_is_the_trusted_one_again"),
    Named("memory that is used in place is left as the call left it", "kerntune/gate/gpu_check.py",
          "with case.capture.plan.homes_preserved():", "if True:",
          GATE + "gpu_check.py::test_memory_that_is_used_in_place_is_left_as_the_captured_run_left_it"),
    Named("times of another timer are no drift", "kerntune/gate/comparison.py",
          "fair = comparable(baseline, sample)", "fair = True",
          GATE + "comparer.py::test_times_that_cant_be_held_against_each_other_are_no_drift"),
    Named("times of another timer stand in for no replay", "kerntune/gate/comparison.py",
          "last = fair and used.rung == STORED", "last = used.rung == STORED",
          GATE + "comparer.py::test_the_stored_sample_is_the_last_resort"),
    Named("new code has no old calibration", "kerntune/gate/baseline_builder.py",
          "if before and same_work(before.recording, now) else None", "if before else None",
          GATE + "gpu_check.py::test_a_calibration_is_kept_for_the_same_work_alone"),
    Named("no baseline of what can't be compiled", "kerntune/gate/static_check.py",
          "known_otherwise=renamed.edited) and not broken", "known_otherwise=renamed.edited)",
          GATE + "static_check.py::test_what_compiled_before_and_does_not_now_regresses_and_is_never_recorded"),
    Named("a lone rtol or atol leaves the other 0", "kerntune/gate/call.py",
          "if (rtol is None) != (atol is None):", "if False:",
          GATE + "call.py::test_a_lone_tolerance_counts_and_the_other_is_none"),
    Named("the side that restores more sets how many executions both get", "kerntune/timing/paired.py",
          "slower = max(a, b, key=lambda program: len(program.in_place))", "slower = a", "tests/timing/test_paired.py"),
    Named("late slots are taken again", "kerntune/tuning/race.py",
          "        if not slot.late:\n", "        if True:\n",
          TUNING + "race.py::test_a_late_slot_is_taken_again_until_the_host_is_in_time"),
    Named("times of rounds are settled", "kerntune/tuning/race.py",
          "        trial.settled = reference * math.exp(_ratio(trial, best))\n", "        pass\n",
          TUNING + "race.py::test_who_was_dropped_early_is_told_as_behind_the_winner"),
    Named("one name that is compared makes memory compared", "kerntune/tuning/verification.py",
          "all(map(self.ignored, names))", "any(map(self.ignored, names))",
          TUNING + "verification.py::test_memory_is_ignored_only_if_all_arguments_that_point_to_it_are"),
    Named("times under throttling don't count without it", "kerntune/tuning/stored_trials.py",
          'TIME_FIELDS = (*FAILURE_FIELDS, "throttle")', "TIME_FIELDS = FAILURE_FIELDS",
          TUNING + "stored_trials.py::test_times_of_a_throttled_device_are_not_taken_for_others"),
    Named("a worker ends with its parent", "kerntune/compiling/compile_worker.py",
          "watch = end_with_parent(inbox, parent)",
          "import threading; watch = threading.Thread(target=int); watch.start()",
          COMPILING + "worker_process.py::test_a_busy_process_ends_with_whoever_asked"),
    Named("a failure that may pass is not remembered", "kerntune/tuning/trial_set.py",
          "remember=not is_passing(exc)", "remember=True",
          TUNING + "stored_trials.py::test_a_full_disk_is_not_remembered"),
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
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.test]
        env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        row |= {"killed": done.returncode == FAILED, "by": failed[0][:200] if failed else done.stdout[-300:]}
    except subprocess.TimeoutExpired:
        row |= {"killed": True, "by": f"no end within {LIMIT_S} s"}
    finally:
        path.write_text(text)
    return {**row, "seconds": round(time.monotonic() - begin, 1)}


def main() -> int:
    """Try all; the number of those that no test noticed, or that have lost their place."""
    parser = harness.parser(__doc__)
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
            day = harness.environment()
            harness.write(args.out, {"environment": day, "rows": rows})
    return sum(not row["killed"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
