"""Declared spaces: what they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.errors import ConfigError
from kerntune.search import Choice, Range, Space
from search.tables import MATMUL

SMALL = Space(
    (Range("BLOCK", 32, 128), Choice("EVEN", (True, False)), Range("num_stages", 1, 3, by_one=True)),
    (lambda c: bool(c.kwargs["EVEN"]) or c.num_stages < 3,),
    Config({"FIXED": 7}, num_warps=8, options={"waves_per_eu": 0}),
)


def test_every_legal_config_once() -> None:
    found = list(SMALL.configs())
    assert SMALL.size == 18
    assert len(found) == len(set(found)) == 15
    assert all(c.num_warps == 8 and c.kwargs["FIXED"] == 7 for c in found)
    assert [c.num_stages for c in found[:3]] == [1, 2, 3]


def test_values() -> None:
    assert Range("A", 3, 30).values() == (3, 6, 12, 24)
    assert Range("A", -1, 1, by_one=True).values() == (-1, 0, 1)
    assert Choice("A", (1, True, 1.0, None, 1, "a")).values() == (1, True, 1.0, None, "a")


def test_options_stay_options() -> None:
    space = Space((Choice("waves_per_eu", (1, 2)),), base=Config(options={"waves_per_eu": 0}))
    assert [c.options for c in space.configs()] == [{"waves_per_eu": 1}, {"waves_per_eu": 2}]
    assert all(c.kwargs == {} for c in space.configs())


@given(st.tuples(*(st.integers(0, len(values) - 1) for values in MATMUL.values)))
def test_points_and_configs_are_the_same(point: tuple[int, ...]) -> None:
    assert MATMUL.point_of(MATMUL.at(point)) == point


def test_configs_of_elsewhere_have_no_point() -> None:
    inside = next(SMALL.configs())
    assert SMALL.point_of(inside) == (0, 0, 0)
    for outside in (inside.replace(BLOCK=48), inside.replace(OTHER=1), inside.replace(num_ctas=2), Config()):
        assert SMALL.point_of(outside) is None


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((Range("A", 1, 4), Choice("A", (1,))), "has A twice"),
        ((Choice("B", ()),), "no value for B"),
        ((Range("C", 0, 8),), "no value for C; .* a doubled one starts at 1 or above"),
        ((Range("D", 8, 4, by_one=True),), "no value for D"),
    ],
)
def test_spaces_that_can_not_be_are_refused(axes: tuple[Choice | Range, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Space(axes)


def test_one_constraint_without_a_tuple_is_refused() -> None:
    with pytest.raises(ConfigError, match="give a tuple of them"):
        Space(SMALL.axes, constraints=lambda config: True)  # type: ignore[arg-type]


@pytest.mark.parametrize("point", [(0,), (0, 0, 0)])
def test_a_point_has_a_place_on_each_axis(point: tuple[int, ...]) -> None:
    space = Space((Range("A", 1, 8), Choice("num_warps", (1, 2))))
    with pytest.raises(ValueError, match="argument"):
        space.at(point)
