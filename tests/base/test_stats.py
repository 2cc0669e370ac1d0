"""Estimates against scipy, against enumeration, and by their properties."""

from __future__ import annotations

import bisect
import importlib.util
import itertools
import math
import sys
from collections.abc import Callable
from random import Random
from statistics import NormalDist

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from of_each import of_each

from kerntune.base import stats
from kerntune.base.stats import (
    Estimate,
    TwoModes,
    hodges_lehmann,
    median,
    modes,
    outliers,
    quantile,
    relative_spread,
    settled,
    signed_rank_cut,
    student_quantile,
    walsh_averages,
    widened,
)

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))
samples = st.lists(numbers, min_size=1, max_size=25)
levels = st.sampled_from([0.0, 0.5, 0.8, 0.95, 0.99, 0.999])


def null_distribution(n: int) -> list[int]:
    """Every T+ that n signs can give, enumerated."""
    return [
        sum(r for r, s in zip(range(1, n + 1), signs, strict=True) if s)
        for signs in itertools.product((0, 1), repeat=n)
    ]


@of_each("n", range(1, 11))
@of_each("tail", [0.0001, 0.0005, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5])
def test_cut_by_enumeration(n: int, tail: float) -> None:
    ranks = sorted(null_distribution(n))
    fitting = [c for c in range(1, len(ranks)) if bisect.bisect_right(ranks, c - 1) / 2**n <= tail]
    assert signed_rank_cut(n, tail) == max(fitting, default=0)


@pytest.mark.parametrize("n", [5, 8, 12, 15, 20])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_interval_inverts_scipys_test(n: int, level: float) -> None:
    """A centre lies in the interval exactly if the exact signed-rank test does not reject it at 1 - level."""
    from scipy.stats import wilcoxon  # late: to import it takes longer than all that is asked of it

    x = np.random.default_rng(n).normal(3.0, 2.0, n)
    estimate = hodges_lehmann(list(x), level)
    if math.isinf(estimate.low):
        assert wilcoxon(x - x.min() + 1, method="exact").pvalue > 1 - level
        return
    step = 1e-9
    for centre, inside in [
        (estimate.low - step, False),
        (estimate.low + step, True),
        (estimate.point, True),
        (estimate.high - step, True),
        (estimate.high + step, False),
    ]:
        pvalue = float(wilcoxon(x - centre, method="exact").pvalue)
        assert (pvalue > 1 - level) is inside, (centre, pvalue)


@given(samples)
def test_point_is_the_median_of_all_pair_means(values: list[float]) -> None:
    pairs = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert walsh_averages(values).tolist() == pytest.approx(sorted(pairs))
    assert len(walsh_averages(values)) == len(values) * (len(values) + 1) // 2
    assert hodges_lehmann(values).point == pytest.approx(float(np.median(pairs)))


@given(samples, levels)
def test_interval_contains_the_point(values: list[float], level: float) -> None:
    estimate = hodges_lehmann(values, level)
    assert estimate.low <= estimate.point <= estimate.high
    assert estimate.level == level


@given(samples)
def test_higher_levels_are_wider(values: list[float]) -> None:
    estimates = [hodges_lehmann(values, level) for level in (0.5, 0.8, 0.95, 0.999)]
    for narrow, wide in itertools.pairwise(estimates):
        assert wide.low <= narrow.low
        assert narrow.high <= wide.high


@given(samples, numbers)
def test_shift_equivariance(values: list[float], shift: float) -> None:
    before, after = hodges_lehmann(values, 0.8), hodges_lehmann([v + shift for v in values], 0.8)
    expected = [before.point + shift, before.low + shift, before.high + shift]
    assert [after.point, after.low, after.high] == pytest.approx(expected, abs=1e-6)


@given(samples, st.floats(0.001, 1000))
def test_scale_equivariance(values: list[float], scale: float) -> None:
    before, after = hodges_lehmann(values, 0.8), hodges_lehmann([v * scale for v in values], 0.8)
    expected = [before.point * scale, before.low * scale, before.high * scale]
    assert [after.point, after.low, after.high] == pytest.approx(expected)


@given(samples, levels)
def test_turning_signs_turns_the_interval(values: list[float], level: float) -> None:
    before, after = hodges_lehmann(values, level), hodges_lehmann([-v for v in values], level)
    assert [after.point, after.low, after.high] == pytest.approx([-before.point, -before.high, -before.low])


