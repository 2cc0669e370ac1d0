"""A verdict for people and for programs: text, and ``kerntune.judge/1`` as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kerntune.base import codec
from kerntune.base.formatting import format_bytes, format_time
from kerntune.base.roofline import Roofline
from kerntune.referee.verdicts import CandidateVerdict, ShapeResult

SCHEMA = "kerntune.judge/1"

MOST_LAUNCHES = 64
"""Launches of a shape that the text shows."""


def text_of(verdict: CandidateVerdict) -> Iterator[str]:
    """Lines: the verdict first, then each shape."""
    where = f" on {verdict.device}" if verdict.device else ""
    candidate = " ".join(verdict.candidate.split())
    yield f"{verdict.word.value} {candidate} against {verdict.reference}{where}"
    if verdict.speeds == "scripted":
        yield "  speeds are scripted: no GPU has run anything"
    if not verdict.sealed:
        yield "  unsealed: the candidate ran without limits on files, network and processes"
    for shape in verdict.shapes:
        yield from _shape(shape)
    yield from (f"  {remark}" for remark in verdict.remarks)


def _shape(shape: ShapeResult) -> Iterator[str]:
    reason = f" ({shape.reason.value})" if shape.reason is not None else ""
    yield f"  {shape.word.value}{reason} {shape.label}"
    if shape.text:
        yield f"    {' '.join(shape.text.split())}"
    speedup = shape.speedup
    if speedup is not None and shape.change is not None:
        level = f"{shape.change.level:.1%}"
        yield (
            f"    {format_time(shape.reference_ns)} -> {format_time(shape.candidate_ns)}, "
            f"speed-up {speedup[0]:.3f} ({level} interval {speedup[1]:.3f} to {speedup[2]:.3f}), cold L2"
        )
    if shape.warm is not None:
        yield f"    warm L2: speed-up {1 / (1 + shape.warm):.3f}, of one process"
    roof = Roofline(shape.candidate_ns, nbytes=float(shape.must_move) or None, bandwidth=shape.bandwidth)
    if roof.of_bandwidth is not None:
        yield f"    {format_bytes(shape.must_move)} must move: {roof.of_bandwidth:.0%} of the device's bandwidth"
    if shape.errors:
        worst = max(shape.errors, key=lambda e: e.rms / (e.rms_allowed or 1.0))
        yield (
            f"    results of {len(shape.errors)} comparisons: error at most {worst.rms:.2g} of their size, "
            f"{worst.rms_allowed:.2g} allowed"
        )
    working = [launch for launch in shape.launches if 0 not in launch.grid]
    for launch in working[:MOST_LAUNCHES]:
        time = f", {format_time(launch.ns)} ({launch.share or 0.0:.0%})" if launch.ns is not None else ""
        grid = "x".join(map(str, launch.grid))
        yield f"    launch {launch.kernel} {grid}{time}" if grid else f"    operator {launch.kernel}"
    if len(working) > MOST_LAUNCHES:
        yield f"    and {len(working) - MOST_LAUNCHES:,} launches more"
    yield from (f"    {remark}" for remark in shape.remarks)


def to_json(verdict: CandidateVerdict) -> bytes:
    """The verdict as one JSON document."""
    return codec.to_json(as_data(verdict))


def as_data(verdict: CandidateVerdict) -> dict[str, Any]:
    """The same as plain data; docs/judge.md has the fields."""
    return {
        "schema": SCHEMA,
        "verdict": verdict.word.value,
        "reason": None if verdict.reason is None else verdict.reason.value,
        "told": None if verdict.reason is None else verdict.reason.told,
        "exit_code": verdict.exit_code,
        "candidate": verdict.candidate,
        "reference": verdict.reference,
        "device": verdict.device,
        "speeds": verdict.speeds,
        "sealed": verdict.sealed,
        "remarks": list(verdict.remarks),
        "shapes": [_shape_data(shape) for shape in verdict.shapes],
    }


def _shape_data(shape: ShapeResult) -> dict[str, Any]:
    speedup = shape.speedup
    return {
        "inputs": shape.label,
        "verdict": shape.word.value,
        "reason": None if shape.reason is None else shape.reason.value,
        "text": shape.text,
        "speedup": None if speedup is None else dict(zip(("estimate", "low", "high"), speedup, strict=True)),
        "level": None if shape.change is None else shape.change.level,
        "reference_ns": shape.reference_ns,
        "candidate_ns": shape.candidate_ns,
        "warm_speedup": None if shape.warm is None else 1 / (1 + shape.warm),
        "must_move_bytes": shape.must_move,
        "bandwidth": shape.bandwidth,
        "errors": list(shape.errors),
        "launches": list(shape.launches),
        "remarks": list(shape.remarks),
    }
