"""Searches as decorators declare them: what they begin with, what they are called, and what makes no sense."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.errors import ConfigError
from kerntune.search import Choice, Measured, Range, Search, Space
from kerntune.search.descent import Descent, descent_limits, with_neighbour
from search.tables import MATMUL, Counted, matmul_ns

AT_ONCE = 8
SPREAD = 12


SMALL = Space((Range("A", 1, 8), Choice("num_warps", (1, 2, 4))))
START = Config({"A": 8}, num_warps=4)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), trials=st.integers(1, 60))
def test_what_it_begins_with_is_tried_whatever_comes_of_it(seed: int, trials: int) -> None:
    search = Search(MATMUL, trials=trials, seed=seed)
    first = search.begins_with(())
    assert len(first) == min(SPREAD, trials)
    for time in (matmul_ns, lambda c: 1.0, lambda c: None):
        measure = Counted(time)
        search.run(measure, lambda configs: None, (), 0.0)
        assert measure.asked[: len(first)] == first
        assert len(measure.asked) == trials


def test_given_configs_come_first_unless_a_constraint_forbids_them() -> None:
    search = Search(SMALL, trials=5)
    assert search.begins_with([START])[0] == START
    assert START not in search.among(lambda c: c.num_warps < 4).begins_with([START])
    assert len(Search(SMALL, trials=1).begins_with([START, Config({"A": 1}, num_warps=1)])) == 1
    assert Search(SMALL).among(lambda c: False).begins_with([START]) == []


def test_rounds_are_told_before_any_of_them_is_measured() -> None:
    told: list[list[Config]] = []
    measured: list[Config] = []

    def measure(config: Config) -> Measured:
        assert config in told[-1]
        assert len(measured) >= sum(map(len, told[:-1]))
        measured.append(config)
        return Measured(matmul_ns(config))

    Search(MATMUL, trials=2 * AT_ONCE + 3).run(measure, lambda configs: told.append(list(configs)), (), 0.0)
    assert [len(configs) for configs in told] == [AT_ONCE, AT_ONCE, 3]
    assert measured == [config for configs in told for config in configs]


def test_what_was_spent_before_is_of_its_seconds() -> None:
    measure = Counted(matmul_ns)
    assert Search(MATMUL, seconds=5.0).run(measure, lambda configs: None, (), spent=5.0).trials == ()
    assert measure.asked == []


def test_it_has_what_it_might_try() -> None:
    search = Search(SMALL).among(lambda c: c.kwargs["A"] != 4)
    assert search.has(START)
    assert not search.has(Config({"A": 4}, num_warps=4)), "forbidden"
    assert not search.has(Config({"A": 3}, num_warps=4)), "no value of the field"
    assert not search.has(Config({"A": 8, "B": 1}, num_warps=4)), "another field"


def test_its_text_says_all_but_constraints() -> None:
    space = Space((*SMALL.axes, Range("num_stages", 1, 3, by_one=True)), base=Config({"B": 7}))
    assert str(Search(space, trials=9, seconds=2.5, seed=4)) == (
        "A 1..8, num_warps 1|2|4, num_stages 1..3 by one; else B=7 num_warps=4 num_stages=3; 9 trials, 2.5 s, seed 4"
    )
    assert str(Search(SMALL)).endswith("all of it, seed 0")
    assert str(Search(SMALL)) == str(Search(SMALL).among(lambda c: False))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"trials": 0}, "a search for 0 trials finds nothing"),
        ({"seconds": 0.0}, "a search for 0 s finds nothing"),
        ({"seconds": float("nan")}, "a search for nan s finds nothing"),
        (
            {"space": Space(tuple(Range(f"A{i}", 1, 10, by_one=True) for i in range(6)))},
            "1000000 points needs a budget",
        ),
        (
            {"space": Space(SMALL.axes, base=Config(options={"waves_per_eu": 2}))},
            "has options; give them as its kwargs",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(words: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Search(**{"space": SMALL, **words})


def test_a_descents_text_tells_how_far_it_looks_beyond_one_step() -> None:
    made = Descent((START,), typical_device(Target.parse("cuda:90")), all_directions=True)
    assert str(made) == "descent in all directions"
    assert str(dataclasses.replace(made, radius=2)) == "descent in all directions, 2 steps"


@pytest.mark.parametrize(("warps", "other"), [(1, 2), (4, 8), (7, 14), (8, 4), (16, 8), (32, 16)])
def test_a_list_of_one_begins_with_other_warps_too(warps: int, other: int) -> None:
    found = with_neighbour(Config({"A": 2}, num_warps=warps, num_stages=5))
    assert found == Config({"A": 2}, num_warps=other, num_stages=5)


def test_limits_are_told_in_the_order_of_their_names() -> None:
    assert descent_limits({"b": 2, "a": 9}) == (("a", 9), ("b", 2))
    assert descent_limits(None) == descent_limits({}) == ()
