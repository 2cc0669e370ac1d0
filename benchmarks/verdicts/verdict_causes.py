"""Plants slowdowns of known causes on a GPU and counts which ``pytest --kerntune`` names correctly.

    python -m benchmarks.verdicts.verdict_causes OUT.json [--only SUBSTRING]

With ``--only`` the other rows of OUT.json stay as they are.

Everything is recorded once. Then code edits and changed config lists are judged in one run, recompilations under other
flags in one run for each, and untouched code beside processes that keep the GPU busy. A cause is named right if the
case is REGRESSED or DRIFTED and the largest share of its attribution is the planted one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import plugin_options
from benchmarks.verdicts.verdict_plants import PLANTS, Plant

CAUSES = ("environment", "compiler", "code", "launch", "config")

BUSY = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
print("ready", flush=True)
while True:
    for _ in range(50):
        b = a @ a
    torch.cuda.synchronize()
"""

NEIGHBOURS = 3
"""Processes that keep the GPU busy, so that it takes about four turns to do what one does without them."""

RUN_LIMIT_S = 300


@dataclass(frozen=True)
class Found:
    """What became of a plant. ``shares`` are relative changes, None where one was not measured."""

    name: str
    cause: str
    verdict: str
    change: float | None
    shares: dict[str, float | None]
    named: str
    right: bool
    message: str


def named(result: Mapping[str, Any]) -> str:
    """The cause with the largest share; empty where the verdict needs none or no share is known."""
    shares = shares_of(result)
    known = {name: abs(x) for name, x in shares.items() if x is not None}
    if result["verdict"] not in ("REGRESSED", "DRIFTED") or not any(known.values()):
        return ""
    return max(known, key=lambda name: known[name])


def shares_of(result: Mapping[str, Any]) -> dict[str, float | None]:
    """Per cause its share; all None without an attribution."""
    parts = result.get("attribution") or {}
    return {name: (parts.get(name) or {}).get("change") for name in CAUSES}


def found(plant: Plant, result: Mapping[str, Any] | None) -> Found:
    """A plant's row; ``result`` is None where its test gave none."""
    if result is None:
        return Found(plant.name, plant.cause, "", None, dict.fromkeys(CAUSES), "", False, "no result")
    name = named(result)
    change = (result.get("change") or {}).get("point")
    right = name == (plant.share or plant.cause)
    return Found(
        plant.name, plant.cause, result["verdict"], change, shares_of(result), name, right, result["message"]
    )  # fmt: skip


class Project:
    """A folder of small test files, and the runs over them."""

    def __init__(self, folder: Path, conftest: str = "") -> None:
        self.folder, self.runs = folder, list[dict[str, Any]]()
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = ignore:TRITON_DEFAULT_FP_FUSION\n")
        if conftest:
            (folder / "conftest.py").write_text(conftest)

    def run(
        self, name: str, plants: Sequence[Plant], planted: bool, flags: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """One ``pytest --kerntune`` over the plants' files, written before; per file its result."""
        for plant in plants:
            (self.folder / plant.file).write_text(plant.text(planted))
        report = self.folder / f"{name}.json"
        command = ["-m", "pytest", "--kerntune", f"--kerntune-missing={'fail' if planted else 'record'}"]
        options = [f"--kerntune-json={report}", f"--kerntune-cache-dir={self.folder / 'cache'}"]
        start = time.perf_counter()
        files = [p.file for p in plants]
        done = _run(
            [sys.executable, *command, *plugin_options(), *options, "-q", "-p", "no:cacheprovider", *files],
            self.folder, harness.child_environment(**(flags or {})),
        )  # fmt: skip
        seconds = round(time.perf_counter() - start, 1)
        results = json.loads(report.read_text())["results"] if report.exists() else []
        verdicts = dict(Counter(r["verdict"] for r in results))
        tail = "" if results else done.stdout[-3000:] + done.stderr[-2000:]
        print(f"{name}: exit {done.returncode}, {seconds} s, {verdicts} {tail}", flush=True)
        self.runs.append(
            {"name": name, "flags": dict(flags or {}), "exit_code": done.returncode, "seconds": seconds,
             "cases": len(plants), "verdicts": verdicts}
        )  # fmt: skip
        return {r["case"]["nodeid"].partition("::")[0]: r for r in results}


def _run(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that ended, or was ended after :data:`RUN_LIMIT_S`: then it gave no report."""
    try:
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S
        )
    except subprocess.TimeoutExpired as exc:
        text = [x.decode(errors="replace") if isinstance(x, bytes) else x or "" for x in (exc.stdout, exc.stderr)]
        return subprocess.CompletedProcess(command, -1, *text)


@contextmanager
def busy_gpu() -> Iterator[None]:
    """Other processes multiply matrices meanwhile, without a pause."""
    command = [sys.executable, "-c", BUSY]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(NEIGHBOURS)]
    try:
        for process in processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("a process that was to keep the GPU busy ended")
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def groups(plants: Sequence[Plant]) -> dict[tuple[tuple[tuple[str, str], ...], bool], list[Plant]]:
    """Plants that can be checked in one run: by their flags, and whether the GPU is busy."""
    out: dict[tuple[tuple[tuple[str, str], ...], bool], list[Plant]] = {}
    for plant in plants:
        out.setdefault((tuple(sorted(plant.flags.items())), plant.busy), []).append(plant)
    return out


def judge_all(project: Project, plants: Sequence[Plant]) -> Iterator[Found]:
    """Record, then check each group; yields rows."""
    project.run("record", plants, planted=False)
    for index, ((flags, busy), members) in enumerate(groups(plants).items()):
        name = f"judged_{index}_{'busy' if busy else '_'.join(k for k, _ in flags) or 'edited'}"
        if busy:
            with busy_gpu():
                results = project.run(name, members, planted=True)
        else:
            results = project.run(name, members, planted=True, flags=dict(flags))
        for plant in members:
            yield found(plant, results.get(plant.file))


def summary(rows: Sequence[Found]) -> dict[str, Any]:
    """Counts by planted cause, and of all."""
    kinds = {cause: [r for r in rows if r.cause == cause] for cause in CAUSES}
    counts = {cause: {"planted": len(x), "right": sum(r.right for r in x)} for cause, x in kinds.items() if x}
    right = sum(r.right for r in rows)
    return {**counts, "all": {"planted": len(rows), "right": right, "share": round(right / max(len(rows), 1), 4)}}


def kept(out: Path, plants: Sequence[Plant]) -> tuple[list[dict[str, Any]], list[Found]]:
    """The runs that ``out`` has, and its rows but those of ``plants``."""
    stored = json.loads(out.read_text())
    again = {p.name for p in plants}
    return stored["runs"], [Found(**row) for row in stored["rows"] if row["name"] not in again]


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="plants whose name has this in it")
    args = parser.parse_args()
    plants = [p for p in PLANTS if args.only in p.name]
    runs, rows = kept(args.out, plants) if args.only and args.out.exists() else ([], [])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        project = Project(Path(folder))
        for row in judge_all(project, plants):
            rows.append(row)
            shown = ", ".join(f"{k} {v:+.1%}" for k, v in row.shares.items() if v)
            print(f"{'right' if row.right else 'WRONG':6} {row.name:32} {row.verdict:12} {shown}", flush=True)
            if not row.right:
                print(f"       {row.message}", flush=True)
            out = {
                "environment": harness.environment(device=harness.device_name()),
                "summary": summary(rows),
                "runs": [*runs, *project.runs],
                "rows": [vars(r) for r in rows],
            }
            harness.write(args.out, out)
    print(json.dumps(summary(rows)))


if __name__ == "__main__":
    main()
