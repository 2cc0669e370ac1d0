"""Results as a table of plain columns, for CSV, Parquet and whatever reads these."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.codec import write_atomic
from kerntune.base.formatting import visible
from kerntune.errors import UsageError
from kerntune.gate.report import Origin, RunReport
from kerntune.gate.reporting.ranking import RankedResult, worst_first

PARQUET_EXTRA = 'pip install "kerntune[parquet]"'


class FlatRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    shown = _shown(value)
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
    fields = [(name, types[kind.partition(" ")[0]]) for name, kind in FlatRow.__annotations__.items()]
    columns = [[_shown(getattr(row, name)) for row in rows] for name, _ in fields]
    table = pa.table(
        [pa.array(column, kind) for column, (_, kind) in zip(columns, fields, strict=True)], schema=pa.schema(fields)
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write(table)
    write_atomic(path, sink.getvalue().to_pybytes())


def _shown(value: object) -> object:
    return visible(value) if isinstance(value, str) else value


def _flat(ranked: RankedResult) -> FlatRow:
    result, run = ranked.result, ranked.run
    origin = Origin() if isinstance(run.origin, msgspec.UnsetType) else run.origin
    change = result.shown or result.change
    since = result.since.shown or result.since.change if result.since is not None else None
    return FlatRow(
        created=run.created,
        commit=origin.commit,
        branch=origin.branch,
        host=origin.host,
        test=result.case.nodeid,
        call=result.case.call,
        target=result.target,
        device=result.device,
        verdict=result.verdict.value,
        outcome=result.outcome.value,
        time_ns=result.current_ns,
        baseline_ns=result.baseline_ns,
        change=change.point if change else None,
        change_low=change.low if change else None,
        change_high=change.high if change else None,
        change_level=change.level if change else None,
        since_anchor=since.point if since else None,
        tolerance=result.tolerance,
        bytes_per_second=result.bytes_per_second,
        flops_per_second=result.flops_per_second,
        share_of_bandwidth=result.of_bandwidth,
        share_of_roof=result.roofline.of_roof,
        roof=result.roofline.roof,
        registers=max((x.registers for x in result.launches if x.registers is not None), default=None),
        spill_bytes=max((x.spill_bytes for x in result.launches if x.spill_bytes is not None), default=None),
        shared_bytes=max((x.shared_bytes for x in result.launches if x.shared_bytes is not None), default=None),
        occupancy=min((x.occupancy for x in result.launches if x.occupancy is not None), default=None),
        tuning_seconds=result.tuning_seconds,
        configs="; ".join(f"{x.kernel}: {x.config}" for x in result.launches if x.config is not None),
        message=result.message,
    )
