"""``kerntune diff --static``: two baselines (of two git revisions, say) or two Triton versions side by side.

No revision's code is compiled here; ``pytest --kerntune --kerntune-against=REF`` does that."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from kerntune.base.codec import to_json
from kerntune.base.formatting import NO_FIGURE, code_of, escaped
from kerntune.cli.changes import Figure
from kerntune.cli.diff import SERIES, sides
from kerntune.cli.static_compare import (
    LaunchChange,
    StaticChange,
    StaticDifference,
    compare_statics,
)
from kerntune.cli.static_record import record_both
from kerntune.cli.stored import Entry, Pattern
from kerntune.gate.console import FINDINGS, OK, fail_with, say
from kerntune.gate.git import git_output
from kerntune.gate.project import baseline_folder
from kerntune.static.finding import SEVERITIES, Finding

HEADERS = ("case", "kernel", "before", "after", "what the rules say", "because of")
WIDTHS = (34, 24, 28, 28, 44, 36)
"""Columns of each cell before it wraps, in a terminal."""


def run(args: argparse.Namespace) -> int:
    """Print the difference, and of two revisions what isn't compared; 1 if something can't be read, or with
    ``--exit-code`` if a rule fails."""
    folder = baseline_folder(args.baselines, Path.cwd())
    before, after, names, failures = _sides(args, folder)
    found = compare_statics(before, after, names, Pattern(args.case).matches)
    if args.json:
        say(to_json(found).decode(), end="")
    else:
        notes = [] if args.python else code_notes(args.names, folder)
        say("\n\n".join([text_of(found, markdown=args.markdown), *notes]))
    return max(fail_with([*found.problems, *failures]), FINDINGS if args.exit_code and found.failing else OK)


def _sides(args: argparse.Namespace, folder: Path) -> tuple[list[Entry], list[Entry], tuple[str, str], list[str]]:
    """Both sides' baselines, their names, and what went wrong when they were recorded."""
    if args.python:
        return record_both(args.python, args.names, args.target, folder)
    before, after = sides(args, folder)
    names = args.names if len(args.names) > 1 else [*args.names, str(args.baselines or folder.name)]
    return before, after, (names[0], names[1]), []


SHOWN_FILES = 3
"""Changed files that are named; the others are counted."""


def code_notes(names: Sequence[str], folder: Path) -> list[str]:
    """That revisions were compared by their stored baselines alone, where their Python files differ, and the command
    that compares their kernels. ``names`` are one or two of folders, revisions and series."""
    place = next(p for p in (folder, *folder.parents) if p.is_dir())
    found = [_commit(place, name) for name in names]
    if not all(found):
        return []
    listed = git_output(place, "diff", "--name-only", "-z", *found, "--", ":/*.py") or b""
    files = [f for f in listed.decode(errors="surrogateescape").split("\0") if f]
    if not files:
        return []
    more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
    where = "" if len(found) < 2 or found[1] == _commit(place, "HEAD") else f" in a checkout of {names[1]}"
    against = f"pytest --kerntune --kerntune-against={shlex.quote(names[0])}"
    return [
        f"Stored baselines were compared, and nothing was compiled, though code differs too "
        f"({', '.join(files[:SHOWN_FILES])}{more}).\nTo hold the kernels themselves against those of {names[0]}: "
        f"`{against}`{where}"
    ]


def _commit(place: Path, name: str) -> str:
    """The commit of that name; empty for a folder, a series of baselines, and what git doesn't know."""
    if Path(name).exists() or SERIES.fullmatch(name):
        return ""
    found = git_output(place, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return (found or b"").decode(errors="surrogateescape").strip()


def text_of(found: StaticDifference, *, markdown: bool = False) -> str:
    """The table and the lists, for a terminal or for a comment on a pull request."""
    shown = [c for c in found.changed if c.differs]
    head = f"{found.before} -> {found.after}"
    parts = [f"### Kernels, {escaped(head)}" if markdown else head]
    parts += [_table(shown, markdown)] if shown else []
    bullet, gap = ("- ", "\n\n") if markdown else ("  ", "\n")
    ends = "Compared up to where they stopped without a GPU"
    for title, cases in (("Added", found.added), ("Removed", found.removed), (ends, found.cut_off)):
        shown_cases = [code_of(c) if markdown else c for c in cases]
        parts += [f"{title}:{gap}" + "\n".join(bullet + c for c in shown_cases)] if cases else []
    alike = len(found.changed) - len(shown)
    parts.append(
        f"{found.failing} failing, {len(shown)} changed, {alike} with other code and equal figures, "
        f"{len(found.added)} added, {len(found.removed)} removed, {found.same} the same"
    )
    return "\n\n".join(parts)


def _table(changes: Sequence[StaticChange], markdown: bool) -> str:
    rows = [row for c in changes for row in _rows(c)]
    if markdown:
        cells = [[code_of(row[0]), *map(escaped, row[1:])] for row in rows]
        return str(tabulate(cells, headers=HEADERS, tablefmt="github", disable_numparse=True))
    return str(tabulate(rows, headers=HEADERS, tablefmt="simple", disable_numparse=True, maxcolwidths=list(WIDTHS)))


def _rows(change: StaticChange) -> list[tuple[str, ...]]:
    case = f"{change.case}\n({change.target})"
    rows = [_row(case, x) for x in change.launches if x.figures]
    if change.notes:
        said = [*_said(change.findings), *change.notes]
        rows.append((case, NO_FIGURE, NO_FIGURE, NO_FIGURE, "\n".join(said), NO_FIGURE))
    return rows


def _said(findings: Sequence[Finding]) -> list[str]:
    return [f"{f.severity}: {f.text}" for s in SEVERITIES for f in findings if f.severity == s]


def _row(case: str, launch: LaunchChange) -> tuple[str, ...]:
    return (
        case,
        f"{launch.kernel}\n{launch.after}" if launch.after else launch.kernel,
        "\n".join(f"{f.name} {_number(f, f.before)}" for f in launch.figures),
        "\n".join(f"{f.name} {_number(f, f.after)}" for f in launch.figures),
        "\n".join(_said(launch.findings)) or NO_FIGURE,
        launch.because,
    )


def _number(figure: Figure, value: float | None) -> str:
    return "?" if value is None else f"{value:.1%}" if figure.name == "occupancy" else f"{value:,}"
