"""The moves of one case: only what was measured against the same reference is compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerntune.base.stats import Estimate
from kerntune.gate.history import series as series_module
from kerntune.gate.history.points import shift_of
from kerntune.gate.history.series import CaseShift, ChangeSeries, found_in

SD = 0.001
RATE = 1e-4


def runs(
    levels: list[float],
    seed: int = 0,
    work: Callable[[int], int] = lambda i: i + 1,
    reference: Callable[[int], int] = lambda i: 7,
    reference_work: Callable[[int], int] = lambda i: 0,
    setting: Callable[[int], int] = lambda i: 0,
) -> ChangeSeries:
    """Points of these levels, with noise."""
    places = np.arange(len(levels))
    values = np.asarray(levels) + np.random.default_rng(seed).normal(0, SD, len(levels))
    columns = [np.array([f(i) for i in places]) for f in (work, reference, reference_work, setting)]
    return ChangeSeries(places, *columns[:3], values, np.full(len(levels), SD), columns[3])


def chain(levels: list[float], seed: int = 0) -> ChangeSeries:
    """Each run's baseline is the run before."""
    return runs(levels, seed, reference=lambda i: i, reference_work=lambda i: i)


def found(series: ChangeSeries) -> tuple[CaseShift, ...]:
    return found_in(series, {1: {"triton": "3.6", "host": "a"}, 2: {"triton": "3.7", "host": "a"}}, RATE)


def test_a_step_is_told_as_a_share_with_the_runs_beside_it() -> None:
    (move,) = found(runs([0.0] * 30 + [0.05] * 30))
    assert (move.before, move.after, move.drift) == (29, 30, False)
    assert abs(move.size - math.expm1(0.05)) < 0.002
    assert move.low < math.expm1(0.05) < move.high


@pytest.mark.parametrize(
    ("values", "words", "moves"),
    [
        ([0.0] * 300 + [0.003] * 300, {}, 0),
        ([0.0] * 20 + [0.05] * 20, {"work": lambda i: 3}, 0),
        ([0.0] * 20 + [0.05] * 20, {"work": lambda i: 0}, 1),
        ([0.0] * 20 + [0.05] * 20, {"reference": lambda i: i // 20}, 0),
    ],
    ids=["small", "equal work never moves", "work that is not known", "a new baseline of other work"],
)
def test_which_moves_are_told(values: list[float], words: dict[str, Any], moves: int) -> None:
    assert len(found(runs(values, **words))) == moves


@pytest.mark.slow
def test_a_chain_of_changes_against_ever_new_baselines_is_not_added_up() -> None:
    """The sum of 400 errors wanders by percents, and nothing has moved."""
    wandered = []
    for seed in range(20):
        series = chain([0.0] * 400, seed)
        assert found(series) == ()
        wandered.append(abs(np.cumsum(series.value)).max())
    assert max(wandered) > 0.03


def test_a_step_in_such_a_chain_is_found() -> None:
    (move,) = found(chain([0.0] * 60 + [0.015] + [0.0] * 39, 5))
    assert (move.before, move.after) == (59, 60)


def test_values_of_equal_work_are_one_value() -> None:
    """Two codes, measured thirty times each: 0.6 % lies 23 standard deviations of the means apart."""
    (move,) = found(runs([0.0] * 30 + [0.006] * 30, work=lambda i: i // 30 + 1))
    assert (move.before, move.after) == (29, 30)
    assert move.high - move.low < 0.002


def test_an_exact_value_outweighs_measured_ones_of_the_same_work() -> None:
    series = runs([0.004] * 4 + [0.012] * 4, work=lambda i: i // 4 + 1)
    exact = series._replace(value=np.where(np.arange(8) == 1, 0.0, series.value), sd=np.where(np.arange(8) == 1, 0, SD))
    (move,) = found(exact)
    assert abs(move.size - math.expm1(0.012)) < 0.002


def test_what_else_changed_is_named() -> None:
    (move,) = found(runs([0.0] * 30 + [0.05] * 30, setting=lambda i: 1 if i < 30 else 2))
    assert move.settings == ("triton 3.6 -> 3.7",)


def test_a_case_without_points_has_none() -> None:
    assert found(runs([])) == ()


def test_a_stretch_begins_with_the_latest_run_of_its_references_work() -> None:
    """Work 1 ran first, and again after work 2 was undone: the step lies behind the second time."""
    series = runs(
        [0.0] * 6 + [0.05] * 6,
        work=lambda i: [1, 2, 1, 1, 1, 1][i] if i < 6 else i + 10,
        reference=lambda i: 7 if i < 6 else 8,
        reference_work=lambda i: 0 if i < 6 else 1,
    )
    (move,) = found(series)
    assert (move.before, move.after) == (5, 6)


def test_the_rate_of_false_moves_is_shared_by_all_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr(series_module, "moves", lambda values, sds, rate, freedom: given.append(rate) or ())
    found(runs([0.0] * 20, reference=lambda i: i // 5))
    assert given == [RATE / 4] * 4


def test_where_a_move_may_lie_is_told_by_the_runs_beside_it() -> None:
    """Of runs of equal work the last one is before a move, and the first one after it."""
    (move,) = found(runs([0.0] * 12 + [0.01] * 12, 2, work=lambda i: i // 3 + 1))
    assert move.earliest % 3 == 2
    assert move.latest % 3 == 0
    assert move.earliest <= move.before < move.after <= move.latest


@pytest.mark.parametrize("runs_of_case", [5, 30])
@pytest.mark.parametrize("chained", [False, True])
def test_deviations_that_runs_understate_by_chance_move_nothing(runs_of_case: int, chained: bool) -> None:
    """Processes are 0.4 % apart, and three that agree by chance say 0.06 %. Of 200 cases two may be wrong; with each
    run's own deviation and a normal error it was 8 to 30."""
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        each = rng.normal(0, 0.004, (runs_of_case, 3))
        made = (chain if chained else runs)([0.0] * runs_of_case)
        sd = np.maximum(SD, each.std(1, ddof=1)) / 3**0.5
        wrong += bool(found_in(made._replace(value=each.mean(1), sd=sd), {}, 0.01))
    assert wrong <= 4


@pytest.mark.parametrize(
    ("low", "high", "known"),
    [(0.1, 0.1, True), (0.05, 0.1, True), (0.1, 0.2, True), (0.11, 0.2, False), (0.05, 0.09, False)],
)
def test_a_change_may_be_an_end_of_its_interval(low: float, high: float, known: bool) -> None:
    assert (shift_of(Estimate(0.1, low, high, 0.99), "run") is not None) == known
