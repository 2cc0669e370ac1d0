"""A case against itself: its effect floor, its process bias and its spread."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import recording, time_baseline

from kerntune.base.codec import from_json, to_json
from kerntune.gate.baselines import TIME_SCHEMA, Calibration, TimeBaseline
from kerntune.gate.replay import against_stored, both, calibrate, earlier_text, is_current, states_of, version_of
from kerntune.timing.paired_processes import paired_work
from kerntune.timing.worker.requests import PairReply, PairRequest

CALIBRATION_PROCESSES = 4
STATE_MARGIN = 1.25
BLOCKS = 24


WORK = paired_work(recording(), recording(), recording().storages, {})


class Device:
    """Equal code, with the given noise of blocks, bias of processes and spread of sessions."""

    def __init__(self, noise: float, bias: float, spread: float, seed: int = 0) -> None:
        self.noise, self.bias, self.spread = noise, bias, spread
        self.rng, self.asked = np.random.default_rng(seed), 0

    def expect(self, count: int) -> None:
        """Every reply is another process's."""

    def run(self, request: PairRequest) -> PairReply:
        self.asked += 1
        level = 10_000 * math.exp(self.rng.normal(0, self.spread))
        a, b = level * self.rng.normal(1, self.noise, (2, request.blocks))
        return PairReply(tuple(a), tuple(b * math.exp(self.rng.normal(0, self.bias))))

    def close(self) -> None:
        """Nothing to end."""


def test_a_quiet_case_has_a_low_floor() -> None:
    found = calibrate(Device(0.001, 0.0005, 0.001), WORK)
    assert 0.0 < found.floor < 0.005
    assert (found.processes, found.blocks) == (CALIBRATION_PROCESSES, BLOCKS)


def test_noise_and_bias_raise_the_floor() -> None:
    floors = [calibrate(Device(n, b, 0.001), WORK, 8).floor for n, b in [(0.001, 0.0), (0.02, 0.0), (0.001, 0.01)]]
    assert floors[0] < 0.003
    assert floors[1] > 0.007
    assert floors[2] > 0.01


def pooled(deviations: Iterable[float]) -> float:
    """Of equally many processes each."""
    return math.sqrt(fmean(x * x for x in deviations))


@pytest.mark.slow
def test_bias_and_spread_are_read_back() -> None:
    """By 200 processes each, forty a calibration: the exact interval of all blocks together takes the cube of them."""
    found = [calibrate(Device(0.002, 0.01, 0.03, seed), WORK, 40) for seed in range(5)]
    assert pooled(f.bias for f in found) == pytest.approx(0.01, rel=0.15)
    assert pooled(f.median_sd for f in found) == pytest.approx(0.03, rel=0.2)
    quiet = [calibrate(Device(0.02, 0.0, 0.0, seed), WORK, 40) for seed in range(5)]
    assert pooled(f.bias for f in quiet) < 0.003, "what blocks explain is no bias"


def test_each_process_is_asked_once() -> None:
    device = Device(0.001, 0.0, 0.0)
    calibrate(device, WORK, 3)
    assert device.asked == 3


@given(st.floats(0.5, 2.0), st.floats(0.0, 0.05), st.sampled_from([0.9, 0.99, 0.999]))
def test_a_stored_sample_is_held_against_with_a_wide_interval(ratio: float, spread: float, level: float) -> None:
    known = Calibration(4, 12, 0.01, 0.001, spread)
    found = against_stored(ratio * 1000, 1000, known, level)
    assert found.point == pytest.approx(ratio - 1)
    assert found.low < found.point < found.high
    wider = against_stored(ratio * 1000, 1000, Calibration(4, 12, 0.01, 0.001, spread + 0.01), level)
    assert wider.high > found.high


def test_more_processes_are_surer() -> None:
    few, many = (against_stored(1000, 1000, Calibration(n, 12, 0.01, 0.001, 0.003), 0.999) for n in (2, 30))
    assert few.high > 1.0 > many.high
    assert many.high < 0.02


def test_old_baselines_still_decode_and_new_ones_keep_it() -> None:
    made = time_baseline()
    plain = msgspec.to_builtins(made)
    del plain["calibration"]
    assert from_json(msgspec.json.encode(plain), TimeBaseline, TIME_SCHEMA, where="old.json").calibration is None
    known = msgspec.structs.replace(made, calibration=Calibration(4, 12, 0.004, 0.0005, 0.002))
    assert from_json(to_json(known), TimeBaseline, TIME_SCHEMA, where="new.json") == known


# states of the device


