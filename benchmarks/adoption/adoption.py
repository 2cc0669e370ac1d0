"""Adopts kerntune in another project's sources as its maintainer would, without a GPU: 20 operators, the site alone.

    python -m benchmarks.adoption.adoption liger|fla SOURCE OUT.json [--commits N]

``SOURCE`` is a folder that ``pip download --no-binary :all:`` and ``tar`` made, or with ``--commits`` a clone. It is
copied. One test is written, the table beside this file; ``kerntune init`` writes the rest. The baselines are recorded.
Then each push runs the steps of the workflow that init wrote, in bash, against a stand-in of GitHub's API: nothing
changed, a kernel that spills, the same one mended. With ``--commits`` the table is recorded at the last N commits that
touch the kernels instead, oldest first: how many baselines each one changes.

It needs kerntune's command, and what the sources require, in the environment that runs it.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks import harness

sys.path.append(str(harness.ROOT / "tests"))
from cli.github_api import TOKEN, Api, event, served

PAGE = harness.ROOT / "docs" / "how-to" / "adopt-in-a-large-repository.md"
WORDS_A_MINUTE = 200
"""How fast the page is read: a usual figure for technical prose."""

RECORD = ["pytest", "--kerntune", "--kerntune-target=cuda:90", "--kerntune-update", "-q"]


@dataclass(frozen=True)
class Project:
    """Where a project's packages and kernels are, where the test goes, and the edit of a launch that makes it spill."""

    path: str
    kernels: str
    test: str
    file: str
    launch: tuple[str, str]


PROJECTS = {
    "liger": Project(
        "src",
        "src/liger_kernel/ops/*.py",
        "test/speed/test_speed.py",
        "src/liger_kernel/ops/softmax.py",
        ("BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps", "BLOCK_SIZE=BLOCK_SIZE, num_warps=1"),
    ),
    "fla": Project(
        ".",
        "fla/ops/*",
        "tests/speed/test_speed.py",
        "fla/ops/based/parallel.py",
        ("num_warps=num_warps", "num_warps=1, maxnreg=32"),
    ),
}


class Adopted:
    """A copy of the sources with the test, and the commands that are run in it, each one timed."""

    def __init__(self, project: Project, table: Path, source: Path, scratch: Path) -> None:
        self.project, self.root = project, scratch / "source"
        shutil.copytree(source, self.root, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        self.write_test(table)
        self.scratch = scratch
        self.phases: dict[str, dict[str, Any]] = {}

    def write_test(self, table: Path) -> None:
        to = self.root / self.project.test
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(table.read_text())

    def run(self, phase: str, command: list[str], **variables: str) -> str:
        """Run a command as a phase; what it prints. Its code and its wall and processor time are kept."""
        here = self.root / self.project.path
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**os.environ, "PYTHONPATH": str(here), "PATH": path, "CI": "", **variables}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds = {"wall_s": round(time.perf_counter() - start, 1), "cpu_s": round(spent, 1)}
        counts = re.findall(r"^(\d+ [A-Z]{3,}.*)$", done.stdout, re.M)
        self.phases[phase] = {"exit": done.returncode, **seconds, **({"verdicts": counts[-1]} if counts else {})}
        return done.stdout + done.stderr

    def push(self, phase: str, api: Api) -> None:
        """The steps of a pull request's job after its installation; a failed gate doesn't keep the comment away."""
        (job,) = yaml.safe_load((self.root / ".github/workflows/kerntune.yml").read_text())["jobs"].values()
        steps = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
        variables = {"CI": "true", "GITHUB_STEP_SUMMARY": str(self.scratch / "summary.md"), "GITHUB_TOKEN": TOKEN}
        variables |= {"GITHUB_API_URL": api.url, "GITHUB_REPOSITORY": "owner/kernels"}
        variables |= {"GITHUB_EVENT_PATH": str(self.scratch / "event.json")}
        event(self.scratch, {"number": 7, "head": {"repo": {"full_name": "owner/kernels"}}})
        self.run(phase, ["bash", "-eo", "pipefail", "-c", steps["Gate"]], **variables)
        said = self.run(f"{phase}: comment", ["bash", "-eo", "pipefail", "-c", steps["Comment"]], **variables)
        bodies = [comment["body"] for comment in api.comments]
        self.phases[phase] |= {"comments": len(bodies), "said": said.strip()}
        self.phases[phase]["regressed_rows"] = sum("REGRESSED" in line for body in bodies for line in body.splitlines())

    def baselines(self) -> dict[str, str]:
        """The static baselines by name, as texts."""
        return {str(p): p.read_text() for p in sorted((self.root / "baselines").rglob("*.json"))}


