"""What a history says of all cases: each step and drift with its size, its place, and what else changed there.

Reports draw each case's curve: its measured changes in order of time, and its steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kerntune.base.formatting import escaped
from kerntune.base.strict import SparseStruct, StrictStruct
from kerntune.gate.console import columns, counted
from kerntune.gate.history.index import DIRTY, CaseSeries, Index, IndexDamaged, RunInfo
from kerntune.gate.history.series import CaseShift, RunSettings, found_in

FALSE_RATE = 0.01
"""Probability of any false step or drift in the whole set of cases that is shown."""

HEADERS = ("case", "device", "change", "99 %", "between", "days", "kind")

ASSUMED = "the errors of a case's runs are independent and alike"
"""What the probability of a false move rests on (``benchmarks/results/history_simulation.json`` has figures)."""

SHORT = 10
"""Digits of a commit's name in tables."""


class HistoryStep(StrictStruct, frozen=True):
    """A case's time moved. Shares (0.03 is 3 % slower) with the ends of a 99 % interval. ``before`` and ``after`` are
    the commits of the last run on the old level and the first on the new one; the move lies between ``earliest`` and
    ``latest`` with 99 %. A ``+`` behind a commit: the run's checkout had changes that it doesn't have. ``from_day`` and
    ``to_day`` are days of runs (UTC)."""

    case: str
    target: str
    device: str
    kind: str
    size: float
    low: float
    high: float
    before: str
    after: str
    earliest: str
    latest: str
    runs: int
    from_day: str
    to_day: str
    settings: tuple[str, ...]


class HistorySteps(StrictStruct, frozen=True):
    """All steps of a history, the largest slowdown first. ``false_rate``: the probability that any of them is none."""

    steps: tuple[HistoryStep, ...]
    cases: int
    runs: int
    points: int
    false_rate: float
    branch: str = ""
    unread: tuple[str, ...] = ()
    schema: str = "kerntune.steps/1"


def steps_of(index: Index, *, case: str = "", branch: str = "", false_rate: float = FALSE_RATE) -> HistorySteps:
    """Read what is new, and find the steps of every case; :class:`~kerntune.errors.HistoryError` if nothing can be.

    Without a ``branch`` it is the one with most runs: runs of several branches are no series.
    """
    return _steps_of(_read(index, case, branch), false_rate)


class _History(NamedTuple):
    """What an index has of the runs of one branch."""

    branch: str
    runs: list[RunInfo]
    series: list[CaseSeries]
    settings: RunSettings
    unread: tuple[str, ...]


def _read(index: Index, case: str, branch: str) -> _History:
    """Read what is new, and all that there is; everything again where the index is damaged."""
    try:
        return _indexed(index, case, branch)
    except IndexDamaged:
        index.discard()
        return _indexed(index, case, branch)


def _indexed(index: Index, case: str, branch: str) -> _History:
    unread = index.update()
    branch = branch or index.main_branch()
    runs = index.runs(branch)
    series = index.series(list(runs), case)
    return _History(branch, list(runs.values()), series, index.settings(), tuple(unread))


def _steps_of(known: _History, false_rate: float) -> HistorySteps:
    found = [
        _step(one, move, known.runs)
        for one in known.series
        for move in found_in(one.measured, known.settings, false_rate / len(known.series))
    ]
    return HistorySteps(
        tuple(sorted(found, key=lambda step: -step.size)),
        cases=len(known.series),
        runs=len(known.runs),
        points=sum(len(one.measured.run) for one in known.series),
        false_rate=false_rate,
        branch=known.branch,
        unread=known.unread,
    )


