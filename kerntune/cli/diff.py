"""``kerntune baselines diff``: what changed between two folders, or two revisions of one.

A revision's baselines are read from git. Nothing is checked out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tabulate import tabulate

from kerntune.base.codec import to_json
from kerntune.base.formatting import NO_FIGURE, code_of, escaped, format_share, format_time
from kerntune.cli.changes import BaselineChanges, Change, compare
from kerntune.cli.stored import Entry, Pattern, decode, given_folder, is_baseline, load_folder
from kerntune.errors import UsageError
from kerntune.gate.console import FINDINGS, OK, fail_with, say
from kerntune.gate.git import git_output
from kerntune.gate.project import baseline_folder

HEADERS = ("case", "device", "before", "after", "change", "what changed")

TIMES = slice(2, 5)
"""The columns that baselines without a time leave empty."""

DETAIL_WIDTH = 60
"""Columns of the last cell before it wraps: a matmul's config fits in two lines."""

SERIES = re.compile(r"triton-\d+\.\d+")
"""A name of what the folder has of one Triton series."""

CAUTION = "Times are as stored, each from its own run; whether code got slower is for pytest --kerntune to say."


def run(args: argparse.Namespace) -> int:
    """Print the difference; 1 if a file can't be read, or with ``--exit-code`` if there is any."""
    folder = baseline_folder(args.baselines, Path.cwd())
    before, after = sides(args, folder)
    found = compare(_selected(before, args.case), _selected(after, args.case))
    if args.json:
        say(to_json(found).decode(), end="")
    else:
        say(text_of(found, markdown=args.markdown))
    return max(fail_with(found.problems), FINDINGS if args.exit_code and found.differs else OK)


def sides(args: argparse.Namespace, folder: Path) -> tuple[list[Entry], list[Entry]]:
    """Both sides' baselines, as the command line names them. :class:`UsageError` for none, or for more than two."""
    if args.target:
        raise UsageError("--target is for --python: baselines have their own targets")
    if not 1 <= len(args.names) <= 2:
        raise UsageError(
            "usage: kerntune diff A [B]; name one or two of: a folder, a git revision, a series such as triton-3.9; or "
            "give --python"
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


def _selected(entries: Sequence[Entry], case: str) -> list[Entry]:
    """The entries of the cases that ``--case`` selects, and those that can't be read."""
    pattern = Pattern(case)
    return [e for e in entries if e.baseline is None or pattern.matches(e.baseline)]


def text_of(found: BaselineChanges, *, markdown: bool = False) -> str:
    """The table and the lists, for a terminal or for a comment on a pull request."""
    parts = [_table(found.changed, markdown)] if found.changed else []
    parts += [_list(t, c, markdown) for t, c in (("Added", found.added), ("Removed", found.removed)) if c]
    parts.append(
        f"{len(found.changed)} changed, {len(found.added)} added, {len(found.removed)} removed, {found.same} the same"
    )
    if any(c.change is not None for c in found.changed):
        parts.append(CAUTION)
    return "\n\n".join(parts)


def _table(changes: Sequence[Change], markdown: bool) -> str:
    rows, headers = [list(_row(c)) for c in changes], list(HEADERS)
    if all(c.before_ns is None and c.after_ns is None for c in changes):
        for cells in (headers, *rows):
            del cells[TIMES]
    if markdown:
        quoted = [[code_of(row[0]), *map(escaped, row[1:])] for row in rows]
        return str(tabulate(quoted, headers=headers, tablefmt="github", disable_numparse=True))
    widths = [*[None] * (len(headers) - 1), DETAIL_WIDTH]
    return str(tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, maxcolwidths=widths))


def _row(change: Change) -> tuple[str, ...]:
    details = [*change.notes, *change.configs, *map(str, change.figures), *change.environment]
    return (
        change.case,
        f"{change.place} ({change.target})",
        format_time(change.before_ns),
        format_time(change.after_ns),
        NO_FIGURE if change.change is None else format_share(change.change),
        "\n".join(details) or NO_FIGURE,
    )


def _list(title: str, cases: Sequence[str], markdown: bool) -> str:
    bullet, gap = ("- ", "\n\n") if markdown else ("  ", "\n")
    return f"{title}:{gap}" + "\n".join(bullet + (code_of(case) if markdown else case) for case in cases)


def load_revision(revision: str, folder: Path) -> list[Entry]:
    """All files of ``folder`` in a commit, branch or tag; :class:`UsageError` if git knows none of that name."""
    place = next(p for p in (folder, *folder.parents) if p.is_dir())
    top = _line(git_output(place, "rev-parse", "--show-toplevel"))
    commit = _line(git_output(place, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"))
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
    listed = git_output(root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", commit, "--", *within) or b""
    names = [n for n in listed.decode(errors="surrogateescape").split("\0") if n]
    paths = sorted(p for n in names if is_baseline(p := PurePosixPath(n).relative_to(inside)))
    yield from zip(paths, _contents(root, [f"{commit}:{inside / p}" for p in paths]), strict=True)


def _contents(root: Path, objects: list[str]) -> Iterator[bytes]:
    """The bytes of each object: ``git cat-file --batch`` answers ``<name> blob <size>``, the bytes and a newline."""
    asked = "".join(f"{name}\n" for name in objects).encode(errors="surrogateescape")
    rest = git_output(root, "cat-file", "--batch", given=asked) or b""
    for _ in objects:
        head, _, rest = rest.partition(b"\n")
        size = int(head.rsplit(b" ", 1)[1])
        yield rest[:size]
        rest = rest[size + 1 :]


def _line(output: bytes | None) -> str:
    return (output or b"").decode(errors="surrogateescape").strip()
