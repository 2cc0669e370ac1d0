"""The trials of a search: once each, failures with their reasons."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from doubles import raising
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.errors import TuningError
from kerntune.search import Measured, Tried
from kerntune.search.space import History, _fields
from search.tables import Counted, every, refusing

BLOCKS = [Config({"BLOCK": b}) for b in (32, 64, 128, 256)]


def test_the_fastest_of_all() -> None:
    found = every(refusing({32: 3.0, 64: 1.0, 128: 2.0, 256: 4.0}), BLOCKS)
    assert found.best == Tried(BLOCKS[1], 1.0)
    assert [t.config for t in found.trials] == BLOCKS


def test_the_first_of_equals() -> None:
    assert every(lambda c: Measured(5.0), BLOCKS).best.config == BLOCKS[0]


def test_equal_configs_are_one_trial() -> None:
    measure = Counted(lambda c: 1.0)
    every(measure, [*BLOCKS, *BLOCKS, Config({"BLOCK": 32}, num_warps=4)])
    assert measure.asked == BLOCKS


def test_failures_keep_their_reasons_and_never_win() -> None:
    found = every(refusing({128: 9.0}), BLOCKS)
    assert found.best.config == BLOCKS[2]
    assert found.trials[0] == Tried(BLOCKS[0], None, "BLOCK=32 can't be compiled")


@pytest.mark.parametrize("time", [math.inf, math.nan])
def test_no_time_is_a_failure(time: float) -> None:
    found = every(lambda c: Measured(time if c == BLOCKS[0] else 1.0), BLOCKS)
    assert found.trials[0].time_ns is None
    assert found.best.config == BLOCKS[1]


def test_if_all_fail_every_reason_is_listed() -> None:
    with pytest.raises(TuningError, match="none of the 4 configs") as caught:
        _ = every(refusing({}), BLOCKS).best
    assert all(f"BLOCK={b} can't be compiled" in str(caught.value) for b in (32, 64, 128, 256))


def test_what_is_no_trials_error_ends_the_search() -> None:
    with pytest.raises(RuntimeError, match="driver is gone"):
        every(raising(RuntimeError("the driver is gone")), BLOCKS)


@given(st.lists(st.tuples(*[st.sampled_from((1, 2, None))] * 3, st.booleans(), st.sampled_from("ab")), max_size=8))
def test_fields_tell_that_alone_separate_two_codes_and_are_idle_where_they_separate_none(
    rows: list[tuple[int | None, int | None, int | None, bool, str]],
) -> None:
    """A parameter of the kernel and an option of the compiler may have one name."""
    history, made = History(lambda config: Measured(1.0, code=made[config])), dict[Config, str]()
    by_fields: dict[Any, str] = {}
    for a, b, r, option, code in rows:
        values, other = {"A": a} if a else {}, {"B": b} if b else {}
        kwargs, options = (values, other) if option else ({**values, **other}, {})
        config = Config(kwargs, maxnreg=r, options=options)
        made.setdefault(config, by_fields.setdefault(_fields(config), code))
    for config in made:
        history.time_of(config)
    same, apart = set[str](), set[str]()
    for x, y in itertools.combinations(made, 2):
        names = {name for name, _ in set(_fields(x)) ^ set(_fields(y))}
        if len(names) == 1:
            (same if made[x] == made[y] else apart).update(names)
    found, codes = history.twins(), list(made.values())
    assert (found.idle, found.telling) == (same, apart - same)
    assert found.later == {config for i, config in enumerate(made) if made[config] in codes[:i]}


@pytest.mark.parametrize(("limit", "left"), [(None, 3), (3, 2), (1, 0)])
def test_as_many_are_untried_as_the_limit_has_room_for(limit: int | None, left: int) -> None:
    history = History(lambda config: Measured(1.0), limit)
    history.time_of(BLOCKS[0])
    assert history.untried(BLOCKS) == BLOCKS[1 : 1 + left]
