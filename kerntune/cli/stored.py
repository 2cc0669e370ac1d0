"""Baselines as a command names them: of a folder, of a Triton series in it, or of a git revision.

All are decoded, each with its key. A revision's baselines are read from git. Nothing is checked out.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kerntune.base.case_result import CaseId
from kerntune.base.stats import median
from kerntune.errors import BaselineError, UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Baseline, TimeBaseline, decode_static, decode_time, operators_of
from kerntune.gate.git import blobs, git_output, known_commit, listed_names
from kerntune.gate.project import baseline_folder
from kerntune.gate.static_figures import LaunchStatic


@dataclass(frozen=True, order=True)
class BaselinePlace:
    """The key of a baseline. ``place`` is a device's name, or ``static, Triton 3.9``."""

    case: str
    target: str
    place: str
    fingerprint: str


class Entry(NamedTuple):
    """One file: what it holds, or the sentence that says why that can't be read. ``path`` starts in the folder."""

    path: PurePosixPath
    baseline: Baseline | None
    problem: str = ""


class Pattern(NamedTuple):
    """Which cases are selected. ``*`` and ``?`` are wildcards; brackets are not, node ids have them. A text without
    wildcards matches wherever it occurs."""

    text: str = ""

    def matches(self, baseline: Baseline) -> bool:
        """Whether the baseline's case is selected."""
        return self.selects(str(baseline.case))

    def selects(self, case: str) -> bool:
        """Whether a case of this name is selected."""
        if not re.search(r"[*?]", self.text):
            return self.text in case
        pattern = re.escape(self.text).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(pattern, case, re.DOTALL) is not None


def key_of(baseline: Baseline) -> BaselinePlace:
    """The key that no other baseline of a folder has."""
    return BaselinePlace(str(baseline.case), str(baseline.target), place_of(baseline), baseline.fingerprint)


def place_of(baseline: Baseline) -> str:
    """The device, or the Triton series of static figures."""
    return baseline.device.name if isinstance(baseline, TimeBaseline) else f"static, Triton {baseline.triton}"


def triton_of(baseline: Baseline) -> str:
    """The Triton that compiled it, or its series for static figures."""
    return baseline.environment.triton if isinstance(baseline, TimeBaseline) else baseline.triton


def torch_of(baseline: Baseline) -> str:
    """The torch that it was recorded under, without the tag of its build; empty where a baseline doesn't say."""
    if isinstance(baseline, TimeBaseline):
        return baseline.environment.torch.partition("+")[0]
    listed = operators_of(baseline)
    made_from = next((x.made_from for x in baseline.launches if x.made_from is not None), None)
    return listed.torch if listed is not None else made_from.torch if made_from is not None else ""


def versions_of(entries: Iterable[Entry]) -> str:
    """``Triton 3.9, torch 2.13.0``: all that some baselines were recorded under."""
    baselines = readable(entries)
    named = (("Triton", {triton_of(b) for b in baselines}), ("torch", {torch_of(b) for b in baselines}))
    found = [f"{name} {' and '.join(sorted(filter(None, versions)))}" for name, versions in named if any(versions)]
    return ", ".join(found) or "of no known version"


def time_ns(baseline: Baseline) -> float | None:
    """The median of the stored sample; None for static figures."""
    return median(baseline.sample.times_ns) if isinstance(baseline, TimeBaseline) else None


def launches_of(baseline: Baseline) -> tuple[LaunchStatic, ...]:
    """The static figures of a baseline's launches, in order."""
    return baseline.static if isinstance(baseline, TimeBaseline) else baseline.launches


def load_folder(folder: Path) -> list[Entry]:
    """All files of a baseline folder, sorted by path; a folder that isn't there has none. One behind a link that leads
    out of the folder is not read: its entry has a problem."""
    return entries_of(BaselineStore(folder))


def entries_of(store: BaselineStore) -> list[Entry]:
    """:func:`load_folder` of a store, which knows by then how large the artifacts may be."""
    _refuse_file(store.folder)
    paths = sorted(store.folder.glob("*/*/*/**/*.json"))
    return [_load(store, path) for path in paths if is_baseline(path.relative_to(store.folder))]


def is_baseline(path: Path | PurePosixPath) -> bool:
    """Whether a path inside the folder is a baseline's: ``<target>/<device or Triton>/<time or static>/...json``.
    Names with a dot in front are unfinished writes."""
    kind = path.parts[2] if len(path.parts) > 3 else ""
    return kind in ("time", "static") and path.suffix == ".json" and not path.name.startswith(".")


def decode(path: PurePosixPath, data: bytes, where: str) -> Entry:
    """A file's content as what its path says; ``where`` names the file in the problem."""
    try:
        found: Baseline = decode_time(data, where) if path.parts[2] == "time" else decode_static(data, where)
    except BaselineError as exc:
        return Entry(path, None, str(exc))
    return Entry(path, found)


