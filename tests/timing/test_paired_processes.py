"""What several processes come to: when they agree, when one does not, and how far an interval reaches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import recording

from kerntune.base.numerics import ComparedResults
from kerntune.base.stats import Estimate, hodges_lehmann, median, student_quantile
from kerntune.errors import MeasurementError, ReplayError
from kerntune.gpu.foreign_work import ForeignWork
from kerntune.timing import paired_processes
from kerntune.timing.paired_processes import between, combine, compare, log_ratios, once, paired_work, pooled
from kerntune.timing.worker.requests import PairReply, PairRequest

DEFAULT_LEVEL = 0.999
BLOCKS = 24
MORE_BLOCKS = 36
MORE_PROCESSES = 5
MORE_UNKNOWN = 9
MORE_UNKNOWN_BLOCKS = 20
ONE_SIGMA = 0.6827
PROCESS_BIAS = 0.001
PROCESSES = 3
SHOWN_LEVEL = 0.99


WORK = paired_work(recording(), recording(), recording().storages, {})


def reply(change: float, noise: float = 0.002, blocks: int = BLOCKS, seed: int = 0) -> PairReply:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(1, noise, (2, blocks)) * 10_000
    return PairReply(tuple(a), tuple(b * (1 + change)))


def own(found: PairReply) -> Estimate:
    return hodges_lehmann(log_ratios(found), ONE_SIGMA)


class Scripted:
    """Replies with one change a process."""

    def __init__(self, *changes: float, noise: float = 0.002) -> None:
        self.changes, self.noise = list(changes), noise
        self.requests: list[PairRequest] = []

    def expect(self, count: int) -> None:
        """Every reply is another process's."""

    def run(self, request: PairRequest) -> PairReply:
        self.requests.append(request)
        index = len(self.requests) - 1
        return reply(self.changes[index % len(self.changes)], self.noise, request.blocks, index)

    def close(self) -> None:
        """Nothing to end."""


def test_agreeing_processes_give_a_narrow_interval() -> None:
    found = combine([reply(0.03, seed=i) for i in range(3)], DEFAULT_LEVEL)
    assert found.change.point == pytest.approx(0.03, abs=0.002)
    assert 0.02 < found.change.low < found.change.high < 0.04
    assert found.change.level == DEFAULT_LEVEL
    assert found.b_ns[0] / found.a_ns[0] == pytest.approx(1.03, abs=0.005)


@pytest.mark.parametrize("odd", [0.0, 0.005, 0.019])
def test_one_process_that_does_not_agree_keeps_the_border_inside(odd: float) -> None:
    """However many blocks the others have: 'any retry passes' has no place, and neither has 'most of them'."""
    replies = [reply(0.05, seed=i, blocks=100) for i in range(5)] + [reply(odd, seed=9, blocks=100)]
    assert combine(replies, DEFAULT_LEVEL).change.low < 0.02


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=8), st.integers(0, 1000))
def test_an_interval_reaches_to_every_process(changes: list[float], seed: int) -> None:
    replies = [reply(c, seed=seed + i) for i, c in enumerate(changes)]
    change = combine(replies, 0.9).change
    slack = 1e-9
    for e in map(own, replies):
        assert change.low - slack <= math.expm1(e.high)
        assert math.expm1(e.low) <= change.high + slack


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 0.01), st.floats(0, 0.01), st.integers(0, 1000))
def test_more_bias_never_narrows(one: float, more: float, seed: int) -> None:
    replies = [reply(0.01, seed=seed + i) for i in range(3)]
    small, large = (combine(replies, 0.99, bias).change for bias in (one, one + more))
    assert large.low <= small.low + 1e-12
    assert small.high <= large.high + 1e-12


