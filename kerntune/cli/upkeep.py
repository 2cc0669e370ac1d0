"""``kerntune baselines apply``, ``mv`` and ``prune``: baselines are taken from another machine, renamed, removed.

Pytest itself collects the tests of given files, which says whose cases exist.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.formatting import format_time
from kerntune.base.policy import Verdict
from kerntune.cli.anchor import anchor_argument, anchor_folder
from kerntune.cli.stored import (
    Entry,
    Pattern,
    case_argument,
    folder_argument,
    given_folder,
    load_folder,
    not_found,
    problems,
    readable,
    time_ns,
)
from kerntune.errors import BaselineError, StoreError, UsageError
from kerntune.gate.baseline_files import BaselineStore, needed
from kerntune.gate.baselines import Baseline
from kerntune.gate.bundle import Bundle, check_identity, decode_bundle, unpacked
from kerntune.gate.case_identity import Move, make_moves, moves_of
from kerntune.gate.console import OK, counted, fail_with, say
from kerntune.gate.project import Project, baseline_folder, find_project
from kerntune.gate.report import RunReport, read_run

ONLY = "new", "improved", "all"
"""What ``--only`` takes, as ``--kerntune-update`` does."""


class Offer(NamedTuple):
    """A bundle of a run with the verdict that the run gave; ``where`` names file and case."""

    where: str
    bundle: Bundle
    result: CaseResult | None

    @property
    def verdict(self) -> str:
        """The verdict as text."""
        return self.result.verdict.value if self.result else "no verdict"


def apply_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune baselines apply`` takes."""
    parser.add_argument("run", metavar="RUN.json", help="what --kerntune-json wrote on the other machine")
    folder_argument(parser)
    case_argument(parser)
    parser.add_argument(
        "--only",
        choices=ONLY,
        default="all",
        help="cases that the folder doesn't have, cases that the run found faster, or all (default)",
    )


def apply(args: Namespace) -> int:
    """Write the baselines that a run carries. All are checked before the first is written."""
    store = BaselineStore(baseline_folder(args.baselines, Path.cwd()))
    offers = list(_offers(Path(args.run), Pattern(args.case)))
    if not offers:
        raise UsageError(f"{args.run}: no case in it matches {args.case!r}")
    chosen = [o for o in offers if wanted(o, args.only, store)]
    for offer in chosen:
        baseline = offer.bundle.baseline
        path, ns = store.put(baseline, unpacked(offer.bundle, offer.where)), time_ns(baseline)
        time = "" if ns is None else f" {format_time(ns)},"
        say(f"{baseline.case} ({offer.bundle.place}):{time} {offer.verdict} -> {path}")
    skipped = f", {len(offers) - len(chosen)} left alone" if len(offers) > len(chosen) else ""
    say(f"{counted(len(chosen), 'baseline')} written to {store.folder}{skipped}")
    return OK


def wanted(offer: Offer, only: str, store: BaselineStore) -> bool:
    """Whether ``--only`` selects this case: one that the folder hasn't, or one that the run found to be faster. A case
    that is INCOMPLETE is never selected, as with ``--kerntune-update``."""
    if offer.result is not None and offer.result.verdict is Verdict.INCOMPLETE:
        return False
    if only == "new":
        return not store.path_of(offer.bundle.baseline).exists()
    if only == "improved":
        return offer.result is not None and offer.result.verdict is Verdict.IMPROVED
    return True


def read(path: Path) -> RunReport:
    """A run's JSON; :class:`UsageError` if there is no such file, or it is not a run's."""
    try:
        return read_run(path)
    except OSError as exc:
        raise UsageError(f"{path}: can't be read ({exc.strerror}); name what --kerntune-json wrote") from exc
    except StoreError as exc:
        raise UsageError(f"{exc}; name what --kerntune-json wrote") from exc


def _offers(path: Path, pattern: Pattern) -> Iterator[Offer]:
    report = read(path)
    if not report.baselines:
        raise BaselineError(
            f"{path}: carries no baselines; let the other machine run with --kerntune-json and --kerntune-update=all: "
            "a run keeps what a baseline needs only of cases that it is to write"
        )
    for name, value in report.baselines.items():
        where = f"{path}: {name}"
        bundle = decode_bundle(value, where)
        if pattern.matches(bundle.baseline):
            check_identity(bundle, where)
            unpacked(bundle, where)
            mine = (bundle.baseline.case, str(bundle.baseline.target), bundle.baseline.fingerprint)
            result = next((r for r in report.results if (r.case, r.target, r.fingerprint) == mine), None)
            yield Offer(where, bundle, result)


