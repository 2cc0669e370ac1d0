"""Each series of torch with the Triton that it names: is everything that needs no GPU as under the pinned one?

    python -m benchmarks.torch_matrix.torch_matrix [2.15 2.15/3.13 ...] [--tests FOLDER_OR_FILE ...] [--workers 2]
        [--keep]

Without names, all series of ``kernels/compat/versions`` under this Python, and the newest under the other Pythons, as
far as ``python3.N`` is found. An environment (5 GB) is made, used and removed before the next. Where a run was ended,
the next goes on. In each:

* the wheel of this checkout is installed as a user does, beside the one series of torch; nothing else is named;
* README's first hour without a GPU (:func:`first_hour`) in a folder of its own;
* the demo, ``pytest examples --kerntune``, on a copy: every case must be PASS, or NEW where its baseline is another
  Triton's;
* the tests of :data:`TESTS`.

Writes benchmarks/results/torch_matrix.json: an entry for each environment, where a later one replaces the earlier.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from kerntune.kernels.compat.versions import PYTHON_RUN, TORCH_RUN, as_series

OUT = ROOT / "benchmarks" / "results" / "torch_matrix.json"

TRITON_OF = {"2.11": "3.6", "2.12": "3.7", "2.13": "3.7", "2.14": "3.8", "2.15": "3.9"}
"""The Triton that torch's CUDA wheels name. It is given to pip as well, since builds for processors name none."""

TESTS = (
    "tests/gpu/fake_cuda",
    "tests/gpu/test_probe.py",
    "tests/capture",
    "tests/test_capture.py",
    "tests/kernels/compat",
    "tests/compiling",
    "tests/tuning/torch_compile",
    "tests/tuning/test_dynamo_watch.py",
    "tests/tuning/choices/test_choice_trace.py",
    "tests/gate/test_compiled_functions.py",
    "tests/gate/test_captured_calls.py",
    "tests/gate/test_known_choices.py",
    "tests/gate/test_static_check.py",
    "tests/static",
    "tests/gpu/emulator",
    "tests/referee",
)
"""Stand-ins, capture, compilation, compiled functions and their gate depend on torch; static figures, the emulator and
the judge on Triton."""

LEFT_OUT = "tests/gpu/fake_cuda/test_compiled_modules.py"
"""40 modules in processes of their own, a quarter of an hour: run by hand."""

TOOLS = ("hypothesis", "pytest-xdist", "pytest-timeout", "pytest-benchmark", "pytest-rerunfailures", "anyio", "fsspec")

LIMIT_S = 3600
"""Seconds for one command."""


class Environment:
    """A virtual environment of its own, removed at the end."""

    def __init__(self, torch: str, python: str, folder: Path) -> None:
        self.torch, self.python, self.folder = torch, python, folder
        self.bin = folder / "venv" / "bin"

    def run(self, *command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """The command of this environment; both streams are in ``stdout``."""
        kept = {
            k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER", "PYTHONPATH", "TRITON_CACHE_DIR")
        }
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"
        caches = {"TRITON_CACHE_DIR": str(self.folder / "triton"), "KERNTUNE_CACHE_DIR": str(self.folder / "cache")}
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]], cwd=cwd, env={**kept, **caches, "PATH": path, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip

    def install(self, *what: str) -> None:
        """pip install."""
        options = ("--disable-pip-version-check", "-q", "--no-compile")  # most modules are never imported
        done = self.run("python", "-m", "pip", "install", *options, *what, cwd=self.folder)
        if done.returncode:
            raise SystemExit(f"torch {self.torch}, Python {self.python}: pip failed\n{done.stdout[-3000:]}")

    def version(self, package: str) -> str:
        """Of an installed package."""
        program = f"import importlib.metadata as m; print(m.version({package!r}))"
        return self.run("python", "-c", program, cwd=self.folder).stdout.strip()


def interpreter(python: str) -> str | None:
    """The command of a Python; None if there is none."""
    if python == ".".join(platform.python_version_tuple()[:2]):
        return sys.executable
    found = shutil.which(f"python{python}")
    works = found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
    return found if works else None


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "-w", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("kerntune-*.whl")
    return wheel


# README's first hour

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=4)
    return y
