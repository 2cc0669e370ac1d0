"""Reference baselines from a git revision: its stored ones, or its code, compiled and recorded today."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kerntune.base.orphans import bound_command
from kerntune.errors import UsageError
from kerntune.gate import git
from kerntune.gate.pytest_run import plugin_args
from pytest_kerntune.options import Options

TARGET = "--kerntune-target"

PASSED_ON = ("--kerntune-tune", "--kerntune-cache-dir")
"""Options that the base's run must share with this one."""

FINE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Ends of the base's run that leave something to compare with. A test that fails there has no base."""

FAILED = "not all tests of the base passed, so their cases are NEW"

LINES = 30
"""Of the base's output, shown when its run breaks off."""


@dataclass(frozen=True)
class Yard:
    """The folder of the baselines that a run is held against, and what its reader should know of it."""

    folder: Path
    remark: str = ""


def yardstick(config: pytest.Config, options: Options, into: Path, targets: Sequence[str] = ()) -> Yard:
    """What the revision of ``options`` gives, written under ``into``.

    ``targets`` are those that this run compiles for without a GPU: a base's run has no baselines that would know them.
    """
    if options.baselines_ref:
        return Yard(git.extract(options.baselines_ref, options.reference_baselines, into, options.root))
    with git.worktree(options.against, options.root) as root:
        return export(config, root, git.top_of(options.root), into / "base", targets)


def anchor_folder(options: Options, into: Path) -> Path:
    """Where the anchor's baselines lie, written under ``into`` if they come from git.

    With a revision as the reference the anchor's folder is taken from there as well: a change must not alter it either.
    """
    folder, ref = Path(options.anchor), options.yardstick_name
    if not folder.is_absolute():
        return _anchor_of(options.anchor, options.reference_baselines, into, options.root)
    inside = ref and git.name_in(git.top_of(options.root), folder) is not None
    return git.extract(ref, folder, into, options.root) if inside else folder


def _anchor_of(ref: str, baselines: Path, into: Path, root: Path) -> Path:
    try:
        return git.extract(ref, baselines, into, root)
    except UsageError as exc:
        raise UsageError(
            f"--kerntune-anchor: {ref} is no folder (`kerntune anchor` makes it), and no revision: {exc}"
        ) from None


def export(config: pytest.Config, root: Path, top: Path, into: Path, targets: Sequence[str]) -> Yard:
    """Run the same tests in the worktree ``root`` of the repository ``top``, in a process of its own."""
    into.mkdir(parents=True, exist_ok=True)
    tests = counterparts(config, root, top)
    if not tests:
        return Yard(into, "the base has none of these tests, so every case is NEW")
    command = [sys.executable, "-m", "pytest", *plugin_args(), "--kerntune", f"--kerntune-export={into}"]
    command += ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", *_selection(config)]
    command += [*([f"{TARGET}={','.join(targets)}"] if targets else []), *tests]
    here = root / _inside(Path(config.invocation_params.dir), top)
    done = subprocess.run(
        bound_command(command), cwd=here if here.is_dir() else root, env=git.worktree_environment(root, top),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in FINE:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LINES:])
        raise UsageError(f"--kerntune-against: the tests of the base ended with code {done.returncode}:\n{tail}")
    return Yard(into, "" if done.returncode == pytest.ExitCode.OK else f"{FAILED}: {_last_line(done.stdout)}")


def _last_line(text: str) -> str:
    return next((x for x in reversed(text.splitlines()) if x.strip()), "").strip("= ")


def counterparts(config: pytest.Config, root: Path, top: Path) -> list[str]:
    """The paths and node ids of this run as the base has them; without those that it hasn't."""
    out = []
    for arg in config.args:
        path, colons, rest = str(arg).partition("::")
        there = root / _inside(Path(config.invocation_params.dir) / path, top)
        if there.exists():
            out.append(f"{there}{colons}{rest}")
    return out


def _inside(path: Path, top: Path) -> Path:
    found = Path(os.path.abspath(path)).resolve()
    if not found.is_relative_to(top):
        raise UsageError(f"--kerntune-against: {found} is not in the repository {top}, so the base can't have it")
    return found.relative_to(top)


def _selection(config: pytest.Config) -> list[str]:
    """``-k``, ``-m`` and the options that both runs must share."""
    out = []
    for flag, name in (("-k", "keyword"), ("-m", "markexpr")):
        if getattr(config.option, name, ""):
            out += [flag, str(getattr(config.option, name))]
    for flag in PASSED_ON:
        value = config.getoption(flag.lstrip("-").replace("-", "_"))
        if value:
            base = Path(config.invocation_params.dir)
            out.append(f"{flag}={base / value if flag.endswith('dir') else value}")
    return out
