"""Triton's own tests of its autotuner, with Triton's engine and under ``kerntune.install()``.

    python benchmarks/tritons_tests.py TRITON/python/test/unit/runtime --out OUT.json [--file test_autotuner.py ...]

Needs a GPU. The files are copied and run with fixtures of this module in the place of Triton's conftest (which supports
its own version only), each time with caches of their own: ``stock``, ``installed``, and ``installed again``, on the
winners that the run before has stored. ``worse`` lists the tests that pass with Triton's engine and not under
``install()``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

INSTALL = "KERNTUNE_BENCHMARK_INSTALL"
"""Set for the runs under ``kerntune.install()``."""

FILES = ("test_autotuner.py", "test_autotune_listener.py")
LIMIT_S = 240.0
"""Of one file's run."""

TAIL = 400
"""Characters kept of why a test did not pass."""

# the plugin, in the processes that run Triton's tests


def pytest_configure(config: pytest.Config) -> None:
    """Take over before the tests' modules are imported."""
    if os.environ.get(INSTALL):
        import kerntune

        config.add_cleanup(kerntune.install().uninstall)


@pytest.fixture
def device() -> str:
    """Where Triton's tests put tensors."""
    return "cuda"


@pytest.fixture
def fresh_knobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Triton's knobs, all as by default but those that say where tools and libraries are; afterwards as before."""
    from triton import knobs

    found = {k: v for k, v in vars(knobs).items() if isinstance(v, knobs.base_knobs)}
    with contextlib.ExitStack() as stack:
        for name in found.keys() - {"build", "nvidia", "amd"}:
            stack.enter_context(found[name].scope())
            for knob in found[name].knob_descriptors.values():
                monkeypatch.delenv(knob.key, raising=False)
            found[name].reset()
        yield knobs


@pytest.fixture
def fresh_triton_cache(tmp_path: Path) -> Iterator[str]:
    """An empty folder as Triton's cache."""
    from triton import knobs

    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        yield str(tmp_path)


# the runs


def outcomes(file: Path, home: Path, installed: bool) -> dict[str, dict[str, str]]:
    """How each test of a file ends in a process of its own: ``outcome``, and ``why`` where it does not pass."""
    report = home / f"{file.stem}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", Path(__file__).stem]
    done = subprocess.run(
        [*command, f"--junitxml={report}", "--rootdir", file.parent, file],
        env=surroundings(home, installed),
        cwd=file.parent,
        timeout=LIMIT_S,
        check=False,
        capture_output=True,
        text=True,
    )
    if not report.exists():
        return {f"{file.name}": {"outcome": "no report", "why": (done.stdout + done.stderr)[-TAIL:]}}
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {f"{file.name}::{case.get('name')}": outcome(case) for case in cases}


def surroundings(home: Path, installed: bool) -> dict[str, str]:
    """Variables of a run whose caches, Triton's and ours, are below ``home``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KERNTUNE_", "TRITON_", "XDG_", "PYTEST_"))}
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    return {**kept, "HOME": str(home), "PYTHONPATH": path, **({INSTALL: "1"} if installed else {})}


def outcome(case: ElementTree.Element) -> dict[str, str]:
    """Of one test of a JUnit report."""
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return {"outcome": kind, "why": (found.get("message") or "")[:TAIL]}
    return {"outcome": "passed"}


def compared(files: list[Path], scratch: Path) -> dict[str, dict[str, dict[str, str]]]:
    """By test and run how it ended."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for run, home, installed in (
        ("stock", scratch / "stock", False),
        ("installed", scratch / "installed", True),
        ("installed again", scratch / "installed", True),
    ):
        home.mkdir(exist_ok=True)
        for file in files:
            for name, ended in outcomes(file, home, installed).items():
                found.setdefault(name, {})[run] = ended
    return found


def worse(tests: dict[str, dict[str, dict[str, str]]], run: str) -> list[str]:
    """Tests that pass with Triton's engine and not in a run."""
    return [
        name
        for name, runs in tests.items()
        if runs["stock"]["outcome"] == "passed" and runs.get(run, {"outcome": ""})["outcome"] != "passed"
    ]


def counts(tests: dict[str, dict[str, dict[str, str]]], run: str) -> dict[str, int]:
    """How many tests of a run ended in each way."""
    ends = [runs[run]["outcome"] for runs in tests.values() if run in runs]
    return {end: ends.count(end) for end in sorted(set(ends))}


def main() -> None:
    """Run the files and write the result."""
    from suite.results import environment, merge

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", action="append")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="kerntune-tritons-tests-"))
    try:
        copies = scratch / "tests"
        copies.mkdir()
        files = [Path(shutil.copy(given.folder / name, copies)) for name in given.file or FILES]
        tests = compared(files, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    runs = ("stock", "installed", "installed again")
    summary = {run: {**counts(tests, run), "worse": worse(tests, run)} for run in runs}
    merge(given.out, environment=environment(), summary=summary, tests=tests)


if __name__ == "__main__":
    main()
