"""Pictures of a report's first page, as places in them: all cases at a glance, and the bars of a case's row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kerntune.base.case_result import CaseResult, LaunchReport
from kerntune.base.formatting import bounded, format_share
from kerntune.base.stats import Estimate
from kerntune.gate.console import counted
from kerntune.gate.report import RankedResult, known, shown_change, shown_launches

SCALE = 0.10
"""Change at the ends of the small interval in each row, as a share, where no interval is wider than that; the widest
that is drawn is :data:`WIDEST`."""

WIDEST = 1.0

MAX_DOTS = 400
"""Cases in the overview, the slowest first: more would lie on each other."""

SHARE = "occupancy"
"""The figure of which more is better: a share."""

FIGURES = (
    ("registers", "registers", ""),
    ("spills", "spill_bytes", " B"),
    ("shared memory", "shared_bytes", " B"),
    (SHARE, "occupancy", ""),
)
"""Names of static figures, their fields and units."""


def half_scale(ranked: Sequence[RankedResult]) -> float:
    """The change at the end of the rows' scale: that of the widest interval, within bounds."""
    ends = [abs(e) for r in ranked if (c := shown_change(r.result)) is not None for e in (c.low, c.high) if bounded(e)]
    return min(max(ends, default=SCALE), WIDEST) if ends else SCALE


def change_bar(change: Estimate | None, tolerance: float | None, half: float) -> dict[str, float] | None:
    """Places in a picture 100 wide whose middle is no change."""
    if change is None or not bounded(change.point):
        return None
    low, point, high = (50 + 48 * max(-1.0, min(1.0, x / half)) for x in (change.low, change.point, change.high))
    limit = 50 + 48 * min(1.0, (tolerance or 0.0) / half)
    return {"low": round(low, 1), "point": round(point, 1), "high": round(high, 1), "limit": round(limit, 1)}


def figure_bars(result: CaseResult) -> list[dict[str, Any]]:
    """Of a case without times, each figure that differs from the baseline's: a text, and two bars 100 wide at most.
    Of several launches of the kernel that stands for the case the one that got worse most."""
    if known(result.current_ns) is not None:
        return []
    return [_figure_bar(name, unit, *found) for name, unit, found in _moved(result)]


def _moved(result: CaseResult) -> Iterable[tuple[str, str, tuple[float, float, bool]]]:
    for name, field, unit in FIGURES:
        pairs = [pair for x in shown_launches(result)[1] if (pair := _pair(x, field)) is not None]
        if pairs:
            less = name == SHARE
            before, now = max(pairs, key=lambda p: p[0] - p[1] if less else p[1] - p[0])
            yield name, unit, (before, now, (now < before) is less)


def _pair(launch: LaunchReport, field: str) -> tuple[float, float] | None:
    """The baseline's figure and today's, if they differ."""
    before = getattr(launch.before, field) if launch.before is not None else None
    now = getattr(launch, field)
    return None if before is None or now is None or before == now else (before, now)


def _figure_bar(name: str, unit: str, before: float, now: float, worse: bool) -> dict[str, Any]:
    most = max(before, now)
    form = "{:.0%} -> {:.0%}" if name == SHARE else "{:,.0f} -> {:,.0f}" + unit
    text = form.format(before, now).replace("%", " %")
    sizes = {"before": round(100 * before / most, 1), "now": round(100 * now / most, 1)}
    return {"text": f"{name} {text}", "worse": worse, **sizes}


def overview(ranked: Sequence[RankedResult], counts: Mapping[str, int]) -> dict[str, Any]:
    """All cases at a glance: a bar of verdicts, a dot a timed case by its change, and how many cases without a time
    have each figure worse or better."""
    changes = [(c, r.result) for r in ranked if (c := shown_change(r.result)) is not None and bounded(c.point)]
    changes.sort(key=lambda pair: -pair[0].point)
    drawn = changes[:MAX_DOTS]
    half = half_scale(ranked)
    return {
        "parts": _parts(counts),
        "dots": [_dot(i, len(drawn), change, result, half) for i, (change, result) in enumerate(drawn)],
        "scale": format_share(half).removeprefix("+"),
        "figures": _figure_counts(r.result for r in ranked),
        "sentence": _sentence(len(ranked), changes),
    }


def _parts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    total, at, found = sum(counts.values()), 0.0, []
    for word, number in counts.items():
        width = 100 * number / total
        found.append({"verdict": word, "at": round(at, 2), "width": round(width, 2)})
        at += width
    return found


def _dot(place: int, of: int, change: Estimate, result: CaseResult, half: float) -> dict[str, Any]:
    """Places in a picture 600 wide and 120 high, slower above."""
    low, point, high = (60 - 52 * max(-1.0, min(1.0, x / half)) for x in (change.low, change.point, change.high))
    x = 600 * (place + 0.5) / of
    ends = {"low": round(low, 1), "point": round(point, 1), "high": round(high, 1)}
    return {"x": round(x, 1), "verdict": result.word, **ends}


def _figure_counts(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    found: dict[str, list[int]] = {}
    total = 0
    for result in results:
        if known(result.current_ns) is not None:
            continue
        total += 1
        for name, _, (_, _, worse) in _moved(result):
            found.setdefault(name, [0, 0])[not worse] += 1
    return [
        {"name": name, "worse": worse, "better": better, "worse_at": 100 * worse / total, "all": total}
        | {"better_at": 100 * better / total}
        for name, (worse, better) in found.items()
    ]


def _sentence(cases: int, changes: Sequence[tuple[Estimate, CaseResult]]) -> str:
    said = [counted(cases, "case")]
    if changes:
        most, least = (format_share(changes[i][0].point) for i in (0, -1))
        told = f" (the slowest {MAX_DOTS} are drawn)" if len(changes) > MAX_DOTS else ""
        said.append(f"{len(changes)} timed, from {most} to {least}{told}")
    return "; ".join(said) + "."
