"""A case as people read it: what was found, because of what, and the command that accepts it.

The line of a case (:func:`headline`) begins with its finding. The whole text (:func:`failure_text`) has each part once.
The table of a run has a row a case, in a layout that fits the terminal.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence

from kerntune.base.case_result import UNJUDGED, CaseResult
from kerntune.base.formatting import NO_FIGURE, bounded, format_share, visible
from kerntune.base.policy import Outcome, Update, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.console import counted, text_table
from kerntune.gate.report import format_baseline, format_change, format_configs, format_today, format_work, shown_change

SEPARATOR = " · "
"""Between the parts of a line."""

UPDATES = {Verdict.REGRESSED: Update.REGRESSED, Verdict.NEW: Update.NEW, Verdict.INCOMPLETE: Update.ALL}
"""What has a run accept a case that fails."""

REFRESH_ACCEPTS = "a refresh (--kerntune-update) accepts it"
"""In the message of an INCOMPLETE case that a new baseline makes complete."""

NO_BASELINE_HELPS = "can't be "
"""Begins a finding that the device or the compiler refuses: ``can't be compiled``, ``can't be launched``."""


def headline(result: CaseResult) -> str:
    """``spills 0 -> 56 B``, ``+9.9 % (±0.1)``: what a case's verdict rests on, the worst first; empty where the verdict
    says it all."""
    failing = failing_findings(result)
    found = [short_finding(text, result) for text in failing[:1] or result.findings[:1]]
    change = shown_change(result)
    if change is not None and bounded(change.point):
        found = [change_text(change) + _since(result), *found] if not failing else [*found, change_text(change)]
    more = f"{len(failing) - 1} more" if len(failing) > 1 else ""
    return SEPARATOR.join(filter(None, [*found, more]))


def failing_findings(result: CaseResult) -> list[str]:
    """Those that decided: its message holds them. The others only warn."""
    return [text for text in result.findings if text in result.message]


def short_finding(text: str, result: CaseResult) -> str:
    """A finding without what explains it, and without the name of its kernel unless the case has several."""
    text = re.sub(r"^launch \d+ \((.+?)\): ", r"\1: ", text)
    kernels = dict.fromkeys(launch.kernel for launch in result.launches)
    about = ""
    for kernel in kernels:
        found = re.match(rf"{re.escape(kernel)}( at [^:]+:\d+)?: ", text)
        if found is not None:
            text, about = text[found.end() :], f" in {kernel}" if len(kernels) > 1 else ""
            break
    return re.split(r" \(|; ", text, maxsplit=1)[0].removesuffix(" a thread") + about


def change_text(change: Estimate) -> str:
    """``+9.9 % (±0.1)``: half the width of the interval."""
    if not (bounded(change.low) and bounded(change.high)):
        return format_share(change.point)
    return f"{format_share(change.point)} (±{50 * (change.high - change.low):.1f})"


def _since(result: CaseResult) -> str:
    since = result.since
    decided = since is not None and since.change is not None and shown_change(result) in (since.shown, since.change)
    return f" since {since.date}" if since is not None and decided else ""


def cause_text(result: CaseResult) -> str:
    """All causes in one text, those of launches first, each once with its kernels; empty without any."""
    kernels: dict[str, list[str]] = {}
    for cause in result.launch_causes:
        kernels.setdefault(cause.why, []).append(cause.kernel)
    others = [text for text in result.causes if text not in map(str, result.launch_causes)]
    return "; ".join([*(f"{', '.join(names)}: {why}" for why, names in kernels.items()), *others])


def accepting(results: Sequence[CaseResult]) -> Update | None:
    """The update that accepts these failing cases, if there is one: none for what can't be compiled or launched, nor
    for what fails without a baseline."""
    if any(r.word == "FAILS" or any(NO_BASELINE_HELPS in text for text in failing_findings(r)) for r in results):
        return None
    if any(r.verdict is Verdict.INCOMPLETE and REFRESH_ACCEPTS not in r.message for r in results):
        return None
    wanted = {UPDATES.get(r.verdict) for r in results}
    return wanted.pop() if len(wanted) == 1 else None


def accepted_together(failing: Sequence[CaseResult]) -> Iterator[tuple[str, Update, list[CaseResult]]]:
    """``2 cases REGRESSED``, the update that accepts all of these at once, and they: for each word that has one."""
    for word in dict.fromkeys(r.word for r in failing):
        mine = [r for r in failing if r.word == word]
        if (update := accepting(mine)) is not None:
            yield f"{counted(len(mine), 'case')} {word}", update, mine


def accept_command(result: CaseResult, nodeid: str = "", target: str = "", baselines: str = "") -> str:
    """The command that accepts a failing case and no other test's, as called in the project's folder, or where the test
    has this ``nodeid``; empty if there is none. ``target`` is what the run was asked to compile for: without it a
    machine with a GPU would refresh the GPU's own baseline. ``baselines`` is the folder that it was asked to use."""
    update = accepting([result])
    test = nodeid or result.case.nodeid
    return "" if update is None else update_command(update, target, test, baselines=baselines)