@settings(max_examples=40, deadline=None)
@given(st.floats(-0.05, 0.05), st.floats(0.99, 0.999999), st.integers(0, 1000))
def test_what_is_shown_lies_inside_of_what_decides(change: float, level: float, seed: int) -> None:
    """So it can't contradict a verdict, and every run shows the same level."""
    found = combine([reply(change, seed=seed + i) for i in range(3)], level)
    assert found.shown.level == SHOWN_LEVEL
    assert found.shown.point == found.change.point
    assert found.change.low - 1e-12 <= found.shown.low <= found.shown.high <= found.change.high + 1e-12


def test_what_is_shown_holds_the_truth_as_often_as_it_says() -> None:
    """Each process adds an error of its own, of the size of the case's bias."""
    random, held = np.random.default_rng(1), 0
    for draw in range(200):
        own_errors = random.normal(0, 0.001, 3)
        replies = [reply(0.03 + float(e), noise=0.002, seed=10 * draw + i) for i, e in enumerate(own_errors)]
        held += (shown := combine(replies, 0.9999, bias=0.001).shown).low <= 0.03 <= shown.high
    assert held >= 0.99 * 200


def test_swapping_the_sides_mirrors_the_interval() -> None:
    replies = [reply(0.03, seed=i) for i in range(4)]
    there = combine(replies, 0.99).change
    back = combine([PairReply(r.b_ns, r.a_ns) for r in replies], 0.99).change
    assert math.log1p(back.low) == pytest.approx(-math.log1p(there.high))
    assert math.log1p(back.high) == pytest.approx(-math.log1p(there.low))


def test_scatter_between_processes_is_seen() -> None:
    each = [own(reply(c, noise=0.0005, seed=i)) for i, c in enumerate((-0.01, 0.0, 0.01))]
    assert between(each) == pytest.approx(0.01, rel=0.1)
    assert between(each, centre=0.0) == pytest.approx((2 / 3) ** 0.5 * 0.01, rel=0.1)


def test_scatter_that_blocks_explain_is_none_of_the_processes() -> None:
    assert between([own(reply(0.0, noise=0.05, seed=i)) for i in range(4)]) < 0.02
    assert between([own(reply(0.01))]) == 0.0
    assert between([own(reply(0.01, blocks=1)) for _ in range(3)]) == 0.0, "one block tells nothing of itself"


def test_too_few_blocks_say_nothing() -> None:
    change = combine([reply(0.5, blocks=2)], DEFAULT_LEVEL).change
    assert (change.low, change.high) == (-1.0, math.inf)


def test_a_time_of_zero_is_an_error() -> None:
    with pytest.raises(ReplayError, match="one side launches nothing"):
        log_ratios(PairReply((1.0, 0.0), (1.0, 1.0)))


def test_a_settled_verdict_asks_for_no_more() -> None:
    pairs = Scripted(0.0)
    found = compare(pairs, WORK, DEFAULT_LEVEL, 0.001, lambda change, a_ns: True)
    assert (len(found.a_ns), len(pairs.requests)) == (PROCESSES, PROCESSES)
    assert [r.seed for r in pairs.requests] == [0, 1, 2], "another order of blocks in each process"


def test_an_open_verdict_is_looked_at_once_more_and_with_more_blocks() -> None:
    pairs, seen = Scripted(0.0), list[Estimate]()

    def settled(change: Estimate, a_ns: float) -> bool:
        seen.append(change)
        return False

    found = compare(pairs, msgspec.structs.replace(WORK, results=True), DEFAULT_LEVEL, 0.001, settled)
    assert len(found.a_ns) == PROCESSES + MORE_PROCESSES
    assert [r.blocks for r in pairs.requests] == [24] * 3 + [36] * 5
    assert [r.results for r in pairs.requests] == [True] + [False] * 7, "results are compared once"
    assert len(seen) == 1, "one escalation"
    assert found.change.high - found.change.low < seen[0].high - seen[0].low


