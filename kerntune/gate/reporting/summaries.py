"""A run for other tools: Markdown and annotations for a CI job, and a table of plain columns for CSV and Parquet.

The Markdown has the worst first, and is cut where the job's page would be refused.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from kerntune.base.codec import write_atomic
from kerntune.base.formatting import code_of, escaped, visible
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.strict import StrictStruct
from kerntune.errors import StoreError, UsageError
from kerntune.gate.report import (
    RankedResult,
    RunReport,
    counts_line,
    format_baseline,
    format_change,
    format_configs,
    format_today,
    other_failures,
    printable,
    shown_change,
    worst_first,
)

MAX_BYTES = 1_024_000
"""Bytes that are written at most: GitHub refuses a step's summary above 1 MiB as a whole
(docs.github.com, "Workflow commands": "Job summaries are isolated between steps and each step is restricted to a
maximum size of 1MiB")."""

HEADERS = ("", "case", "change", "baseline", "today", "why")

MARKS = {Outcome.FAIL: "❌", Outcome.WARN: "⚠️", Outcome.PASS: "✅"}

MAX_PASSES = 200
"""Rows of cases that just pass; the report has them all."""


def append_summary(path: Path, runs: Sequence[RunReport]) -> None:
    """Append to ``path`` what :func:`summary` gives within what the file has room for; :class:`StoreError` if the file
    can't be written."""
    try:
        held = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(summary(runs, MAX_BYTES - held).encode("utf-8", "replace"))
    except OSError as exc:
        raise StoreError(f"{path}: the summary can't be written ({exc})") from exc


def summary(runs: Sequence[RunReport], limit: int = MAX_BYTES) -> str:
    """Markdown of at most ``limit`` bytes: counts, then a row a case; the last line counts the rows left out."""
    ranked = worst_first(runs)
    head = f"## kerntune\n\n{_inline(counts_line([r.result for r in ranked]))}\n\n"
    errors = [f"* {code_of(test)}: {_inline(text)}\n" for run in runs for test, text in other_failures(run).items()]
    passes = [r for r in ranked if _passes(r)][:MAX_PASSES]
    rows = [*map(_row, (r for r in ranked if not _passes(r))), *map(_row, passes)]
    table = "" if not rows else f"| {' | '.join(HEADERS)} |\n|{'---|' * len(HEADERS)}\n"
    pieces = [*errors, *(["\n"] if errors else []), table, *rows]
    left_out, room, kept = len(ranked) - len(rows), limit - len(head.encode()) - MORE_ROOM, [head]
    if room < 0:
        return ""
    for i, piece in enumerate(pieces):
        room -= len(piece.encode("utf-8", "replace"))
        if room < 0:
            left_out += sum(p.startswith(("|", "*")) for p in pieces[i:])
            break
        kept.append(piece)
    more = f"… and {left_out} more; the JSON and the report have all.\n" if left_out else ""
    return "".join([*kept, "\n", more])


def _inline(text: str) -> str:
    return escaped(" ".join(text.split()))


def _passes(ranked: RankedResult) -> bool:
    return ranked.result.verdict is Verdict.PASS and ranked.result.outcome is Outcome.PASS


def _row(ranked: RankedResult) -> str:
    result = ranked.result
    place = result.device or result.target
    why = [*result.findings, *result.causes, *result.warnings]
    if result.verdict is Verdict.PASS:
        why = [*result.findings, *result.warnings, *filter(None, [result.unjudged])]
    cells = (
        f"{MARKS[result.outcome]} {result.word}",
        "<br>".join([code_of(str(result.case)), escaped(place), escaped(format_configs(result.launches))]),
        escaped(format_change(shown_change(result))),
        escaped(format_baseline(result)),
        escaped(format_today(result)),
        escaped("\n".join(why)),
    )
    return f"| {' | '.join(cells)} |\n"


MORE_ROOM = 200
"""Bytes that are kept free for the last line."""

SHOWN = 10
"""Annotations of a kind that GitHub shows of a step: the others are dropped without a word
(github.com/orgs/community/discussions/26680)."""

MAX_MESSAGE = 4_000
"""Characters of a message: GitHub cuts what is longer."""

KINDS = {Outcome.FAIL: "error", Outcome.WARN: "warning"}

FileLine = tuple[str, int]
"""A file as the repository names it, and a line (0: not known)."""


def annotation_lines(ranked: Sequence[RankedResult], place_of: Callable[[str], FileLine]) -> list[str]:
    """Workflow commands, a line each: the worst errors and warnings, and in the last place of a kind how many more.

    ``ranked`` has the worst first; ``place_of`` gives a node id's file and line.
    """
    lines: list[str] = []
    for outcome, kind in KINDS.items():
        found = [r for r in ranked if r.result.outcome is outcome]
        kept = found if len(found) <= SHOWN else found[: SHOWN - 1]
        lines += [_command(kind, r, place_of) for r in kept]
        if len(found) > len(kept):
            more = f"{len(found) - len(kept)} more cases: GitHub shows {SHOWN} {kind}s; the job's summary has all"
            lines.append(f"::{kind} title=kerntune::{_data(more)}")
    return lines


def file_of(nodeid: str) -> str:
    """The test file of a node id, with slashes."""
    return PurePath(nodeid.partition("::")[0]).as_posix()


def _command(kind: str, ranked: RankedResult, place_of: Callable[[str], FileLine]) -> str:
    result = ranked.result
    file, line = place_of(result.case.nodeid)
    title = f"{result.word} {result.case}"
    parts = [f"file={_property(file)}", *([f"line={line}"] if line else []), f"title={_property(title)}"]
    return f"::{kind} {','.join(parts)}::{_data(result.message[:MAX_MESSAGE])}"


def _data(text: str) -> str:
    """Escaped as ``escapeData`` of the runner's toolkit does (github.com/actions/toolkit, core/src/command.ts)."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escaped as ``escapeProperty`` of the same file does."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


PARQUET_EXTRA = 'pip install "kerntune[parquet]"'


class FlatRow(StrictStruct, frozen=True):
    """One result: a row of an exported table. Times in nanoseconds, changes as shares (0.12 is +12 %) with the interval
    ``change_low`` to ``change_high`` at ``change_level``; rates a second. Registers, spilled and shared bytes are
    the most of all launches, the occupancy the least; None (an empty cell) is not known."""

    created: str
    commit: str
    branch: str
    host: str
    test: str
    call: str
    target: str
    device: str
    verdict: str
    outcome: str
    time_ns: float | None
    baseline_ns: float | None
    change: float | None
    change_low: float | None
    change_high: float | None
    change_level: float | None
    since_anchor: float | None
    tolerance: float | None
    bytes_per_second: float | None
    flops_per_second: float | None
    share_of_bandwidth: float | None
    share_of_roof: float | None
    roof: str
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    occupancy: float | None
    tuning_seconds: float
    configs: str
    message: str


def flat_rows(runs: Sequence[RunReport]) -> list[FlatRow]:
    """A row a result, the worst first."""
    return [_flat(r) for r in worst_first(runs)]


def write_csv(path: Path, runs: Sequence[RunReport]) -> None:
    """A file as RFC 4180 has it, in UTF-8, with a line of names; written whole or not at all. A text that a spreadsheet
    would take for a formula begins with an apostrophe."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(FlatRow.__struct_fields__)
    writer.writerows(map(_cell, msgspec.structs.astuple(row)) for row in flat_rows(runs))
    write_atomic(path, text.getvalue().encode("utf-8", "replace"))


def _cell(value: object) -> object:
    """A text as spreadsheets show it and don't compute it (OWASP, "CSV Injection")."""
    shown = printable(value)
    return f"'{shown}" if isinstance(shown, str) and shown.lstrip()[:1] in ("=", "+", "-", "@") else shown


def write_parquet(path: Path, runs: Sequence[RunReport]) -> None:
    """The same as Parquet; :class:`UsageError` says what to install where pyarrow is missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as exc:
        raise UsageError(f"{path}: pyarrow writes Parquet, and is not installed: {PARQUET_EXTRA}") from exc
    rows = flat_rows(runs)
    types: dict[str, Any] = {"str": pa.string(), "float": pa.float64(), "int": pa.int64()}
    fields = [(n, types[kind.partition(" ")[0]]) for n, kind in FlatRow.__annotations__.items()]
    columns = [pa.array([printable(getattr(row, n)) for row in rows], kind) for n, kind in fields]
    table = pa.table(columns, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_atomic(path, sink.getvalue().to_pybytes())


def _same(source: object, *names: str) -> dict[str, Any]:
    """What a row takes over as it is called there."""
    return {name: getattr(source, name) for name in names}


def _flat(ranked: RankedResult) -> FlatRow:
    result, run, roofline = ranked.result, ranked.run, ranked.result.roofline
    change = result.shown or result.change
    since = result.since.shown or result.since.change if result.since is not None else None
    known = {
        name: [value for x in result.launches if (value := getattr(x, name)) is not None]
        for name in ("registers", "spill_bytes", "shared_bytes", "occupancy")
    }
    return FlatRow(
        **_same(result, "target", "device", "baseline_ns", "tolerance", "tuning_seconds", "message"),
        **_same(roofline, "bytes_per_second", "flops_per_second", "roof"),
        **_same(run.place, "commit", "branch", "host"),
        created=run.created,
        test=result.case.nodeid,
        call=result.case.call,
        verdict=result.verdict.value,
        outcome=result.outcome.value,
        time_ns=result.current_ns,
        change=change.point if change else None,
        change_low=change.low if change else None,
        change_high=change.high if change else None,
        change_level=change.level if change else None,
        since_anchor=since.point if since else None,
        share_of_bandwidth=roofline.of_bandwidth,
        share_of_roof=roofline.of_roof,
        registers=max(known["registers"], default=None),
        spill_bytes=max(known["spill_bytes"], default=None),
        shared_bytes=max(known["shared_bytes"], default=None),
        occupancy=min(known["occupancy"], default=None),
        configs="; ".join(f"{x.kernel}: {x.config}" for x in result.launches if x.config is not None),
    )
