"""Estimates from numbers, without GPUs or verdicts.

What a process that times needs is plain Python: it is faster for the ten to forty values of a sample, and such a
process is there before numpy is imported.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec

from kerntune.base.strict import StrictStruct

if TYPE_CHECKING:
    import numpy as np

DEFAULT_LEVEL = 0.999
"""Two-sided level of all verdicts of a run together: one run in a thousand may have a wrong one, however many cases it
has. A gate of 0.1 % a case would be red one run in five over 200 cases."""


class Estimate(StrictStruct, frozen=True):
    """A point with the ends of its confidence interval and the interval's level (0..1)."""

    point: float
    low: float
    high: float
    level: float

    def __post_init__(self) -> None:
        # JSON has no infinity: an open end is written as the largest float, and read back as what it means.
        for name in ("low", "high"):
            value = getattr(self, name)
            if abs(value) == sys.float_info.max:
                msgspec.structs.force_setattr(self, name, math.copysign(math.inf, value))

    def map_exp(self) -> Estimate:
        """A log-ratio as a relative change: 0.12 is 12 % slower."""
        return Estimate(math.expm1(self.point), math.expm1(self.low), math.expm1(self.high), self.level)


def median(values: Iterable[float]) -> float:
    """The median; NaN for no values, and where one is NaN."""
    ordered = sorted(values)
    if not ordered or any(map(math.isnan, ordered)):
        return math.nan
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share (0..1) of the values lies, linear between neighbours and from the nearer of them;
    as ``numpy.quantile``, whose first call imports modules for 25 to 70 ms. NaN where a value is NaN."""
    if any(map(math.isnan, values)):
        return math.nan
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    part, a, b = place - low, ordered[low], ordered[min(low + 1, len(ordered) - 1)]
    return a + (b - a) * part if part < 0.5 else b - (b - a) * (1 - part)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    return quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)


def relative_spread(values: Sequence[float]) -> float:
    """Half the interquartile range over the median: the noise of a sample as a share of its size."""
    if len(values) < 2:
        return math.nan
    q1, q2, q3 = _quartiles(values)
    return (q3 - q1) / 2 / q2 if q2 else math.nan


FAR_OUT = 3.0
"""Values more than three interquartile ranges outside the quartiles are far out (Tukey: Exploratory Data Analysis,
1977, 2C)."""

FAR_LEAST = 0.01
"""And a hundredth of the median at least: in a very steady sample, what is far out is small."""


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Indices of the values that are far out. They stay in the sample: a median is robust against them.

    None of four is, except by rounding: their outer quartiles follow the outermost values too closely.
    """
    if len(values) < 5:
        return ()
    q1, q2, q3 = _quartiles(values)
    far = max(FAR_OUT * (q3 - q1), FAR_LEAST * abs(q2))
    return tuple(i for i, x in enumerate(values) if max(q1 - x, x - q3) > far)


class TwoModes(StrictStruct, frozen=True):
    """Two groups that a sample falls into: their medians, and the share of the values in the higher one (0..1)."""

    low: float
    high: float
    share_high: float


MODES_LEAST = 10
"""Fewer values don't tell two groups from chance."""

MODES_SHARE = 0.2
"""The smaller group has this share of the values at least; less are outliers."""

MODES_APART = 0.02
"""Groups nearer to each other than this don't matter to any verdict."""

MODES_TAIL = 0.001


def modes(values: Sequence[float]) -> TwoModes | None:
    """The two groups of a sample that falls into two, else None.

    The split is the one with the least variance inside the groups. It counts if the sum of squares between them over
    that inside is larger than chance makes it for a normal sample (Engelman and Hartigan: Percentage Points of a Test
    for Clusters, JASA 64, 1969; log(1 + ratio) is about normal with mean 2.4 / (n - 2) - log(1 - 2 / pi) and variance
    1 / (n - 2)), and if the gap is wider than what 80 % of either group span, which slopes and long tails don't have.
    In 4,000 simulated samples each of 15 values, one normal one in 200 was flagged, one exponential one in 35, and of
    groups 14 standard deviations apart 97 %; of 24 values and more, hardly any and nearly all.
    """
    import numpy as np

    x = np.sort(np.asarray(values, dtype=float))
    n, least = len(x), max(2, math.ceil(MODES_SHARE * len(x)))
    if n < MODES_LEAST or x[0] <= 0:
        return None
    sizes = np.arange(least, n - least + 1)
    between = (np.cumsum(x)[sizes - 1] - sizes * x.mean()) ** 2 * n / (sizes * (n - sizes))
    best = int(np.argmax(between))
    low, high = x[: sizes[best]], x[sizes[best] :]
    inside = float(((x - x.mean()) ** 2).sum() - between[best])
    limit = 2.4 / (n - 2) - math.log(1 - 2 / math.pi) + NormalDist().inv_cdf(1 - MODES_TAIL) / math.sqrt(n - 2)
    clear = inside <= 0 or math.log1p(float(between[best]) / inside) > limit
    gap = float(high[0] - low[-1])
    found = TwoModes(median(low.tolist()), median(high.tolist()), len(high) / n)
    if not clear or gap <= max(_width(low), _width(high)) or found.high / found.low - 1 < MODES_APART:
        return None
    return found


