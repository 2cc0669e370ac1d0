"""Adding to and reading a history of a million points: 1,000 cases in 1,000 runs, in a folder.

    python benchmarks/history_scale.py OUT.json [--cases 1000] [--runs 1000]

Shown apart: the first index of all files, which a machine makes once; a run that is added (its file, and the index);
reading the steps of one case and of all. Needs no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kerntune.base.case_result import CaseId
from kerntune.gate.history.index import Index
from kerntune.gate.history.places import Folder
from kerntune.gate.history.points import SCHEMA, HistoryRun, Point, Shift
from kerntune.gate.history.record import add_run
from kerntune.gate.history.summary import steps_of

ROUNDS = 5


def run(number: int, cases: int, rng: np.random.Generator) -> HistoryRun:
    """Each case's code changes in half of the runs; every hundredth case gets slower in the midst of the history."""
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(hours=number)
    errors = rng.normal(0, 0.001, cases)
    points = tuple(
        Point(
            CaseId(f"tests/test_{i % 50}.py::test_{i}", "0"), "cuda:90", "NVIDIA H200", "PASS", f"w{i}-{number // 2}",
            "first", 1000.0, Shift(float(errors[i]) + 0.03 * (i % 100 == 0 and number >= 500), 0.001, "2024-01-01"),
            registers=(32,), environment={"triton": "3.6.0", "torch": "2.11.0", "driver": "570"},
        )
        for i in range(cases)
    )  # fmt: skip
    return HistoryRun(SCHEMA, moment.isoformat(), points, f"{number:08x}" * 5, moment.isoformat(), "main", host="a")


def seconds(action: Callable[[], object]) -> float:
    """Of this process alone: other work on the machine doesn't count. Everything here is computed in one thread."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        place, cache = Folder(Path(folder, "history")), Path(folder, "cache")
        index = Index(place, cache)
        for number in range(args.runs - ROUNDS):
            add_run(place, run(number, args.cases, rng))
        first = seconds(index.update)
        written, indexed, one, every = [], [], [], []
        steps: list[int] = []
        for number in range(args.runs - ROUNDS, args.runs):
            made = run(number, args.cases, rng)
            written.append(seconds(lambda made=made: add_run(place, made)))
            indexed.append(seconds(index.update))
            one.append(seconds(lambda: steps_of(index, case="test_7.py::test_107")))
            every.append(seconds(lambda: steps.append(len(steps_of(index).steps))))
        size = sum(p.stat().st_size for p in cache.iterdir())
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "environment": {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()},
        "points": args.cases * args.runs,
        "index_bytes": size,
        "steps_found": steps[-1],
        "cpu_seconds": {
            "first_index_of_all_files": round(first, 2),
            "write_one_run": [round(x, 3) for x in written],
            "index_one_run": [round(x, 3) for x in indexed],
            "show_one_case": [round(x, 3) for x in one],
            "show_all_cases": [round(x, 3) for x in every],
        },
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["cpu_seconds"], indent=1))


if __name__ == "__main__":
    main()
