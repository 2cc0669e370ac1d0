"""Records static baselines in other Python environments, each with its own Triton."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kerntune.base.folders import scratch_folder
from kerntune.base.orphans import bound_command
from kerntune.cli.stored import Entry, load_folder
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore

RAN = (0, 1)
"""pytest's exit codes of a run that ran: all tests passed, or some failed."""

SHOWN_LINES = 15
"""Last lines of a failed run that its error shows."""

VERSION = "import importlib.metadata as m; print(m.version('triton'))"


def record_both(
    pythons: Sequence[str], tests: Sequence[str], targets: str | None, folder: Path
) -> tuple[list[Entry], list[Entry], tuple[str, str], list[str]]:
    """The same tests recorded by two interpreters: this one and the one given, or the two given.

    ``targets`` as for ``--kerntune-target``, else those that ``folder`` has. Also the names of both sides (Triton and
    its version) and, for each run in which tests failed, a sentence. :class:`UsageError` if a run can't be made.
    """
    if len(pythons) > 2:
        raise UsageError("--python can be given once (beside the environment that runs this) or twice")
    chosen = targets or ",".join(str(t) for t in BaselineStore(folder).targets())
    if not chosen:
        raise UsageError(f"say what to compile for, for example --target cuda:90; {folder} has no baselines yet")
    both = [_found(p) for p in (pythons if len(pythons) == 2 else [sys.executable, *pythons])]
    names = [f"Triton {triton_of(p)}" for p in both]
    entries, failures = [], []
    for python, name in zip(both, names, strict=True):
        with scratch_folder("static") as scratch:
            failures += record(python, tests, chosen, scratch / "baselines", name)
            entries.append(load_folder(scratch / "baselines"))
    return entries[0], entries[1], (names[0], names[1]), failures


def record(
    python: str,
    tests: Sequence[str],
    targets: str,
    folder: Path,
    name: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> list[str]:
    """Run ``tests`` without a GPU in ``python`` and record to ``folder``; a sentence if some failed."""
    options = [f"--kerntune-baselines={folder}", f"--kerntune-target={targets}", "-p", "no:cacheprovider", "-q"]
    command = [python, "-m", "kerntune.cli", "baselines", "refresh", *options, *tests]
    done = subprocess.run(
        bound_command(command), env=env or environment(), cwd=cwd, capture_output=True, text=True, check=False
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode not in RAN or not folder.is_dir():
        last = "\n".join(lines[-SHOWN_LINES:])
        raise UsageError(f"{python} ({name}): recorded nothing (pytest exit code {done.returncode})\n{last}")
    return [f"{name}: some tests failed: {lines[-1]}"] if done.returncode else []


def triton_of(python: str) -> str:
    """The version of Triton that an interpreter has; :class:`UsageError` if none."""
    done = subprocess.run(bound_command([python, "-c", VERSION]), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{python}: has no Triton; name the interpreter of an environment with Triton and torch")
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """The environment with this kerntune in front, so that the other one need not have it installed."""
    here = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH", "")) if p)}


def _found(python: str) -> str:
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"--python {python}: is no program; name a Python interpreter, as .venv/bin/python")
    return os.path.abspath(found)  # not resolved: a virtual environment's python is a link