@given(samples, st.randoms(use_true_random=False))
def test_order_does_not_matter(values: list[float], random: Random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert hodges_lehmann(shuffled, 0.8) == hodges_lehmann(values, 0.8)


def test_no_values_say_nothing() -> None:
    estimate = hodges_lehmann([])
    assert math.isnan(estimate.point)
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)


def test_eleven_values_are_the_fewest_for_the_default_level() -> None:
    assert math.isinf(hodges_lehmann(range(10)).high)
    eleven = hodges_lehmann(range(11))
    assert (eleven.low, eleven.point, eleven.high) == (0.0, 5.0, 10.0)


@pytest.mark.parametrize(("n", "level"), [(8, 0.8), (15, 0.95), (15, 0.999)])
def test_coverage(n: int, level: float) -> None:
    """Over many samples the interval covers as often as its exact distribution says, and that is at least the level."""
    cut = signed_rank_cut(n, (1 - level) / 2)
    exact = 1 - 2 * _tail(n, cut)
    assert exact >= level
    runs = 2000
    data = np.random.default_rng(7).standard_t(3, (runs, n)) + 0.5
    estimates = [hodges_lehmann(row, level) for row in data]
    covered = sum(e.low <= 0.5 <= e.high for e in estimates) / runs
    assert abs(covered - exact) <= 4 * math.sqrt(exact * (1 - exact) / runs) + 1 / runs