def update_command(update: Update, target: str, *tests: str, baselines: str = "") -> str:
    """The command that records ``update`` for these ``tests`` (all without any), compiled for ``target`` and in the
    folder ``baselines`` if they are named."""
    named = {"target": target, "baselines": baselines, "update": update.value}
    options = [f"--kerntune-{name}={value}" for name, value in named.items() if value]
    return shlex.join(["pytest", "--kerntune", *options, *tests])


def compiled_for(results: Sequence[CaseResult]) -> str:
    """The targets of ``results`` in one text, as ``--kerntune-target`` takes them; empty where any is of a GPU."""
    targets = dict.fromkeys(r.target for r in results if r.target)
    return "" if any(r.device for r in results) else ",".join(targets)


def failure_text(result: CaseResult, command: str, width: int = 0) -> str:
    """The verdict with its times, then a line each for findings, cause, further findings and ``command``.

    Lines but the first and the command are broken at ``width`` columns, if it isn't 0.
    """
    failing = failing_findings(result)
    parts = [*failing, *result.causes]
    head = result.message
    for text in sorted(parts, key=len, reverse=True):
        head = head.replace(f", {text}", "")
    kept = [text for text in parts if text not in head]
    cause = cause_text(result) if any(text in kept for text in result.causes) else ""
    told_as_cause = [str(x) for x in result.lost_configs if x.removal and x.removal in cause]
    others = [text for text in result.findings if text not in (*failing, *told_as_cause)]
    told = [
        *(("found", text) for text in failing if text in kept),
        *([("cause", cause)] if cause else []),
        *(("also", text) for text in others),
    ]
    lines = [head, *(line for name, text in told for line in _lines(name, text, width))]
    return "\n".join([*lines, *([f"  to accept: {command}"] if command else [])])


def _lines(name: str, text: str, width: int) -> list[str]:
    line = f"  {name}: {text}"
    if not width:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


WIDTHS = {"config": 40, "change": 40}
"""Columns before a cell wraps: ``BLOCK_M=128 BLOCK_N=256 num_warps=8`` fits on one line."""

HEADERS = ("case", "GPU", "config", "time", "rate", "baseline", "change", "verdict")

ALWAYS = (0, 7)
"""Columns that are shown even if they hold nothing: without a GPU there are no baseline times, say."""


def table_lines(results: Sequence[CaseResult], *, whole: bool, width: int) -> list[tuple[str, Outcome | None]]:
    """One row a result, in the given order; unless it is ``whole``, PASS rows are folded into a last line. With each
    line of a row comes its outcome, for a colour.

    A result without a time shows its static figures, and all its findings as its change. Where several GPUs were used,
    each row names its own. A table that is wider than ``width`` columns has each case on a line of its own, and the row
    below it in narrower cells. Such a line alone may be longer. Where all rows are folded, there is no line.
    """
    shown = [r for r in results if whole or not _dull(r)]
    if not shown:
        return []
    several = len({r.target for r in results if r.target}) > 1
    gpus = len({r.gpu for r in results if r.gpu}) > 1
    rows = [tuple(map(visible, _row(r, several, gpus))) for r in shown]
    columns = [i for i in range(len(HEADERS)) if i in ALWAYS or any(row[i] != NO_FIGURE for row in rows)]
    headers = [_header(i, results) for i in columns]
    head, *parts = text_table(headers, [[row[i] for i in columns] for row in rows], WIDTHS, width, ("config",))
    lines: list[tuple[str, Outcome | None]] = [(line, None) for line in head]
    lines += [(line, r.outcome) for r, part in zip(shown, parts, strict=True) for line in part]
    folded = [] if whole else [r for r in results if _dull(r)]
    changed = sum(bool(r.unjudged) for r in folded)
    told = f", {changed} of them with other code than before ({UNJUDGED})" if changed else ""
    return [*lines, (f"... and {len(folded)} more PASS{told}", None)] if folded else lines


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
    return result.verdict is Verdict.PASS and not result.findings and result.end is None


def _header(column: int, results: Sequence[CaseResult]) -> str:
    timed = any(r.current_ns is not None for r in results)
    return "static figures" if HEADERS[column] == "time" and not timed else HEADERS[column]
