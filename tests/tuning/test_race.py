"""Which config is dropped, which wins and after how many rounds, on scripted slots with noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import active, block, program_of, recorded, scale, scale_kernel, script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerntune.base.stats import median
from kerntune.gpu.memory import Memory
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend
from kerntune.timing.sampling import slot_for
from kerntune.timing.timers import TimingProtocol
from kerntune.tuning import race
from kerntune.tuning.race import Estimates, Screening, Trial, decided, executions, screened, slot_ns, worth_racing

ESTIMATE_RUNS = 3
LOAD_NS = 100000000.0
LOAD_ROUNDS = 8
MAX_FINAL_ROUNDS = 12
MIN_FINAL_ROUNDS = 4
RETAKES = 5
TIE = 0.005


BLOCKS = (32, 64, 128, 256)


class NoisySlot:
    """Gives a time with relative noise of its own, and a drift that all slots of a round share."""

    protocol = TimingProtocol("events", 8, 1)
    slowing = 0.0
    late = False

    def __init__(self, time_ns: float, noise: float, random_: random.Random) -> None:
        self.time_ns, self._noise, self._random, self.taken = time_ns, noise, random_, 0

    def enqueue(self) -> Callable[[], float]:
        self.taken += 1
        drift = (1 + self.slowing) ** self.taken
        return lambda: self.time_ns * drift * (1 + self._random.gauss(0, self._noise))


@pytest.fixture(autouse=True)
def few_executions() -> None:
    """As many as users' runs have: how many a race begins with is tested here."""


def trial_of(*times: float) -> Trial:
    unused: Any = None
    return Trial(0, unused, unused, times=list(times))


def estimated(*estimates: float) -> list[Trial]:
    unused: Any = None
    return [Trial(i, unused, unused, [i], t) for i, t in enumerate(estimates)]


def screened_with(slots: Sequence[NoisySlot]) -> list[Trial]:
    """Trials with these slots, as they come out of the screening."""
    trials = estimated(*(slot.time_ns for slot in slots))
    for trial, slot in zip(trials, slots, strict=True):
        trial.slot, trial.times = slot, [slot.enqueue()() for _ in range(3)]
    return trials


def finalists(times: Sequence[float], noise: float = 0.001, seed: int = 0) -> list[Trial]:
    source = random.Random(seed)
    return screened_with([NoisySlot(t, noise, source) for t in times])


@given(st.lists(st.floats(1.0, 1.05), min_size=1, max_size=8), st.integers(0, 10_000))
def test_the_winner_is_within_a_tie_of_the_best(shares: list[float], seed: int) -> None:
    times = [200_000 * s for s in shares]
    best = decided(finalists(times, seed=seed))[0]
    assert times[best.index] <= min(times) * (1 + TIE + 0.003)


@pytest.mark.slow
@given(st.lists(st.floats(1.0, 1.05), min_size=2, max_size=8), st.integers(0, 1000))
def test_ten_races_choose_the_same_or_one_within_half_a_percent(shares: list[float], seed: int) -> None:
    times = [200_000 * s for s in shares]
    winners = {decided(finalists(times, noise=0.0005, seed=seed + i))[0].index for i in range(10)}
    chosen = [times[i] for i in winners]
    assert max(chosen) <= min(chosen) * (1 + TIE + 0.002)


@given(st.integers(0, 10_000), st.integers(0, 4))
def test_true_ties_go_to_the_incumbent_whatever_the_noise(seed: int, incumbent: int) -> None:
    assert decided(finalists([1e5] * 5, seed=seed), incumbent)[0].index == incumbent
    assert decided(finalists([1e5] * 5, seed=seed))[0].index == 0


@given(st.integers(0, 10_000))
def test_half_a_percent_counts_as_equal_for_the_incumbent_alone(seed: int) -> None:
    """It keeps its place, so that winners don't flip; the first tuning of a key takes the faster one."""
    trials = (1.004e5, 1e5)
    assert decided(finalists(trials, noise=0.0002, seed=seed), incumbent=0)[0].index == 0
    assert decided(finalists(trials, noise=0.0002, seed=seed))[0].index == 1


# a clock that falls under load


class PowerSlot(NoisySlot):
    """Takes longer, by a share of its own, once all slots together have run for so long."""

    spent = 0.0

    def __init__(self, time_ns: float, share: float, random_: random.Random, after: float = 60e6) -> None:
        super().__init__(time_ns, 0.0005, random_)
        self.share, self.after = share, after

    def enqueue(self) -> Callable[[], float]:
        slowed = 1 + self.share * (PowerSlot.spent >= self.after)
        PowerSlot.spent += self.time_ns * slowed * self.protocol.runs_per_slot
        return lambda: super(PowerSlot, self).enqueue()() * slowed