def folder_argument(parser: ArgumentParser) -> None:
    """Declare ``--baselines``, which :func:`given_folder` takes."""
    parser.add_argument("--baselines", metavar="DIR", help="folder of the baselines (default: as the ini file says)")


def case_argument(parser: ArgumentParser) -> None:
    """Declare ``--case``, the text of a :class:`Pattern`."""
    parser.add_argument(
        "--case", metavar="PATTERN", default="", help="only cases that contain this text, or match it with * and ?"
    )


def given_folder(given: str | None) -> Path:
    """The folder of ``--baselines``, else of the ini file, for a command that reads it. :class:`UsageError` if it was
    named on the command line and isn't there; that of the ini file has nothing in it until the first run."""
    folder = baseline_folder(given, Path.cwd())
    _refuse_file(folder)
    if given is not None and not folder.exists():
        raise UsageError(f"{folder}: no such folder; name the right one: --baselines=DIR")
    return folder


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; name the folder of the baselines")


SERIES = re.compile(r"triton-\d+\.\d+")
"""A name of what the folder has of one Triton series."""


def sides(args: Namespace, folder: Path) -> tuple[list[Entry], list[Entry]]:
    """Both sides' baselines, as the command line names them. :class:`UsageError` for none, or for more than two."""
    if not 1 <= len(args.names) <= 2:
        raise UsageError(
            "usage: kerntune diff A [B]; name one or two of: a folder, a git revision, a series such as triton-3.9; "
            "for another Triton or torch: kerntune upgrade --python NEXT/bin/python"
        )
    after = load(args.names[1], folder) if len(args.names) > 1 else load_folder(given_folder(args.baselines))
    return load(args.names[0], folder), after


def load(name: str, folder: Path) -> list[Entry]:
    """A folder's baselines, else those of a Triton series in ``folder``, else those that a git revision has there."""
    if Path(name).exists():
        return load_folder(Path(name))
    if not SERIES.fullmatch(name):
        return load_revision(name, folder)
    found = [e for e in load_folder(folder) if e.path.parts[1] == name]
    if not found:
        raise UsageError(f"{folder}: has no baselines of {name}")
    return found


def load_revision(revision: str, folder: Path) -> list[Entry]:
    """All files of ``folder`` in a commit, branch or tag; :class:`UsageError` if git knows none of that name."""
    place = next(p for p in (folder, *folder.parents) if p.is_dir())
    top = (git_output(place, "rev-parse", "--show-toplevel") or b"").decode(errors="surrogateescape").strip()
    commit = known_commit(place, revision)
    if not top or not commit:
        raise UsageError(
            f"{revision}: is no folder, and {'no git revision' if top else 'there is no git repository'} in {place}; "
            "name two folders of baselines, or two commits, branches or tags"
        )
    root = Path(top)
    inside = PurePosixPath(folder.resolve().relative_to(root.resolve()).as_posix())
    return [decode(path, data, f"{revision}:{inside / path}") for path, data in _files(root, commit, inside)]


def _files(root: Path, commit: str, inside: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    within = [] if inside == PurePosixPath() else [f"{inside}/"]
    names = listed_names(root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", commit, "--", *within)
    paths = sorted(p for n in names if is_baseline(p := PurePosixPath(n).relative_to(inside)))
    asked = {f"{commit}:{inside / p}": p for p in paths}
    yield from ((asked[name], data) for name, data in blobs(root, list(asked)))


def readable(entries: Iterable[Entry]) -> list[Baseline]:
    """The baselines of the files that can be read."""
    return [e.baseline for e in entries if e.baseline is not None]


def one_case(entries: Iterable[Entry], text: str) -> CaseId | None:
    """The case that has this name, else the only one that :class:`Pattern` selects; None for none, and
    :class:`UsageError` for several."""
    known = sorted({b.case for b in readable(entries) if Pattern(text).matches(b)})
    found = [case for case in known if str(case) == text] or known
    if len(found) > 1:
        shown = "".join(f"\n  {c}" for c in found[:10]) + ("\n  ..." if len(found) > 10 else "")
        raise UsageError(f"{text!r} means {len(found)} cases; name one of them:{shown}")
    return found[0] if found else None


def not_found(what: str, entries: Iterable[Entry]) -> UsageError:
    """The error that says ``what`` was not found, with the files that can't be read: it may be in one of them."""
    return UsageError("\n".join([what, *(f"can't be read: {p}" for p in problems(entries))]))


def problems(entries: Iterable[Entry]) -> list[str]:
    """Why some files can't be read, a sentence each."""
    return [e.problem for e in entries if e.problem]


def _load(store: BaselineStore, path: Path) -> Entry:
    name = PurePosixPath(path.relative_to(store.folder).as_posix())
    try:
        found = store.read(path)
    except BaselineError as exc:
        return Entry(name, None, str(exc))
    gone = f"{path}: was removed meanwhile, or is a link to nothing"
    return Entry(name, found, "" if found is not None else gone)
