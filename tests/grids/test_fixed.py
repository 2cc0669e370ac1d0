"""Grids given outright, and grids chosen by config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.errors import GridError
from kerntune.grids import Choice, FixedGrid, PrecomputedGrid, ceil_div

SMALL, LARGE = {"BLOCK": 64, "SPLIT": 1}, {"BLOCK": 128, "SPLIT": 4}
CHOSEN = PrecomputedGrid((Choice.of(SMALL, ceil_div("n", 64)), Choice.of(LARGE, ceil_div("n", 128), 4)))


def test_fixed_numbers_and_arguments() -> None:
    assert FixedGrid(3).constant == (3, 1, 1)
    assert FixedGrid("a", 2, "b")({"a": 5, "b": 7}) == (5, 2, 7)
    assert FixedGrid.from_arguments()({"_grid_0": 1, "_grid_1": 2, "_grid_2": 3}) == (1, 2, 3)
    with pytest.raises(GridError, match="holds -1"):
        FixedGrid(-1).constant  # noqa: B018 - the property is what raises


@given(n=st.integers(0, 2**40))
def test_the_config_chooses(n) -> None:
    assert CHOSEN({**SMALL, "n": n}) == (-(-n // 64), 1, 1)
    assert CHOSEN({**LARGE, "n": n, "unrelated": "x"}) == (-(-n // 128), 4, 1)
    assert CHOSEN.specialize(LARGE)({"n": n}) == (-(-n // 128), 4, 1)


def test_no_choice_says_what_there_is() -> None:
    with pytest.raises(
        GridError, match=r"no grid was computed for BLOCK=32, SPLIT=1, n=5; .*BLOCK=64, SPLIT=1; BLOCK=128"
    ):
        CHOSEN({"BLOCK": 32, "SPLIT": 1, "n": 5})
    with pytest.raises(GridError, match=r"no grid was computed for BLOCK=64, n=5; "):
        CHOSEN({"BLOCK": 64, "n": 5})


def test_an_undecided_choice_must_be_bound_first() -> None:
    with pytest.raises(GridError, match="depends on BLOCK, SPLIT: bind a config first"):
        CHOSEN.to_python()
    with pytest.raises(GridError, match="depends on SPLIT"):
        CHOSEN.bind({"BLOCK": 64})
    assert CHOSEN.specialize(SMALL).to_python() == ("((n + 64 - 1) // 64)", "1", "1")


def test_first_match_wins() -> None:
    grid = PrecomputedGrid((Choice.of({"A": 1}, 10), Choice.of({"A": 1, "B": 2}, 20), Choice.of({}, 30)))
    assert [grid(meta)[0] for meta in ({"A": 1, "B": 2}, {"A": 1}, {"A": 3, "B": 2}, {})] == [10, 10, 30, 30]


def test_values_that_are_no_numbers_choose_too() -> None:
    grid = PrecomputedGrid((Choice.of({"DTYPE": "fp16"}, 1), Choice.of({"DTYPE": "fp32"}, 2)))
    assert grid({"DTYPE": "fp32"}) == (2, 1, 1)
    assert grid.specialize({"DTYPE": "fp16"}).constant == (1, 1, 1)
