"""The points of configs, and what is expected of untried ones."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.search.descent import expected_improvements, log_times, points_of


def test_a_tile_and_its_warps_that_grow_together_stay_nearer_than_either_alone() -> None:
    a, both, block, warps = points_of(
        [Config({"X": 64}, num_warps=2), Config({"X": 128}, num_warps=4), Config({"X": 128}, num_warps=2),
         Config({"X": 64}, num_warps=4)]
    )  # fmt: skip
    apart = [float(np.linalg.norm(a - other)) for other in (both, block, warps)]
    assert apart == [math.sqrt(2)] * 3, "two fields cost what one does"


def test_texts_and_absent_fields_have_places() -> None:
    points = points_of([Config({"MODE": "fast"}), Config({"MODE": "slow"}), Config({"MODE": None, "X": 0})])
    assert np.isfinite(points).all()
    assert len({tuple(point) for point in points.tolist()}) == 3


def test_failures_and_far_slower_configs_are_bounded() -> None:
    found = log_times([100.0, 110.0, math.inf, 1e9])
    assert list(np.round(found - math.log(100.0), 6)) == [0.0, round(math.log(1.1), 6), 1.0, 1.0]
    assert math.isclose(log_times([100.0, math.inf])[1] - math.log(100.0), 0.5)


@given(st.lists(st.floats(50.0, 200.0), min_size=2, max_size=6))
def test_nothing_is_expected_where_it_was_tried(times: list[float]) -> None:
    points = points_of([Config({"X": 2**i}) for i in range(len(times) + 2)])
    gains = expected_improvements(points[: len(times)], times, points)
    assert (gains >= 0).all()
    assert gains[: len(times)].max() < gains[len(times) :].max() + 0.2


def test_the_way_down_promises_more_than_the_way_up() -> None:
    points = points_of([Config({"X": 2**i}) for i in (4, 5, 6, 3, 7)])
    up, down = expected_improvements(points[:3], [400.0, 200.0, 100.0], points[3:])
    assert down > 3 * up


def test_a_time_of_zero_is_a_short_one() -> None:
    """Of a config whose grid is empty, say."""
    points = points_of([Config({"X": 2**i}) for i in (4, 5, 6)])
    gains = expected_improvements(points[:2], [0.0, 100.0], points[2:])
    assert np.isfinite(gains).all()
    assert log_times([0.0, 100.0])[1] - log_times([0.0, 100.0])[0] == 1.0
