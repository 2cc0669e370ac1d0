"""Where the level of a series moves: steps and ramps in measured changes, with a stated rate of false ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kerntune.base.stats import student_quantile

Floats = NDArray[np.float64]

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Lengths of ramps that are tried, in points; 1 is a step."""

DRIFT_POINTS = 3
"""A move over fewer points is a step."""

RAMP_EVIDENCE = 2 * math.log(100)
"""By how much a ramp's log-likelihood ratio has to exceed a step's, doubled: it has one parameter more, and a step
that is smeared by noise over two points is still a step."""

LEVEL = 0.99
"""Level of the intervals of sizes and places."""

PLACE_EVIDENCE = -2 * math.log(1 - math.sqrt(LEVEL))
"""Places whose doubled log-likelihood is nearer than this to the best one's are possible. On either side of the true
place the log-likelihood is a random walk that falls, whose highest point is exponential with mean 1 at most (Hinkley:
Inference about the change-point in a sequence of random variables, Biometrika 57, 1970); both must stay below. The
99 % point of the chi-squared distribution, 6.6 instead of 10.6, held 93 to 98 % near the detection limit."""


class LevelShift(NamedTuple):
    """The level of a series changes by ``size`` between the points ``first`` and ``last`` (indices, ``first < last``).

    ``first`` is the last point on the old level, ``last`` the first one on the new level: neighbours if it is a step.
    ``low`` and ``high`` are the ends of a 99 % interval of ``size``; ``earliest`` is the smallest ``first`` and
    ``latest`` the largest ``last`` that the values leave open.
    """

    first: int
    last: int
    size: float
    low: float
    high: float
    earliest: int
    latest: int

    @property
    def drift(self) -> bool:
        """Whether the level moved over several points instead of at one."""
        return self.last - self.first >= DRIFT_POINTS


def moves(
    values: Sequence[float] | Floats, sds: Sequence[float] | Floats, false_rate: float, freedom: int | None = None
) -> tuple[LevelShift, ...]:
    """The moves of a series of ``values`` whose independent errors have the standard deviations ``sds``.

    Binary segmentation (Scott and Knott: A Cluster Analysis Method for Grouping Means in the Analysis of Variance,
    Biometrics 30, 1974) over steps and ramps. A constant series gives any move with a probability of at most
    ``false_rate`` if the errors are normal (Bonferroni over all places and widths). A zero in ``sds`` is exact.
    ``freedom`` are the degrees of freedom that ``sds`` were estimated with together; None: they are known.
    """
    x, sd = np.asarray(values, dtype=float), np.asarray(sds, dtype=float)
    if len(x) < 2:
        return ()
    least = sd[sd > 0].min() / 32 if (sd > 0).any() else 1.0
    found: list[_Place] = []
    weight = 1 / np.maximum(sd, least) ** 2
    _split(x, weight, 0, _limit(len(x), false_rate, freedom), found)
    return () if not found else _fitted(x, weight, sorted(found))


def noise_scale(*series: tuple[Floats, Floats]) -> float:
    """By what factor the errors of some series (values, standard deviations) are larger than stated, 1 at least: from
    the median and the 90 % point of the absolute differences between neighbours, which few steps don't change. The
    second one sees errors of two kinds, most of them small. Fewer than 12 differences don't tell."""
    found = np.sort(np.concatenate([_differences(*one) for one in series])) if series else np.empty(0)
    if len(found) < 12:
        return 1.0
    places = {share: float(found[int(share * len(found))]) for share in SCALE_POINTS}
    return max(1.0, *(value / NormalDist().inv_cdf((1 + share) / 2) for share, value in places.items()))


SCALE_POINTS = (0.5, 0.9)


def _differences(x: Floats, sd: Floats) -> Floats:
    """Between neighbours, over their standard deviation; two exact values have none."""
    expected = np.sqrt(sd[1:] ** 2 + sd[:-1] ** 2)
    found: Floats = np.abs(np.diff(x))[expected > 0] / expected[expected > 0]
    return found


class _Place(NamedTuple):
    """Where a move begins, over how many points it goes, and the ends of its possible places."""

    first: int
    width: int
    earliest: int
    latest: int


def _fitted(x: Floats, weight: Floats, places: Sequence[_Place]) -> tuple[LevelShift, ...]:
    """All sizes at once, by weighted least squares: a place is found while those after it still are in the values."""
    ordinal = np.arange(len(x))
    ramps = [np.clip((ordinal - p.first) / p.width, 0, 1) for p in places]
    design = np.stack([np.ones(len(x)), *ramps], axis=1)
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    sizes = covariance @ design.T @ (weight * x)
    spreads = NormalDist().inv_cdf((1 + LEVEL) / 2) * np.sqrt(np.diag(covariance))
    return tuple(
        LevelShift(p.first, p.first + p.width, size, size - spread, size + spread, p.earliest, p.latest)
        for p, size, spread in zip(places, sizes[1:].tolist(), spreads[1:].tolist(), strict=True)
    )


def _limit(points: int, false_rate: float, freedom: int | None) -> float:
    """The square of the score that one of all places and widths exceeds by chance as often as ``false_rate``."""
    widths = sum(w < points for w in WIDTHS)
    tail = false_rate / 2 / ((points - 1) * widths)
    return (-NormalDist().inv_cdf(tail) if freedom is None else student_quantile(tail, freedom)) ** 2


def _split(x: Floats, weight: Floats, offset: int, limit: float, found: list[_Place]) -> None:
    if len(x) < 2:
        return
    sums = _Sums(x, weight)
    scores = {width: sums.scores(width) for width in WIDTHS if width < len(x)}
    best = max(scores, key=lambda width: float(scores[width].max()) - (RAMP_EVIDENCE if width > 1 else 0.0))
    score = scores[best]
    a = int(np.argmax(score))
    if score[a] <= limit:
        return
    possible = np.flatnonzero(score >= score[a] - PLACE_EVIDENCE)
    found.append(_Place(offset + a, best, offset + int(possible[0]), offset + int(possible[-1]) + best))
    _split(x[: a + 1], weight[: a + 1], offset, limit, found)
    _split(x[a + best :], weight[a + best :], offset + a + best, limit, found)


class _Sums:
    """Sums of a series from which the score of a ramp at any place follows. A ramp is the mean of the steps between its
    points, so its sums are means of sums over the tails behind these."""

    def __init__(self, x: Floats, weight: Floats) -> None:
        self.total = float(weight.sum())
        tail_w = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
        tail_x = np.append(np.cumsum((weight * (x - (weight * x).sum() / self.total))[::-1])[::-1], 0.0)
        self.starts = np.arange(len(x))
        tails = np.stack([tail_x, tail_w, tail_w * np.arange(len(tail_w))])
        self._sums = np.concatenate([np.zeros((3, 1)), np.cumsum(tails, axis=1)], axis=1)

    def scores(self, width: int) -> Floats:
        """For each place of a ramp (0 up to point ``a``, 1 from ``a + width`` on, linear between) the square of its
        score: its size over that size's standard error, by weighted least squares beside a constant."""
        places = len(self.starts) - width
        with_x, with_1, ordinal = self._sums[:, 1 + width : 1 + width + places] - self._sums[:, 1 : 1 + places]
        with_self = 2 * (ordinal - self.starts[:places] * with_1) - with_1
        found: Floats = with_x**2 / np.maximum(with_self - with_1**2 / self.total, np.finfo(float).tiny)
        return found