def test_requests_carry_what_both_sides_name() -> None:
    made = recording()
    sha = made.binaries[0].sha256
    request = paired_work(made, made, made.storages, {sha: b"code", "other": b"not asked for"})
    assert request.artifacts == {sha: b"code"}
    assert paired_work(made, made, made.storages, {}, timer="graph", spaced=True).timer == "graph"


def test_once_is_one_process() -> None:
    pairs = Scripted(0.04)
    assert once(pairs, WORK) == pytest.approx(0.04, abs=0.002)
    assert len(pairs.requests) == 1


def test_failures_are_the_callers() -> None:
    class Broken(Scripted):
        def run(self, request: PairRequest) -> PairReply:
            raise ReplayError("no such device")

    with pytest.raises(ReplayError, match="no such device"):
        compare(Broken(), WORK, 0.99, 0.001, lambda change, a_ns: True)


class Failing(Scripted):
    """Fails at these turns."""

    def __init__(self, *turns: int) -> None:
        super().__init__(0.0)
        self.turns, self.turn = turns, 0

    def run(self, request: PairRequest) -> PairReply:
        self.turn += 1
        if self.turn - 1 in self.turns:
            raise MeasurementError("a measuring process ended")
        return super().run(request)


def test_others_take_the_place_of_a_few_that_fail() -> None:
    pairs = Failing(0, 2)
    found = compare(pairs, WORK, 0.99, 0.001, lambda change, a_ns: True)
    assert len(found.a_ns) == PROCESSES
    assert len({r.seed for r in pairs.requests}) == PROCESSES


@pytest.mark.parametrize("turns", [(0, 1, 2), (0, 2, 4), range(99)])
def test_a_decision_without_processes_is_none(turns: Sequence[int]) -> None:
    with pytest.raises(MeasurementError, match="3 measuring processes failed, the last one: a measuring process ended"):
        compare(Failing(*turns), WORK, 0.99, 0.001, lambda change, a_ns: True)


def test_a_slow_process_is_never_discarded() -> None:
    pairs = Scripted(0.0, 0.3, 0.0)
    found = compare(pairs, WORK, 0.99, 0.001, lambda change, a_ns: True)
    assert len(pairs.requests) == PROCESSES
    assert found.change.high > 0.25


def test_a_process_that_takes_anothers_place_has_another_order_of_blocks() -> None:
    """The seed of one that failed may be why it did."""
    pairs = Failing(1)
    asked: list[int] = []
    run = pairs.run

    def noted(request: PairRequest) -> PairReply:
        asked.append(request.seed)
        return run(request)

    pairs.run = noted  # type: ignore[method-assign]
    compare(pairs, WORK, 0.99, 0.001, lambda change, a_ns: True)
    assert asked == [0, 1, 2, 3]


def test_a_process_with_few_blocks_counts_for_less() -> None:
    """Three processes of which one has nearly all blocks are hardly more than one: their bias hardly averages out."""
    equal = [reply(0.0, 1e-6, 30, i) for i in range(3)]
    unequal = [reply(0.0, 1e-6, blocks, i) for i, blocks in enumerate((300, 6, 6))]
    widths = [c.high - c.low for c in (combine(r, 0.99, 0.001).change for r in (equal, unequal))]
    assert widths[1] / widths[0] == pytest.approx((3 * (300**2 + 2 * 6**2)) ** 0.5 / 312, rel=0.02)


# a bias that isn't known


def of_processes(errors: Sequence[float], noise: float = 0.0005) -> list[list[float]]:
    """Log-ratios of processes with these errors of their own."""
    return [log_ratios(reply(math.expm1(e), noise, seed=i)) for i, e in enumerate(errors)]


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0.001, 0.004, 0.01])
@pytest.mark.parametrize("processes", [PROCESSES, PROCESSES + MORE_UNKNOWN])
def test_without_a_calibration_the_shown_interval_holds_the_truth_as_often_as_it_says(
    apart: float, processes: int
) -> None:
    """With 0.1 % assumed it was missed in up to 11 % of such decisions."""
    rng, missed = np.random.default_rng(7), 0
    base = of_processes([0.0] * processes)
    for _ in range(300):
        errors = rng.normal(0, apart, processes)
        shown = pooled([[x + float(e) for x in xs] for xs, e in zip(base, errors, strict=True)], SHOWN_LEVEL, None)
        missed += not shown.low <= 0 <= shown.high
    assert missed <= 8  # of 300; 3 are expected at most


