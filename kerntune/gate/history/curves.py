"""A history as reports draw it: for each case its measured changes in order of time, and its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kerntune.gate.history.index import CaseSeries, Index, IndexDamaged, RunInfo
from kerntune.gate.history.summary import FALSE_RATE, HistoryStep, steps_of

MAX_POINTS = 400
"""Runs of a case that are drawn: the latest."""


class CurvePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One run of a case: the change of its time against its reference (0.03: 3 % slower) and the standard deviation.
    ``commit`` ends with ``+`` where the checkout had other changes.
    Points of one ``stretch`` have the same reference; those of others are on another scale."""

    created: str
    commit: str
    change: float
    sd: float
    stretch: int = 0


class CaseCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case on one device: its latest points, and all its steps."""

    case: str
    target: str
    device: str
    points: tuple[CurvePoint, ...]
    steps: tuple[HistoryStep, ...]
    runs: int
    branch: str


def curves_of(index: Index, *, branch: str = "", false_rate: float = FALSE_RATE) -> list[CaseCurve]:
    """Read what is new, and give the curve of every case; :class:`~kerntune.errors.HistoryError` if none can be."""
    found = steps_of(index, branch=branch, false_rate=false_rate)
    try:
        runs = index.runs(found.branch)
        series = index.series(list(runs))
    except IndexDamaged:
        index.discard()
        found = steps_of(index, branch=branch, false_rate=false_rate)
        runs = index.runs(found.branch)
        series = index.series(list(runs))
    infos = list(runs.values())
    return [_curve(one, infos, found.steps, found.branch) for one in series]


def _curve(one: CaseSeries, infos: Sequence[RunInfo], steps: Sequence[HistoryStep], branch: str) -> CaseCurve:
    mine = tuple(s for s in steps if (s.case, s.target, s.device) == (one.case, one.target, one.device))
    return CaseCurve(one.case, one.target, one.device, _points(one, infos), mine, len(one.measured.run), branch)


def _points(one: CaseSeries, infos: Sequence[RunInfo]) -> tuple[CurvePoint, ...]:
    measured = one.measured
    columns = (measured.run.tolist(), measured.reference.tolist(), measured.value.tolist(), measured.sd.tolist())
    points, stretch, before = [], -1, None
    for run, reference, value, sd in zip(*columns, strict=True):
        stretch, before = stretch + (reference != before), reference
        info = infos[run]
        points.append(CurvePoint(info.created, info.code, round(math.expm1(value), 6), round(sd, 6), stretch))
    return tuple(points[-MAX_POINTS:])
