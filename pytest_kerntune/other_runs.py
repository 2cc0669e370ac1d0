"""Runs that a run starts in processes of their own: for a git revision's baselines, and for other targets.

Reference baselines of a revision are its stored ones, or its code is compiled and recorded today. Of several targets
without a GPU the first is this run's; each other one's tests run in a process of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kerntune.base.case_result import CaseId, CaseResult, incomplete_result
from kerntune.base.orphans import run_to_end
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate import git
from kerntune.gate.project import plugin_args
from kerntune.gate.report import RunReport, read_run
from pytest_kerntune.options import PART_OF_ANOTHER, Options
from pytest_kerntune.values import parted

TARGET = "--kerntune-target"

PASSED_ON = ("--kerntune-tune", "--kerntune-cache-dir")
"""Options that the base's run must share with this one."""

FINE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Ends of the base's run that leave something to compare with. A test that fails there has no base."""

FAILED = "not all tests of the base passed, so their cases are NEW"

LINES = 30
"""Of the base's output, shown when its run breaks off."""


class Reference(NamedTuple):
    """The folder of the baselines that a run is held against, and what its reader should know of it."""

    folder: Path
    remark: str = ""


def reference_folder(config: pytest.Config, options: Options, into: Path, targets: Sequence[str] = ()) -> Reference:
    """What the revision of ``options`` gives, written under ``into``.

    ``targets`` are those that this run compiles for without a GPU: a base's run has no baselines that would know them.
    """
    if options.baselines_ref:
        return Reference(git.extract(options.baselines_ref, options.reference_baselines, into, options.root))
    with git.worktree(options.against, options.root) as root:
        return export(config, root, git.top_of(options.root), into / "base", targets)


def anchor_folder(options: Options, into: Path) -> Path:
    """Where the anchor's baselines lie, written under ``into`` if they come from git.

    With a revision as the reference the anchor's folder is taken from there as well: a change must not alter it either.
    """
    folder, ref = Path(options.anchor), options.reference_name
    if not folder.is_absolute():
        try:
            return git.extract(options.anchor, options.reference_baselines, into, options.root)
        except UsageError as exc:
            how = "is no folder (`kerntune anchor` makes it), and no revision"
            raise UsageError(f"--kerntune-anchor: {options.anchor} {how}: {exc}") from None
    inside = ref and git.name_in(git.top_of(options.root), folder) is not None
    return git.extract(ref, folder, into, options.root) if inside else folder


def export(config: pytest.Config, root: Path, top: Path, into: Path, targets: Sequence[str]) -> Reference:
    """Run the same tests in the worktree ``root`` of the repository ``top``, in a process of its own."""
    into.mkdir()
    tests = counterparts(config, root, top)
    if not tests:
        return Reference(into, "the base has none of these tests, so every case is NEW")
    command = [sys.executable, "-m", "pytest", *plugin_args(), "--kerntune", f"--kerntune-export={into}"]
    shared = []
    for flag, name in (("-k", "keyword"), ("-m", "markexpr")):
        if getattr(config.option, name, ""):
            shared += [flag, str(getattr(config.option, name))]
    for flag in PASSED_ON:
        value = config.getoption(flag.lstrip("-").replace("-", "_"))
        if value:
            base = Path(config.invocation_params.dir)
            shared.append(f"{flag}={base / value if flag.endswith('dir') else value}")
    command += ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", *shared]
    command += [*([f"{TARGET}={','.join(targets)}"] if targets else []), *tests]
    here = root / _inside(Path(config.invocation_params.dir), top)
    done = run_to_end(command, here if here.is_dir() else root, git.worktree_environment(root, top))
    if done.code not in FINE:
        told = f"the tests of the base ended with code {done.code}"
        raise UsageError(f"--kerntune-against: {told}:\n{done.last(LINES)}")
    last = done.output[-1].strip("= ") if done.output else ""
    return Reference(into, "" if done.code == pytest.ExitCode.OK else f"{FAILED}: {last}")


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


UNATTENDED = ("-p", PART_OF_ANOTHER)
"""The plugin that these runs have in addition."""

WARN = ("-W", "default::pytest_kerntune.warning.KerntuneWarning")
"""What these runs warn of, this one warns of, or fails for under ``-W error``: there it would hide the verdict."""

LOOKING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")
"""Destinations of options with which pytest only shows what it would run."""