def _tail(n: int, cut: int) -> float:
    """P(T+ <= cut - 1), by how many subsets of the ranks sum to each number."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return float(counts[:cut].sum() / 2**n)


# the rest


def test_map_exp_turns_log_ratios_into_changes() -> None:
    change = Estimate(math.log(1.12), math.log(1.116), math.log(1.125), 0.999).map_exp()
    assert [change.point, change.low, change.high] == pytest.approx([0.12, 0.116, 0.125])
    assert change.level == 0.999
    assert Estimate(0.0, -math.inf, math.inf, 0.9).map_exp() == Estimate(0.0, -1.0, math.inf, 0.9)


@given(samples)
def test_median_is_numpys(values: list[float]) -> None:
    assert median(values) == float(np.median(values))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], share: float) -> None:
    assert quantile(values, share) == np.quantile(values, share)
    assert math.isnan(quantile([*values, math.nan, *values], share))


@given(st.lists(st.floats(0.01, 1e9), min_size=2, max_size=40))
def test_relative_spread_is_that_of_numpys_quartiles(values: list[float]) -> None:
    q1, q2, q3 = np.percentile(values, [25, 50, 75])
    assert relative_spread(values) == (q3 - q1) / 2 / q2


def test_median_of_nothing_is_no_number() -> None:
    assert math.isnan(median([]))


def test_relative_spread() -> None:
    assert relative_spread([100.0, 101.0, 102.0, 103.0, 104.0]) == pytest.approx(1 / 102)
    assert relative_spread([5.0] * 10) == 0.0
    assert math.isnan(relative_spread([1.0]))
    assert math.isnan(relative_spread([0.0, 0.0]))


@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=20), st.floats(0.001, 1000))
def test_relative_spread_has_no_unit(values: list[float], scale: float) -> None:
    assert relative_spread([v * scale for v in values]) == pytest.approx(relative_spread(values), abs=1e-9)


@pytest.mark.parametrize(
    ("medians", "answer"),
    [
        ([], False),
        ([100.0, 100.0], False),
        ([100.0, 100.0, 100.0], True),
        ([200.0, 150.0, 100.0, 100.2, 100.4], True),
        ([100.0, 100.2, 100.4, 101.0], False),
        ([0.0, 0.0, 0.0], False),
        ([1000.0, 1004.9, 1002.0], True),
        ([1000.0, 1005.1, 1002.0], False),
    ],
)
def test_settled(medians: list[float], answer: bool) -> None:
    assert settled(medians) is answer


def test_settled_looks_at_its_window_only() -> None:
    assert settled([500.0, 100.0, 100.0], window=2)
    assert not settled([500.0, 100.0, 110.0], window=2)
    assert settled([500.0, 100.0, 110.0], window=2, slope=0.2)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_independent_errors_add_as_the_sides_of_a_right_angle(
    point: float, down: float, up: float, more: float
) -> None:
    found = widened(Estimate(point, point - down, point + up, 0.99), more)
    assert (found.point, found.level) == (point, 0.99)
    assert point - found.low == pytest.approx(math.sqrt(down**2 + more**2), abs=1e-12)
    assert found.high - point == pytest.approx(math.sqrt(up**2 + more**2), abs=1e-12)


def test_what_is_open_stays_open() -> None:
    found = widened(Estimate(0.0, -math.inf, math.inf, 0.99), 0.1)
    assert (found.low, found.high) == (-math.inf, math.inf)


# the shape of a sample


def sample_of(kind: str, n: int, seed: int) -> list[float]:
    random = np.random.default_rng(seed)
    noise = {
        "normal": random.normal(0, 1, n),
        "uniform": random.uniform(-2, 2, n),
        "tailed": random.standard_t(3, n),
        "exponential": random.exponential(1, n),
        "slope": np.linspace(0, 20, n) + random.normal(0, 1, n),
    }[kind]
    return (1000 + noise).tolist()


@pytest.mark.parametrize("kind", ["normal", "uniform", "tailed", "exponential", "slope"])
@pytest.mark.parametrize("spread", [1.0, 40.0])
def test_one_group_is_not_two(kind: str, spread: float) -> None:
    seen = [[1000 + spread * (t - 1000) for t in sample_of(kind, 40, seed)] for seed in range(200)]
    assert sum(modes(x) is not None for x in seen) <= 1


@given(st.integers(0, 1000), st.integers(3, 30), st.sampled_from([12, 30, 40]))
def test_two_groups_are_found(seed: int, high: int, n: int) -> None:
    """A matmul under a power limit: 374 us or 430 us, each within half a percent."""
    high = min(max(high, n // 4), n - n // 4)
    random = np.random.default_rng(seed)
    times = np.where(np.arange(n) < high, 430.0, 374.0) * (1 + random.uniform(-0.005, 0.005, n))
    found = modes(random.permutation(times).tolist())
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(374, rel=0.005), pytest.approx(430, rel=0.005))
    assert found.share_high == pytest.approx(high / n)


def test_groups_that_do_not_matter_are_left_out() -> None:
    near = [1000.0] * 10 + [1010.0] * 10
    assert modes(near) is None
    assert modes([1000.0] * 10 + [1100.0] * 10) == TwoModes(1000.0, 1100.0, 0.5)
    assert modes([1000.0] * 19 + [1100.0]) is None, "one outlier is no group"
    assert modes([1000.0, 1100.0] * 4) is None, "too few to tell"
    assert modes([0.0] * 10 + [5.0] * 10) is None
    assert modes([]) is None


def test_what_is_far_out_is_named() -> None:
    steady = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]
    assert outliers(steady) == ()
    assert outliers([*steady, 250.0]) == (7,)
    assert outliers([3.0, *steady]) == (0,)
    assert outliers([1.0, 900.0, 5.0]) == (), "too few to have quartiles"
    assert outliers([100.0] * 9 + [100.9]) == (), "nothing much"
    assert outliers([100.0] * 9 + [101.1]) == (9,)


@given(st.lists(st.floats(-1e6, 1e6), max_size=4))
@example([7.6, 7.6, 7.6, 25.5])
def test_none_of_four_is_far_out(values: list[float]) -> None:
    """The outer one is three ranges away at most, and by rounding a little more."""
    assert outliers(values) == ()
    assert outliers([7.6] * 4 + [25.5]) == (4,)


@given(st.lists(st.floats(1.0, 1e6), max_size=50))
def test_less_than_half_is_far_out(values: list[float]) -> None:
    found = outliers(values)
    assert len(found) <= len(values) / 2
    assert all(0 <= i < len(values) for i in found)


# borders: held against the definitions, at the very place where the answer turns


def by_definition(values: list[float]) -> bool:
    """Whether a sample falls into two groups, as the docstring of :func:`modes` says it, by trying all splits."""
    x = sorted(values)
    n, least = len(x), math.ceil(0.2 * len(x))
    if n < 10 or x[0] <= 0:
        return False

    def squares(part: list[float]) -> float:
        mean = sum(part) / len(part)
        return sum((v - mean) ** 2 for v in part)

    splits = [(x[:k], x[k:]) for k in range(least, n - least + 1)]
    low, high = min(splits, key=lambda split: squares(split[0]) + squares(split[1]))
    inside = squares(low) + squares(high)
    between = squares(x) - inside
    chance = 2.4 / (n - 2) - math.log(1 - 2 / math.pi) + NormalDist().inv_cdf(0.999) / math.sqrt(n - 2)
    wide = max(np.percentile(part, 90) - np.percentile(part, 10) for part in (low, high))
    apart = np.median(high) / np.median(low) - 1
    return math.log1p(between / inside) > chance and high[0] - low[-1] > wide and apart >= 0.02


def turning(answer: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Two places next to each other, at the first of which the answer is no and at the second yes."""
    assert (answer(low), answer(high)) == (False, True)
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if answer(middle) else (middle, high)
    return low, high


