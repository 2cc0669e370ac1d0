"""``kerntune baselines show`` and ``verify``: what is stored, a row a case, and whether all of it is whole."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerntune.base.case_result import LaunchReport
from kerntune.base.device import Environment
from kerntune.base.formatting import format_time
from kerntune.base.strict import StrictStruct
from kerntune.cli.changes import ungateable
from kerntune.cli.stored import (
    Entry,
    Pattern,
    case_argument,
    entries_of,
    folder_argument,
    given_folder,
    key_of,
    launches_of,
    load_folder,
    problems,
    readable,
    time_ns,
)
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore, needed
from kerntune.gate.baselines import Baseline, TimeBaseline
from kerntune.gate.console import CONFIG_WIDTH, FINDINGS, OK, columns, counted, fail_with, say, say_json
from kerntune.gate.project import baseline_folder
from kerntune.gate.report import format_configs, format_static
from kerntune.gate.static_figures import launch_reports
from kerntune.gate.stores import Damage

SCHEMA = "kerntune.show/1"
CASE_WIDTH = 60
"""Columns of a case's name before it wraps: one long id would widen every line."""

NOTE_WIDTH = 40
"""Columns of the time's cell before what is remarked of it wraps."""

HEADERS = ("case", "device", "config", "time", "environment", "recorded")


class Row(StrictStruct, frozen=True):
    """A baseline as ``--json`` prints it. ``time_ns`` is the sample's median; static baselines have neither time nor
    environment. ``path`` is relative to the folder; ``note`` says if the case is too noisy for the usual tolerance."""

    case: str
    fingerprint: str
    target: str
    place: str
    launches: tuple[LaunchReport, ...]
    time_ns: float | None
    environment: Environment | None
    recorded: str
    path: str
    note: str = ""


class Shown(StrictStruct, frozen=True):
    """What ``--json`` prints."""

    folder: str
    baselines: tuple[Row, ...]
    problems: tuple[str, ...]
    schema: str = SCHEMA


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune baselines show`` takes."""
    folder_argument(parser)
    case_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    """Print what is stored; 1 if some of it can't be read."""
    folder = given_folder(args.baselines)
    entries = load_folder(folder)
    rows = rows_of(entries, Pattern(args.case))
    bad = problems(entries)
    if args.json:
        say_json(Shown(str(folder), tuple(rows), tuple(bad)))
        return FINDINGS if bad else OK
    none = "no baselines; pytest --kerntune records them"
    if readable(entries):
        none = f"no case matches {args.case!r}"
    say(table(rows) if rows else f"{folder}: {none}")
    return fail_with(bad)


def rows_of(entries: Sequence[Entry], pattern: Pattern) -> list[Row]:
    """The readable baselines that the pattern selects, by case."""
    found = [(e, e.baseline) for e in entries if e.baseline is not None and pattern.matches(e.baseline)]
    return [_row(e, b) for e, b in sorted(found, key=lambda pair: key_of(pair[1]))]


def table(rows: Sequence[Row]) -> str:
    """The rows of the table."""
    cells = [
        (
            r.case,
            f"{r.place}\n({r.target})",
            format_configs(r.launches),
            format_static(r.launches) if r.time_ns is None else f"{format_time(r.time_ns)}\n{r.note}".rstrip(),
            _environment(r.environment),
            r.recorded,
        )
        for r in rows
    ]
    return columns(cells, HEADERS, [CASE_WIDTH, None, CONFIG_WIDTH, NOTE_WIDTH, None, None])


def _row(entry: Entry, baseline: Baseline) -> Row:
    key = key_of(baseline)
    return Row(
        case=key.case,
        fingerprint=key.fingerprint,
        target=str(baseline.target),
        place=key.place,
        launches=launch_reports(launches_of(baseline)),
        time_ns=time_ns(baseline),
        environment=baseline.environment if isinstance(baseline, TimeBaseline) else None,
        recorded=baseline.recorded,
        path=str(entry.path),
        note=ungateable(baseline),
    )


def _environment(environment: Environment | None) -> str:
    if environment is None:
        return ""
    named = (("Triton", environment.triton), ("torch", environment.torch), ("driver", environment.driver))
    return "\n".join(f"{name} {version}" for name, version in named if version)


verify_arguments = folder_argument


def verify(args: Namespace) -> int:
    """Check every file and every artifact; 1 if anything is wrong."""
    folder = baseline_folder(args.baselines, Path.cwd())
    if not folder.exists():
        raise UsageError(f"{folder}: no such folder, so nothing was verified; name the right one: --baselines=DIR")
    store = BaselineStore(folder)
    entries = entries_of(store)
    found = list(findings(store, entries))
    artifacts = {(b.target, sha) for b in readable(entries) for sha in needed(b)}
    wrong = counted(len(found), "problem") if found else "all whole"
    say(f"{folder}: {counted(len(entries), 'baseline')}, {counted(len(artifacts), 'artifact')}, {wrong}")
    return fail_with(found)


def findings(store: BaselineStore, entries: list[Entry]) -> Iterator[str]:
    """What is wrong, a sentence each, naming the file; an intact artifact that several baselines need is read once."""
    damage = Damage()
    for entry in entries:
        baseline = entry.baseline
        if baseline is None:
            yield entry.problem
            continue
        path, place = store.folder / entry.path, store.path_of(baseline)
        if place != path:
            yield f"{path}: holds {baseline.case}, which is looked for in {place}; move it there or remove it"
        damaged = damage.among(store, baseline.target, needed(baseline))
        yield from (f"{path}: {problem}" for problem in damaged)
