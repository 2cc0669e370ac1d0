"""The steps and drifts of one case, in the changes that its runs have measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kerntune.base.levels import Move, moves, noise_scale

LEAST_SD = 0.0005
"""Standard deviation of a paired change that is assumed at least, as a share: processes of one H200 differ by about
0.1 % (docs/verdicts.md), and an interval of a few processes can be too narrow by chance."""

LEAST_SIZE = 0.005
"""Moves smaller than this share aren't told, however sure they are."""


@dataclass(frozen=True)
class Measured:
    """One point of a series: the run that measured it (an index that grows with time), what the case did then, and the
    logarithm of its time against ``reference`` with the standard deviation. ``reference_work`` is what the reference
    does, empty if that isn't known. ``setting`` names versions and host."""

    run: int
    work: str
    reference: str
    reference_work: str
    value: float
    sd: float
    setting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A case's time moved by ``size`` (a share: 0.03 is 3 % slower), with a 99 % interval.

    ``before`` is the last run on the old level, ``after`` the first on the new one; between ``earliest`` and ``latest``
    it lies with 99 %. ``drift``: it moved over several runs. ``settings`` names what else changed between ``before``
    and ``after``: versions or the host.
    """

    size: float
    low: float
    high: float
    before: int
    after: int
    earliest: int
    latest: int
    drift: bool
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Block:
    """Neighbouring points of equal work: one value."""

    first: int
    last: int
    value: float
    sd: float


def found_in(points: Sequence[Measured], false_rate: float) -> tuple[Found, ...]:
    """The moves of one case, in order of time.

    Values can be compared with each other where they were measured against the same reference: a chain of changes
    against ever new baselines is a random walk, and is never added up. A stretch begins with its reference itself,
    whose value is exactly zero, where an earlier run did that work. Points of equal work have one level, so nothing
    moves between them. ``false_rate`` is the probability of any false move in the whole case.
    """
    stretches = [list(group) for _, group in groupby(points, key=lambda p: p.reference)]
    by_run = {p.run: p for p in points}
    found: list[Found] = []
    earlier: list[Measured] = []
    for stretch in stretches:
        start = _reference_run(earlier, stretch[0])
        blocks = list(_blocks(stretch))
        if start is not None:
            blocks = [_Block(start, start, 0.0, 0.0), *blocks]
        found += _told(blocks, by_run, false_rate / len(stretches))
        earlier += stretch
    return tuple(found)


def _reference_run(earlier: Sequence[Measured], first: Measured) -> int | None:
    """The latest earlier run that did what the reference of a stretch does."""
    runs = [p.run for p in earlier if first.reference_work and p.work == first.reference_work]
    return runs[-1] if runs else None


def _blocks(points: Sequence[Measured]) -> Iterator[_Block]:
    for _, group in groupby(points, key=lambda p: p.work or p.run):
        same = list(group)
        exact = [p for p in same if p.sd == 0]
        if exact:  # the reference's own work
            value, sd = exact[0].value, 0.0
        else:
            weights = [1 / max(p.sd, LEAST_SD) ** 2 for p in same]
            value = sum(w * p.value for w, p in zip(weights, same, strict=True)) / sum(weights)
            sd = sum(weights) ** -0.5
        yield _Block(same[0].run, same[-1].run, value, sd)


def _told(blocks: Sequence[_Block], by_run: dict[int, Measured], false_rate: float) -> Iterator[Found]:
    values, sds = [b.value for b in blocks], [b.sd for b in blocks]
    scale = noise_scale(values, sds)
    for move in moves(values, [scale * sd for sd in sds], false_rate):
        if abs(math.expm1(move.size)) >= LEAST_SIZE:
            yield _found(move, blocks, by_run)


def _found(move: Move, blocks: Sequence[_Block], by_run: dict[int, Measured]) -> Found:
    before, after = blocks[move.first].last, blocks[move.last].first
    return Found(
        size=math.expm1(move.size),
        low=math.expm1(move.low),
        high=math.expm1(move.high),
        before=before,
        after=after,
        earliest=blocks[move.earliest].last,
        latest=blocks[move.latest].first,
        drift=move.drift,
        settings=_changed(by_run[before].setting, by_run[after].setting),
    )


def _changed(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{a} -> {b}" for a, b in zip(before, after, strict=False) if a != b and a and b)