# mv


@dataclass(frozen=True)
class Renaming:
    """``old`` and ``new`` names of cases: a folder, a file, a test, one of its parameter sets or one of its calls.

    What follows ``old`` in a longer id stays. With wildcards ``old`` is a whole id: ``*`` in ``new`` is what the
    ``*`` at the same place of ``old`` has matched. Brackets are plain characters, node ids have them.
    """

    old: str
    new: str

    def __post_init__(self) -> None:
        if self.old.rstrip("/") == self.new.rstrip("/"):
            raise UsageError(f"{self.old!r} and {self.new!r} are the same name: nothing is moved")
        stars = self.old.count("*"), self.new.count("*")
        if stars[0] != stars[1]:
            raise UsageError(
                f"{self.old!r} has {counted(stars[0], 'wildcard')} and {self.new!r} {stars[1]}: each * of the new name "
                "stands for what the * at its place in the old one has matched"
            )

    def of(self, case: CaseId) -> CaseId | None:
        """The case's new name; None if it isn't selected."""
        renamed = self._renamed(case.nodeid)
        if renamed is not None:
            return CaseId(renamed, case.call)
        called = self._renamed(f"{case.nodeid}::{case.call}") if case.call else None
        if called is None:
            return None
        nodeid, colons, call = called.rpartition("::")
        if not colons or "::" not in nodeid:
            raise UsageError(f"{self.old} is the call {case.call!r} of a test; say its new name as FILE::TEST::CALL")
        return CaseId(nodeid, call)

    def _renamed(self, name: str) -> str | None:
        if "*" in self.old:
            found = re.fullmatch("(.*)".join(map(re.escape, self.old.split("*"))), name, re.DOTALL)
            parts = self.new.split("*")
            return "".join(map("".join, zip(parts, (*found.groups(), ""), strict=True))) if found else None
        old = self.old.rstrip("/")
        rest = name.removeprefix(old)
        if not name.startswith(old) or not (rest == "" or rest.startswith(("::", "[", "/"))):
            return None
        return self.new.rstrip("/") + rest


def move_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune baselines mv`` takes."""
    parser.add_argument("old", metavar="OLD", help="a folder, file, test, parameter set or call; * is a wildcard")
    parser.add_argument("new", metavar="NEW", help="its new name; each * is what the * at its place in OLD matched")
    folder_argument(parser)
    anchor_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be moved")
    parser.add_argument(
        "--replace", action="store_true", help="also where NEW has a baseline of other kernels, which is lost"
    )


def move(args: Namespace) -> int:
    """Move the selected baselines of the folder and of the anchor's; 1 if a baseline can't be read, 2 if none is
    selected or one would be lost."""
    renaming = Renaming(args.old, args.new)
    folders = [given_folder(args.baselines)]
    folders += _anchor(args.anchor, folders[0])
    entries = {folder: load_folder(folder) for folder in folders}
    moves: list[Move] = []
    for folder, found in entries.items():
        cases = sorted({b.case for b in readable(found)})
        moves += moves_of(BaselineStore(folder), {c: new for c in cases if (new := renaming.of(c)) is not None})
    if not moves:
        what = f"{folders[0]}: no case is called {args.old!r}; `kerntune baselines show` lists them"
        raise not_found(what, [e for folder in folders for e in entries[folder]])
    _refuse_losses(moves, args.replace)
    if not args.dry_run:
        make_moves(moves)
    done = "would move" if args.dry_run else "moved"
    for move in moves:
        instead = f", in the place of what was recorded {move.replaces.recorded}" if move.replaces is not None else ""
        where = move.destination.relative_to(move.store.folder.parent)
        say(f"{done} {move.baseline.case} -> {move.case} ({where}{instead})")
    moved = counted(len({move.baseline.case for move in moves}), "case")
    say(f"{done} {counted(len(moves), 'baseline')} of {moved}")
    return fail_with([p for folder in folders for p in problems(entries[folder])])


def _anchor(given: str | None, baselines: Path) -> list[Path]:
    """The folder of the anchor, if there is one; what a git revision has stays as it is. :class:`UsageError` if
    ``--anchor`` names one that isn't there."""
    try:
        folder = anchor_folder(given, baselines, Path.cwd())
    except UsageError:
        return []
    if given is not None and not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; name the right one: --anchor=DIR")
    return [folder] if folder.is_dir() and folder.resolve() != baselines.resolve() else []


