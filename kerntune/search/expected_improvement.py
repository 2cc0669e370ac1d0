"""Which configs are worth a trial: those whose times, by a Gaussian process over the trials so far, may be shortest.

A config is a point: logarithms of its fields, the stages as they are, and the logarithm of its elements a warp, so that
a tile and its warps that grow together stay near. Logarithms of times vary over these points with one length scale
(Matérn covariance of smoothness 5/2; Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapters
2 and 4). The expected improvement over the best (Jones, Schonlau and Welch, "Efficient Global Optimization of Expensive
Black-Box Functions", 1998) weighs a point that is foreseen to be fast against one of which little is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerntune.base.config import Config
from kerntune.heuristics.descent_steps import IMPROVEMENT, get_field, tile_of

Points = np.ndarray[Any, np.dtype[np.float64]]
"""One row a config."""

LENGTH = 2.0
"""The length scale, in doublings: at this distance times are correlated by a half. Chosen once for all
kernels; on the recorded sweeps (``benchmarks/results/descent.json``) values from 1.5 to 4 differ less than starts
do."""

NUGGET = 1e-2
"""Of the variance, for the error of a time: an estimate of 20 us by events is known to about 2 %, where times of one
kernel's configs vary by e."""

SLOWEST = 1.0
"""Times above e times the best count as that: how slow a slow config is says nothing about the fast ones."""

LEAST = 1e-3
"""Shorter times count as this: what launches nothing may take no time between two events, and 0 has no logarithm."""

FAILED = 0.5
"""A config that can't be used counts as slower by this logarithm, or as the slowest if that is more."""


def points_of(configs: Sequence[Config]) -> Points:
    """Coordinates of configs, one row each; comparable within one call only."""
    names = dict.fromkeys(name for c in configs for name in (*c.kwargs, *c.options, "num_warps", "num_stages"))
    columns = [_column([_value(c, name) for c in configs], "stages" in name.lower()) for name in names]
    by_warp = [math.log2(tile_of(c) / c.num_warps) for c in configs]
    found: Points = np.array([*columns, by_warp]).T
    return found


def _value(config: Config, name: str) -> object:
    """A field's number, or the text of what is none."""
    number = get_field(config, name)
    return repr(config.kwargs.get(name, config.options.get(name))) if number is None else number


def _column(values: Sequence[object], counted: bool) -> list[float]:
    """Numbers by their logarithm unless they are ``counted``; texts by their place."""
    texts = sorted({v for v in values if isinstance(v, str)})
    numbers = [texts.index(v) if isinstance(v, str) else float(v) for v in values]  # type: ignore[arg-type]
    return [v if counted or texts else math.log2(max(v, 0.5)) for v in numbers]


def expected_improvements(points: Points, times: Sequence[float], choices: Points) -> Points:
    """By how much the logarithm of the best time is expected to fall with each of the ``choices``. ``times`` are those
    of the ``points``, infinite for what can't be used; one at least is finite."""
    known = log_times(times)
    mean, deviation = _foreseen(points, known, choices)
    u = (known.min() - IMPROVEMENT - mean) / deviation
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in u])
    found: Points = deviation * (u * below + np.exp(-u * u / 2) / math.sqrt(2 * math.pi))
    return found


def log_times(times: Sequence[float]) -> Points:
    """Logarithms, of failures and of what is far slower than the best as :data:`FAILED` and :data:`SLOWEST` say."""
    known = [math.log(max(t, LEAST)) for t in times if t < math.inf]
    best = min(known)
    failed = max(*known, best + FAILED)
    return np.array([min(math.log(max(t, LEAST)) if t < math.inf else failed, best + SLOWEST) for t in times])


def _foreseen(points: Points, known: Points, choices: Points) -> tuple[Points, Points]:
    """Mean and standard deviation of the process at the choices; its own mean and variance by maximum likelihood."""
    within = _covariance(points, points) + NUGGET * np.eye(len(points))
    weights = np.linalg.solve(within, np.ones(len(points)))
    mean = weights @ known / weights.sum()
    pulls = np.linalg.solve(within, known - mean)
    variance = max((known - mean) @ pulls / len(points), 1e-6)
    across = _covariance(choices, points)
    explained = (across.T * np.linalg.solve(within, across.T)).sum(axis=0)
    return mean + across @ pulls, np.sqrt(variance * np.maximum(1 + NUGGET - explained, 1e-9))


def _covariance(some: Points, others: Points) -> Points:
    apart = np.sqrt(((some[:, None] - others[None]) ** 2).sum(axis=-1)) * (math.sqrt(5) / LENGTH)
    found: Points = (1 + apart + apart**2 / 3) * np.exp(-apart)
    return found
