"""Searches with a budget: good early, deterministic, going on where they were."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.errors import ConfigError, TuningError
from kerntune.search import Budget, BudgetedSearch, Choice, Measured, Range, Search, Space
from search.tables import MATMUL, Counted, best_of, matmul_ns

BATCH = 4
SPREAD = 12


TINY = Space((Range("A", 1, 8), Choice("num_warps", (1, 2, 4))), (lambda c: c.kwargs["A"] != 4,))


def tiny_ns(config: Config) -> float:
    return 100.0 + abs(int(config.kwargs["A"]) - 2) + config.num_warps  # type: ignore[arg-type]


def searched(trials: int, seed: int = 0) -> tuple[Counted, BudgetedSearch]:
    measure, search = Counted(matmul_ns), BudgetedSearch(MATMUL, seed=seed)
    search.run(measure, Budget(trials=trials))
    return measure, search


@pytest.mark.slow
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


def test_equal_seeds_try_equal_configs_and_others_try_others() -> None:
    assert searched(40, 3)[0].asked == searched(40, 3)[0].asked
    assert searched(40, 3)[0].asked != searched(40, 4)[0].asked
    unseeded = Counted(matmul_ns)
    BudgetedSearch(MATMUL).run(unseeded, Budget(trials=40))
    assert unseeded.asked == searched(40, 0)[0].asked


def test_starts_come_first_unless_illegal() -> None:
    starts = [Config({"A": 8}, num_warps=4), Config({"A": 4}, num_warps=1), Config({"A": 1}, num_warps=2)]
    measure = Counted(tiny_ns)
    BudgetedSearch(TINY, starts=starts).run(measure, Budget(trials=3))
    assert measure.asked[:2] == [starts[0], starts[2]]
    assert starts[1] not in measure.asked


def test_seconds_end_it_and_count_over_runs() -> None:
    now = [0.0]

    def slow(config: Config) -> Measured:
        now[0] += 0.5
        return Measured(tiny_ns(config))

    search = BudgetedSearch(TINY, clock=lambda: now[0])
    assert len(search.run(slow, Budget(seconds=2.0)).trials) == 4
    assert len(search.run(slow, Budget(seconds=2.0)).trials) == 4, "nothing is left"
    assert len(search.run(slow, Budget(seconds=3.0, trials=100)).trials) == 6
    assert len(search.run(slow, Budget(seconds=30.0, trials=7)).trials) == 7


# predictions


class Predicted:
    """Costs of configs; each batch is recorded."""

    def __init__(self, cost: Callable[[Config], float]) -> None:
        self.cost, self.batches = cost, list[list[Config]]()

    def __call__(self, configs: Sequence[Config]) -> list[float]:
        self.batches.append(list(configs))
        return [self.cost(c) for c in configs]

    @property
    def asked(self) -> list[str]:
        return [c.key() for batch in self.batches for c in batch]


def rough(config: Config) -> float:
    """The made-up matmul's time, wrong by up to a fifth."""
    time = matmul_ns(config)
    return math.inf if time is None else time * (1 + random.Random(config.key()).uniform(0, 0.2))


def test_good_predictions_save_trials() -> None:
    optimum = best_of(MATMUL, matmul_ns)

    def trials(seed: int, predicted: Predicted | None) -> int:
        search = BudgetedSearch(MATMUL, seed=seed, predicted=predicted)
        while True:
            found = search.run(Counted(matmul_ns), Budget(trials=len(search.found().trials) + 1))
            if (found.trials[-1].time_ns or math.inf) <= 1.05 * optimum:
                return len(found.trials)

    plain = sum(trials(seed, None) for seed in range(12))
    assert sum(trials(seed, Predicted(rough)) for seed in range(12)) < 0.6 * plain


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    costs=st.lists(st.floats(0, 10) | st.just(math.inf), min_size=1, max_size=7),
)
def test_whatever_is_predicted_every_config_is_tried_once(seed: int, costs: list[float]) -> None:
    measure, predicted = Counted(tiny_ns), Predicted(lambda c: costs[len(c.key()) * c.num_warps % len(costs)])
    search = BudgetedSearch(TINY, seed=seed, predicted=predicted)
    found = search.run(measure, Budget())
    assert search.exhausted
    assert sorted(map(str, measure.asked)) == sorted(map(str, TINY.configs()))
    assert found.best.config == Config({"A": 2}, num_warps=1)
    assert len(predicted.asked) == len(set(predicted.asked)) == len(measure.asked)
    assert all(1 <= len(batch) <= BATCH for batch in predicted.batches)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    at_once=st.integers(1, 9),
    rounds=st.integers(0, 8),
    total=st.integers(1, 60),
    predicts=st.booleans(),
)
def test_a_search_that_goes_on_tries_what_an_unbroken_one_does(
    seed: int, at_once: int, rounds: int, total: int, predicts: bool
) -> None:
    """Broken off where a round ends; with predictions and without."""
    words: Any = {"at_once": at_once, "predicted": Predicted(rough) if predicts else None}
    cut, whole, parts = at_once * rounds, Counted(matmul_ns), Counted(matmul_ns)
    BudgetedSearch(MATMUL, seed=seed, **words).run(whole, Budget(trials=max(cut, total)))
    search = BudgetedSearch(MATMUL, seed=seed, **words)
    search.run(parts, Budget(trials=cut))
    search.run(parts, Budget(trials=total))
    assert parts.asked == whole.asked
    assert len(set(map(str, whole.asked))) == len(whole.asked)


