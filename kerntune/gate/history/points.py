"""What one run adds to the history: a point a case, taken from the run's results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from statistics import NormalDist
from typing import Annotated, Union

import msgspec

from kerntune.base.case_result import IDENTITY, CaseId, CaseResult, Provenance
from kerntune.base.codec import from_json, shortened, to_json
from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.base.recording import Recording, work_of
from kerntune.base.recording_check import case_problems, unprintable
from kerntune.base.stats import Estimate
from kerntune.base.strict import SparseStruct, StrictStruct
from kerntune.errors import HistoryError
from kerntune.gate.baselines import TimeBaseline
from kerntune.timing.timers import TimeNs

SCHEMA = "kerntune.history/1"

MAX_BYTES = 64 << 20
"""A run's file is not longer than this: 10,000 cases take about 10 MB."""

VERSIONS = ("triton", "torch", "driver", "assembler")
"""The fields of an environment that a step can come from instead of a commit."""

MOST_CHANGE = math.log(1e4)
"""The largest change of a time that a run can have measured, as the logarithm of a ratio: ten thousand times."""

MOST_SD = 10.0


class Shift(StrictStruct, frozen=True):
    """A paired change as the natural logarithm of a ratio of times, and its standard deviation. ``against`` names the
    other side: when it was recorded. Both numbers are zero where both sides do the same work."""

    value: Annotated[float, msgspec.Meta(ge=-MOST_CHANGE, le=MOST_CHANGE)]
    sd: Annotated[float, msgspec.Meta(ge=0.0, le=MOST_SD)]
    against: str


class Point(SparseStruct, frozen=True):
    """One case in one run. ``work`` names what its launches do (code, grids, arguments): points of equal work are
    equally fast. ``baseline_work`` is that of the baseline which ``change`` is measured against; ``since`` is the
    change against the anchor. ``time_ns`` is the run's own time; steps are not searched in it, because sessions differ
    by 1.5 %."""

    case: CaseId
    target: str
    device: str
    verdict: str
    work: str = ""
    baseline_work: str = ""
    time_ns: Union[TimeNs, None] = None
    change: Union[Shift, None] = None
    since: Union[Shift, None] = None
    configs: tuple[Union[Config, None], ...] = ()
    registers: tuple[Union[int, None], ...] = ()
    environment: dict[str, str] = {}


class HistoryRun(SparseStruct, frozen=True):
    """One run of one host. ``created`` and ``committed`` are times in UTC (ISO 8601); ``dirty``: the checkout had
    changes that no commit has."""

    schema: str
    created: str
    points: tuple[Point, ...]
    commit: str = ""
    committed: str = ""
    branch: str = ""
    dirty: bool = False
    host: str = ""
    versions: dict[str, str] = {}

    @property
    def order(self) -> tuple[str, str, str]:
        """Where the run stands among others: by its commit's time, with changes of a checkout after the commit that
        they were made to, then by its own."""
        return self.committed or self.created, "1" if self.dirty else "0", self.created


def encoded(run: HistoryRun) -> bytes:
    """The file of a run."""
    return to_json(run)


def decoded(data: bytes, where: str) -> HistoryRun:
    """The run of a file; :class:`~kerntune.errors.HistoryError` names the file and what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise HistoryError(f"{where}: has {len(data):,} bytes, more than any run writes; remove it from the history")
    run = from_json(data, HistoryRun, SCHEMA, where=where, error=HistoryError)
    if (problem := next(_problems(run), "")) != "":
        raise HistoryError(f"{where}: {problem}; remove the file from the history, or restore it")
    return run


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{5,20}(?:Z|[+-]\d\d:\d\d)?")


def _problems(run: HistoryRun) -> Iterator[str]:
    """A sentence for each field that can't be, so that what reads a run need not look."""
    for name in ("created", "committed"):
        text = getattr(run, name)
        if _MOMENT.fullmatch(text) is None and (text or name == "created"):
            yield f"{name} is {shortened(text)!r}, no time as 2026-11-22T10:15:00Z"
    for name in ("commit", "branch", "host"):
        yield from unprintable(name, getattr(run, name))
    for i, point in enumerate(run.points):
        yield from (f"points[{i}].{problem}" for problem in _point_problems(point))


def _point_problems(point: Point) -> Iterator[str]:
    yield from case_problems(point.case)
    for name in ("target", "device", "verdict", "work", "baseline_work"):
        yield from unprintable(name, getattr(point, name))
    for name in ("change", "since"):
        shift = getattr(point, name)
        if shift is not None:
            yield from unprintable(f"{name}.against", shift.against)
    for key, text in point.environment.items():
        yield from unprintable("environment", key + text)
        if " " in key or not key:
            yield f"environment has the name {shortened(key)!r}"


def points_of(results: Iterable[CaseResult]) -> tuple[Point, ...]:
    """The points of a run's results; cases that were not timed give none."""
    return tuple(_point(r) for r in results if r.launches and r.current_ns is not None)


def provenance_of(recording: Recording, baseline: TimeBaseline | None, environment: Environment) -> Provenance:
    """What a timed case ran, and the baseline that it was compared with."""
    if baseline is None:
        return Provenance(work_name(recording), environment=environment)
    return Provenance(work_name(recording), work_name(baseline.recording), baseline.recorded, environment)


def work_name(recording: Recording) -> str:
    """A short name of what a recording's launches do; equal for recordings of the same work."""
    works = [work_of(recording, launch) for launch in recording.launches]
    return sha256(repr(works).encode()).hexdigest()[:24]


def _point(result: CaseResult) -> Point:
    known, since = result.provenance or Provenance(), result.since
    moved = None
    if since is not None:
        change = since.shown or since.change
        moved = shift_of(change, since.recorded, change is None and since.rung == IDENTITY)
    return Point(
        case=result.case,
        target=result.target,
        device=result.device,
        verdict=result.verdict.value,
        work=known.work,
        baseline_work=known.baseline_work,
        time_ns=result.current_ns,
        change=shift_of(result.shown or result.change, known.baseline_recorded, known.same_work),
        since=moved,
        configs=tuple(x.config for x in result.launches),
        registers=tuple(x.registers for x in result.launches),
        environment={n: text for n in VERSIONS if (text := getattr(known.environment, n, ""))},
    )


def shift_of(change: Estimate | None, against: str, same_work: bool = False) -> Shift | None:
    """A share with its interval as a logarithm with its standard deviation."""
    if same_work and against:
        return Shift(0.0, 0.0, against)
    if change is None or not against or not 0.5 <= change.level < 1:
        return None
    if not -1 < change.low <= change.point <= change.high < math.inf:
        return None
    value, width = math.log1p(change.point), math.log1p(change.high) - math.log1p(change.low)
    sd = width / 2 / NormalDist().inv_cdf((1 + change.level) / 2)
    return Shift(value, sd, against) if abs(value) <= MOST_CHANGE and sd <= MOST_SD else None
