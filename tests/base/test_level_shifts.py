"""Steps and ramps in series: found where they are, none where nothing moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.level_shifts import WIDTHS, LevelShift, _Sums, moves, noise_scale

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


def test_noise_that_is_larger_than_stated_is_noticed() -> None:
    values = noise(3, 400)
    assert noise_scale((values, np.full(400, SD))) == pytest.approx(1.0, abs=0.15)
    assert noise_scale((values, np.full(400, SD / 5))) == pytest.approx(5.0, rel=0.15)
    assert noise_scale((values[:5], np.full(5, SD / 5))) == 1.0