@of_each("seed", range(24))
@of_each("n", [10, 11, 14, 20, 30])
def test_two_groups_begin_where_the_definition_says(n: int, seed: int) -> None:
    """Moved apart from nothing: at the border by chance, by the gap or by the least distance, whichever is the last."""
    source = np.random.default_rng(1000 * n + seed)
    shape = source.standard_t(2 + seed % 3, n) if seed % 2 else source.normal(0, 1, n)
    share = source.integers(math.ceil(n / 5), n - math.ceil(n / 5) + 1)
    upper = np.arange(n) >= share
    noise, unit = (0.05, 1.0, 3.0)[seed % 3], (1.0, 1e-5)[seed // 2 % 2]

    def moved(by: float) -> list[float]:
        return [float(v) * unit for v in 1000 + noise * np.clip(shape, -8, 8) + by * upper]

    before, after = turning(lambda by: by_definition(moved(by)), 0.0, 900.0)
    assert modes(moved(before)) is None
    assert modes(moved(after)) is not None


def test_the_fewest_values_and_the_smallest_group_that_make_two() -> None:
    assert modes([100.0, 100.5] * 4 + [200.0]) is None
    found = modes([100.0, 100.5] * 4 + [200.0, 200.5])
    assert found == TwoModes(100.25, 200.25, 0.2)
    assert modes([100.0, 100.5] * 2 + [200.0, 200.5] * 2) is None, "eight values"


def test_equal_values_make_two_groups() -> None:
    assert modes([100.0] * 6 + [110.0] * 6) == TwoModes(100.0, 110.0, 0.5)
    assert modes([100.0] * 12) is None
    assert modes([0.0] * 6 + [110.0] * 6) is None, "no time is zero"
    assert modes([0.0] + [100.0] * 9 + [200.0] * 10) is None, "not one of them"
    assert modes([99.0] + [100.0] * 9 + [200.0] * 10) is not None


def test_groups_as_far_apart_as_matters_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "MODES_APART", 0.25)
    assert modes([4.0] * 6 + [5.0] * 6) == TwoModes(4.0, 5.0, 0.5)
    assert modes([4.0] * 6 + [4.99] * 6) is None


NEAR = [980.0, 990.0, 1000.0, 1004.0, 1008.0, 1012.0, 1016.0, 1020.0]
"""With one value above: quartiles 1000 and 1016, median 1008."""


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([*NEAR, 1016.0 + 48.0], ()),
        ([*NEAR, 1016.0 + 48.5], (8,)),
        ([-v for v in (*NEAR, 1016.0 + 48.5)], (8,)),
        ([*[1000.0] * 8, 1010.0], ()),
        ([*[1000.0] * 8, 1010.5], (8,)),
        ([1.0, 1.0, 100.0], ()),
        ([], ()),
    ],
)
def test_what_is_far_out_begins_at_three_ranges_and_a_hundredth(values: list[float], found: tuple[int, ...]) -> None:
    assert outliers(values) == found


@pytest.mark.parametrize("seed", range(20))
def test_far_out_begins_where_the_definition_says(seed: int) -> None:
    source = np.random.default_rng(seed)
    rest = [float(v) for v in source.normal(100, (0.05, 5.0)[seed % 2], 7 + seed)]

    def far(by: float) -> bool:
        x = np.array([*rest, 100.0 + by])
        q1, q2, q3 = (np.quantile(x, q) for q in (0.25, 0.5, 0.75))
        off = float(x[-1] - q3)
        return bool(off > 3 * (q3 - q1) and off > 0.01 * q2)

    before, after = turning(far, 0.0, 1000.0)
    index = len(rest)
    assert [index in outliers([*rest, 100.0 + by]) for by in (before, after)] == [False, True]


