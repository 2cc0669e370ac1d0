"""Descents on tables: where they end, what they cost, try and leave alone, and what they expect."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.heuristics import INDUCTOR_2_13, Field, Neighbourhood
from kerntune.heuristics.hints import HeuristicType, KernelHints
from kerntune.search import Descent, Measured, descent
from kerntune.search.descent import (
    RegisterScaling,
    _is_half,
    _most_promising,
    expected_improvements,
    guided_descent,
    log_times,
    points_of,
)
from kerntune.search.space import History
from search.tables import MATMUL, Counted, best_of, descended, matmul_ns, refusing

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


# by expected improvement


H100 = TYPICAL_DEVICES["cuda:90"]
STAGES, WARPS = ("num_stages",), ("num_warps", "num_stages")


def run(time_of: Callable[[Config], Measured], *starts: Config, **words: object) -> Config:
    descent = Descent(tuple(starts), H100, **words)  # type: ignore[arg-type]
    found = descent.run(time_of, lambda configs: None, starts, 0.0)
    assert len(found.trials) <= len(starts) + descent.trials
    return found.best.config


def doublings(config: Config, name: str) -> float:
    value = config.num_warps if name == "num_warps" else config.kwargs[name]
    assert isinstance(value, int)
    return math.log2(value)


@settings(max_examples=10, deadline=None)
@given(st.tuples(st.integers(4, 10), st.integers(0, 4)), st.tuples(st.integers(4, 10), st.integers(0, 4)))
def test_a_valley_of_two_fields_ends_at_its_bottom(start: tuple[int, int], bottom: tuple[int, int]) -> None:
    def measure(config: Config) -> Measured:
        apart = abs(doublings(config, "X") - bottom[0]) + abs(doublings(config, "num_warps") - bottom[1])
        return Measured(1000.0 * 1.2**apart)

    best = run(measure, Config({"X": 2 ** start[0]}, num_warps=2 ** start[1]), frozen=STAGES)
    assert (doublings(best, "X"), best.num_warps) == (bottom[0], 2 ** bottom[1])


def test_fields_that_only_help_together_move_together() -> None:
    """A block twice as large needs twice the warps; either alone is five times as slow."""

    def measure(config: Config) -> Measured:
        return Measured(
            1e6 / 2 ** doublings(config, "X") * (1 if doublings(config, "X") == 6 + math.log2(config.num_warps) else 5)
        )

    best = run(measure, Config({"X": 64}, num_warps=1), frozen=STAGES, limits=(("X", 1024),))
    assert (best.kwargs["X"], best.num_warps) == (1024, 16)


def test_only_all_directions_pass_by_what_cant_be_used() -> None:
    def measure(config: Config) -> Measured:
        values = {doublings(config, name) for name in "XYZ"}
        return Measured(1000.0 - 100 * max(values)) if len(values) == 1 else Measured(None, "no square")

    start, limits = Config({"X": 1, "Y": 1, "Z": 1}), tuple((name, 8) for name in "XYZ")
    words = {"frozen": WARPS, "limits": limits, "trials": 60}
    assert run(measure, start, **words) == start
    assert run(measure, start, **words, all_directions=True).kwargs == {"X": 8, "Y": 8, "Z": 8}


def test_a_dip_behind_slower_configs_is_found_from_the_next_start() -> None:
    """Two dips: the fastest start lies in the shallow one."""
    depth = {64: 100.0, 128: 99.0, 256: 130.0, 512: 140.0, 1024: 120.0, 2048: 90.0, 4096: 80.0, 8192: 95.0}

    def measure(config: Config) -> Measured:
        time = depth.get(int(config.kwargs["BLOCK"]))  # type: ignore[arg-type]
        return Measured(time, "" if time else "no such block")

    starts = [Config({"BLOCK": b}) for b in (64, 1024)]
    assert run(measure, *starts, frozen=WARPS).kwargs["BLOCK"] == 4096


def test_stages_that_lead_to_the_same_code_cost_one_trial() -> None:
    """Times that are a little wrong would make a step of it, and further ones from there."""

    def measure(config: Config) -> Measured:
        time = 1000.0 * 1.2 ** abs(doublings(config, "Y") - 6) * (1 - 0.01 * config.num_stages)
        return Measured(time, code=config.replace(num_stages=1).key())

    start = Config({"X": 16, "Y": 8}, num_stages=1)
    found = Descent((start,), H100, frozen=("num_warps",)).run(measure, lambda configs: None, [start], 0.0)
    assert len([t for t in found.trials if t.config.num_stages > 1]) == 1
    assert found.best.config.kwargs["Y"] == 64


def test_stages_that_change_the_code_are_stepped_along() -> None:
    def measure(config: Config) -> Measured:
        return Measured(1000.0 * 1.2 ** abs(config.num_stages - 5), code=config.key())

    assert run(measure, Config({"X": 16}, num_stages=2), frozen=("num_warps", "X")).num_stages == 5


@pytest.mark.slow
def test_a_matmul_from_a_bad_start() -> None:
    start = Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}, num_warps=1, num_stages=1)
    limits = (("BLOCK_K", 128), ("BLOCK_M", 256), ("BLOCK_N", 256))
    measure = Counted(matmul_ns)
    time = matmul_ns(run(measure, start, limits=limits, trials=100))
    assert time is not None
    assert time <= best_of(MATMUL, matmul_ns) * 1.05
    assert len(measure.asked) == 101


def test_further_starts_are_tried_first_as_far_as_a_third_of_the_trials() -> None:
    asked: list[list[Config]] = []
    far = [Config({"X": 2**i}) for i in range(8, 14)]
    descent = Descent((Config({"X": 16}),), H100, trials=9, frozen=WARPS, further=(Config({"Y": 3}), *far))
    found = descent.run(lambda c: Measured(100.0), lambda configs: asked.append(list(configs)), descent.listed, 0.0)
    assert asked[0] == far[:3], "not what the list has no field of"
    assert [t.config for t in found.trials[:4]] == [*descent.listed, *far[:3]]


def test_a_second_descent_goes_on_where_the_first_was() -> None:
    """Equal answers lead to equal steps, so that what is stored isn't tried again."""

    def measure(config: Config) -> Measured:
        return Measured(1000.0 + hash_of(config))

    start = Config({"X": 64, "Y": 64})
    short, long = (Descent((start,), H100, trials=n).run(measure, lambda configs: None, [start], 0.0) for n in (10, 20))
    assert long.trials[:11] == short.trials


