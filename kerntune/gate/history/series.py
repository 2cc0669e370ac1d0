"""The steps and drifts of one case, in the changes that its runs have measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kerntune.base.level_shifts import LevelShift, moves, noise_scale

LEAST_SD = 0.0005
"""Standard deviation of a paired change that is assumed at least, as a share: processes of one H200 differ by about
0.1 % (docs/verdicts.md), and an interval of a few processes can be too narrow by chance."""

POINT_FREEDOM = 2
"""Degrees of freedom of one point's standard deviation: three processes at least have measured it."""

LEAST_SIZE = 0.005
"""Changes smaller than this share aren't reported, also if they are certain."""

Column = NDArray[Any]

RunSettings = Mapping[int, Mapping[str, str]]
"""Versions and host by name, by number."""


class ChangeSeries(NamedTuple):
    """What the runs of one case have measured, a column a field, in order of time.

    ``run`` grows; ``value`` is the logarithm of the case's time against its ``reference``, ``sd`` the standard
    deviation of its error, 0 for exact values. ``work`` and ``reference_work`` are what the case and the reference do,
    ``setting`` stands for versions and host: equal numbers for equal things, 0 for what isn't known.
    """

    run: Column
    work: Column
    reference: Column
    reference_work: Column
    value: Column
    sd: Column
    setting: Column


class CaseShift(NamedTuple):
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
    settings: tuple[str, ...]


class _Blocks(NamedTuple):
    """Neighbouring points of equal work have one value. ``first`` and ``last`` are places in the series."""

    first: Column
    last: Column
    value: Column
    sd: Column


def found_in(series: ChangeSeries, settings: RunSettings, false_rate: float) -> tuple[CaseShift, ...]:
    """The moves of one case, in order of time.

    Values can be compared with each other where they were measured against the same reference: a chain of changes
    against ever new baselines is a random walk, and is never added up. A stretch begins with its reference itself,
    whose value is exactly zero, where an earlier run did that work. Points of equal work have one level, so nothing
    moves between them. ``false_rate`` is the probability of any false move in the whole case, for errors that are
    independent and symmetric, with deviations that are estimated from the case's own runs.
    """
    if not len(series.run):
        return ()
    series = series._replace(sd=_pooled(series.sd))
    begins = np.flatnonzero(np.append(True, series.reference[1:] != series.reference[:-1]))
    borders = [*begins.tolist(), len(series.run)]
    stretches = [_from_reference(series, begin, _blocks(series, begin, end)) for begin, end in pairwise(borders)]
    scale = noise_scale(*((blocks.value, blocks.sd) for blocks in stretches))
    freedom = POINT_FREEDOM * int(np.count_nonzero(series.sd))
    return tuple(
        _found(move, series, blocks, settings)
        for blocks in stretches
        for move in moves(blocks.value, scale * blocks.sd, false_rate / len(begins), freedom)
        if abs(math.expm1(move.size)) >= LEAST_SIZE
    )


def _pooled(sd: Column) -> Column:
    """What processes differ by is the case's: a run whose few processes agreed by chance is no surer than the others,
    so none has less than the root mean square of all."""
    measured = np.maximum(sd, LEAST_SD)[sd > 0]
    return np.where(sd > 0, np.maximum(sd, np.sqrt(np.mean(measured**2))), 0.0) if len(measured) else sd


def _from_reference(series: ChangeSeries, begin: int, blocks: _Blocks) -> _Blocks:
    """With the latest earlier point that did what the reference of a stretch does before it."""
    work = series.reference_work[begin]
    places = np.flatnonzero((series.work[:begin] == work) & (work != 0))
    if not len(places):
        return blocks
    place = int(places[-1])
    first, last = np.append(place, blocks.first), np.append(place, blocks.last)
    return _Blocks(first, last, np.append(0.0, blocks.value), np.append(0.0, blocks.sd))


def _blocks(series: ChangeSeries, begin: int, end: int) -> _Blocks:
    """The weighted means of equal work; an exact value outweighs all measured ones."""
    work, value, sd = (column[begin:end] for column in (series.work, series.value, series.sd))
    starts = np.flatnonzero(np.append(True, (work[1:] != work[:-1]) | (work[1:] == 0)))
    ends = np.append(starts[1:], end - begin)
    if len(starts) == end - begin:
        return _Blocks(begin + starts, begin + starts, value, np.where(sd > 0, np.maximum(sd, LEAST_SD), 0.0))
    exact = np.add.reduceat(sd == 0, starts) > 0
    weight = np.where(sd == 0, 1.0, np.maximum(sd, LEAST_SD) ** -2.0)
    weight = np.where(np.repeat(exact, ends - starts) & (sd > 0), 0.0, weight)
    sums = np.add.reduceat(weight, starts)
    means = np.add.reduceat(weight * value, starts) / sums
    return _Blocks(begin + starts, begin + ends - 1, means, np.where(exact, 0.0, sums**-0.5))


def _found(move: LevelShift, series: ChangeSeries, blocks: _Blocks, settings: RunSettings) -> CaseShift:
    before, after = int(blocks.last[move.first]), int(blocks.first[move.last])
    old, new = (settings.get(int(series.setting[place]), {}) for place in (before, after))
    return CaseShift(
        size=math.expm1(move.size),
        low=math.expm1(move.low),
        high=math.expm1(move.high),
        before=int(series.run[before]),
        after=int(series.run[after]),
        earliest=int(series.run[blocks.last[move.earliest]]),
        latest=int(series.run[blocks.first[move.latest]]),
        drift=move.drift,
        settings=tuple(f"{k} {old[k]} -> {new[k]}" for k in old if k in new and old[k] != new[k]),
    )
