"""Runs the project's tests in other Python environments, each with its own Triton and torch.

To record static baselines, or to hold one environment against another.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kerntune.base.folders import scratch_folder
from kerntune.base.orphans import run_to_end
from kerntune.cli.stored import Entry, load_folder
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.git import own_environment
from kerntune.gate.report import RunReport, read_run
from kerntune.gpu.probe import has_cuda

RAN = (0, 1)
"""pytest's exit codes of a run that ran: all tests passed, or some failed."""

VERSION = "import importlib.metadata as m; print(m.version('triton'), m.version('torch'))"


class EnvironmentVersions(NamedTuple):
    """The versions that an environment has."""

    triton: str
    torch: str

    def __str__(self) -> str:
        return f"Triton {self.triton}, torch {self.torch}"


class EnvironmentRun(NamedTuple):
    """A run of the tests in one environment: what it recorded, where it compiled only, and its report."""

    versions: EnvironmentVersions
    entries: list[Entry]
    report: RunReport


def run_both(
    pythons: Sequence[str], tests: Sequence[str], targets: str | None, folder: Path
) -> tuple[EnvironmentRun, EnvironmentRun]:
    """The same tests in two environments: the one that runs this and the one given, or the two given.

    The new side is held against what the old one records. Where ``targets`` (as for ``--kerntune-target``) are given
    both only compile. So they do without a GPU, for the targets that ``folder`` has. Else the new side is timed beside
    the old one's binaries. :class:`UsageError` if a run can't be made.
    """
    if len(pythons) > 2:
        raise UsageError("--python can be given once (beside the environment that runs this) or twice")
    chosen = targets or known_targets(folder)
    if not chosen and not has_cuda():
        raise UsageError(f"say what to compile for, for example --target cuda:90; {folder} has no baselines yet")
    old, new = [_found(p) for p in (pythons if len(pythons) == 2 else [sys.executable, *pythons])]
    with scratch_folder("upgrade") as scratch:
        before = _run(old, tests, chosen, scratch, "old")
        shutil.copytree(scratch / "old", scratch / "new")
        return before, _run(new, tests, chosen, scratch, "new")


def known_targets(folder: Path) -> str:
    """What to compile for if nothing is said: without a GPU, the targets of the baselines in ``folder``."""
    return "" if has_cuda() else ",".join(map(str, BaselineStore(folder).targets()))


def _run(python: str, tests: Sequence[str], targets: str, scratch: Path, side: str) -> EnvironmentRun:
    versions = versions_in(python)
    folder, options = scratch / side, list[str]()
    if targets:
        options.append(f"--kerntune-target={targets}")
    elif side == "new":
        options.append("--kerntune-update=new")  # timed beside the old side's binaries, which stay
    report = record(python, str(versions), [*options, *tests], folder)
    return EnvironmentRun(versions, _recorded(load_folder(folder), report, versions), report)


def _recorded(entries: Sequence[Entry], report: RunReport, versions: EnvironmentVersions) -> list[Entry]:
    """Those of the cases that ran, under the run's own Triton: the new side's folder begins with the old side's."""
    ran = {(r.case, r.fingerprint) for r in report.results}
    series = f"triton-{'.'.join(versions.triton.split('.')[:2])}"
    return [
        e
        for e in entries
        if e.baseline is None or (e.path.parts[1] == series and (e.baseline.case, e.baseline.fingerprint) in ran)
    ]


def record(
    python: str,
    name: str,
    words: Sequence[str],
    folder: Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> RunReport:
    """Run what ``words`` say of tests in ``python``, and record to ``folder``. :class:`UsageError` with ``name`` if
    nothing was recorded."""
    log = folder.with_suffix(".json")
    options = [f"--kerntune-baselines={folder}", f"--kerntune-json={log}", "-p", "no:cacheprovider", "-q"]
    command = [python, "-m", "kerntune", "baselines", "refresh", *options, *words]
    done = run_to_end(command, cwd, env or own_environment())
    if done.code not in RAN or not folder.is_dir() or not log.exists():
        raise UsageError(f"{python} ({name}): recorded nothing (pytest exit code {done.code})\n{done.last()}")
    return read_run(log)


def versions_in(python: str) -> EnvironmentVersions:
    """The versions of Triton and torch that an interpreter has; :class:`UsageError` if it lacks one."""
    done = run_to_end([python, "-c", VERSION])
    if done.code:
        raise UsageError(f"{python}: has no Triton; name the interpreter of an environment with Triton and torch")
    triton, torch = done.output[-1].split()
    return EnvironmentVersions(triton, torch.partition("+")[0])


def _found(python: str) -> str:
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"--python {python}: is no program; name a Python interpreter, as .venv/bin/python")
    return os.path.abspath(found)  # not resolved: a virtual environment's python is a link