def test_no_number_has_no_median_wherever_it_stands() -> None:
    for values in ([math.nan, 1.0, 2.0], [1.0, math.nan, 2.0], [1.0, 2.0, math.nan]):
        assert math.isnan(median(values))


@pytest.mark.parametrize(("medians", "slope", "answer"), [
    ([0.4, 0.4, 0.5], 0.25, True),
    ([0.4, 0.4, 0.51], 0.25, False),
    ([4.0, 4.0, 5.0], 0.25, True),
    ([0.0, 0.0, 0.0], 0.25, False),
    ([-1.0, -1.0, -1.0], 0.25, False),
    ([4.0, 4.0], 0.25, False),
])  # fmt: skip
def test_settled_at_its_borders(medians: list[float], slope: float, answer: bool) -> None:
    assert settled(medians, 3, slope) is answer


def test_relative_spread_needs_two_values_and_a_median() -> None:
    assert math.isnan(relative_spread([1.0]))
    assert relative_spread([1.0, 3.0]) == pytest.approx(0.25)
    assert math.isnan(relative_spread([-1.0, 0.0, 1.0]))


@pytest.mark.parametrize("value", [Estimate(1.0, 0.0, 2.0, 0.9), TwoModes(1.0, 2.0, 0.5)])
def test_values_are_frozen_and_have_no_further_fields(value: Estimate | TwoModes) -> None:
    with pytest.raises(AttributeError):
        value.low = 5.0  # type: ignore[misc]
    data = {**msgspec.to_builtins(value), "more": 1}
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        msgspec.convert(data, type(value))


def test_an_open_end_that_was_written_as_the_largest_float_is_read_as_open() -> None:
    largest = sys.float_info.max
    assert Estimate(0.5, -largest, largest, 0.9) == Estimate(0.5, -math.inf, math.inf, 0.9)
    assert Estimate(0.5, -1e300, 1e300, 0.9).high == 1e300


@pytest.mark.parametrize(("lower", "found"), [(3, False), (4, True), (16, True), (17, False)])
def test_less_than_a_fifth_on_either_side_is_no_group(lower: int, found: bool) -> None:
    values = [1000.0, 1001.0] * (lower // 2) + [1000.5] * (lower % 2)
    upper = 20 - lower
    values += [1100.0, 1101.0] * (upper // 2) + [1100.5] * (upper % 2)
    assert (modes(values) is not None) is found


@pytest.mark.parametrize(("off", "found"), [(0.99996, ()), (1.00004, (8,))])
def test_a_hundredth_is_one_of_the_median(off: float, found: tuple[int, ...]) -> None:
    """Of the median itself: its neighbors are 0.1 away, a thousandth of which would already turn the answer."""
    assert outliers([*[99.9] * 4, 100.0, *[100.1] * 3, 100.1 + off]) == found


def test_what_a_group_spans_leaves_a_tenth_out_on_each_side() -> None:
    assert stats._width(np.arange(11.0) ** 3) == 9.0**3 - 1.0


def test_the_default_level_is_a_thousandth_of_doubt() -> None:
    assert hodges_lehmann(range(20)).level == 0.999


def test_estimates_of_a_process_that_times_need_no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    spec = importlib.util.find_spec(stats.__name__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    times = [10.0, 10.1, 10.2, 9.9, 10.0, 14.0]
    assert (anew.median(times), anew.relative_spread(times), anew.outliers(times)) == (
        median(times), relative_spread(times), (5,),
    )  # fmt: skip


@given(st.floats(1e-12, 0.49), st.integers(1, 500))
def test_students_quantile_is_scipys(tail: float, freedom: int) -> None:
    from scipy.stats import t

    assert student_quantile(tail, freedom) == pytest.approx(t.isf(tail, freedom), rel=1e-6, abs=1e-9)


def test_no_degrees_of_freedom_tell_nothing() -> None:
    assert student_quantile(0.1, 0) == math.inf