"""
"""``mykernels.py`` of README's first test."""

EDIT = ("num_warps=4", "num_warps=1, maxnreg=24")
"""An edit that makes the kernel spill: the static gate fails it."""

Step = tuple[str, list[str], int, str]
"""What is done, pytest's options, the exit status that README promises, and a pattern of what must be said."""

STEPS: tuple[Step, ...] = (
    ("a plain run skips, and says what to do", ["-rs"], 0, r"2 skipped[\s\S]*"),
    ("--kerntune without a target asks for one", ["--kerntune"], 4, r"--kerntune-target=cuda:90"),
    ("the first run records", ["--kerntune", "--kerntune-target=cuda:90"], 0, r"2 NEW[\s\S]*2 baselines recorded"),
    ("the next compares, and needs no target", ["--kerntune"], 0, r"2 PASS"),
    ("numbers are checked in the interpreter", ["--kerntune-interpret"], 0, r"1 passed"),
)
AFTER_EDIT: tuple[Step, ...] = (
    ("an edit that spills fails", ["--kerntune"], 1, r"REGRESSED test_softmax\.py::test_softmax\[1024\][\s\S]*spill"),
    ("a refresh accepts it", ["--kerntune", "--kerntune-update"], 0, r"2 baselines (updated|recorded)"),
)


