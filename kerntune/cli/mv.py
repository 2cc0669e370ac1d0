"""``kerntune baselines mv``: baselines are moved to their tests' new names, unchanged."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kerntune.base.case_result import CaseId
from kerntune.cli.anchor import anchor_argument, anchor_folder
from kerntune.cli.stored import Entry, folder_argument, given_folder, load_folder, not_found, problems, readable
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.case_identity import Move, make_moves, moves_of
from kerntune.gate.console import counted, fail_with, say


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
            return None if found is None else self._filled(found.groups())
        old = self.old.rstrip("/")
        rest = name.removeprefix(old)
        if not name.startswith(old) or not (rest == "" or rest.startswith(("::", "[", "/"))):
            return None
        return self.new.rstrip("/") + rest

    def _filled(self, matched: Iterable[str]) -> str:
        parts = self.new.split("*")
        return "".join(part + text for part, text in zip(parts, [*matched, ""], strict=True))


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``kerntune baselines mv`` takes."""
    parser.add_argument("old", metavar="OLD", help="a folder, file, test, parameter set or call; * is a wildcard")
    parser.add_argument("new", metavar="NEW", help="its new name; each * is what the * at its place in OLD matched")
    folder_argument(parser)
    anchor_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be moved")
    parser.add_argument(
        "--replace", action="store_true", help="also where NEW has a baseline of other kernels, which is lost"
    )
    parser.set_defaults(function=run)


def run(args: argparse.Namespace) -> int:
    """Move the selected baselines of the folder and of the anchor's; 1 if a baseline can't be read, 2 if none is
    selected or one would be lost."""
    renaming = Renaming(args.old, args.new)
    folders = [given_folder(args.baselines)]
    folders += _anchor(args.anchor, folders[0])
    entries = {folder: load_folder(folder) for folder in folders}
    moves = [move for folder in folders for move in _moves(BaselineStore(folder), entries[folder], renaming)]
    if not moves:
        what = f"{folders[0]}: no case is called {args.old!r}; `kerntune baselines show` lists them"
        raise not_found(what, [e for folder in folders for e in entries[folder]], args.old)
    _refuse_losses(moves, args.replace)
    if not args.dry_run:
        make_moves(moves)
    for move in moves:
        _tell(move, args.dry_run)
    cases = len({move.baseline.case for move in moves})
    done = "would move" if args.dry_run else "moved"
    say(f"{done} {counted(len(moves), 'baseline')} of {counted(cases, 'case')}")
    return fail_with([p for folder in folders for p in problems(entries[folder])])


def _moves(store: BaselineStore, entries: list[Entry], renaming: Renaming) -> list[Move]:
    cases = {b.case for b in readable(entries)}
    return moves_of(store, {case: new for case in sorted(cases) if (new := renaming.of(case)) is not None})


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


def _tell(move: Move, dry_run: bool) -> None:
    instead = f", in the place of what was recorded {move.replaces.recorded}" if move.replaces is not None else ""
    where = move.destination.relative_to(move.store.folder.parent)
    say(f"{'would move' if dry_run else 'moved'} {move.baseline.case} -> {move.case} ({where}{instead})")