def adopt(name: str, source: Path, scratch: Path) -> dict[str, Any]:
    """The whole of it, from the sources to the second push."""
    project, table = PROJECTS[name], Path(__file__).with_name(f"{name}_table.py")
    adopted = Adopted(project, table, source, scratch)
    init = adopted.run("init", ["kerntune", "init", str(Path(project.test).parent)])
    adopted.run("record", [*RECORD, project.test])
    launches = adopted.root / project.file
    written, edited = launches.read_text(), launches.read_text().replace(*project.launch)
    if written == edited:
        raise SystemExit(f"{launches}: has no launch {project.launch[0]}")
    for api in served(Api()):
        adopted.push("push 1, unchanged", api)
        launches.write_text(edited)
        adopted.push("push 2, a spill", api)
        launches.write_text(written)
        adopted.push("push 3, mended", api)
    words = len(PAGE.read_text().split())
    return {
        "operators": len(re.findall(r'^    "', table.read_text(), re.M)),
        "lines_by_hand": sum(bool(line.strip()) for line in table.read_text().splitlines()),
        "files_by_init": re.findall(r"^(\S+): wrote", init, re.M),
        "page_words": words,
        "reading_minutes": round(words / WORDS_A_MINUTE, 1),
        "baselines": len(adopted.baselines()),
        "baselines_mb": round(
            sum(p.stat().st_size for p in (adopted.root / "baselines").rglob("*") if p.is_file()) / 1e6, 2
        ),
        "phases": adopted.phases,
    }


def history(name: str, source: Path, scratch: Path, count: int) -> dict[str, Any]:
    """How many of the table's baselines each of the last commits that touch the kernels changes."""
    project, table = PROJECTS[name], Path(__file__).with_name(f"{name}_table.py")

    def git(*words: str) -> str:
        command = ["git", "-C", str(source), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    log = git("log", f"-{count}", "--format=%h %cs %s", "--", f":(glob){project.kernels}").splitlines()
    paths = f"{project.path} pyproject.toml"
    kept, before, rows = scratch / "kept", dict[str, str](), []
    for line in reversed(log):
        commit, date, subject = line.split(" ", 2)
        tree = scratch / "tree"
        tree.mkdir()
        subprocess.run(f"git -C '{source}' archive {commit} -- {paths} | tar -x -C '{tree}'", shell=True, check=True)
        adopted = Adopted(project, table, tree, scratch)
        if kept.exists():
            shutil.move(kept, adopted.root / "baselines")
        said = adopted.run("record", [*RECORD, "--kerntune-baselines=baselines", project.test])
        if adopted.phases["record"]["exit"]:
            print(said, flush=True)
        now = adopted.baselines()
        changed = sum(now.get(k) != v for k, v in before.items()) + len(now.keys() - before.keys())
        rows.append({"commit": commit, "date": date, "subject": subject, "changed": changed if before else None})
        rows[-1] |= {"baselines": len(now), **adopted.phases["record"]}
        print(rows[-1], flush=True)
        before = now
        shutil.move(adopted.root / "baselines", kept)
        shutil.rmtree(adopted.root)
        shutil.rmtree(tree)
    return {"commits": rows, "changed_in": sum(bool(row["changed"]) for row in rows)}


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("project", choices=PROJECTS)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--commits", type=int, default=0)
    args = parser.parse_args()
    packages = "liger-kernel", "fla-core", "pytest"
    with tempfile.TemporaryDirectory() as scratch:
        found = harness.environment(*packages, commit=harness.commit(), load=round(os.getloadavg()[0], 1))
        if args.commits:
            figures = {"history": history(args.project, args.source.resolve(), Path(scratch), args.commits)}
        else:
            figures = adopt(args.project, args.source.resolve(), Path(scratch))
    harness.merge(args.out, environment=found, **figures)
    print(harness.layout(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
