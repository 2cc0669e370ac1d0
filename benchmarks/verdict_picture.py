"""Draws the changes that fresh processes measured of equal and of slower code, and those of two stored numbers.

    python benchmarks/verdict_picture.py RECORDED.json OUT.svg [--case softmax_large]

RECORDED.json is of ``verdict_record.py``. Each dot of the upper half is one fresh process that ran both sides in turn,
with the interval of its blocks; each dot of the lower half compares a process's ``do_bench`` median with that of
another process, as a stored baseline would.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import expm1, log
from pathlib import Path
from typing import Any

from kerntune.base.stats import hodges_lehmann, median
from kerntune.timing.paired_processes import BLOCKS

WIDTH, LEFT, RIGHT, TOP = 860, 190, 30, 64
LANE, GAP = 62, 44
TOLERANCE = 2.0
INK, SOFT, PAIRED, STORED = "#1f2328", "#8c959f", "#0969da", "#bc4c00"

NAMES = {
    "same": "the same binary",
    "twin": "an equally fast twin",
    "slow_1_5": "slower by {:.2f} %",
    "slow_3": "slower by {:.2f} %",
}
LEVEL = 0.95
"""Of the intervals that are drawn; verdicts use wider ones."""


@dataclass(frozen=True)
class Dot:
    """A change in percent, with the ends of its interval where it has one."""

    at: float
    low: float | None = None
    high: float | None = None


def paired(rows: Sequence[dict[str, Any]]) -> list[Dot]:
    """One dot a process, from its first look's blocks."""
    out = []
    for r in rows:
        ratios = [log(b / a) for a, b in zip(r["a"][:BLOCKS], r["b"][:BLOCKS], strict=True)]
        seen = hodges_lehmann(ratios, LEVEL)
        out.append(Dot(*(100 * expm1(x) for x in (seen.point, seen.low, seen.high))))
    return out


def stored(same: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[Dot]:
    """A dot for each process that timed today's side alone: its median against that of another, as stored, which the
    same call of ``verdict_record.py`` recorded."""
    before: dict[int, list[float]] = {}
    for r in (r for r in same if "a_event" in r):
        before.setdefault(r.get("session", 0), []).append(median(r["a_event"]))
    out = []
    for i, r in enumerate(r for r in rows if "b_event" in r and r.get("session", 0) in before):
        others = before[r.get("session", 0)]
        out.append(Dot(100 * (median(r["b_event"]) / others[i % len(others)] - 1)))
    return out


class Axis:
    """Percent to pixels."""

    def __init__(self, dots: Sequence[Dot]) -> None:
        ends = [x for d in dots for x in (d.at, d.low, d.high) if x is not None]
        self.low = min(-TOLERANCE * 1.5, min(ends) - 0.3)
        self.high = max(TOLERANCE * 2.5, max(ends) + 0.3)

    def x(self, percent: float) -> float:
        """The place of a change."""
        return LEFT + (percent - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> Iterator[int]:
        """Whole percents, every so many."""
        span = self.high - self.low
        step = 1 if span < 14 else 2 if span < 28 else 10
        first = int(-(-self.low // step)) * step
        yield from range(first, int(self.high) + 1, step)


def picture(recorded: dict[str, Any], name: str) -> str:
    """The whole drawing as SVG text."""
    case = recorded["cases"][name]
    variants = [v for v in ("same", "twin", "slow_1_5", "slow_3") if case["variants"].get(v)]
    same = case["variants"]["same"]
    halves = [
        ("both binaries in turn, each dot a fresh process (kerntune's first look, 95 %)", PAIRED,
         {v: paired(case["variants"][v]) for v in variants}),
        ("two stored numbers: do_bench medians of two processes", STORED,
         {v: stored(same, case["variants"][v]) for v in variants}),
    ]  # fmt: skip
    axis = Axis([d for _, _, lanes in halves for dots in lanes.values() for d in dots])
    height = TOP + 2 * (len(variants) * LANE + GAP) + 30
    us = median([median(r["a"]) for r in same]) / 1e3
    device = recorded["environment"].get("device", "")
    title = f"{name}, {us:.3g} µs on one {device}: what was said to have changed"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(20, 26, title, 16, INK),
    ]
    y = TOP
    for heading, colour, lanes in halves:
        parts.append(_text(20, y - 8, heading, 13, colour))
        parts += _frame(axis, y, len(variants) * LANE)
        for variant, dots in lanes.items():
            true = 100 * case["planted"].get(variant, {}).get("true", 0.0)
            parts += _lane(axis, y, NAMES[variant].format(true), true, dots, colour)
            y += LANE
        y += GAP
    return "\n".join([*parts, "</svg>"]) + "\n"


def _frame(axis: Axis, top: float, height: float) -> Iterator[str]:
    """The tolerance as a band, and the scale."""
    left, right = axis.x(-TOLERANCE), axis.x(TOLERANCE)
    yield f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{height}" fill="#dafbe1"/>'
    yield _text(right - 4, top + 12, f"tolerance {TOLERANCE:g} %", 10, SOFT, "end")
    for tick in axis.ticks():
        x, strong = axis.x(tick), "1" if tick == 0 else "0.4"
        yield _line(x, top, x, top + height, SOFT, f'stroke-width="{strong}"')
        yield _text(x, top + height + 15, f"{tick:+d} %" if tick else "0", 11, SOFT, "middle")


def _lane(axis: Axis, top: float, label: str, true: float, dots: Sequence[Dot], colour: str) -> Iterator[str]:
    """One variant's dots, spread downwards in the order of their processes."""
    yield _text(LEFT - 12, top + LANE / 2 + 4, label, 12, INK, "end")
    x = axis.x(true)
    yield _line(x, top + 4, x, top + LANE - 4, INK, 'stroke-dasharray="3 3"')
    for index, dot in enumerate(dots):
        y = top + 7 + (LANE - 14) * (index + 0.5) / len(dots)
        if dot.low is not None and dot.high is not None:
            low, high = (axis.x(max(axis.low, min(axis.high, e))) for e in (dot.low, dot.high))
            yield _line(low, y, high, y, colour, 'opacity="0.5"')
        yield f'<circle cx="{axis.x(dot.at):.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'


def _text(x: float, y: float, text: str, size: int, colour: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--case", default="softmax_large")
    args = parser.parse_args()
    args.out.write_text(picture(json.loads(args.recorded.read_text()), args.case))


if __name__ == "__main__":
    main()
