"""Steps and ramps in series: found where they are, none where nothing moves."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base import level_shifts
from kerntune.base.level_shifts import WIDTHS, LevelShift, _limit, _Sums, moves, noise_scale

SD = 0.001


def noise(seed: int, points: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, SD, points)


def found(values: np.ndarray, rate: float = 1e-4) -> tuple[LevelShift, ...]:
    return moves(values, np.full(len(values), SD), rate)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=20),
    st.sampled_from([w for w in WIDTHS if w < 20]),
    st.integers(0, 2**32 - 1),
)
def test_scores_are_those_of_least_squares(values: list[float], width: int, seed: int) -> None:
    """Against numpy's solver, for every place of a ramp."""
    if width >= len(values):
        return
    x = np.asarray(values)
    weight = np.random.default_rng(seed).uniform(0.5, 4.0, len(x))
    score = _Sums(x, weight).scores(width)
    root = np.sqrt(weight)
    for a in range(len(x) - width):
        ramp = np.clip((np.arange(len(x)) - a) / width, 0, 1)
        design = np.stack([np.ones(len(x)), ramp], axis=1) * root[:, None]
        solved, *_ = np.linalg.lstsq(design, x * root, rcond=None)
        covariance = np.linalg.inv(design.T @ design)
        assert score[a] == pytest.approx(solved[1] ** 2 / covariance[1, 1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("points", [0, 1])
def test_too_few_points_say_nothing(points: int) -> None:
    assert found(np.zeros(points)) == ()


@pytest.mark.parametrize("seed", range(20))
def test_flat_series_do_not_move(seed: int) -> None:
    assert found(noise(seed, 200)) == ()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [0.015, -0.015])
def test_a_step_is_found_where_it_is(seed: int, size: float) -> None:
    at = int(np.random.default_rng(seed).integers(1, 199))
    values = noise(seed, 200)
    values[at:] += size
    (move,) = found(values)
    assert (move.first, move.last, move.drift) == (at - 1, at, False)
    assert move.earliest <= at - 1 < at <= move.latest
    assert move.low < size < move.high or seed == 0  # of 99 %
    assert abs(move.size - size) < 0.004


@pytest.mark.parametrize("seed", range(20))
def test_many_small_steps_are_a_drift_with_its_span(seed: int) -> None:
    values = noise(seed, 200)
    values += 0.003 * np.clip(np.arange(200) - 80, 0, 10)
    (move,) = found(values)
    assert move.drift
    assert move.size == pytest.approx(0.03, abs=0.002)
    assert abs(move.first - 80) <= 3
    assert abs(move.last - 90) <= 3


def test_two_steps_are_two() -> None:
    values = noise(1, 120)
    values[40:] += 0.02
    values[80:] -= 0.01
    assert [(m.last, round(m.size, 2)) for m in found(values)] == [(40, 0.02), (80, -0.01)]


def test_an_exact_value_weighs_more_than_a_measured_one() -> None:
    """A reference is zero by definition: one value 3.4 sd beside it is a step; beside one measured value it is not."""
    assert moves([0.0, 3.4 * SD], [SD, SD], 0.01) == ()
    assert len(moves([0.0, 3.4 * SD], [0.0, SD], 0.01)) == 1


def test_where_all_values_are_exact_any_two_that_differ_by_enough_are_a_step() -> None:
    (move,) = moves([0.0] * 5 + [9.0] * 5, [0.0] * 10, 0.01)
    assert (move.last, move.size) == (5, 9.0)


def test_noise_that_is_larger_than_stated_is_noticed() -> None:
    values = noise(3, 400)
    assert noise_scale((values, np.full(400, SD))) == pytest.approx(1.0, abs=0.15)
    assert noise_scale((values, np.full(400, SD / 5))) == pytest.approx(5.0, rel=0.15)
    assert noise_scale((values[:5], np.full(5, SD / 5))) == 1.0


@pytest.mark.parametrize("points", [2, 5, 40, 200])
def test_the_limit_is_corrected_for_all_places_and_widths(points: int) -> None:
    """Bonferroni's bound: so many scores, each beyond it in either direction, are the rate together."""
    scores = (points - 1) * sum(width < points for width in WIDTHS)
    tail = NormalDist().cdf(-(_limit(points, 0.01, None) ** 0.5))
    assert 2 * tail * scores == pytest.approx(0.01)
    assert _limit(points, 0.01, 10) > _limit(points, 0.01, 1000) > _limit(points, 0.01, None)


def test_where_a_step_near_the_limit_may_lie_is_held_as_often_as_is_said() -> None:
    """By the 99 % point of the chi-squared distribution it was 93 to 97 %."""
    rng, held, told = np.random.default_rng(4), 0, 0
    for _ in range(500):
        at = int(rng.integers(5, 55))
        values = rng.normal(0, 1, 60)
        values[at:] += 4.5 * (60 / (at * (60 - at))) ** 0.5
        for move in moves(values, np.ones(60), 0.01)[:1]:
            told += 1
            held += move.earliest <= at - 1 and at <= move.latest
    assert told > 150
    assert held >= 0.985 * told


def test_errors_of_two_kinds_are_noticed_by_the_larger_one() -> None:
    """A quarter of all runs are off by fifteen times what the others are."""
    rng = np.random.default_rng(5)
    values = rng.normal(0, SD, 400) * np.where(rng.random(400) < 0.25, 15, 1)
    assert noise_scale((values, np.full(400, SD))) > 4


def test_neighbours_of_several_series_are_counted_together_and_not_across() -> None:
    """Each stretch of a chain has two values."""
    values = noise(3, 40) * 5
    stretches = [(np.array([100.0 * i, 100.0 * i + v]), np.array([0.0, SD])) for i, v in enumerate(values)]
    assert noise_scale(*stretches) == pytest.approx(5, rel=0.4)


@pytest.mark.parametrize(("points", "drift"), [(1, False), (2, False), (3, True), (64, True)])
def test_a_move_over_three_points_is_a_drift(points: int, drift: bool) -> None:
    assert LevelShift(5, 5 + points, 0.1, 0.0, 0.2, 4, 9).drift is drift


def test_constants_by_their_formulas() -> None:
    """Hinkley (1970): both sides of the true place stay below with 99 %; a ramp has one parameter more than a step."""
    place = level_shifts.PLACE_EVIDENCE
    assert (1 - math.exp(-place / 2)) ** 2 == pytest.approx(0.99)
    ramp = level_shifts.RAMP_EVIDENCE
    assert ramp == pytest.approx(9.2103, rel=1e-4)
    assert level_shifts.WIDTHS == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@pytest.mark.parametrize(("count", "scale"), [(11, 1.0), (12, 5.0 / 1.6449)])
def test_noise_by_hand(count: int, scale: float) -> None:
    """Half of the differences and a tenth more are 0, those from the 90 % point on five standard deviations."""
    places = [0.0] * int(0.9 * count) + [5.0 * 2**0.5] * (count - int(0.9 * count))
    values = np.cumsum([0.0, *places])
    assert noise_scale((values, np.ones(len(values)))) == pytest.approx(scale, rel=1e-3)


def test_errors_are_as_large_as_stated_or_larger() -> None:
    """By the median of at least 12 differences between neighbours, and by the 90 % point; exact values have none."""
    zigzag, ones = np.array([0.0, 1.0] * 6 + [0.0]), np.ones(13)
    half, tail = (NormalDist().inv_cdf((1 + share) / 2) for share in (0.5, 0.9))
    assert noise_scale((10 * zigzag, ones)) == pytest.approx(10 / math.sqrt(2) / half)
    assert noise_scale((zigzag[:12] * 10, ones[:12])) == 1.0, "eleven differences"
    assert noise_scale((zigzag[:7] * 10, ones[:7]), (zigzag[:7] * 10, ones[:7])) == pytest.approx(
        10 / math.sqrt(2) / half
    )
    assert noise_scale((zigzag, ones)) == pytest.approx(1 / math.sqrt(2) / half)
    assert noise_scale((0.1 * zigzag, ones)) == 1.0
    assert noise_scale((zigzag * 10, 0 * ones)) == noise_scale() == 1.0
    few = np.append(0 * zigzag, [9.0, 0.0, 9.0])
    assert noise_scale((few, np.ones(16))) == pytest.approx(9 / math.sqrt(2) / tail)
    uneven = np.where(zigzag > 0, 3.0, 4.0)
    assert noise_scale((10 * zigzag, uneven)) == pytest.approx(10 / 5 / half)
