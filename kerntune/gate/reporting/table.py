"""The table of a run's cases: cells, columns, and a layout that fits the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kerntune.base.case_result import UNJUDGED, CaseResult
from kerntune.base.formatting import NO_FIGURE, visible
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.console import text_table
from kerntune.gate.report import (
    format_baseline,
    format_change,
    format_configs,
    format_today,
    format_work,
    known,
)
from kerntune.gate.reporting.failure import headline, short_finding

MAX_ROWS = 40
"""Rows of the table before PASS rows are folded into one line: what fits on a screen beside a failure."""


WIDTHS = {"config": 40, "change": 40}
"""Columns before a cell wraps: ``BLOCK_M=128 BLOCK_N=256 num_warps=8`` fits on one line."""


HEADERS = ("case", "GPU", "config", "time", "rate", "baseline", "change", "verdict")


ALWAYS = (0, 7)
"""Columns that are shown even if they hold nothing: without a GPU there are no baseline times, say."""


def table(results: Sequence[CaseResult], *, max_rows: int | None = MAX_ROWS, width: int | None = None) -> str:
    """The lines of :func:`table_lines` as one text."""
    return "\n".join(line for line, _ in table_lines(results, max_rows=max_rows, width=width))


def table_lines(
    results: Sequence[CaseResult], *, max_rows: int | None = MAX_ROWS, width: int | None = None
) -> list[tuple[str, Outcome | None]]:
    """One row a result, in the given order; beyond ``max_rows``, PASS rows are folded into a last line. With each
    line of a row comes its outcome, for a colour.

    Those with changed code are shown before others. A result without a time shows its static figures, and all its
    findings as its change. Where several GPUs were used, each row names its own. A table that is wider than ``width``
    columns has each case on a line of its own, and the row below it in narrower cells. Such a line alone may be
    longer. Where all rows are folded, there is no line.
    """
    shown = _fold(results, max_rows)
    several = len({r.target for r in results if r.target}) > 1
    gpus = len({r.gpu for r in results if r.gpu}) > 1
    rows = [tuple(map(visible, _row(r, several, gpus))) for r in shown]
    columns = [i for i, cells in enumerate(zip(*rows, strict=True)) if i in ALWAYS or set(cells) != {NO_FIGURE}]
    headers = [_header(i, results) for i in columns]
    lines: list[tuple[str, Outcome | None]] = []
    if rows:
        head, *parts = text_table(headers, [[row[i] for i in columns] for row in rows], WIDTHS, width, ("config",))
        lines = [(line, None) for line in head]
        lines += [(line, r.outcome) for r, part in zip(shown, parts, strict=True) for line in part]
    kept = {id(r) for r in shown}
    folded = [r for r in results if id(r) not in kept]
    changed = sum(bool(r.unjudged) for r in folded)
    told = f", {changed} of them with other code than before ({UNJUDGED})" if changed else ""
    return [*lines, (f"... and {len(folded)} more PASS{told}", None)] if folded and rows else lines


def _row(result: CaseResult, several_targets: bool, several_gpus: bool) -> tuple[str, ...]:
    case = f"{result.case}\n({result.target})" if several_targets and result.target else str(result.case)
    return (
        case,
        (result.gpu_name if several_gpus else "") or NO_FIGURE,
        format_configs(result.launches),
        format_today(result),
        format_work(result),
        format_baseline(result),
        _change(result),
        f"{result.word} (recorded)" if result.recorded else result.word,
    )


def _change(result: CaseResult) -> str:
    """The change of the time, or what else decided: a rule or metric, the anchor. A failing case has the one line that
    stands for it: its test tells it in full."""
    if result.outcome is Outcome.FAIL and (line := headline(result)):
        return line
    lines = [format_change(result.shown or result.change)] if result.change is not None else []
    found = [short_finding(text, result) for text in _findings(result)]  # its row names its kernel
    lines += [*found, *filter(None, [result.unjudged])] or result.remarks[:1]
    if result.end is not None:
        lines.append(f"stopped at: {result.end.line or result.end.reason}")
    since = result.since
    if since is not None and since.change is not None and since.verdict is result.verdict is not Verdict.PASS:
        lines.append(f"{format_change(since.shown or since.change)} since {since.date}")
    return "\n".join(lines) or NO_FIGURE


def _findings(result: CaseResult) -> list[str]:
    """All of them, but candidate configs by their number: a list can have hundreds, and the summary names them."""
    about = tuple(f"{c.kernel} with {c.config}" for c in result.configs if c.problem)
    found = [f for f in result.findings if _configs_in(f, about) == 0]
    count = sum(_configs_in(f, about) for f in result.findings)
    return [*found, f"{count} config{'s' if count > 1 else ''} with a problem"] if count else found


def _configs_in(finding: str, about: tuple[str, ...]) -> int:
    """How many configs a finding is about, if it begins with one of these."""
    rest = next((finding[len(one) :] for one in about if finding.startswith((f"{one}: ", f"{one} and "))), "")
    others = re.match(r" and (\d+) others: ", rest)  # as base.config.configs_text has it
    return 1 + int(others[1]) if others else 2 if rest.startswith(" and ") else int(bool(rest))


def _dull(result: CaseResult) -> bool:
    """Whether its row can be left out: it passes, has no findings, and was judged to its end."""
    return result.verdict is Verdict.PASS and not result.findings and result.end is None


def _fold(results: Sequence[CaseResult], max_rows: int | None) -> list[CaseResult]:
    if max_rows is None:
        return list(results)
    others = sum(not _dull(r) for r in results)
    room = max(0, max_rows - others)
    passes = sorted((r for r in results if _dull(r)), key=lambda r: not r.unjudged)[:room]
    keep = {id(r) for r in passes}
    return [r for r in results if not _dull(r) or id(r) in keep]


def _header(column: int, results: Sequence[CaseResult]) -> str:
    timed = any(known(r.current_ns) is not None for r in results)
    return "static figures" if HEADERS[column] == "time" and not timed else HEADERS[column]