def _width(values: np.ndarray) -> float:
    """What the middle 80 % span."""
    return quantile(values.tolist(), 0.9) - quantile(values.tolist(), 0.1)


def walsh_averages(values: Sequence[float]) -> np.ndarray:
    """The sorted means of all pairs, each value with itself included: n (n + 1) / 2 of them."""
    import numpy as np

    x = np.asarray(values, dtype=float)
    i, j = np.triu_indices(len(x))
    return np.sort((x[i] + x[j]) / 2)


def hodges_lehmann(values: Sequence[float], level: float = DEFAULT_LEVEL) -> Estimate:
    """Centre of a symmetric distribution, with the exact interval of the signed-rank test.

    The point is the median of the Walsh averages; the interval's ends are order statistics of them
    (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.2 and 3.3). With too few values
    for the level, the interval is everything: ``-inf .. inf``.
    """
    n = len(values)
    if n == 0:
        return Estimate(math.nan, -math.inf, math.inf, level)
    averages = walsh_averages(values)
    point = median(averages.tolist())
    cut = signed_rank_cut(n, (1 - level) / 2)
    if cut == 0:
        return Estimate(point, -math.inf, math.inf, level)
    return Estimate(point, float(averages[cut - 1]), float(averages[-cut]), level)


def widened(estimate: Estimate, margin: float) -> Estimate:
    """The same point with an independent error more, whose half-width at the same level is ``margin``.

    Half-widths of independent errors add as the sides of a right angle do.
    """
    low = estimate.point - math.hypot(estimate.point - estimate.low, margin)
    high = estimate.point + math.hypot(estimate.high - estimate.point, margin)
    return Estimate(estimate.point, low, high, estimate.level)


@lru_cache(maxsize=1024)
def student_quantile(tail: float, freedom: int) -> float:
    """The value that Student's t with ``freedom`` degrees of freedom exceeds with the probability ``tail`` (0..0.5).

    By halving, in plain Python: scipy takes half a second to import. 0 degrees of freedom tell nothing: infinity.
    """
    if freedom < 1:
        return math.inf
    low, high = 0.0, 1.0
    while _student_tail(high, freedom) > tail:
        high += high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _student_tail(middle, freedom) > tail else (low, middle)
    return middle


def _student_tail(t: float, freedom: int) -> float:
    """P(T > t), t >= 0: half the regularized incomplete beta function of freedom / (freedom + t^2) (Abramowitz and
    Stegun: Handbook of Mathematical Functions, 26.7.1), which is accurate however small it is."""
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    if x == 1:
        return 0.5
    if x > (a + 1) / (a + b + 2):
        return 0.5 * (1 - _beta_fraction(b, a, 1 - x))
    return 0.5 * _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function for x below its mean, by its continued fraction (the same, 26.5.8) and
    Lentz' algorithm."""
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    found = below
    for m in range(1, 500):
        step = 1.0
        for term in (
            m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / (1 + term * x * below)
            above = 1 + term * x / above
            step = above * below
            found *= step
        if abs(step - 1) < 1e-15:
            break
    return front * found


@lru_cache(maxsize=256)
def signed_rank_cut(n: int, tail: float) -> int:
    """The largest c with P(T+ <= c - 1) <= tail under the null; 0 if even c = 1 is too likely.

    ``averages[c - 1]`` and ``averages[-c]`` are then the ends of a two-sided interval of level ``1 - 2 tail``.
    """
    import numpy as np

    mass = np.ones(1)
    for rank in range(1, n + 1):
        longer = np.zeros(len(mass) + rank)
        longer[: len(mass)] += mass / 2
        longer[rank:] += mass / 2
        mass = longer
    return int(np.searchsorted(np.cumsum(mass), tail, side="right"))


def settled(medians: Sequence[float], window: int = 3, slope: float = 0.005) -> bool:
    """Whether the last block medians have stopped sloping: the last ``window`` lie within ``slope`` of each other."""
    last = list(medians)[-window:]
    if len(last) < window:
        return False
    middle = median(last)
    return middle > 0 and (max(last) - min(last)) / middle <= slope
