"""Coordinate descent on tables: where it ends, and what it costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.heuristics import Field, Neighbourhood
from kerntune.search.descent import _is_half
from search.tables import Counted, descended, refusing

ONE = Neighbourhood((Field("BLOCK", most=1024),))


@given(start=st.integers(0, 10), optimum=st.integers(0, 10))
def test_one_field_ends_at_the_optimum_in_a_trial_per_doubling(start: int, optimum: int) -> None:
    measure = Counted(lambda c: 100.0 + abs(math.log2(int(c.kwargs["BLOCK"])) - optimum))  # type: ignore[arg-type]
    found = descended(measure, Config({"BLOCK": 2**start}), ONE)
    assert found.best.config.kwargs["BLOCK"] == 2**optimum
    assert len(measure.asked) <= abs(start - optimum) + 3


@given(st.tuples(*[st.integers(0, 6)] * 3), st.tuples(*[st.integers(0, 6)] * 3))
def test_separable_fields_end_at_the_optimum(start: tuple[int, ...], optimum: tuple[int, ...]) -> None:
    names = ("A", "num_warps", "group")

    def time_of(config: Config) -> float:
        values = (config.kwargs["A"], config.num_warps, config.options["group"])
        return 100.0 + sum(abs(math.log2(int(v)) - o) for v, o in zip(values, optimum, strict=True))  # type: ignore[arg-type]

    measure = Counted(time_of)
    around = Neighbourhood(tuple(Field(n, most=64) for n in names))
    begin = Config({"A": 2 ** start[0]}, num_warps=2 ** start[1], options={"group": 2 ** start[2]})
    best = descended(measure, begin, around).best.config
    assert (best.kwargs["A"], best.num_warps, best.options["group"]) == tuple(2**o for o in optimum)
    assert len(measure.asked) <= 40, "of 343"


def test_noise_below_a_thousandth_is_no_step() -> None:
    measure = Counted(lambda c: 1000.0 - 0.5 * math.log2(int(c.kwargs["BLOCK"])))  # type: ignore[arg-type]
    descended(measure, Config({"BLOCK": 4}), ONE)
    assert [c.kwargs["BLOCK"] for c in measure.asked] == [4, 8, 2]


def test_failing_steps_are_walls_and_a_failing_start_is_left() -> None:
    table = {32: 5.0, 64: 4.0, 256: 1.0}
    assert descended(refusing(table), Config({"BLOCK": 32}), ONE).best.config.kwargs["BLOCK"] == 64
    assert descended(refusing(table), Config({"BLOCK": 128}), ONE).best.config.kwargs["BLOCK"] == 256


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_limit_holds(limit: int) -> None:
    measure = Counted(lambda c: 1e6 / int(c.kwargs["BLOCK"]))  # type: ignore[arg-type]
    found = descended(measure, Config({"BLOCK": 1}), ONE, max_trials=limit)
    assert len(measure.asked) == len(found.trials) == limit


@pytest.mark.parametrize(
    ("before", "after", "answer"), [(8, 8, True), (8, 1, True), (8, 3, False), (8, 16, False), (8, 0, False)]
)
def test_what_a_halved_block_is(before: int, after: int, answer: bool) -> None:
    assert _is_half(before, after) == answer