def test_three_processes_that_agree_may_do_so_by_chance() -> None:
    each = of_processes([0.003, 0.003, 0.003])
    known, unknown = (pooled(each, DEFAULT_LEVEL, bias) for bias in (0.001, None))
    assert known.low > 0 > unknown.low
    assert unknown.high < 0.02, "a first look at unchanged code is settled at the default tolerance"


def test_twelve_processes_tell_their_own_scatter() -> None:
    scores = [NormalDist().inv_cdf((i + 0.5) / 12) for i in range(12)]
    quiet, loud = (pooled(of_processes([sd * z for z in scores]), DEFAULT_LEVEL, None) for sd in (0.001, 0.004))
    assert 0.002 < quiet.high - quiet.low < 0.005
    assert 0.009 < loud.high - loud.low < 0.018


def test_an_open_verdict_without_a_calibration_asks_more_processes_for_as_many_blocks() -> None:
    pairs = Scripted(0.0)
    compare(pairs, WORK, DEFAULT_LEVEL, None, lambda change, a_ns: False)
    assert [r.blocks for r in pairs.requests] == [BLOCKS] * PROCESSES + [MORE_UNKNOWN_BLOCKS] * MORE_UNKNOWN
    more, unknown = (
        getattr(paired_processes, f"{name}_BLOCKS") * getattr(paired_processes, processes)
        for name, processes in (("MORE", "MORE_PROCESSES"), ("MORE_UNKNOWN", "MORE_UNKNOWN"))
    )
    assert more == unknown


def test_a_single_process_is_given_the_usual_bias() -> None:
    """Where kernels follow its addresses there is no second one."""
    each = of_processes([0.003])
    assert pooled(each, DEFAULT_LEVEL, None) == pooled(each, DEFAULT_LEVEL, PROCESS_BIAS)


@pytest.mark.parametrize(
    ("apart", "processes", "bias", "margin"),
    [
        (0.0, 3, 0.002, 2.8070 * 0.002), (0.0, 3, None, 2.8070 * 0.0065), (0.0, 1, None, 2.8070 * 0.001),
        (0.004, 3, None, 2.8070 * 2 * 0.004), (0.004, 3, 0.001, 2.8070 * 0.004), (0.0, 12, None, 3.4966 * 0.001),
        (0.0, 4, None, 7.4533 * 0.001),
    ],
)  # fmt: skip
def test_how_far_a_process_reaches_by_hand(apart: float, processes: int, bias: float | None, margin: float) -> None:
    """Blocks without noise: 0.25 % at either end (99 % over two looks) of the normal distribution, or of Student's t,
    over the root of the number of processes. Of the scatter the standard deviation
    counts. Errors of blocks and processes add up as their squares."""
    points = [apart * (i - 1) if apart else 0.0 for i in range(processes)]
    found, blocks = pooled([[x] * 24 for x in points], 0.99, bias), hodges_lehmann([*points] * 24, 0.995)
    high = math.hypot(blocks.high, margin / processes**0.5)
    assert (math.log1p(found.low), math.log1p(found.high)) == pytest.approx((-high, high), rel=1e-4)


