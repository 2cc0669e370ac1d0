"""The table of a run's cases: cells, columns, and a layout that fits the terminal."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from kerntune.base.case_result import UNJUDGED, CaseResult, LaunchReport
from kerntune.base.formatting import NO_FIGURE, visible
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.report import (
    MAX_CONFIG_LINES,
    format_baseline,
    format_change,
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
    cells = [[row[i] for i in columns] for row in rows]
    lines = _laid_out(headers, cells, [r.outcome for r in shown], width) if rows else []
    kept = {id(r) for r in shown}
    folded = [r for r in results if id(r) not in kept]
    changed = sum(bool(r.unjudged) for r in folded)
    told = f", {changed} of them with other code than before ({UNJUDGED})" if changed else ""
    return [*lines, (f"... and {len(folded)} more PASS{told}", None)] if folded and rows else lines


GAP = "  "
"""Between two columns, and before the cells below a case's line."""


NARROWEST = 8
"""Columns of a cell that is not narrowed further: a time, and most words, fit."""


def _laid_out(
    headers: Sequence[str], rows: Sequence[Sequence[str]], outcomes: Sequence[Outcome], width: int | None
) -> list[tuple[str, Outcome | None]]:
    """The header, a rule and the rows: in one line if ``width`` has room, else below the lines of their case and of its
    configs."""
    widths = [min(_widest(cells), WIDTHS.get(cells[0], sys.maxsize)) for cells in zip(headers, *rows, strict=True)]
    apart = width is not None and _across(widths) > width
    above: list[list[str]] = []
    if apart and width is not None:
        own = [i for i, name in enumerate(headers) if name in ("case", "config")]
        above = [_above([row[i] for i in own], width) for row in rows]
        headers, *rows = ([x for i, x in enumerate(cells) if i not in own] for cells in (headers, *rows))
        words = [_longest_word(cells) for cells in zip(headers, *rows, strict=True)]
        widths = _narrowed([w for i, w in enumerate(widths) if i not in own], words, width - len(GAP))
    indent = GAP if apart else ""
    lines: list[tuple[str, Outcome | None]] = [(indent + x, None) for x in _side_by_side(headers, widths)]
    lines.append((indent + GAP.join("-" * x for x in widths), None))
    for i, (row, outcome) in enumerate(zip(rows, outcomes, strict=True)):
        if apart:
            lines += [(line, outcome) for line in above[i]]
        lines += [(indent + line, outcome) for line in _side_by_side(row, widths)]
    return lines


def _above(cells: Sequence[str], width: int) -> list[str]:
    """The lines of a case, then those of its configs, which are narrower than the table; an id stays whole."""
    case, *configs = cells
    text = "; ".join(line for cell in configs for line in cell.splitlines()).replace("; and ", " and ")
    return [*case.splitlines(), *(f"{GAP}{line}" for line in _wrapped(text, width - len(GAP)))]


def _widest(cells: Iterable[str]) -> int:
    return max(len(line) for cell in cells for line in cell.splitlines() or [""])


def _longest_word(cells: Iterable[str]) -> int:
    return max(NARROWEST, *(len(word) for cell in cells for word in cell.split()))


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(widths: Sequence[int], words: Sequence[int], room: int) -> list[int]:
    """The widest columns narrowed, one column at a time, until all fit: to their longest words, so that names stay
    whole, and where that is not enough within words."""
    found = list(widths)
    for floors in (words, [NARROWEST] * len(found)):
        while _across(found) > room:
            wide = [i for i, floor in enumerate(floors) if found[i] > floor]
            if not wide:
                break
            found[max(wide, key=found.__getitem__)] -= 1
    return found


def _side_by_side(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """A row's lines; a cell that is wider than its column goes on below."""
    wrapped = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return [
        GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*wrapped, fillvalue="")
    ]


def _wrapped(cell: str, width: int) -> list[str]:
    return [part for line in cell.splitlines() for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]


def _configs_by_kernel(launches: Sequence[LaunchReport]) -> str:
    """The lines of :func:`format_configs`, with a kernel's name before the first of its configs alone."""
    told: set[str] = set()
    lines = []
    for launch in {f"{x.kernel}: {x.config}": x for x in launches}.values():
        config = f": {launch.config}" if launch.config else ""
        lines.append(f"and {launch.config}" if config and launch.kernel in told else f"{launch.kernel}{config}")
        told.add(launch.kernel)
    lines = list(dict.fromkeys(lines))
    more = len(lines) - MAX_CONFIG_LINES
    return "\n".join([*lines[:MAX_CONFIG_LINES], f"... {more} more"] if more > 0 else lines) or NO_FIGURE


def _row(result: CaseResult, several_targets: bool, several_gpus: bool) -> tuple[str, ...]:
    case = f"{result.case}\n({result.target})" if several_targets and result.target else str(result.case)
    return (
        case,
        (result.gpu_name if several_gpus else "") or NO_FIGURE,
        _configs_by_kernel(result.launches),
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
    if max_rows is None or len(results) <= max_rows:
        return list(results)
    others = sum(not _dull(r) for r in results)
    room = max(0, max_rows - others)
    passes = sorted((r for r in results if _dull(r)), key=lambda r: not r.unjudged)[:room]
    keep = {id(r) for r in passes}
    return [r for r in results if not _dull(r) or id(r) in keep]


def _header(column: int, results: Sequence[CaseResult]) -> str:
    timed = any(known(r.current_ns) is not None for r in results)
    return "static figures" if HEADERS[column] == "time" and not timed else HEADERS[column]
