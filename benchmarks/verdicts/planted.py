"""Plants regressions in a scratch copy of the examples and shows that exactly they are found.

    python -m benchmarks.verdicts.planted OUT.json [--baselines FOLDER] [--static cuda:90]

On a GPU: record, run again (all PASS), a softmax with 10 % more work, a config list without its winner, and the
unplanted copy once more. With ``--static``: without a GPU, a kernel that is made to spill. The JSON holds each run's
command, exit code, seconds, verdicts, messages and JUnit failures, and the environment. ``--baselines`` keeps what the
first run recorded.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import ROOT, plugin_options

MORE_WORK = [
    ("    row = tl.program_id(0)\n", "    row = tl.program_id(0) % rows\n"),
    ("x_stride, out_stride, cols, BLOCK", "x_stride, out_stride, cols, rows, BLOCK"),
    ("softmax_kernel[(rows,)](x, out, x.stride(0), out.stride(0), cols)",
     "softmax_kernel[(rows + rows // 10,)](x, out, x.stride(0), out.stride(0), cols, rows)"),
]  # fmt: skip
"""A tenth of the softmax's rows once more: 10 % more work, the same result."""

WINNER = "    tile(64, 32, 128, warps=4, stages=5),\n"
"""What wins matmul[64] on an H200, 11 % before the next; no other case's winner."""


class Project:
    """A scratch copy of the examples, and the runs over it."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.folder = folder
        self.options = options
        self.runs: list[dict[str, object]] = []
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = ignore:TRITON_DEFAULT_FP_FUSION\n")

    def run(self, name: str, *args: str) -> dict[str, object]:
        """One ``pytest --kerntune``; its exit code, verdicts and JUnit failures."""
        report, junit = self.folder / f"{name}.json", self.folder / f"{name}.xml"
        command = ["-m", "pytest", "examples", "--kerntune", *self.options, *args]
        files = [f"--kerntune-json={report}", f"--junitxml={junit}", f"--kerntune-cache-dir={self.folder / 'cache'}"]
        start = time.perf_counter()
        env = harness.child_environment()
        done = subprocess.run(
            [sys.executable, *command, *plugin_options(), *files, "-q", "-p", "no:cacheprovider"],
            cwd=self.folder, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(f"--- {name}: exit {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-2000:]}", flush=True)
        results = json.loads(report.read_text())["results"] if report.exists() else []
        found = {
            "name": name,
            "command": "python " + " ".join(command),
            "exit_code": done.returncode,
            "seconds": round(time.perf_counter() - start, 1),
            "verdicts": dict(Counter(r["verdict"] for r in results)),
            "messages": [r["message"] for r in results if r["verdict"] not in ("PASS", "NEW")],
            "regressed": sorted(_case(r) for r in results if r["verdict"] == "REGRESSED"),
            "junit_failures": _failures(junit),
            "cases": {
                _case(r): {
                    k: r.get(k) for k in ("current_ns", "baseline_ns", "rung", "timer", "tuning_seconds", "trials")
                }
                for r in results
            },
        }
        self.runs.append(found)
        return found

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace one place in an example; an error if it isn't there."""
        path = self.folder / "examples" / file
        text = path.read_text()
        if old not in text:
            raise SystemExit(f"{file} has no {old!r} to plant in")
        path.write_text(text.replace(old, new, 1))

    def restore(self) -> None:
        """The examples as they are in the project."""
        shutil.copytree(
            ROOT / "examples",
            self.folder / "examples",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )


def on_gpu(project: Project) -> None:
    """Record, again, more work, winner removed, unplanted."""
    project.run("record")
    project.run("again")
    for old, new in MORE_WORK:
        project.edit("test_softmax.py", old, new)
    project.run("ten_percent_more_work")
    project.restore()
    project.edit("test_matmul.py", WINNER, "")
    project.run("winner_removed")
    project.restore()
    project.run("unplanted")


def without_gpu(project: Project) -> None:
    """Record, again, a spill, unplanted."""
    project.run("record")
    project.run("again")
    project.edit("test_rms_norm.py", "num_warps=warps)", "num_warps=warps, maxnreg=32)")
    project.run("spill")
    project.restore()
    project.run("unplanted")


def _case(result: dict[str, dict[str, str]]) -> str:
    case = result["case"]
    return case["nodeid"] if case["call"] in ("", "0") else f"{case['nodeid']}::{case['call']}"


def _failures(junit: Path) -> list[str]:
    if not junit.exists():
        return []
    cases = ET.parse(junit).getroot().iter("testcase")
    return sorted(f"{c.get('classname')}::{c.get('name')}" for c in cases if c.find("failure") is not None)


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--baselines", type=Path)
    parser.add_argument("--static", metavar="TARGET")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), [f"--kerntune-target={args.static}"] if args.static else [])
        try:
            (without_gpu if args.static else on_gpu)(project)
        finally:
            harness.write(
                args.out, {"environment": harness.environment(device=harness.device_name()), "runs": project.runs}
            )
            if args.baselines and (project.folder / "baselines").exists():
                shutil.copytree(project.folder / "baselines", args.baselines, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