@pytest.mark.parametrize(
    ("places", "shift", "scatter", "common"),
    [
        (4, 0.0, 0.001, 0.0035), (4, 0.0005, 0.001, 0.0035), (4, 0.003, 0.001, 2 * 0.003), (10, 0.0, 0.001, 0.0035),
        (3, 0.0, None, 0.0065), (1, 0.0, None, 0.0065),
    ],
)  # fmt: skip
def test_how_far_places_reach_by_hand(places: int, shift: float, scatter: float | None, common: float) -> None:
    """Blocks without noise of three processes, each with so many places. Four places or more tell their scatter, by
    Student's t; what processes add beside is 0.35 % at least, and twice what three show. Fewer don't tell."""
    t = {12: 3.4966, 30: 3.0380}.get(3 * places, 0.0)
    points = [shift * i for i in (-1, 0, 1)]
    replies = [PairReply((1.0,) * 6 * places, (math.exp(x),) * 6 * places, placements=places) for x in points]
    found = combine(replies, 0.99, None).shown
    blocks = hodges_lehmann([x for x in points for _ in range(6 * places)], 0.995)
    seen = max(scatter or 0.0, statistics.stdev([x for x in points for _ in range(places)]))
    margin = math.hypot(t * seen / (3 * places) ** 0.5, 2.8070 * common / 3**0.5)
    assert math.log1p(found.high) == pytest.approx(math.hypot(blocks.high, margin), rel=1e-4)


@pytest.mark.parametrize("placements", [0, -1, 5, 8, 100, 10**9])
def test_places_that_cannot_be_tell_nothing(placements: int) -> None:
    """A process that holds an author's code answers: so many places of a part of the blocks, or of fewer than four."""
    one = PairReply((1.0,) * 24, (1.0,) * 24)
    odd, four = (msgspec.structs.replace(one, placements=n) for n in (placements, 4))
    assert combine([odd] * 3, 0.99, None) == combine([one] * 3, 0.99, None)
    assert combine([four, four, odd], 0.99, None) == combine([one] * 3, 0.99, None)
    assert combine([four] * 3, 0.99, None).shown.high < combine([one] * 3, 0.99, None).shown.high


def test_processes_of_unequal_blocks_count_as_fewer() -> None:
    counts = (10, 4, 4)
    replies = [PairReply((1.0,) * 6 * n, (1.0,) * 6 * n, placements=n) for n in counts]
    found = combine(replies, 0.99, None).shown
    processes = sum(counts) ** 2 / sum(n * n for n in counts)
    t = student_quantile(0.0025, sum(counts) - 1)
    margin = math.hypot(t * 0.001 / sum(counts) ** 0.5, 2.8070 * 0.0035 / processes**0.5)
    assert math.log1p(found.high) == pytest.approx(margin, rel=1e-4)