def hash_of(config: Config) -> int:
    return zlib.crc32(config.key().encode()) % 500


# points, and what is expected of untried ones


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


def improvements_by_hand(points: np.ndarray, times: list[float], choices: np.ndarray) -> list[float]:
    """A Gaussian process with the Matern 5/2 covariance at a length of two doublings, and an error of a hundredth of
    its variance (Rasmussen and Williams, 2006: eq. 2.25, 2.26 and 4.17; mean and variance by maximum likelihood); the
    expected improvement beyond a thousandth (Jones et al., 1998)."""

    def matern(a: np.ndarray, b: np.ndarray) -> float:
        d = math.dist(a, b) / 2.0
        return (1 + math.sqrt(5) * d + 5 * d * d / 3) * math.exp(-math.sqrt(5) * d)

    usable = [math.log(t) for t in times if t < math.inf]
    failed = max([*usable, min(usable) + 0.5])
    y = np.array([min(math.log(t) if t < math.inf else failed, min(usable) + 1.0) for t in times])
    inverse = np.linalg.inv(np.array([[matern(a, b) for b in points] for a in points]) + 0.01 * np.eye(len(points)))
    mean = (inverse @ y).sum() / inverse.sum()
    variance = (y - mean) @ inverse @ (y - mean) / len(y)
    found = []
    for choice in choices:
        k = np.array([matern(choice, a) for a in points])
        at, sd = mean + k @ inverse @ (y - mean), math.sqrt(variance * (1.01 - k @ inverse @ k))
        gain = min(y) - 1e-3 - at
        normal = NormalDist()
        found.append(gain * normal.cdf(gain / sd) + sd * normal.pdf(gain / sd))
    return found


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(10.0, 1000.0) | st.just(math.inf), min_size=2, max_size=6), st.integers(0, 99))
def test_improvements_are_a_gaussian_processs(times: list[float], seed: int) -> None:
    times = [123.0, *times]
    points = np.random.default_rng(seed).uniform(0, 6, (len(times) + 3, 2))
    known, others = points[: len(times)], points[len(times) :]
    expected = improvements_by_hand(known, times, others)
    assert list(expected_improvements(known, times, others)) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_where_configs_are() -> None:
    """Doublings, stages as they are, texts by their place; the last is the tile that a warp has."""
    configs = [Config({"X": 64, "M": "b"}, num_warps=4, num_stages=3), Config({"X": 0, "M": "a"}, num_warps=1)]
    assert points_of(configs).tolist() == [[6.0, 1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.0, 3.0, 0.0]]