@dataclass(frozen=True)
class ExtraTargets:
    """The results of the runs for other targets, by target; and which tests of this process have reported them."""

    runs: Mapping[str, RunReport] = field(default_factory=dict)

    def results(self, nodeid: str) -> list[CaseResult]:
        """What a test came to for the other targets. One that fails there by itself is INCOMPLETE and fails."""
        return [result for target, r in self.runs.items() for result in _results(nodeid, target, r)]

    @property
    def tests(self) -> list[str]:
        """The node ids of all tests that have something to say, each once."""
        named = (n for run in self.runs.values() for n in (*(r.case.nodeid for r in _checked(run)), *run.failed))
        return list(dict.fromkeys(named))

    @property
    def stale(self) -> list[CaseResult]:
        """The stale baselines of the other targets."""
        return [r for run in self.runs.values() for r in run.results if r.verdict is Verdict.STALE]

    @property
    def static_only(self) -> dict[str, str]:
        """Tests that ended early there for want of a GPU, and why."""
        return {n: f"{why} ({target})" for target, run in self.runs.items() for n, why in run.static_only.items()}

    @property
    def baselines(self) -> dict[str, Any]:
        """The bundles of these runs."""
        return {name: bundle for r in self.runs.values() for name, bundle in r.baselines.items()}


def runs_tests(config: pytest.Config) -> bool:
    """Whether this run runs its tests."""
    return not any(getattr(config.option, name, False) for name in LOOKING)


def run_extra_targets(config: pytest.Config, targets: Sequence[str], into: Path) -> Path:
    """Run this run's tests once for each target; ``into``, under which :func:`read_extra_targets` finds what they say.

    :class:`KerntuneError` if such a run breaks off.
    """
    for target in targets:
        place = into / target.replace(":", "-")
        command = [sys.executable, "-m", "pytest", *plugin_args(), *UNATTENDED, *arguments(config, target, place)]
        done = run_to_end(command, config.invocation_params.dir, git.own_environment())
        if done.code not in FINE or not _told(done.code, _json(place)):
            raise KerntuneError(f"the run for {target} ended with code {done.code}:\n{done.last(LINES)}")
    return into


def read_extra_targets(targets: Sequence[str], folder: Path) -> ExtraTargets:
    """What :func:`run_extra_targets` left for ``targets``."""
    return ExtraTargets({t: read_run(_json(folder / t.replace(":", "-"))) for t in targets})


def arguments(config: pytest.Config, target: str, into: Path) -> list[str]:
    """This run's own, with another target, and with its files under ``into``. Of an option given twice pytest takes
    the last. What else kerntune would write these runs leave to this one, wherever it was asked for
    (:meth:`SettingSource.leaves <pytest_kerntune.setting.SettingSource.leaves>`)."""
    args, names = parted([str(a) for a in config.invocation_params.args])
    args += [
        "--kerntune",
        "--continue-on-collection-errors",
        f"--kerntune-target={target}",
        f"--kerntune-json={_json(into)}",
        "--maxfail=0",
        "--tb=line",
        *WARN,
    ]
    if config.getoption("benchmark_disable", None) is not None and not config.getoption("benchmark_only"):
        args.append("--benchmark-disable")  # a user's own benchmarks are this run's to time and to save
    if config.getoption("xmlpath", None):
        args.append(f"--junitxml={into / 'junit.xml'}")
    return [*args, *names]


def _json(folder: Path) -> Path:
    return folder / "run.json"


def _told(code: int, path: Path) -> bool:
    """Whether a run's file says why the run failed, if it did."""
    if not path.is_file():
        return False
    run = read_run(path)
    return code != pytest.ExitCode.TESTS_FAILED or bool(run.failed)


def _results(nodeid: str, target: str, run: RunReport) -> Iterator[CaseResult]:
    mine = [r for r in _checked(run) if r.case.nodeid == nodeid]
    yield from mine
    if nodeid in run.failed and not any(r.outcome is Outcome.FAIL for r in mine):
        why = f"the test fails there: {run.failed[nodeid]}"
        found = incomplete_result(CaseId(nodeid, "0"), f" ({target}): {why}", Outcome.FAIL, target)
        yield found.but(remarks=(why,))  # for the case's row in the table


def _checked(run: RunReport) -> list[CaseResult]:
    return [r for r in run.results if r.verdict is not Verdict.STALE]
