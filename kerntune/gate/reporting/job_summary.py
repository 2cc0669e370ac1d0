"""A run as Markdown, for the summary page of a CI job: the worst first, cut where the page would be refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerntune.base.formatting import code_of, escaped
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import StoreError
from kerntune.gate.report import RunReport, counts_line, format_baseline, format_change, format_configs, format_today
from kerntune.gate.reporting.ranking import RankedResult, other_failures, shown_change, worst_first

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
    rows = [_row(r) for r in _kept(ranked)]
    table = "" if not rows else f"| {' | '.join(HEADERS)} |\n|{'---|' * len(HEADERS)}\n"
    return _fitting(head, [*errors, *(["\n"] if errors else []), table, *rows], len(ranked) - len(rows), limit)


def _inline(text: str) -> str:
    return escaped(" ".join(text.split()))


def _kept(ranked: Sequence[RankedResult]) -> list[RankedResult]:
    passes = [r for r in ranked if _passes(r)]
    return [r for r in ranked if not _passes(r)] + passes[:MAX_PASSES]


def _passes(ranked: RankedResult) -> bool:
    return ranked.result.verdict is Verdict.PASS and ranked.result.outcome is Outcome.PASS


def _row(ranked: RankedResult) -> str:
    result = ranked.result
    place = result.device or result.target
    cells = (
        f"{MARKS[result.outcome]} {result.word}",
        "<br>".join([code_of(str(result.case)), escaped(place), escaped(format_configs(result.launches))]),
        escaped(format_change(shown_change(result))),
        escaped(format_baseline(result)),
        escaped(format_today(result)),
        escaped("\n".join(_why(ranked))),
    )
    return f"| {' | '.join(cells)} |\n"


def _why(ranked: RankedResult) -> list[str]:
    result = ranked.result
    if result.verdict is Verdict.PASS:
        return [*result.findings, *result.warnings, *filter(None, [result.unjudged])]
    return [*result.findings, *result.causes, *result.warnings]


def _fitting(head: str, pieces: Sequence[str], left_out: int, limit: int) -> str:
    """As many whole pieces as fit, with the number of those that don't."""
    room, kept = limit - len(head.encode()) - MORE_ROOM, [head]
    if room < 0:
        return ""
    for i, piece in enumerate(pieces):
        room -= len(piece.encode("utf-8", "replace"))
        if room < 0:
            left_out += sum(p.startswith(("|", "*")) for p in pieces[i:])
            break
        kept.append(piece)
    return "".join(kept) + (f"\n… and {left_out} more; the JSON and the report have all.\n" if left_out else "\n")


MORE_ROOM = 200
"""Bytes that are kept free for the last line."""