def test_steps_go_from_the_best_five_and_two_are_measured_at_once() -> None:
    times = {2**i: 100.0 + i for i in range(8)}
    history, asked = History(refusing(times)), list[list[Config]]()
    for block in times:
        history.time_of(Config({"BLOCK": block}))
    seen: list[object] = []

    def steps_from(config: Config, without: frozenset[str]) -> Neighbourhood:
        seen.append(config.kwargs["BLOCK"])
        return Neighbourhood((Field("BLOCK", most=1024), Field("num_warps", most=32)))

    history.limit = 10
    guided_descent(history, steps_from, all_directions=0, prepare=lambda configs: asked.append(list(configs)))
    assert list(dict.fromkeys(seen)) == [1, 2, 4, 8, 16]
    assert [len(configs) for configs in asked] == [2]


def test_a_descent_tries_25_configs_beyond_its_list_and_none_of_all_directions_by_default() -> None:
    start = Config({"X": 16})
    assert Descent((start,), H100) == Descent((start,), H100, 25, False, (), (), (), (), 1, None)


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
    assert math.isclose(np.ptp(log_times([0.0, 2e-3])), math.log(2))


def test_the_second_of_two_is_chosen_as_if_the_first_were_as_fast_as_the_best() -> None:
    times = {16: 300.0, 32: 200.0, 64: 100.0}
    history = History(refusing(times))
    for block in times:
        history.time_of(Config({"BLOCK": block}))
    choices = [Config({"BLOCK": b}) for b in (8, 2048, 128, 256, 4)]
    points = points_of([*history.tried(), *choices])
    first = int(expected_improvements(points[:3], list(times.values()), points[3:]).argmax())
    gains = expected_improvements(points[[0, 1, 2, 3 + first]], [*times.values(), 100.0], points[3:])
    gains[first] = 0.0
    assert (first, int(gains.argmax())) == (2, 3)
    assert _most_promising(history, choices) == [choices[2], choices[3]]


def test_the_second_of_two_is_not_beside_the_first() -> None:
    history = History(refusing({1: 100.0}))
    history.time_of(Config({"BLOCK": 1}))
    found = _most_promising(history, [Config({"BLOCK": b}) for b in (16, 64, 32, 2, 128, 256)])
    assert [config.kwargs["BLOCK"] for config in found] == [128, 16]


def test_two_are_chosen_where_nothing_promises_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "expected_improvements", lambda points, times, choices: np.zeros(len(choices)))
    history = History(refusing({1: 100.0}))
    history.time_of(Config({"BLOCK": 1}))
    choices = [Config({"BLOCK": b}) for b in (2, 4, 8)]
    assert _most_promising(history, choices) == choices[:2]


# reduction blocks that are halved where registers limit occupancy


def halving(start: Config) -> RegisterScaling:
    hints = KernelHints(sizes={"x": 1 << 20, "r0": 8192})
    blocks = {"x": "XB", "r0": "STEP"}
    return RegisterScaling((start,), blocks, hints, H100, HeuristicType.REDUCTION, INDUCTOR_2_13)


def test_each_halved_config_is_prepared_once() -> None:
    start = Config({"XB": 1, "STEP": 4096}, num_warps=16)
    found, prepared = halving(start), list[Config]()

    def measure(config: Config) -> Measured:
        step = config.kwargs["STEP"]
        assert isinstance(step, int)
        return Measured(float(step), registers=step // 16)

    trials = found.run(measure, prepared.extend, [start], 0.0).trials
    assert [t.config.kwargs["STEP"] for t in trials] == [4096, 2048, 1024, 512]
    assert [c.kwargs["STEP"] for c in prepared] == [2048, 1024, 512]
    assert all(found.has(c) for c in (start, *prepared))
    for other in ({"XB": 2, "STEP": 2048}, {"XB": 1, "STEP": 3000}, {"XB": 1, "STEP": 8192}, {"STEP": 2048}):
        assert not found.has(Config(other, num_warps=16))
    assert not found.has(Config({"XB": 1, "STEP": 2048}, num_warps=8))
    assert not found.has(Config({"XB": 1, "STEP": 2048, "MORE": 1}, num_warps=16))
    assert str(found) == ""


@pytest.mark.parametrize(("registers", "helps"), [(255, True), (33, True), (32, False), (None, False)])
def test_halving_may_help_where_a_thread_takes_more_registers_than_full_occupancy_leaves(
    registers: int | None, helps: bool
) -> None:
    start = Config({"XB": 1, "STEP": 4096}, num_warps=16)
    assert halving(start).may_help({start: registers}) is helps
    assert not halving(start).may_help({})
