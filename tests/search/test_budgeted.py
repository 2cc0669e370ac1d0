"""Searches with a budget: good early, deterministic, resumed exactly."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.config import Config
from kerntune.errors import ConfigError, StoreError, TuningError
from kerntune.search import Budget, BudgetedSearch, Choice, Measured, Range, Space
from search.tables import MATMUL, Counted, best_of, matmul_ns

TINY = Space((Range("A", 1, 8), Choice("num_warps", (1, 2, 4))), (lambda c: c.kwargs["A"] != 4,))


def tiny_ns(config: Config) -> float:
    return 100.0 + abs(int(config.kwargs["A"]) - 2) + config.num_warps  # type: ignore[arg-type]


def searched(trials: int, seed: int = 0) -> tuple[Counted, BudgetedSearch]:
    measure, search = Counted(matmul_ns), BudgetedSearch(MATMUL, seed=seed)
    search.run(measure, Budget(trials=trials))
    return measure, search


def test_a_matmul_is_near_its_optimum_after_a_twentieth_of_its_space() -> None:
    optimum = best_of(MATMUL, matmul_ns)
    legal = len(list(MATMUL.configs()))
    ratios = [searched(legal // 20, seed)[1].found().best.time_ns / optimum for seed in range(10)]  # type: ignore[operator]
    assert max(ratios) < 1.06
    assert sorted(ratios)[5] < 1.03


def test_it_beats_random_choice() -> None:
    configs = list(MATMUL.configs())

    def by_chance(seed: int) -> float:
        drawn = random.Random(seed).sample(configs, 60)
        return min(t for c in drawn if (t := matmul_ns(c)) is not None)

    ours = [searched(60, seed)[1].found().best.time_ns for seed in range(10)]
    assert sum(ours) < sum(map(by_chance, range(10)))  # type: ignore[arg-type]


def test_a_small_space_is_tried_completely_and_once() -> None:
    measure, search = Counted(tiny_ns), BudgetedSearch(TINY)
    found = search.run(measure, Budget())
    assert search.exhausted
    assert sorted(map(str, measure.asked)) == sorted(map(str, TINY.configs()))
    assert found.best.config == Config({"A": 2}, num_warps=1)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), cut=st.integers(0, 40), total=st.integers(1, 60))
def test_a_resumed_search_tries_what_an_unbroken_one_does(seed: int, cut: int, total: int) -> None:
    whole, _ = searched(max(cut, total), seed)
    first, begun = searched(cut, seed)
    state = json.loads(json.dumps(begun.state()))
    rest = Counted(matmul_ns)
    resumed = BudgetedSearch(MATMUL, seed=999, state=state)
    resumed.run(rest, Budget(trials=total))
    assert first.asked + rest.asked == whole.asked
    assert resumed.found().trials == begun.found().trials + resumed.found().trials[cut:]


def test_equal_seeds_try_equal_configs_and_others_try_others() -> None:
    assert searched(40, 3)[0].asked == searched(40, 3)[0].asked
    assert searched(40, 3)[0].asked != searched(40, 4)[0].asked


def test_starts_come_first_unless_illegal() -> None:
    starts = [Config({"A": 8}, num_warps=4), Config({"A": 4}, num_warps=1), Config({"A": 1}, num_warps=2)]
    measure = Counted(tiny_ns)
    BudgetedSearch(TINY, starts=starts).run(measure, Budget(trials=3))
    assert measure.asked[:2] == [starts[0], starts[2]]
    assert starts[1] not in measure.asked


def test_seconds_end_it_and_count_over_resumptions() -> None:
    now = [0.0]

    def slow(config: Config) -> Measured:
        now[0] += 0.5
        return Measured(tiny_ns(config))

    search = BudgetedSearch(TINY, clock=lambda: now[0])
    assert len(search.run(slow, Budget(seconds=2.0)).trials) == 4
    resumed = BudgetedSearch(TINY, state=search.state(), clock=lambda: now[0])
    assert len(resumed.run(slow, Budget(seconds=2.0)).trials) == 4, "nothing is left"
    assert len(resumed.run(slow, Budget(seconds=3.0, trials=100)).trials) == 6
    assert len(resumed.run(slow, Budget(seconds=30.0, trials=7)).trials) == 7


def test_an_exception_loses_no_trial() -> None:
    measure = Counted(tiny_ns)

    def breaks(config: Config) -> Measured:
        if len(measure.asked) == 5:
            raise KeyboardInterrupt
        return measure(config)

    search = BudgetedSearch(TINY)
    with pytest.raises(KeyboardInterrupt):
        search.run(breaks, Budget())
    resumed = BudgetedSearch(TINY, state=search.state())
    resumed.run(measure, Budget())
    assert len(measure.asked) == len(list(TINY.configs()))


def test_spaces_with_nothing_legal() -> None:
    search = BudgetedSearch(Space(TINY.axes, (lambda c: False,)))
    with pytest.raises(TuningError, match="no config of the space satisfies"):
        search.run(Counted(tiny_ns), Budget(trials=5))


def test_a_needle_among_illegal_points_is_found() -> None:
    space = Space((Range("A", 1, 5000, by_one=True),), (lambda c: c.kwargs["A"] in (17, 4711),))
    measure = Counted(lambda c: float(c.kwargs["A"]))  # type: ignore[arg-type]
    assert BudgetedSearch(space).run(measure, Budget()).best.time_ns == 17.0
    assert len(measure.asked) == 2


def test_a_huge_space_needs_a_budget() -> None:
    huge = Space(tuple(Range(f"A{i}", 1, 10, by_one=True) for i in range(6)))
    with pytest.raises(ConfigError, match="1000000 points needs a budget"):
        BudgetedSearch(huge).run(Counted(lambda c: 1.0), Budget())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: {**s, "schema": "kerntune.search/0"}, StoreError, "has schema 'kerntune.search/0'"),
        (lambda s: {**s, "space": "other"}, ConfigError, "of another space"),
        (lambda s: {**s, "more": 1}, StoreError, "not the state of a search"),
        (lambda s: {**s, "trials": [{}]}, StoreError, "not the state of a search"),
        (lambda s: [], StoreError, "not the state of a search"),
    ],
)
def test_other_states_are_refused(change, error, message) -> None:
    search = BudgetedSearch(TINY)
    search.run(Counted(tiny_ns), Budget(trials=2))
    with pytest.raises(error, match=message):
        BudgetedSearch(TINY, state=change(search.state()))