def _refuse_losses(moves: list[Move], replace: bool) -> None:
    """:class:`UsageError` before anything is moved if two come to one place, or one takes that of other work."""
    places = Counter(move.destination for move in moves)
    double = next((move for move in moves if places[move.destination] > 1), None)
    if double is not None:
        raise UsageError(
            f"several cases would be called {double.case}, {double.baseline.case} among them: nothing is moved"
        )
    lost = next((move for move in moves if move.loses), None)
    if lost is not None and not replace:
        raise UsageError(
            f"{lost.case} has a baseline of other kernels already ({lost.destination}): nothing is moved. --replace "
            f"puts that of {lost.baseline.case} in its place"
        )


# prune


class Stale(NamedTuple):
    """A baseline to remove, and why."""

    entry: Entry
    baseline: Baseline
    why: str


def prune_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune baselines prune`` takes."""
    folder_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument(
        "--stale-from",
        metavar="RUN.json",
        help="remove what this run (of --kerntune-json) found stale, instead of collecting the tests",
    )


def prune(args: Namespace) -> int:
    """Print and remove stale baselines, then the artifacts that none needs; 1 if a baseline can't be read: it may need
    any artifact, so all of those stay."""
    folder, project = given_folder(args.baselines), find_project(Path.cwd())
    entries = load_folder(folder)
    run = read(Path(args.stale_from)) if args.stale_from else None
    stale = list(gone_tests(folder, entries, project) if run is None else found_stale(entries, run))
    store, done = BaselineStore(folder), "would remove" if args.dry_run else "removed"
    for gone in stale:
        if not args.dry_run:
            store.remove(store.folder / gone.entry.path)
        say(f"{done} {gone.entry.path} ({gone.baseline.case}): {gone.why}")
    bad = problems(entries)
    if bad:
        return fail_with([*bad, f"{folder}: no artifact is removed as long as a baseline can't be read"])
    gone_paths = {s.entry.path for s in stale}
    kept = [e for e in entries if e.path not in gone_paths]
    used = {(b.target.slug, sha) for b in readable(kept) for sha in needed(b)}
    stored = [(target.slug, sha) for target in store.targets() for sha in store.artifacts(target)]
    unused = counted(sum(artifact not in used for artifact in stored), "artifact")
    if not args.dry_run:
        store.sweep()
    say(f"{done} {counted(len(stale), 'baseline')}, {len(kept)} stay; {unused} that no baseline needs")
    return OK


def found_stale(entries: Sequence[Entry], report: RunReport) -> Iterator[Stale]:
    """Baselines that a run found STALE, as far as this folder has them. The end of the path tells devices apart."""
    alive = {(r.case, r.target, r.fingerprint) for r in report.results if r.verdict is not Verdict.STALE}
    paths = [PurePath(r.baseline_path).parts for r in report.results if r.verdict is Verdict.STALE]
    for entry, baseline in _readable(entries):
        mine, inside = (baseline.case, str(baseline.target), baseline.fingerprint), entry.path.parts
        if mine not in alive and any(p[-len(inside) :] == inside for p in paths):
            yield Stale(entry, baseline, "the run found it stale")


def gone_tests(folder: Path, entries: Sequence[Entry], project: Project) -> Iterator[Stale]:
    """Baselines whose test file is gone, or whose test is not in it any more. A file that can't be imported, or skips
    itself, keeps its baselines. :class:`UsageError` if no file is there at all: then this is another project."""
    names = sorted({_file(b) for _, b in _readable(entries)})
    files = {name: project.root / name for name in names if os.path.isfile(project.root / name)}
    if names and not files:
        raise UsageError(
            f"{folder}: none of its test files ({', '.join(names[:3])}...) is in {project.root}, so this is not the "
            "folder that their names start from; call kerntune in the project's own folder"
        )
    if not files:
        return
    from kerntune.cli.collection import collect  # pytest with it, which --stale-from doesn't need

    found = collect(project, files.values(), [f"--kerntune-baselines={folder}"])
    for entry, baseline in _readable(entries):
        nodeid, file = baseline.case.nodeid, _file(baseline)
        if file not in files:
            yield Stale(entry, baseline, f"{file} is gone")
        elif found.knows(nodeid) and nodeid not in found.items:
            yield Stale(entry, baseline, f"its test is not in {file} any more")


def _readable(entries: Sequence[Entry]) -> list[tuple[Entry, Baseline]]:
    return [(e, e.baseline) for e in entries if e.baseline is not None]


def _file(baseline: Baseline) -> str:
    return baseline.case.nodeid.partition("::")[0]