def first_test() -> str:
    """README's first test, as it stands there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## A first test\n.*?```python\n(.*?)```", text, re.S)
    assert block, "README has no first test"
    return block[1]


def first_hour(here: Environment) -> list[dict[str, Any]]:
    """README's first steps without a GPU, each with whether it went as README says; what was said where it didn't."""
    project = here.folder / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    (project / "test_softmax.py").write_text(first_test())
    kernels = project / "mykernels.py"
    kernels.write_text(KERNELS)
    found = [_step(here, project, step) for step in STEPS]
    kernels.write_text(KERNELS.replace(*EDIT))
    found += [_step(here, project, step) for step in AFTER_EDIT]
    done = here.run("kerntune", "doctor", cwd=project)
    calm = "newer than any" not in done.stdout and done.returncode == 0
    return [
        *found,
        {"step": "kerntune doctor finds nothing to do", "ok": calm, **({} if calm else {"said": done.stdout})},
    ]


def _step(here: Environment, project: Path, step: Step) -> dict[str, Any]:
    what, options, status, pattern = step
    done = here.run("python", "-m", "pytest", "-p", "no:cacheprovider", *options, cwd=project)
    ok = done.returncode == status and re.search(pattern, done.stdout) is not None
    return {"step": what, "ok": ok, **({} if ok else {"said": done.stdout[-3000:], "exit": done.returncode})}


# demo and tests


def demo(here: Environment) -> dict[str, Any]:
    """The verdicts of ``pytest examples --kerntune`` by number, on a copy: nothing is written to the checkout."""
    copy, run = here.folder / "demo", here.folder / "run.json"
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("examples", "baselines"):
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / "pyproject.toml", copy)
    options = ["-p", "no:cacheprovider", "-o", "filterwarnings=", "--kerntune", f"--kerntune-json={run}"]
    done = here.run("python", "-m", "pytest", "examples", *options, cwd=copy)
    if not run.exists():
        return {"exit": done.returncode, "said": done.stdout[-3000:]}
    verdicts = Counter(case["verdict"] for case in json.loads(run.read_text())["results"])
    return {"exit": done.returncode, **dict(sorted(verdicts.items()))}


def tests(here: Environment, wanted: Sequence[str], workers: int) -> dict[str, Any]:
    """The outcomes of tests by number, and the names of those that failed."""
    report = here.folder / "report.xml"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        f"-n{workers}",
        "--dist",
        "worksteal",
        f"--junit-xml={report}",
        f"--ignore={LEFT_OUT}",
    ]
    done = here.run("python", "-m", "pytest", *options, *wanted, cwd=ROOT)
    if not report.exists():
        return {"exit": done.returncode, "said": done.stdout[-3000:]}
    outcomes = dict(_outcomes(report))
    failures = sorted(name for name, outcome in outcomes.items() if outcome == "failed")
    if failures:
        print(done.stdout[-20000:], file=sys.stderr)
    counts = dict(sorted(Counter(outcomes.values()).items()))
    return {"exit": done.returncode, **counts, "failures": failures, "paths": list(wanted)}


def _outcomes(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        children = {child.tag for child in case}
        outcome = "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"
        yield f"{case.get('classname')}::{case.get('name')}", outcome


def examined(torch: str, python: str, command: str, args: argparse.Namespace) -> dict[str, Any]:
    """One environment from its installation to its removal. What is done of it is kept there, so that a second start
    goes on where the first was ended."""
    folder = Path(args.folder or tempfile.gettempdir()).resolve() / f"torch-{torch}-python-{python}"
    here, kept = Environment(torch, python, folder), folder / "done.json"
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "installed": lambda: install(here, command),
        "first_hour": lambda: {"first_hour": first_hour(here)},
        "tools": lambda: here.install(*TOOLS) or {},
        "demo": lambda: {"demo": demo(here)},
        "tests": lambda: {"tests": tests(here, args.tests, args.workers)},
    }
    for name, part in parts.items():
        if name not in found.setdefault("done", []):
            found |= part()
            found["done"].append(name)
            kept.write_text(json.dumps(found))
    if not args.keep:
        shutil.rmtree(folder)
    return {name: value for name, value in found.items() if name != "done"}


def install(here: Environment, command: str) -> dict[str, Any]:
    """The wheel of this checkout, with torch and its Triton; what was installed, and when."""
    begin = time.time()
    wheel = here.folder / "wheel"
    wheel.mkdir(parents=True, exist_ok=True)
    subprocess.run([command, "-m", "venv", str(here.folder / "venv")], check=True)
    here.install(str(built_wheel(wheel)), f"torch=={here.torch}.*", f"triton=={TRITON_OF[here.torch]}.*")
    version = "import platform; print(platform.python_version())"
    return {
        "python": here.run("python", "-c", version, cwd=here.folder).stdout.strip(),
        "torch": here.version("torch"),
        "triton": here.version("triton"),
        "commit": harness.commit()[:10],
        "date": harness.today(),
        "install_seconds": round(time.time() - begin),
    }


def went_well(result: dict[str, Any]) -> bool:
    """Whether nothing failed in an environment."""
    verdicts = set(result["demo"]) - {"exit", "PASS", "NEW"}
    return (
        all(step["ok"] for step in result["first_hour"])
        and not verdicts and result["demo"]["exit"] == 0
        and result["tests"]["exit"] == 0
    )  # fmt: skip


def keep(result: dict[str, Any]) -> None:
    """Write the result in the place of an earlier one of the same series of torch and Python."""
    held = json.loads(OUT.read_text()) if OUT.exists() else {"runs": []}
    key = (as_series(result["torch"]), as_series(result["python"]))
    runs = [r for r in held["runs"] if (as_series(r["torch"]), as_series(r["python"])) != key]
    runs = sorted([*runs, result], key=lambda r: (as_series(r["torch"]), as_series(r["python"])))
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, no GPU"
    harness.write(OUT, {"machine": machine, "runs": runs})


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("environments", nargs="*", metavar="TORCH[/PYTHON]")
    parser.add_argument("--tests", nargs="+", default=list(TESTS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="where environments are made; the system's temporary folder by default")
    parser.add_argument("--keep", action="store_true", help="don't remove the environments")
    args = parser.parse_args()
    mine, newest = ".".join(platform.python_version_tuple()[:2]), TORCH_RUN[-1]
    wanted = args.environments or [*reversed(TORCH_RUN), *(f"{newest}/{p}" for p in PYTHON_RUN if p != mine)]
    failed = []
    for name in wanted:
        torch, _, python = name.partition("/")
        command = interpreter(python or mine)
        if command is None:
            print(f"torch {torch}: no python{python} here, left out", flush=True)
            continue
        result = examined(torch, python or mine, command, args)
        keep(result)
        print(json.dumps(result), flush=True)
        failed += [] if went_well(result) else [name]
    print(f"failed: {', '.join(failed)}" if failed else "all as they should be")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