def states(*levels: float, blocks: int = BLOCKS) -> PairReply:
    """A process whose blocks are at these levels, as long at each."""
    times = tuple(levels[i * len(levels) // blocks] for i in range(blocks))
    return PairReply(times, times)


class Replies:
    """Answers in order."""

    def __init__(self, *replies: PairReply) -> None:
        self.replies = list(replies)

    def expect(self, count: int) -> None:
        """All are there."""

    def run(self, request: PairRequest) -> PairReply:
        return self.replies.pop(0)


def test_drift_is_what_states_of_the_device_do() -> None:
    quiet = calibrate(Replies(*[states(1000.0)] * 4), WORK)
    assert quiet.state_range == 0.0
    limited = calibrate(Replies(states(391.0, 434.0), *[states(391.0)] * 3), WORK)
    assert limited.state_range == pytest.approx(STATE_MARGIN * (434 / 391 - 1), rel=1e-3)
    between_processes = calibrate(Replies(states(391.0), states(434.0), states(400.0), states(400.0)), WORK)
    assert between_processes.state_range == pytest.approx(limited.state_range)


def test_one_interrupted_block_is_no_state() -> None:
    odd = PairReply((*[1000.0] * 5, 3000.0, *[1000.0] * 6), (1000.0,) * 12)
    assert calibrate(Replies(odd, *[states(1000.0)] * 3), WORK).state_range == 0.0
    assert states_of([1.0, 1.0, 9.0, 1.0, 2.0, 2.0]) == [1.0, 1.0, 2.0, 2.0]
    assert states_of([4.0, 6.0]) == [5.0], "fewer blocks than make a state are one"
    assert states_of([]) == []


@pytest.mark.parametrize("seen", [[224.0], [*[224.0] * 4, *[248.0] * 36]])
def test_the_stored_sample_shows_states_too(seen: list[float]) -> None:
    """As a matmul that ran into the power limit in the midst of its sample: most of it is of the slower state."""
    found = calibrate(Replies(*[states(250.0)] * 4), WORK, seen_ns=seen)
    assert found.state_range == pytest.approx(STATE_MARGIN * (250 / 224 - 1), rel=1e-3)


def test_a_case_that_takes_no_time_has_no_other_states() -> None:
    assert calibrate(Replies(*[states(250.0)] * 4), WORK, seen_ns=[0.0] * 10).state_range == 0.0


def test_throttle_reasons_are_kept() -> None:
    seen = iter(["", "0x4", "", "0x4", "0x24"])
    found = calibrate(Replies(*[states(1000.0)] * 4), WORK, throttle=lambda: next(seen))
    assert found.throttle == ("0x24", "0x4")


@pytest.mark.parametrize(
    ("blocks", "said", "version"),
    [(12, None, 1), (24, None, 2), (36, None, 0), (24, 1, 1), (12, 2, 2), (12, 3, 3)],
)
def test_a_calibration_that_says_no_rule_is_known_by_its_blocks(blocks: int, said: int | None, version: int) -> None:
    found = Calibration(4, blocks, 0.001, 0.0, 0.002, version=msgspec.UNSET if said is None else said)
    assert version_of(found) == version
    assert is_current(found) is (version == 2)


class WrittenReplies(Device):
    """Gives replies that are written down, one after the other."""

    def __init__(self, *replies: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
        self.replies, self.expected = iter(replies), list[int]()

    def expect(self, count: int) -> None:
        self.expected.append(count)

    def run(self, request: PairRequest) -> PairReply:
        return PairReply(*next(self.replies))


def constant(*levels: float) -> WrittenReplies:
    """Processes without noise, each of which runs at one speed."""
    return WrittenReplies(*(((level,) * BLOCKS, (level,) * BLOCKS) for level in levels))


def test_a_calibration_of_four_processes_without_noise() -> None:
    device = constant(100.0, 100.0, 110.0, 110.0)
    found = calibrate(device, WORK)
    assert (device.expected, found.processes, CALIBRATION_PROCESSES) == ([4], 4, 4)
    assert (found.floor, found.bias) == (0.0, 0.0)
    assert found.median_sd == float(f"{math.log(1.1) / math.sqrt(3):.4g}"), "the medians' sample deviation"
    assert found.state_range == 0.125, "a quarter more than the 10 % that were seen"
    assert (found.throttle, found.version) == ((), 2)


def test_one_process_has_no_deviation() -> None:
    assert calibrate(constant(100.0), WORK, 1).median_sd == 0.0
    assert calibrate(constant(100.0, 121.0), WORK, 2).median_sd == float(f"{math.log(1.21) / math.sqrt(2):.4g}")


def test_of_a_block_the_mean_of_its_two_sides_counts() -> None:
    assert both(PairReply((1.0, 5.0), (3.0, 8.0))) == [2.0, 6.5]
    with pytest.raises(ValueError, match="zip"):
        both(PairReply((1.0, 5.0), (3.0,)))


@pytest.mark.parametrize(
    ("times", "states"),
    [
        ([], []),
        ([7.0], [7.0]),
        ([7.0, 9.0], [8.0]),
        ([7.0, 9.0, 8.0], [8.0]),
        ([7.0, 9.0, 8.0, 20.0], [8.0, 9.0]),
        ([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0]),
    ],
)
def test_states_are_medians_of_three_in_a_row(times: list[float], states: list[float]) -> None:
    assert states_of(times) == states


@pytest.mark.parametrize(
    ("processes", "deviation", "margin"),
    [
        (2, 0.01, 12.706205 * math.sqrt(2) * 0.01),
        (5, 0.01, 2.776445 * math.sqrt(2) * 0.01),
        (5, 0.0021, 2.776445 * math.sqrt(2) * 0.0021),
        (5, 0.001, 2.776445 * math.sqrt(2) * 0.002),
        (1, 0.003, 19.59964 * math.sqrt(2) * 0.003),
    ],
)
def test_a_stored_sample_is_held_against_with_students_interval(
    processes: int, deviation: float, margin: float
) -> None:
    """Student's t of tables (0.975), of one degree of freedom less; one process has ten normal deviations."""
    found = against_stored(1100.0, 1000.0, Calibration(processes, 24, 0.01, 0.001, deviation), 0.95)
    assert found.point == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((1.1 * math.exp(-margin) - 1, 1.1 * math.exp(margin) - 1), rel=1e-6)


def test_a_calibration_of_an_earlier_rule_says_what_to_do() -> None:
    said = earlier_text(Calibration(4, 12, 0.001, 0.0, 0.002))
    assert "(12 blocks a process, now 24)" in said
    assert "`kerntune calibrate`" in said


# figures, by hand


@pytest.mark.parametrize(("blocks", "version"), [(12, 1), (24, 2), (13, 0), (36, 0)])
def test_a_calibration_without_a_version_tells_it_by_its_blocks(blocks: int, version: int) -> None:
    known = Calibration(4, blocks, 0.01, 0.001, 0.002)
    assert version_of(known) == version
    assert is_current(known) is (version == 2)
    assert version_of(msgspec.structs.replace(known, version=7)) == 7


@pytest.mark.parametrize(
    ("processes", "level", "quantile"),
    [(4, 0.99, 5.840909), (2, 0.9, 6.313752), (30, 0.95, 2.045230), (1, 0.99, 25.758293)],
)
def test_the_interval_of_a_stored_time_is_student_s(processes: int, level: float, quantile: float) -> None:
    """Two-sided, for the difference of two sessions; of one process, ten times the normal one."""
    known = Calibration(processes, 24, 0.01, 0.001, 0.004)
    found = against_stored(1100.0, 1000.0, known, level)
    margin = quantile * math.sqrt(2) * 0.004
    assert found.point == pytest.approx(0.1)
    assert found.low == pytest.approx(1.1 * math.exp(-margin) - 1, rel=1e-5)
    assert found.high == pytest.approx(1.1 * math.exp(margin) - 1, rel=1e-5)
    assert found.level == level


def test_two_sessions_differ_by_a_fifth_of_a_percent_at_least() -> None:
    none, least = (against_stored(1e3, 1e3, Calibration(4, 24, 0.01, 0.001, sd), 0.99) for sd in (0.0, 0.002))
    assert none == least


class Steady:
    """Replies by hand, one a process."""

    def __init__(self, *replies: PairReply) -> None:
        self.replies, self.expected, self.seeds = list(replies), 0, list[int]()

    def expect(self, count: int) -> None:
        self.expected = count

    def run(self, request: PairRequest) -> PairReply:
        self.seeds.append(request.seed)
        assert request.blocks == BLOCKS
        return self.replies.pop(0)

    def close(self) -> None:
        """Nothing to end."""


def at(ns: float) -> PairReply:
    return PairReply((ns,) * BLOCKS, (ns,) * BLOCKS)


def test_the_deviation_of_processes_is_that_of_their_medians() -> None:
    two = Steady(at(1000.0), at(1000.0 * math.exp(0.02)))
    found = calibrate(two, WORK, 2)
    assert found.median_sd == pytest.approx(0.02 / math.sqrt(2), rel=1e-3)
    assert (found.floor, found.bias) == (0.0, 0.0)
    assert (two.expected, two.seeds) == (2, [0, 1])
    assert found.state_range == pytest.approx(1.25 * (math.exp(0.02) - 1), rel=1e-3)


def test_reasons_of_throttling_are_kept_each_once() -> None:
    told = iter(["", "0x4", "0x40", "0x4"])
    found = calibrate(Steady(at(1.0), at(1.0), at(1.0)), WORK, 3, throttle=lambda: next(told))
    assert found.throttle == ("0x4", "0x40")
    assert next(told, None) is None, "asked before the first process and after each"


def test_a_bias_that_all_processes_share_is_one() -> None:
    """Both sides are the same code: the truth is zero, not their mean."""

    class Biased(Device):
        def run(self, request: PairRequest) -> PairReply:
            found = super().run(request)
            return PairReply(found.a_ns, tuple(x * 1.01 for x in found.b_ns))

    assert calibrate(Biased(0.001, 0.0, 0.0), WORK).bias == pytest.approx(0.01, rel=0.05)
