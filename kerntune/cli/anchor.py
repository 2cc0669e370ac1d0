"""``kerntune anchor``: today's baselines become the anchor that later runs are compared with as well."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from kerntune.cli.stored import Pattern, case_argument, entries_of, folder_argument, given_folder, problems, readable
from kerntune.errors import BaselineError, UsageError
from kerntune.gate import git
from kerntune.gate.baseline_files import BaselineStore, needed
from kerntune.gate.baselines import Baseline
from kerntune.gate.console import OK, counted, fail_with, say
from kerntune.gate.project import DEFAULT_ANCHOR, NO_ANCHOR, find_project


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune anchor`` takes."""
    folder_argument(parser)
    anchor_argument(parser)
    case_argument(parser)


def run(args: Namespace) -> int:
    """Copy the selected baselines; without ``--case``, anchors of cases that have no baseline are removed."""
    store = BaselineStore(given_folder(args.baselines))
    anchor = BaselineStore(anchor_folder(args.anchor, store.folder, Path.cwd()))
    if anchor.folder.resolve() == store.folder.resolve():
        raise UsageError(f"{anchor.folder} is the folder of the baselines; the anchor needs one of its own")
    entries = entries_of(store)
    bad = problems(entries)
    if bad:
        return fail_with([*bad, "the anchor stays as it is as long as a baseline can't be read"])
    stored = readable(entries)
    chosen = [b for b in stored if Pattern(args.case).matches(b)]
    if not chosen:
        raise UsageError(
            f"{store.folder} has no baseline"
            + (f" that matches {args.case!r}" if args.case else "; pytest --kerntune records them")
        )
    mine = {anchor.path_of(b) for b in stored}
    gone = [] if args.case else [p for p in (*anchor.time_files(), *anchor.static_files()) if p not in mine]
    copy(chosen, store, anchor)
    for path in gone:
        anchor.remove(path)
    anchor.sweep()
    went = f", {len(gone)} removed whose case is no more" if gone else ""
    say(f"{counted(len(chosen), 'baseline')} anchored in {anchor.folder}{went}; commit the folder")
    return OK


def anchor_argument(parser: ArgumentParser) -> None:
    """Declare ``--anchor``, which :func:`anchor_folder` takes."""
    parser.add_argument(
        "--anchor", metavar="DIR", help="folder of the anchor (default: as the ini file says, else anchors)"
    )


def anchor_folder(given: str | None, baselines: Path, start: Path) -> Path:
    """The folder of ``--anchor``, else of the ini key ``kerntune_anchor``, else ``anchors`` beside the baselines.

    :class:`UsageError` where the ini file names a git revision: that is not a folder to write to.
    """
    if given is not None:
        return Path(given).expanduser().absolute()
    project = find_project(start)
    named = project.folder("kerntune_anchor")
    text = project.text("kerntune_anchor")
    if named is None or text == NO_ANCHOR:
        return baselines.parent / DEFAULT_ANCHOR
    if not named.is_dir() and _is_revision(text, project.root):
        raise UsageError(
            f"kerntune_anchor = {text} is a git revision, so nothing is copied: name another one, or say --anchor=DIR"
        )
    return named


def copy(chosen: Sequence[Baseline], store: BaselineStore, anchor: BaselineStore) -> None:
    """Write baselines with their artifacts into the anchor's folder. All are read before the first is written."""
    artifacts = {}
    for baseline in chosen:
        try:
            kept = store.artifacts(baseline.target)
            artifacts.update({sha: kept[sha] for sha in needed(baseline)})
        except KeyError as exc:
            raise BaselineError(
                f"{store.path_of(baseline)}: its artifact {exc} is not there, so it can't be replayed later; restore "
                "it or record the case anew"
            ) from None
    for baseline in chosen:
        anchor.put(baseline, artifacts)


def _is_revision(text: str, place: Path) -> bool:
    try:
        return bool(git.known_commit(place, text))
    except UsageError:  # there is no git
        return False