def test_starts_come_first_whatever_is_predicted() -> None:
    starts = [Config({"A": 8}, num_warps=4), Config({"A": 1}, num_warps=2)]
    measure = Counted(tiny_ns)
    BudgetedSearch(TINY, starts=starts, predicted=Predicted(tiny_ns)).run(measure, Budget(trials=2))
    assert measure.asked == starts


@pytest.mark.parametrize(
    ("option", "at_once", "trials"), [("predicted", 1, 3), ("prepare", 2, 6)], ids=["predicting", "preparing"]
)
def test_what_is_done_for_trials_spends_seconds_too(option: str, at_once: int, trials: int) -> None:
    now = [0.0]

    def slow(configs: Sequence[Config]) -> list[float]:
        now[0] += 1.0
        return [1.0] * len(configs)

    words: Any = {option: slow}
    search = BudgetedSearch(TINY, at_once=at_once, clock=lambda: now[0], **words)
    assert len(search.run(Counted(tiny_ns), Budget(seconds=2.5)).trials) == trials
    assert search._seconds == 3.0


def test_a_cost_for_each_config_is_asked_for() -> None:
    with pytest.raises(ValueError, match="shorter"):
        BudgetedSearch(TINY, predicted=lambda configs: [1.0]).run(Counted(tiny_ns), Budget(trials=1))


@pytest.mark.parametrize("at_once", [1, 4])
def test_an_exception_loses_no_trial(at_once: int) -> None:
    """Nor one that was prepared, but not measured."""
    measure = Counted(tiny_ns)

    def breaks(config: Config) -> Measured:
        if len(measure.asked) == 5:
            raise KeyboardInterrupt
        return measure(config)

    search = BudgetedSearch(TINY, at_once=at_once)
    with pytest.raises(KeyboardInterrupt):
        search.run(breaks, Budget())
    search.run(measure, Budget())
    assert sorted(map(str, measure.asked)) == sorted(map(str, TINY.configs()))


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


# several at once


def test_what_is_chosen_next_is_tried_next_and_asking_changes_nothing() -> None:
    search, measure = BudgetedSearch(TINY, seed=5), Counted(tiny_ns)
    chosen = search.next_configs(3)
    assert search.next_configs(3) == chosen
    search.run(measure, Budget(trials=3))
    assert measure.asked == chosen
    assert search.next_configs(100) != []
    assert not set(search.next_configs(100)) & set(chosen)


def test_steps_begin_after_the_spread_and_every_fifth_trial_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    found = BudgetedSearch(TINY)
    monkeypatch.setattr(found, "_steps", lambda draw: iter(["step"]))
    monkeypatch.setattr(found, "_anywhere", lambda draw: iter(["anywhere"]))
    assert [found._next(n) for n in range(SPREAD)] == ["anywhere"] * SPREAD
    assert [found._next(n) for n in range(12, 16)] == ["step"] * 3 + ["anywhere"]


def test_steps_are_of_the_best_three_and_then_two_of_the_best() -> None:
    space = Space((Range("A", 0, 99, by_one=True), Range("B", 0, 99, by_one=True)))
    search = BudgetedSearch(space, starts=[Config({"A": n, "B": n}) for n in (50, 40, 30, 20)])
    search.run(Counted(lambda c: 1.0 + float(c.kwargs["A"])), Budget(trials=4))  # type: ignore[arg-type]
    places = [(int(c.kwargs["A"]), int(c.kwargs["B"])) for c in search._steps(random.Random(0))]  # type: ignore[arg-type]
    near = [[{(n + 1, n), (n - 1, n), (n, n + 1), (n, n - 1)}] for n in (20, 30, 40)]
    assert [{*places[i : i + 4]} for i in (0, 4, 8)] == [one for (one,) in near]
    assert {abs(a - 20) + abs(b - 20) for a, b in places[12:]} == {2}
    corner = {(1, 0), (0, 1)}
    assert {*search._around((0, 0))} == corner
    assert {*search._around((99, 99))} == {(98, 99), (99, 98)}