def test_where_places_scatter_processes_may_by_half_of_that() -> None:
    """Ten places each, 1 % apart: processes show nothing, and might be 0.5 % apart."""
    each = [0.01 * NormalDist().inv_cdf((i + 0.5) / 10) for i in range(10)]
    blocks = [math.exp(x) for x in each for _ in range(6)]
    found = combine([PairReply((1.0,) * 60, tuple(blocks), placements=10)] * 3, 0.99, None).shown
    scatter = statistics.stdev(each * 3)
    margin = math.hypot(3.0380 * scatter / 30**0.5, 2.8070 * scatter / 2 / 3**0.5)
    inside = hodges_lehmann([math.log(x) for x in blocks] * 3, 0.995)
    assert math.log1p(found.high) == pytest.approx(
        inside.point + math.hypot(inside.high - inside.point, margin), rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("of_process", [0.0, 0.0008, 0.002, 0.004])
@pytest.mark.parametrize("of_places", [0.0005, 0.0025])
def test_with_places_the_shown_interval_holds_the_truth_as_often_as_it_says(
    of_places: float, of_process: float
) -> None:
    rng, missed, wide = np.random.default_rng(11), 0, 0
    for _ in range(300):
        each = []
        for _ in range(PROCESSES):
            places = rng.normal(0, of_process) + np.repeat(rng.normal(0, of_places, 10), 6)
            blocks = np.exp(places + rng.normal(0, 0.003, 60))
            each.append(PairReply((1.0,) * 60, tuple(map(float, blocks)), placements=10))
        shown = combine(each, DEFAULT_LEVEL, None).shown
        missed += not shown.low <= 0 <= shown.high
        wide += shown.high - shown.low > 0.014
    assert missed <= 8  # of 300; 3 are expected at most
    assert wide <= (300 if of_process > 0.001 else 75), "half of the interval is at most 0.7 % in most of them"


def test_one_process_is_of_a_first_look() -> None:
    pairs = Scripted(0.0)
    once(pairs, WORK)
    assert pairs.requests[0].blocks == 24


@pytest.mark.parametrize(
    ("points", "half", "centre", "scatter"),
    [
        ((1.0, 3.0), 0.5, None, 1.75**0.5), ((1.0, 3.0), 1.0, None, 1.0), ((1.0, 3.0), 2.0, None, 0.0),
        ((1.0, 3.0), 1.0, 1.0, 1.0), ((1.0, 3.0), 1.0, 2.0, 0.0), ((2.0,), 0.5, None, 0.0),
        ((2.0,), 0.5, 1.0, 0.75**0.5), ((1.0, 3.0), math.inf, None, 0.0),
    ],
)  # fmt: skip
def test_scatter_by_hand(points: tuple[float, ...], half: float, centre: float | None, scatter: float) -> None:
    """The variance of the points, about a known centre or their mean, less the square of half of their intervals."""
    each = [Estimate(p, p - half, p + half, 0.6827) for p in points]
    assert between(each, centre) == pytest.approx(scatter)


def test_half_of_an_interval_of_one_sigma_is_a_standard_error() -> None:
    assert pytest.approx(math.erf(0.5**0.5), abs=1e-4) == paired_processes.ONE_SIGMA


@pytest.mark.parametrize("side", [1, -1])
def test_a_border_is_outside_only_if_every_process_is_a_standard_error_beyond_it(side: int) -> None:
    """The interval of a process's own blocks at 68.27 % counts, at the end that is nearer to the others."""
    near, far = ([side * x for x in xs] for xs in of_processes([0.0, 0.05], noise=0.002))
    found = pooled([near, far * 20, far * 20], 0.01, 0.0)
    own_end = hodges_lehmann(near, 0.6827)
    ends = (found.low, math.expm1(own_end.high)) if side > 0 else (found.high, math.expm1(own_end.low))
    assert ends[0] == pytest.approx(ends[1], abs=1e-12)
    assert 0.0001 < side * (ends[1] - math.expm1(own_end.point)) < 0.002


def test_the_bias_of_processes_adds_what_their_blocks_do_not_explain() -> None:
    """Half an interval at 68.27 % is a standard error: of blocks that scatter as much as the processes none is left."""
    points = (-0.001, 0.0, 0.001)
    assert between([Estimate(p, p - 0.0005, p + 0.0005, 0.6827) for p in points]) == pytest.approx(0.75e-6**0.5)
    assert between([Estimate(p, p - 0.001, p + 0.001, 0.6827) for p in points]) == 0.0
    assert between([Estimate(0.002, 0.001, 0.003, 0.6827)], centre=0.0) == pytest.approx(3e-6**0.5)
    assert between([Estimate(0.0, -math.inf, math.inf, 0.6827)] * 2) == 0.0


def test_the_first_results_are_those_of_the_decision() -> None:
    results = ComparedResults((), "not compared")
    plain = reply(0.0, seed=1)
    found = combine([plain, msgspec.structs.replace(plain, results=results, foreign=(1.0, 0.5, 0.25, 2))], 0.99)
    assert found.results == results
    assert found.foreign == ForeignWork(1.0, 0.5, 0.25, 2)
    assert combine([plain], 0.99).results is None
    assert (found.a_ns, found.b_ns) == ((median(plain.a_ns),) * 2, (median(plain.b_ns),) * 2)
