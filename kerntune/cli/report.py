"""``kerntune report``: what runs found, as an HTML page, a Markdown summary, CSV or Parquet."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kerntune.cli.history import history_to_read, no_run
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.console import OK, complain, counted, say
from kerntune.gate.history.index import Index
from kerntune.gate.history.summary import CaseCurve, curves_of
from kerntune.gate.report import RunReport, read_run
from kerntune.gate.reporting.page import plotly_script, require_plotly, write_page
from kerntune.gate.reporting.summaries import append_summary, write_csv, write_parquet
from kerntune.tuning.cache.entries import default_folder


def run(args: argparse.Namespace) -> int:
    """Write each form that was asked for; :class:`UsageError` if none was, or if a library for it is missing."""
    if not (args.output or args.csv or args.parquet or args.summary):
        raise UsageError("say what to write: -o report.html, --csv FILE, --parquet FILE or --summary FILE")
    if args.history and not args.output:
        raise UsageError("--history is drawn in the HTML report: add -o report.html")
    if args.output:
        require_plotly(f"-o {args.output}")
    runs = [_read(Path(name)) for name in args.runs]
    if args.output:
        write_page(Path(args.output), runs, _curves(args, runs), plotly_script(), args.title)
        _say(args.output, runs)
    if args.csv:
        write_csv(Path(args.csv), runs)
        _say(args.csv, runs)
    if args.parquet:
        write_parquet(Path(args.parquet), runs)
        _say(args.parquet, runs)
    if args.summary:
        append_summary(Path(args.summary), runs)
    return OK


def _read(path: Path) -> RunReport:
    if not path.is_file():
        raise UsageError(f"{path}: no such file; name what --kerntune-json wrote")
    return read_run(path)


def _curves(args: argparse.Namespace, runs: Sequence[RunReport]) -> Sequence[CaseCurve]:
    """Those of the history that is named; one that only the ini file names fails no report if it can't be reached."""
    try:
        place = history_to_read(args.history)
        if place is None:
            return ()
        index = Index(place, default_folder() / "history")
        curves = curves_of(index, branch=args.branch)
    except KerntuneError as exc:
        if args.history is not None:
            raise
        complain(f"the history of the ini file is left out: {exc}")
        return ()
    if not _is_drawn(curves, runs):
        none = "no measured change of these cases" if index.runs(args.branch) else no_run(index, args.branch)
        complain(f"{place.name}: {none}; the report has no history")
    return curves


def _is_drawn(curves: Sequence[CaseCurve], runs: Sequence[RunReport]) -> bool:
    shown = {(str(r.case), r.target, r.device) for run in runs for r in run.results}
    return any(c.points and (c.case, c.target, c.device) in shown for c in curves)


def _say(path: str, runs: Sequence[RunReport]) -> None:
    say(f"{path}: {counted(sum(len(r.results) for r in runs), 'case')} of {counted(len(runs), 'run')}")