def powered(*shares: float, times: Sequence[float] = (56_600.0, 56_600.0)) -> list[Trial]:
    PowerSlot.spent, source = 0.0, random.Random(0)
    return screened_with([PowerSlot(t, share, source) for t, share in zip(times, shares, strict=True)])


def test_ties_are_decided_under_lasting_load_where_the_clock_is_limited() -> None:
    """Two are equal while the clock is high, and the first loses more by a lower one."""
    assert decided(powered(0.05, 0.03), limited=lambda: True)[0].index == 1
    assert decided(powered(0.03, 0.05), limited=lambda: True)[0].index == 0
    assert decided(powered(0.03, 0.03), limited=lambda: True)[0].index == 0
    assert decided(powered(0.05, 0.03), limited=lambda: False)[0].index == 0, "the load is for a limited clock alone"


def test_lasting_load_changes_no_time() -> None:
    best, other = decided(powered(0.05, 0.03), limited=lambda: True)
    assert best.time_ns == pytest.approx(56_600.0, rel=0.001)
    assert other.time_ns == pytest.approx(56_600.0, rel=0.001)
    assert PowerSlot.spent == pytest.approx(LOAD_NS, rel=0.2)


@pytest.mark.parametrize(("times", "incumbent"), [((56_600.0, 56_600.0), 0), ((56_600.0, 57_600.0), None)])
def test_there_is_no_lasting_load_without_a_tie_that_is_open(times: tuple[float, float], incumbent: int | None) -> None:
    asked: list[int] = []
    trials = powered(0.05, 0.03, times=times)
    assert decided(trials, incumbent, lambda: not asked.append(0))[0].index == 0
    assert (asked, PowerSlot.spent < 60e6) == ([], True)


def test_who_has_been_timed_under_load_anyway_is_not_timed_again() -> None:
    """Two that take a second each were raced for a minute: 9 rounds more would take as long, and say the same."""
    trials = powered(0.0, 0.0, times=(1e9, 1e9))
    assert decided(trials, limited=lambda: True)[0].index == 0
    assert [t.slot.taken for t in trials] == [3 + MIN_FINAL_ROUNDS] * 2


@pytest.mark.parametrize("ns", [0.0, 10.0])
def test_load_ends_whatever_times_are_read(ns: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "MOST_LOAD", 20)
    trials = powered(0.0, 0.0, times=(ns, ns))
    assert decided(trials, limited=lambda: True)[0].index == 0
    assert trials[0].slot.taken <= 3 + MAX_FINAL_ROUNDS + 20 + LOAD_ROUNDS


@pytest.mark.parametrize(
    ("count", "copies", "fastest", "looked", "left"),
    [
        (7, 2, 2000.0, True, 3),
        (7, 40, 2000.0, True, 4),
        (7, 1, 2000.0, False, 7),
        (6, 2, 2000.0, False, 6),
        (7, 2, 40e3, False, 7),
        (7, 2, 0.7e6 / 50, False, 7),
        (7, 2, 0.7e6 / 52, True, 3),
        (0, 2, 0.0, False, 0),
    ],
    ids=["short", "few-of-many-copies", "no-copies", "not-many", "long", "whole-graph-is-small", "just-large", "none"],
)
def test_many_short_candidates_are_first_held_against_each_other_by_small_graphs(
    monkeypatch: pytest.MonkeyPatch, count: int, copies: int, fastest: float, looked: bool, left: int
) -> None:
    """Where a graph has all copies, who is 15 % behind is dropped; where it has a part of them, 30 %."""
    unused: Any = None
    first: Any = "the first one's recording"
    program: Any = SimpleNamespace(memory=SimpleNamespace(rotation={first: copies}.__getitem__))
    trials = [Trial(i, unused if i else first, unused if i else program, [i], fastest) for i in range(count)]
    shares, seen = iter((1.0, 1.1, 1.15, 1.2, 1.31, 2.0, 3.0)), list[int]()

    def small_graph(program: Any, few: int) -> float:
        seen.append(few)
        return 1000.0 * next(shares)

    monkeypatch.setattr(race, "_small_graph", small_graph)
    assert [t.index for t in race._by_small_graphs(trials)] == list(range(left))
    assert seen == [min(copies, 16)] * count * looked


def rounds_of(trials: list[Trial]) -> int:
    return max(len(t.times) for t in decided(trials)) - 3


