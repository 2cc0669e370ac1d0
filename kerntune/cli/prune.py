"""``kerntune baselines prune``: it removes the baselines of cases that no longer exist, and nothing else.

Pytest itself collects the tests of given files, which says whose cases exist.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from kerntune.base.policy import Verdict
from kerntune.cli.apply import read
from kerntune.cli.stored import Entry, folder_argument, given_folder, load_folder, problems, target_of
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Baseline
from kerntune.gate.bundle import needed
from kerntune.gate.console import counted, fail_with, say
from kerntune.gate.project import Project, find_project
from kerntune.gate.report import RunReport


@dataclass(frozen=True)
class Stale:
    """A baseline to remove, and why."""

    entry: Entry
    baseline: Baseline
    why: str


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``kerntune baselines prune`` takes."""
    folder_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument(
        "--stale-from",
        metavar="RUN.json",
        help="remove what this run (of --kerntune-json) found stale, instead of collecting the tests",
    )
    parser.set_defaults(function=run)


def run(args: argparse.Namespace) -> int:
    """Print and remove stale baselines, then the artifacts that none needs; 1 if a baseline can't be read: it may need
    any artifact, so all of those stay."""
    folder, project = given_folder(args.baselines), find_project(Path.cwd())
    entries = load_folder(folder)
    stale = list(
        found_stale(entries, read(Path(args.stale_from))) if args.stale_from else gone(folder, entries, project)
    )
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


def found_stale(entries: Sequence[Entry], report: RunReport) -> Iterator[Stale]:
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
    from kerntune.cli.collection import collect  # pytest with it, which --stale-from doesn't need

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
