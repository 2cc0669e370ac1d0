"""``kerntune baselines prune``: it removes the baselines of cases that no longer exist, and nothing else.

Pytest itself collects the tests of given files, which says whose cases exist.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import pytest

from kerntune.base.policy import Verdict
from kerntune.cli.apply import read
from kerntune.cli.stored import Entry, given_folder, load_folder, problems, target_of
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Baseline
from kerntune.gate.bundle import needed
from kerntune.gate.console import counted, fail_with, say
from kerntune.gate.project import Project, find_project, plugin_args
from kerntune.gate.report import RunReport


@dataclass(frozen=True)
class Stale:
    """A baseline to remove, and why."""

    entry: Entry
    baseline: Baseline
    why: str


def run(args: argparse.Namespace) -> int:
    """Print and remove stale baselines, then the artifacts that none needs; 1 if a baseline can't be read: it may need
    any artifact, so all of those stay."""
    folder, project = given_folder(args.baselines), find_project(Path.cwd())
    entries = load_folder(folder)
    stale = list(told(entries, read(Path(args.stale_from))) if args.stale_from else gone(folder, entries, project))
    store = BaselineStore(folder)
    _remove(store, stale, args.dry_run)
    bad = problems(entries)
    if bad:
        return fail_with([*bad, f"{folder}: no artifact is removed as long as a baseline can't be read"])
    gone_paths = {s.entry.path for s in stale}
    kept = [e for e in entries if e.path not in gone_paths]
    unused = count_unused(store, kept)
    if not args.dry_run:
        store.sweep()
    say(
        f"{'would remove' if args.dry_run else 'removed'} {counted(len(stale), 'baseline')}, {len(kept)} stay; "
        f"{counted(unused, 'artifact')} that no baseline needs"
    )
    return 0


def told(entries: Sequence[Entry], report: RunReport) -> Iterator[Stale]:
    """Baselines that a run found STALE, as far as this folder has them. The end of the path tells devices apart."""
    alive = {(r.case, r.target, r.fingerprint) for r in report.results if r.verdict is not Verdict.STALE}
    paths = [PurePath(r.baseline_path).parts for r in report.results if r.verdict is Verdict.STALE]
    for entry, baseline in _readable(entries):
        mine, inside = (baseline.case, str(target_of(baseline)), baseline.fingerprint), entry.path.parts
        if mine not in alive and any(p[-len(inside) :] == inside for p in paths):
            yield Stale(entry, baseline, "the run found it stale")


def _is_file(path: Path) -> bool:
    """False for a name that no file can have: too long, say."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def gone(folder: Path, entries: Sequence[Entry], project: Project) -> Iterator[Stale]:
    """Baselines whose test file is gone, or whose test is not in it any more. A file that can't be imported, or skips
    itself, keeps its baselines. :class:`UsageError` if no file is there at all: then this is another project."""
    names = sorted({_file(b) for _, b in _readable(entries)})
    files = {name: project.root / name for name in names if _is_file(project.root / name)}
    if names and not files:
        raise UsageError(
            f"{folder}: none of its test files ({', '.join(names[:3])}...) is in {project.root}, so this is not the "
            "folder that their names start from; call kerntune in the project's own folder"
        )
    return _compared(folder, entries, project, files) if files else iter(())


def count_unused(store: BaselineStore, kept: Sequence[Entry]) -> int:
    """How many artifacts the kept baselines don't need."""
    used = {(target_of(b).slug, sha) for _, b in _readable(kept) for sha in needed(b)}
    return sum((target.slug, sha) not in used for target in store.targets() for sha in store.artifacts(target))


def _compared(folder: Path, entries: Sequence[Entry], project: Project, files: dict[str, Path]) -> Iterator[Stale]:

    found = collect(project, files.values(), [f"--kerntune-baselines={folder}"])
    for entry, baseline in _readable(entries):
        nodeid, file = baseline.case.nodeid, _file(baseline)
        if file not in files:
            yield Stale(entry, baseline, f"{file} is gone")
        elif found.knows(nodeid) and nodeid not in found.items:
            yield Stale(entry, baseline, f"its test is not in {file} any more")


def _remove(store: BaselineStore, stale: Sequence[Stale], dry_run: bool) -> None:
    for s in stale:
        if not dry_run:
            store.remove(store.folder / s.entry.path)
        say(f"{'would remove' if dry_run else 'removed'} {s.entry.path} ({s.baseline.case}): {s.why}")


def _readable(entries: Sequence[Entry]) -> list[tuple[Entry, Baseline]]:
    return [(e, e.baseline) for e in entries if e.baseline is not None]


def _file(baseline: Baseline) -> str:
    return baseline.case.nodeid.partition("::")[0]


TAIL_LINES = 20
"""Lines of pytest's output that are shown when it could not collect."""


@dataclass(eq=False)  # pytest keeps its plugins in sets where a project has a conftest.py
class Collection:
    """A pytest plugin that notes what is collected. Nothing is run.

    ``files`` are those that were read whole; ``unread`` node ids of what failed to import or skipped itself.
    """

    items: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)

    def knows(self, nodeid: str) -> bool:
        """Whether it can be said if a test exists: its file was read, and all of it."""
        file = nodeid.partition("::")[0]
        return file in self.files and not any(nodeid == x or nodeid.startswith(f"{x}::") for x in self.unread)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Whatever the ini file's ``addopts`` say, look at every test: ``--lf`` would leave some out unseen."""
        config.option.lf = False

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Called before any test is deselected."""
        self.items.add(item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file or class was read, or was not."""
        if not report.passed:
            self.unread.add(report.nodeid)
        elif report.nodeid and "::" not in report.nodeid:
            self.files.add(report.nodeid)


def collect(project: Project, files: Iterable[Path], options: Iterable[str]) -> Collection:
    """Collect ``files`` as ``pytest --kerntune`` would, so that tests for a GPU exist here too.

    :class:`KerntuneError` with the end of pytest's output if it stops before it has looked at all of them.
    """
    found, output = Collection(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main(_args(project, files, options), plugins=[found])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        tail = "\n".join(output.getvalue().strip().splitlines()[-TAIL_LINES:])
        raise KerntuneError(
            f"pytest could not collect the tests (exit code {int(code)}), so none is known to be gone:\n{tail}"
        )
    return found


def _args(project: Project, files: Iterable[Path], options: Iterable[str]) -> list[str]:
    """``--maxfail=0`` undoes an ``-x`` of the ini file: one broken file must not hide the others."""
    ini = ["-c", str(project.ini)] if project.ini else []
    return [
        *plugin_args(),
        *ini,
        f"--rootdir={project.root}",
        *("--kerntune", "--collect-only", "--continue-on-collection-errors", "--maxfail=0", "-q"),
        *options,
        *map(str, files),
    ]