@given(st.integers(0, 1000), st.floats(0.01, 0.05))
def test_a_device_that_slows_down_does_not_favour_who_was_dropped_early(seed: int, step: float) -> None:
    """All slow down by a share each round: medians of fewer rounds look faster."""
    trials = finalists([1.02e5, 1e5, 1.03e5], seed=seed)
    for trial in trials:
        trial.slot.slowing = step
    order = decided(trials)
    assert [t.index for t in order] == [1, 0, 2]
    assert order[1].time_ns / order[0].time_ns == pytest.approx(1.02, rel=0.01)


@pytest.mark.parametrize("bias", [0.01, 0.02, 0.04])
@pytest.mark.parametrize("times", [(55_000.0, 54_000.0), (54_000.0, 55_000.0)])
def test_who_is_timed_later_in_each_round_is_not_slower_for_that(
    times: tuple[float, float], bias: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that falls within a round and rises before the next one."""
    place = iter(range(10_000))
    trials = finalists(times, noise=0.0)
    monkeypatch.setattr(race, "slot_ns", lambda slot: slot.time_ns * (1 + bias * (next(place) % 2)))
    monkeypatch.setattr(race, "_prepare", lambda alive: [t.times.clear() for t in alive])
    assert decided(screened(trials))[0].slot.time_ns == 54_000.0


def test_who_was_dropped_early_is_told_as_behind_the_winner() -> None:
    """All slow down by 3 % a round; the third is dropped after few rounds, while the others go on to the last: their
    medians are of later, slower rounds, and beside them its own would look faster than it is."""
    trials = finalists([1e5, 1.002e5, 1.05e5], noise=0.004)
    for trial in trials:
        trial.slot.slowing = 0.03
    order = decided(trials)
    winner, dropped = order[0], order[-1]
    assert dropped.index == 2
    assert len(winner.times) - len(dropped.times) >= 4
    assert dropped.time_ns / winner.time_ns == pytest.approx(1.05, rel=0.01)
    assert median(dropped.times) < median(winner.times), "which is what it would be told as"


def test_one_finalist_needs_no_round() -> None:
    (only,) = finalists([1e5])
    assert decided([only]) == [only]
    assert len(only.times) == 3


@pytest.mark.parametrize(
    ("times", "order"), [([1.2e5, 1e5, 1.1e5], [1, 2, 0]), ([0.0, 0.0], [0, 1])], ids=["fastest first", "no time"]
)
def test_all_finalists_are_in_an_order(times: list[float], order: list[int]) -> None:
    assert [t.index for t in decided(finalists(times, noise=0.0))] == order


# on the scripted GPU


@pytest.fixture(scope="module")
def backend() -> Iterator[FakeBackend]:
    with active() as backend:
        yield backend


def trial(backend: FakeBackend, time_ns: float, index: int = 0, **options: Any) -> Trial:
    """A candidate on a device of its own."""
    script(backend, block(64, time_ns), **options)
    program = program_of(backend, recorded(backend, lambda: scale(scale_kernel, BLOCK=64)))
    return Trial(index, program.recording, program, [index])


@given(st.floats(1000.0, 1e7), st.integers(0, 100))
def test_a_look_is_near_the_truth(backend: FakeBackend, time_ns: float, seed: int) -> None:
    one, looks = trial(backend, time_ns, seed=seed), Estimates()
    looks.take(one)
    assert one.estimated
    assert one.estimate == pytest.approx(time_ns, rel=0.01)
    assert looks.best == one.estimate


def test_a_pause_of_the_host_does_not_spoil_a_look(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    one, looks = trial(backend, 1000.0), Estimates()
    looks.take(one)
    gpu, pauses = backend.gpu, iter([0.0, 50_000.0, 0.0, 70_000.0])
    elapsed = gpu.elapsed_ns
    monkeypatch.setattr(gpu, "elapsed_ns", lambda start, end: elapsed(start, end) + next(pauses))
    looks.take(one)
    assert one.estimate == pytest.approx(1000.0, rel=0.01)


def late_until(launches: int, pause_ns: float) -> Callable[[int], float]:
    """A host that is late for each of so many launches."""
    return lambda before: pause_ns if before < launches else 0.0


@pytest.mark.parametrize("late", range(ESTIMATE_RUNS * (1 + RETAKES)))
def test_a_look_that_would_drop_a_candidate_waits_for_a_host_in_time(backend: FakeBackend, late: int) -> None:
    """However long the pauses are; the first execution, which loads the code, may be late as well."""
    looks = Estimates()
    looks.take(trial(backend, 1000.0))
    one = trial(backend, 1100.0, index=1, pause=late_until(1 + late, 5e6))
    looks.take(one)
    assert one.estimate == pytest.approx(1100.0, rel=0.01)


@pytest.mark.parametrize(
    ("pause", "left", "launches"),
    [(300.0, [0, 1], 3), (7000.0, [0], 3 * 6)],
    ids=["good enough", "believed in the end"],
)
def test_a_host_that_is_always_late_is_not_asked_again(
    backend: FakeBackend, pause: float, left: list[int], launches: int
) -> None:
    looks = Estimates()
    looks.take(trial(backend, 1000.0))
    one = trial(backend, 1000.0, index=1, pause=lambda launches: pause)
    before = backend.gpu.launches
    looks.take(one)
    assert one.estimate == pytest.approx(1000.0 + pause, rel=0.01)
    assert one.late is (1 in left)
    assert [t.index for t in worth_racing([*estimated(1000.0), one])] == left
    assert backend.gpu.launches - before == 1 + launches


@pytest.mark.parametrize("pause", [400.0, 7000.0], ids=["second", "first"])
def test_a_late_look_drops_nobody_once_a_better_one_comes(backend: FakeBackend, pause: float) -> None:
    """It was good enough for the best so far, or there was none."""
    looks = Estimates(warm=True)
    if pause < 1000.0:
        looks.take(trial(backend, 1000.0))
    one = trial(backend, 1000.0, index=1, pause=late_until(1 + ESTIMATE_RUNS, pause))
    looks.take(one)
    assert one.estimate == pytest.approx(1000.0 + pause, rel=0.01)
    two = trial(backend, 900.0, index=2)
    looks.take(two)
    assert [t.index for t in worth_racing([one, two])] == [1, 2]
    assert one.estimate == pytest.approx(1000.0, rel=0.01)
    assert not one.late


def hopefuls(backend: FakeBackend) -> list[Trial]:
    """Candidates whose looks are alike; the later ones are 3, 10 and 30 % slower."""
    script(backend, *(block(b, 1000.0 * f) for b, f in zip(BLOCKS, (1.0, 1.03, 1.1, 1.3), strict=False)))
    trials = []
    for i, size in enumerate(BLOCKS):
        program = program_of(backend, recorded(backend, lambda size=size: scale(scale_kernel, BLOCK=size)))
        trials.append(Trial(i, program.recording, program, [i], estimate=1000.0))
    return trials


def test_slots_are_taken_again_while_the_host_is_late(backend: FakeBackend) -> None:
    """A pause in one slot of a screen would drop the best."""
    trials = hopefuls(backend)
    pauses = iter([0.0] * 12 + [2e6, 3e6, 0.0] * 3)
    rules = backend.gpu.script.rules
    backend.gpu.script = Script(rules=rules, pause=lambda launches: next(pauses, 0.0))
    assert [t.index for t in screened(trials)] == [0, 1]
    assert next(pauses, None) is None, "all pauses fell into the race"


class SometimesLate:
    """Gives one time after the other; for the first ``late_for`` of them the host was late."""

    protocol = TimingProtocol("events", 8, 1)

    def __init__(self, times: Sequence[float], late_for: int) -> None:
        self.times, self.late_for, self.taken = times, late_for, 0

    @property
    def late(self) -> bool:
        return self.taken <= self.late_for

    def enqueue(self) -> Callable[[], float]:
        self.taken += 1
        time_ns = self.times[self.taken - 1]
        return lambda: time_ns


@pytest.mark.parametrize("late_for", range(RETAKES + 1))
def test_a_late_slot_is_taken_again_until_the_host_is_in_time(late_for: int) -> None:
    """The time that counts is the one for which the host was in time, even if an earlier one was shorter."""
    times = [900.0 - i for i in range(late_for)] + [1000.0] + [1.0] * (2 * RETAKES)
    slot = SometimesLate(times, late_for)
    assert (slot_ns(slot), slot.taken) == (1000.0, late_for + 1)


def test_a_slot_that_is_always_late_gives_its_shortest_time() -> None:
    slot = SometimesLate([5000.0, 3000.0, *[4000.0] * RETAKES], late_for=100)
    assert (slot_ns(slot), slot.taken) == (3000.0, 1 + RETAKES)


def test_screening_drops_what_is_behind(backend: FakeBackend) -> None:
    trials = hopefuls(backend)
    assert [t.index for t in screened(trials)] == [0, 1]
    assert [len(t.times) for t in trials] == [3, 3, 3, 1]
    assert len({t.slot.protocol for t in trials if t.slot}) == 1, "one kind of slot for all"


def test_slots_of_a_race_are_shorter_than_a_samples(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finals have up to 12 rounds, a sample's slots are looked at one by one."""
    monkeypatch.setattr(Memory, "rotation", lambda memory, recording: 2)
    trials = hopefuls(backend)
    for one in trials:
        one.estimate = 30_000.0
    screened(trials)
    protocols = {one.slot.protocol for one in trials if one.slot is not None}
    assert protocols == {TimingProtocol("graph", 24, 2)}, "0.7 ms"
    assert slot_for(trials[0].program, 30_000.0).protocol == TimingProtocol("graph", 66, 2)


def test_many_short_ones_are_screened_by_small_graphs_first(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = tuple(16 << i for i in range(8))
    times = (3000.0, 2120.0, 2000.0, 2900.0, 2800.0, 2010.0, 2700.0, 2750.0)
    script(backend, *(block(b, t) for b, t in zip(sizes, times, strict=True)))
    graphs: list[int] = []
    graph = backend.gpu.graph
    monkeypatch.setattr(backend.gpu, "graph", lambda work: (graphs.append(1), graph(work))[1])
    trials = []
    for i, size in enumerate(sizes):
        program = program_of(backend, recorded(backend, lambda size=size: scale(scale_kernel, BLOCK=size)))
        trials.append(Trial(i, program.recording, program, [i], estimate=4000.0))
    assert {t.index for t in screened(trials)} == {2, 5}
    assert len(graphs) == 8 + 3
    assert [len(t.times) for t in trials] == [0, 3, 3, 0, 0, 3, 0, 0]


def test_long_ones_are_not(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerntune.tuning.race._small_graph", None)
    trials = [trial(backend, 50_000.0, index=i) for i in range(8)]
    for one in trials:
        one.estimate = 50_000.0
    assert len(screened(trials)) == 8


def test_a_single_candidate_is_not_timed_further(backend: FakeBackend) -> None:
    one = trial(backend, 1000.0)
    one.estimate = 1000.0
    assert decided(screened([one]))[0].time_ns == 1000.0
    assert one.slot is None


def estimated_trials(backend: FakeBackend, times: tuple[float, ...], looks: tuple[float, ...]) -> list[Trial]:
    script(backend, *(block(b, t) for b, t in zip(BLOCKS, times, strict=False)))
    return [
        Trial(i, found.recording, program_of(backend, found), [i], estimate=look, estimated=True)
        for i, (size, look) in enumerate(zip(BLOCKS, looks, strict=False))
        for found in [recorded(backend, lambda size=size: scale(scale_kernel, BLOCK=size))]
    ]


def test_a_late_one_that_is_no_match_costs_no_round(backend: FakeBackend) -> None:
    trials = estimated_trials(backend, (1000.0, 1030.0, 1300.0, 9000.0), (3000.0, 3030.0, 3300.0, 11_000.0))
    screening = Screening()
    assert [t.index for t in screening.finalists_of(trials[:3])] == [0, 1]
    rounds = [list(t.times) for t in trials]
    assert [t.index for t in screening.finalists_of(trials)] == [0, 1]
    assert [list(t.times) for t in trials] == rounds


def test_a_late_one_is_held_against_those_that_are_left(backend: FakeBackend) -> None:
    """Its look is far above the times of the others: those are of graphs, without an event pair's microseconds."""
    trials = estimated_trials(backend, (1000.0, 1030.0, 1300.0, 990.0), (3000.0, 3030.0, 3300.0, 2990.0))
    screening = Screening()
    screening.finalists_of(trials[:3])
    dropped = list(trials[2].times)
    assert [t.index for t in screening.finalists_of(trials)] == [0, 1, 3]
    assert trials[2].times == dropped, "not timed again"
    assert decided(screening.finalists)[0].index == 3


@pytest.mark.slow
@given(st.permutations(range(4)), st.integers(1, 4))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_winner_is_the_same_whoever_is_late(backend: FakeBackend, order: list[int], first: int) -> None:
    trials = estimated_trials(backend, (1000.0, 1030.0, 1200.0, 2000.0), (3000.0, 3030.0, 3200.0, 4000.0))
    screening = Screening()
    screening.finalists_of([trials[i] for i in order[:first]])
    assert decided(screening.finalists_of(trials))[0].index == 0


# figures, written as numbers


@pytest.mark.parametrize(("time_ns", "launches"), [(1e6, 21), (1e3, 120)], ids=["20 ms", "at most 40 batches"])
def test_the_first_one_warms_the_device_up(backend: FakeBackend, time_ns: float, launches: int) -> None:
    one, looks = trial(backend, time_ns), Estimates()
    before = backend.gpu.launches
    looks.take(one)
    assert looks.warm
    assert backend.gpu.launches - before == launches + 1 + 3


@pytest.mark.parametrize(
    ("best", "time_ns", "launches"),
    [(1e6, 2.9e6, 4), (1e6, 3.1e6, 1), (0.9e6, 2.5e6, 4), (1e3, 1.9e6, 4), (1e3, 2.1e6, 1)],
)
def test_a_first_execution_is_not_repeated_from_2_ms_and_three_times_the_best_on(
    backend: FakeBackend, best: float, time_ns: float, launches: int
) -> None:
    one, looks = trial(backend, time_ns), Estimates(warm=True)
    looks.best = best
    before = backend.gpu.launches
    looks.take(one)
    assert backend.gpu.launches - before == launches
    assert (looks.best, one.estimate) == (best, pytest.approx(time_ns, rel=0.01))


def test_a_late_estimate_is_repeated_until_it_is_near_the_best_only(backend: FakeBackend) -> None:
    one = trial(backend, 1000.0, index=1, pause=lambda launches: 300.0)
    one.estimate, one.late = 5000.0, True
    before = backend.gpu.launches
    assert len(worth_racing([*estimated(1000.0), one])) == 2
    assert backend.gpu.launches - before == 3
    assert one.late


def test_near_the_best_is_within_half_as_much_again() -> None:
    assert [t.index for t in worth_racing(estimated(1000.0, 1490.0, 1500.0, 1510.0))] == [0, 1, 2]
    assert worth_racing([]) == []


@pytest.mark.parametrize(
    ("in_place", "copies", "runs"), [(True, 5, 5), (False, 5, 15), (False, 16, 16), (False, 2, 16)]
)
def test_a_small_graph_runs_about_sixteen_times_and_the_shorter_of_two_slots_counts(
    monkeypatch: pytest.MonkeyPatch, in_place: bool, copies: int, runs: int
) -> None:
    """The first slot, which loads the graph, doesn't count."""
    made: list[tuple[int, int]] = []

    def graph(program: Any, copies: int, runs: int) -> SometimesLate:
        made.append((copies, runs))
        return SometimesLate([1.0, 30.0, 20.0, 10.0], late_for=0)

    monkeypatch.setattr(race, "GraphSlot", graph)
    program: Any = SimpleNamespace(in_place=in_place)
    assert race._small_graph(program, copies) == 20.0
    assert made == [(copies, runs)]


@pytest.mark.parametrize(
    ("fastest", "runs"), [(1e7, 2), (1e6, 2), (5e5, 3), (2e5, 7), (1.8e5, 8), (1e5, 8), (1.0, 8), (0.0, 8)]
)
def test_an_event_slot_of_a_race_takes_about_a_millisecond_and_a_half(
    monkeypatch: pytest.MonkeyPatch, fastest: float, runs: int
) -> None:
    program: Any = object()
    monkeypatch.setattr(race, "slot_for", lambda program, fastest, graph_ns: NoisySlot(fastest, 0.0, random.Random(0)))
    monkeypatch.setattr(race, "event_slot", lambda program, runs: (program, runs))
    assert race._slot(program, fastest) == (program, runs)


def test_rounds_of_the_finals_go_backwards_and_forwards_in_turn() -> None:
    trials, seen = finalists([1e5, 1.02e5], noise=0.0), list[int]()
    for one in trials:
        taken = one.slot.enqueue

        def enqueue(index: int = one.index, taken: Any = taken) -> Callable[[], float]:
            seen.append(index)
            return taken()

        one.slot.enqueue = enqueue
    decided(trials)
    assert seen == [1, 0, 0, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("times", "noise", "rounds"),
    [([1e5, 1.05e5], 0.0, 4), ([1e5, 1.0001e5], 0.0002, 4), ([1e5, 1.005e5], 0.004, 12)],
    ids=["clear", "a clear tie", "open"],
)
def test_finals_have_four_rounds_to_twelve(times: list[float], noise: float, rounds: int) -> None:
    assert rounds_of(finalists(times, noise)) == rounds


@pytest.mark.parametrize(("share", "winner"), [(1.0045, 1), (1.0055, 0)])
def test_candidates_within_half_a_percent_tie(share: float, winner: int) -> None:
    assert decided(finalists([1e5, share * 1e5], noise=0.0), incumbent=1)[0].index == winner


def test_finals_end_where_all_are_surely_within_a_tie_that_itself_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_behind", lambda trial, best: (0.0, TIE))
    assert rounds_of(finalists([1e5, 1.001e5], noise=0.0)) == MIN_FINAL_ROUNDS


@pytest.mark.parametrize("incumbent", [None, 0, 1, 2])
def test_tied_finalists_are_told_once_each(incumbent: int | None) -> None:
    order = [t.index for t in decided(finalists([1e5, 1.001e5, 1.002e5], noise=0.0), incumbent)]
    rest = [i for i in range(3) if i != (incumbent or 0)]
    assert order == [incumbent or 0, *rest]


def test_rounds_that_took_no_time_are_not_compared() -> None:
    best = trial_of(1.0, 0.0, 1.0, 0.5)
    assert race._ratios(trial_of(0.0, 1.0, 0.5, 1.0, 9.0), best) == [math.log(0.5), math.log(2.0)]
    assert race._ratios(trial_of(), best) == race._ratios(trial_of(0.0), best) == [0.0]


@pytest.mark.parametrize(
    ("shares", "low", "high"),
    [
        ([0.01], 0.008, 0.012),
        ([0.01, 0.01, 0.01], 0.008, 0.012),
        ([0.01, 0.03], 0.02 - 4 * 0.01, 0.02 + 4 * 0.01),
        ([0.0, 0.03, 0.06], 0.03 - 4 * 0.03 / math.sqrt(3), 0.03 + 4 * 0.03 / math.sqrt(3)),
    ],
)
def test_surely_is_four_standard_errors(shares: list[float], low: float, high: float) -> None:
    """Of the mean of the rounds' log ratios; an error is 0.05 % at least."""
    one, best = trial_of(*(1e5 * math.exp(s) for s in shares)), trial_of(*[1e5] * len(shares))
    assert race._behind(one, best) == pytest.approx((low, high))


def test_a_candidate_that_has_not_run_has_no_time() -> None:
    one = trial_of()
    assert (one.estimate, one.estimated, one.late) == (0.0, False, False)
    assert (one.slot, one.settled, one.same) == (None, 0.0, [])
    one.estimate = 7.0
    assert one.time_ns == 7.0
    one.times = [3.0, 1.0, 2.0]
    assert one.time_ns == 2.0
    one.settled = 1.5
    assert one.time_ns == 1.5


@pytest.mark.parametrize(
    ("shares", "left", "rounds"),
    [((1.0, 1.04), [0, 1], [3, 3]), ((1.0, 1.06), [0], [3, 3]), ((1.0, 1.14, 1.16), [0], [3, 3, 1])],
)
def test_screens_first_drop_who_is_more_than_15_percent_behind_and_then_5(
    monkeypatch: pytest.MonkeyPatch, shares: tuple[float, ...], left: list[int], rounds: list[int]
) -> None:
    trials = finalists([1e5 * share for share in shares], noise=0.0)
    monkeypatch.setattr(race, "_prepare", lambda trials: [t.times.clear() for t in trials])
    assert [t.index for t in screened(trials)] == left
    assert [len(t.times) for t in trials] == rounds


def test_slots_are_of_one_kind_and_old_times_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(race, "_slot", lambda program, fastest: made.append(fastest) or "first")
    monkeypatch.setattr(race, "same_kind", lambda program, slot: (program, slot))
    trials = finalists([3.0, 2.0, 4.0])
    for one in trials:
        one.settled = 9.0
    race._prepare(trials)
    assert [one.slot for one in trials] == ["first", (None, "first"), (None, "first")]
    assert made == [2.0]
    assert all(one.times == [] and one.settled == 0.0 for one in trials)
    race._prepare(trials[:1])
    assert trials[0].slot is None
    race._prepare([])


@pytest.mark.parametrize(("limit", "calls", "late"), [(1000.0, 1, True), (999.0, 6, False)])
def test_a_late_estimate_that_is_as_long_as_may_be_is_good_enough(
    monkeypatch: pytest.MonkeyPatch, limit: float, calls: int, late: bool
) -> None:
    made: list[int] = []
    monkeypatch.setattr(race, "executions", lambda program, runs: made.append(runs) or ([1200.0, 1000.0], False))
    one = trial_of()
    race.estimate(one, limit)
    assert (made, one.estimate, one.late) == ([3] * calls, 1000.0, late)


@pytest.mark.parametrize(("late", "in_time"), [((True, True), False), ((True, False), True), ((False, False), True)])
def test_a_host_that_is_in_time_once_is_in_time(
    monkeypatch: pytest.MonkeyPatch, late: tuple[bool, bool], in_time: bool
) -> None:
    pieces = iter([SimpleNamespace(late=one, ns=lambda: 7.0) for one in late])
    restored: list[int] = []
    gpu = SimpleNamespace(flush_l2=lambda: restored.append(2))
    program: Any = SimpleNamespace(restore=lambda: restored.append(1), gpu=gpu, enqueue=None)
    monkeypatch.setattr("kerntune.timing.timers.between_events", lambda gpu, work: next(pieces))
    assert executions(program, 2) == ([7.0, 7.0], in_time)
    assert restored == [1, 2, 1, 2]


@pytest.mark.parametrize(("equal", "left"), [(math.log(2.0), [0, 1]), (math.nextafter(math.log(2.0), 0.0), [1])])
def test_under_load_who_is_just_as_far_behind_as_counts_as_equal_is_equal(
    monkeypatch: pytest.MonkeyPatch, equal: float, left: list[int]
) -> None:
    monkeypatch.setattr(race, "EQUAL", equal)
    monkeypatch.setattr(race, "MOST_LOAD", 1)
    tied = finalists([2e5, 1e5, 4e5], noise=0.0)
    assert [t.index for t in race._equal_under_load(tied)] == left


class WarmingSlot(NoisySlot):
    """Slower by a tenth in its first slots, while the device still comes to the state that it keeps under load."""

    def enqueue(self) -> Callable[[], float]:
        self.taken += 1
        factor = 1.1 if self.taken <= self.warming else 1.0
        return lambda: self.time_ns * factor

    warming = 0


def test_rounds_that_bring_the_device_under_load_are_not_measured() -> None:
    trials = estimated(2e5, 2e5)
    for trial in trials:
        trial.slot = WarmingSlot(2e5, 0.0, random.Random(0))
        trial.times = [2e5]
    load = min(race.MOST_LOAD, math.ceil(race.LOAD_NS / race._round_ns(trials)))
    trials[1].slot.warming = load  # type: ignore[union-attr]
    assert load > LOAD_ROUNDS
    assert race._equal_under_load(trials) == trials


def test_estimates_that_are_taken_again_are_held_against_the_best_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host was late for all but the first; one of them is twice as fast as that."""
    again = {1: 500.0, 2: 900.0}

    def estimate(trial: Trial, limit: float) -> None:
        trial.estimate, trial.late = again[trial.index], False

    monkeypatch.setattr(race, "estimate", estimate)
    trials = estimated(1000.0, 9000.0, 9000.0)
    for trial in trials[1:]:
        trial.late = True
    assert [t.index for t in worth_racing(trials)] == [1]


def test_screens_go_forwards_and_backwards_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round, then two among those within 15 % of the best; those within 5 % are the finalists."""
    trials, seen = finalists([1e5, 1.04e5, 1.1e5, 1.3e5], noise=0.0), list[tuple[tuple[int, ...], bool]]()
    rounds = race._rounds

    def noted(alive: Any, backwards: bool = False) -> None:
        seen.append((tuple(t.index for t in alive), backwards))
        rounds(alive, backwards)

    monkeypatch.setattr(race, "_prepare", lambda trials: None)
    monkeypatch.setattr(race, "_rounds", noted)
    for t in trials:
        t.times.clear()
    assert [t.index for t in screened(trials)] == [0, 1]
    assert seen == [((0, 1, 2, 3), False), ((0, 1, 2), True), ((0, 1, 2), False)]
    seen.clear()
    assert [t.index for t in screened(trials[:1])] == [0]
    assert seen == [], "one needs no round"


@pytest.mark.parametrize(("ns", "alive"), [((100.0, 125.0), 2), ((100.0, 125.1), 1), ((), 0)])
def test_who_is_near_the_best_is_within_the_factor(ns: tuple[float, ...], alive: int) -> None:
    assert len(race.near_best([trial_of(x) for x in ns], 1.25)) == alive


@pytest.mark.parametrize(
    ("first", "best", "in_time", "again"),
    [(2e6, 1.0, True, True), (2e6 + 1, 1.0, True, False), (3e6, 1e6, True, True), (3e6 + 1, 1e6, True, False),
     (9e6, 1.0, False, True)],
)  # fmt: skip
def test_when_a_first_execution_is_repeated(
    first: float, best: float, in_time: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 2 ms or three times the best, and where the host was late."""
    limits: list[float] = []
    monkeypatch.setattr(race, "executions", lambda program, runs: ([first], in_time))
    monkeypatch.setattr(race, "estimate", lambda trial, limit: limits.append(limit))
    looks, one = Estimates(warm=True), trial_of()
    looks.best = best
    looks.take(one)
    assert limits == [1.5 * best] * again
    assert one.estimate == (0.0 if again else first)
    assert one.estimated