def text_of(steps: HistorySteps, *, markdown: bool = False) -> str:
    """A table of the steps, and what they were looked for in."""
    several = len({step.target for step in steps.steps}) > 1
    rows = [_cells(step, several) for step in steps.steps]
    branch = escaped(steps.branch) if markdown else steps.branch
    table = columns(rows, HEADERS, markdown=markdown) if rows else ""
    of = f" of {branch}" if branch else ""
    searched = f"{counted(steps.cases, 'case')}, {counted(steps.runs, 'run')}{of}"
    found = f"{counted(len(rows), 'move')} in {searched}, {counted(steps.points, 'measured change')}"
    rate = f"any of them is chance with a probability of at most {steps.false_rate:.2g}, if {ASSUMED}"
    marked = any(code.endswith(DIRTY) for s in steps.steps for code in (s.before, s.after, s.earliest, s.latest))
    dirty = f"{DIRTY}: the run's checkout had changes that the commit doesn't have" if marked else ""
    return "\n\n".join(filter(None, [table, f"{found}; {rate}", dirty]))


def _step(one: CaseSeries, move: CaseShift, runs: Sequence[RunInfo]) -> HistoryStep:
    before, after = runs[move.before], runs[move.after]
    return HistoryStep(
        case=one.case,
        target=one.target,
        device=one.device,
        kind="drift" if move.drift else "environment" if move.settings and before.code == after.code else "step",
        size=move.size,
        low=move.low,
        high=move.high,
        before=before.code,
        after=after.code,
        earliest=runs[move.earliest].code,
        latest=runs[move.latest].code,
        runs=move.after - move.before,
        from_day=before.created.partition("T")[0],
        to_day=after.created.partition("T")[0],
        settings=move.settings,
    )


def _cells(step: HistoryStep, several_targets: bool) -> tuple[str, ...]:
    place = _range(step.before, step.after)
    wider = _range(step.earliest, step.latest)
    days = step.from_day if step.from_day == step.to_day else f"{step.from_day} to {step.to_day}"
    kind = f"{step.kind} over {step.runs} runs" if step.kind == "drift" else step.kind
    return (
        step.case,
        f"{step.device or step.target} ({step.target})" if several_targets else step.device or step.target,
        f"{100 * step.size:+.2f} %",
        f"{100 * step.low:+.2f}..{100 * step.high:+.2f}",
        place if wider == place else f"{place} (99 %: {wider})",
        days,
        "\n".join([kind, *step.settings]),
    )


def _range(first: str, last: str) -> str:
    return f"{_shortened(first)}..{_shortened(last)}"


def _shortened(code: str) -> str:
    commit = code.removesuffix(DIRTY)
    return commit[:SHORT] + code[len(commit) :] or "?"


MAX_POINTS = 400
"""Runs of a case that are drawn: the latest."""


class CurvePoint(SparseStruct, frozen=True):
    """One run of a case: the change of its time against its reference (0.03: 3 % slower) and the standard deviation.
    ``commit`` ends with ``+`` where the checkout had other changes.
    Points of one ``stretch`` have the same reference; those of others are on another scale."""

    created: str
    commit: str
    change: float
    sd: float
    stretch: int = 0


class CaseCurve(StrictStruct, frozen=True):
    """A case on one device: its latest points, and all its steps."""

    case: str
    target: str
    device: str
    points: tuple[CurvePoint, ...]
    steps: tuple[HistoryStep, ...]
    runs: int
    branch: str


def curves_of(index: Index, *, branch: str = "") -> list[CaseCurve]:
    """Read what is new, and give the curve of every case; :class:`~kerntune.errors.HistoryError` if none can be."""
    known = _read(index, "", branch)
    steps = _steps_of(known, FALSE_RATE).steps
    return [_curve(one, known, steps) for one in known.series]


def _curve(one: CaseSeries, known: _History, steps: Sequence[HistoryStep]) -> CaseCurve:
    case = one.case, one.target, one.device
    mine = tuple(s for s in steps if (s.case, s.target, s.device) == case)
    measured = one.measured
    columns = (measured.run.tolist(), measured.reference.tolist(), measured.value.tolist(), measured.sd.tolist())
    points, stretch, before = [], -1, None
    for run, reference, value, sd in zip(*columns, strict=True):
        stretch, before = stretch + (reference != before), reference
        info = known.runs[run]
        points.append(CurvePoint(info.created, info.code, round(math.expm1(value), 6), round(sd, 6), stretch))
    return CaseCurve(*case, tuple(points[-MAX_POINTS:]), mine, len(one.measured.run), known.branch)
