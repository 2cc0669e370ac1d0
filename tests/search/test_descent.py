"""Coordinate descent on tables: where it ends, and what it costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.heuristics import Field, Neighbourhood, neighbourhood
from kerntune.search import Descent, Measured
from kerntune.search.descent import MOST_PAIRS
from search.tables import MATMUL, Counted, best_of, descended, matmul_ns, refusing

H100 = TYPICAL_DEVICES["cuda:90"]
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


def test_a_matmul_from_a_bad_start() -> None:
    start = Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}, num_warps=1, num_stages=1)
    measure = Counted(matmul_ns)
    around = neighbourhood(start, H100, limits={"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128})
    found = descended(measure, start, around, all_directions=True)
    assert found.best.time_ns <= best_of(MATMUL, matmul_ns) * 1.05  # type: ignore[operator]
    assert len(measure.asked) < 400


def test_two_fields_that_must_move_together_need_all_directions() -> None:
    def time_of(config: Config) -> float:
        x, y = (int(math.log2(int(config.kwargs[n]))) for n in ("X", "Y"))  # type: ignore[arg-type]
        return 100.0 - min(x, y) + 5 * abs(x - y)

    around = Neighbourhood((Field("X", most=16), Field("Y", most=16)))
    start = Config({"X": 1, "Y": 1})
    assert descended(Counted(time_of), start, around).best.config == start
    best = descended(Counted(time_of), start, around, all_directions=True).best.config
    assert best.kwargs == {"X": 16, "Y": 16}


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
    found = descended(measure, Config({"BLOCK": 1}), ONE, max_trials=limit, all_directions=True)
    assert len(measure.asked) == len(found.trials) == limit


def test_a_descent_that_ended_goes_on_from_the_next_start() -> None:
    """Two dips: the fastest start lies in the shallow one."""
    depth = {64: 100.0, 128: 99.0, 256: 130.0, 512: 140.0, 1024: 120.0, 2048: 90.0, 4096: 80.0, 8192: 95.0}

    def measure(config: Config) -> Measured:
        time = depth.get(int(config.kwargs["BLOCK"]))  # type: ignore[arg-type]
        return Measured(time, "" if time else "no such block")

    starts = [Config({"BLOCK": b}) for b in (64, 1024)]
    kept = ("num_warps", "num_stages")
    found = Descent(tuple(starts), H100, frozen=kept).run(measure, lambda configs: None, starts)
    assert found.best.config.kwargs["BLOCK"] == 4096
    few = Descent(tuple(starts), H100, trials=3, frozen=kept).run(measure, lambda configs: None, starts)
    assert few.best.config.kwargs["BLOCK"] == 128
    assert len(few.trials) == 5


def test_few_pairs_of_fields_are_tried() -> None:
    measure = Counted(lambda c: 1.0 if c.kwargs == {"X": 64, "Y": 64, "Z": 64} else 2.0)
    around = Neighbourhood(tuple(Field(n, most=1024) for n in "XYZ"))
    descended(measure, Config({"X": 64, "Y": 64, "Z": 64}), around, two_fields=True)
    assert len(measure.asked) == 1 + 6 + MOST_PAIRS