def test_the_best_predicted_of_four_is_next() -> None:
    predicted = Predicted(tiny_ns)
    BudgetedSearch(TINY, predicted=predicted).next_configs(1)
    assert [len(batch) for batch in predicted.batches] == [4]


def test_draws_that_find_something_are_all_there_is() -> None:
    """The rest of a large space isn't walked through as well."""
    search, draw = BudgetedSearch(TINY), random.Random(1)
    drawn = [TINY.at([draw.randrange(len(values)) for values in TINY.values]) for _ in range(200)]
    assert list(search._anywhere(random.Random(1))) == [c for c in drawn if TINY.legal(c)]


@pytest.mark.parametrize(
    ("budget", "trials", "seconds", "spent"),
    [(Budget(), 10**9, 1e9, False), (Budget(trials=3), 2, 1e9, False), (Budget(trials=3), 3, 0.0, True),
     (Budget(seconds=1.5), 9, 1.4, False), (Budget(seconds=1.5), 0, 1.5, True), (Budget(3, 1.5), 0, 1.5, True)],
)  # fmt: skip
def test_when_a_budget_is_spent(budget: Budget, trials: int, seconds: float, spent: bool) -> None:
    assert budget.spent(trials, seconds) is spent


@pytest.mark.parametrize(
    ("words", "text"),
    [({"trials": 0}, "a search for 0 trials finds nothing"), ({"seconds": 0.0}, "a search for 0 s finds nothing"),
     ({"trials": 1, "seconds": -1.0}, "a search for 1 trials, -1 s finds nothing")],
)  # fmt: skip
def test_a_search_without_a_budget_finds_nothing(words: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Search(TINY, **words)


@pytest.mark.parametrize(("points", "fits"), [(100_000, True), (100_001, False)])
def test_the_largest_space_that_needs_no_budget(points: int, fits: bool) -> None:
    space = Space((Range("A", 1, points, by_one=True),))
    with contextlib.nullcontext() if fits else pytest.raises(ConfigError, match="needs a budget"):
        Search(space)
    assert Search(space, trials=1).has(Config({"A": 1}))


def test_what_a_declared_search_says_and_how_it_runs() -> None:
    """Eight configs are prepared together; what the list took is part of its seconds."""
    search, prepared = Search(TINY, seconds=2.0), list[int]()
    assert str(search).endswith("; 2 s, seed 0")
    assert str(Search(TINY)).endswith("; all of it, seed 0")
    found = search.run(Counted(tiny_ns), lambda configs: prepared.append(len(configs)), [], 0.0)
    assert (prepared, len(found.trials)) == ([8, 1], 9)
    assert search.run(Counted(tiny_ns), lambda configs: None, [], spent=2.0).trials == ()
    assert len(Search(TINY, trials=7).run(Counted(tiny_ns), lambda configs: None, [], 0.0).trials) == 7


def test_what_a_declared_search_begins_with() -> None:
    starts, search = list(itertools.islice(MATMUL.configs(), 13)), Search(MATMUL)
    assert search.begins_with(starts[:2])[:2] == starts[:2]
    assert [len(search.begins_with(starts[:n])) for n in (0, 12, 13)] == [12, 12, 13]
    assert len(Search(MATMUL, trials=5).begins_with(starts)) == 5


def test_steps_around_a_point_come_in_an_order_that_is_drawn() -> None:
    """Of equal configs none is before others by its axis, so that seeds differ."""
    space = Space((Range("A", 0, 99, by_one=True), Range("B", 0, 99, by_one=True)))
    search = BudgetedSearch(space, starts=[Config({"A": 50, "B": 50})])
    search.run(Counted(lambda c: 1.0), Budget(trials=1))
    orders = {tuple(c.key() for c in itertools.islice(search._steps(random.Random(i)), 4)) for i in range(20)}
    assert len(orders) > 5
    assert len({frozenset(order) for order in orders}) == 1


def test_a_search_has_what_is_legal_and_one_of_its_points() -> None:
    search = Search(TINY)
    assert search.has(Config({"A": 2}, num_warps=1))
    assert not search.has(Config({"A": 4}, num_warps=1)), "illegal"
    assert not search.has(Config({"A": 3}, num_warps=8)), "no point"
