"""``kerntune diff``: what changed between two folders of baselines, or two revisions of one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from kerntune.base.formatting import NO_FIGURE, format_share, format_time
from kerntune.cli.changes import BaselineChanges, Change, case_list, compare
from kerntune.cli.stored import Entry, Pattern, case_argument, folder_argument, sides
from kerntune.gate.console import FINDINGS, OK, columns, fail_with, say_found
from kerntune.gate.project import baseline_folder

HEADERS = ("case", "device", "before", "after", "change", "what changed")

TIMES = slice(2, 5)
"""The columns that baselines without a time leave empty."""

DETAIL_WIDTH = 60
"""Columns of the last cell before it wraps: a matmul's config fits in two lines."""

CAUTION = "Times are as stored, each from its own run; whether code got slower is for pytest --kerntune to say."


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune diff`` takes."""
    parser.add_argument(
        "names",
        metavar="A [B]",
        nargs="*",
        help="folders, git revisions of the baseline folder, or Triton series in it such as triton-3.9 (default of B: "
        "the baseline folder as it is now)",
    )
    parser.add_argument(
        "--static", action="store_true", help="compare registers, spills and sizes of each launch by the static rules"
    )
    folder_argument(parser)
    case_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="for a comment on a pull request, or a job summary")
    form.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with 1 if there is a difference; with --static, if a rule of the static gate fails",
    )


def run(args: Namespace) -> int:
    """Print the difference; 1 if a file can't be read, or with ``--exit-code`` if there is any."""
    if args.static:
        from kerntune.cli import static_diff

        return static_diff.run(args)
    folder = baseline_folder(args.baselines, Path.cwd())
    before, after = sides(args, folder)
    found = compare(_selected(before, args.case), _selected(after, args.case))
    say_found(found, args.json, lambda: text_of(found, markdown=args.markdown))
    return max(fail_with(found.problems), FINDINGS if args.exit_code and found.differs else OK)


def _selected(entries: Sequence[Entry], case: str) -> list[Entry]:
    pattern = Pattern(case)
    return [e for e in entries if e.baseline is None or pattern.matches(e.baseline)]


def text_of(found: BaselineChanges, *, markdown: bool = False) -> str:
    """The table and the lists, for a terminal or for a comment on a pull request."""
    parts = [_table(found.changed, markdown)] if found.changed else []
    parts += [case_list(t, c, markdown) for t, c in (("Added", found.added), ("Removed", found.removed)) if c]
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
    return columns(rows, headers, [*[None] * (len(headers) - 1), DETAIL_WIDTH], markdown=markdown)


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
