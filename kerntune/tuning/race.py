"""Times candidates against each other: an estimate of each, then the fastest in turn until their order is clear.

Every step only drops what is slower than the best by far more than the step's noise; ties are never broken by noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kerntune.base.recording import Recording
from kerntune.base.stats import hodges_lehmann, median
from kerntune.gpu.program import Program
from kerntune.timing.sampling import same_kind, slot_for
from kerntune.timing.timers import GraphSlot, Slot, event_slot, flushed_runs, unrolled_runs

DROP_FIRST = 1.5
"""Candidates whose estimate (the shortest of a few executions) is above this times the best are dropped. For kernels of
a few microseconds an event pair adds about 2 us to both, so even fewer are dropped."""

ESTIMATE_RUNS = 3
"""Executions of an estimate beside the one that loads the code. Their minimum counts: a host that is busy compiling may
pause between an event and its launch, which only ever adds time."""

RETAKES = 5
"""A time that would drop a candidate is taken so often again if the host was late, and the shortest counts. While 16
processes compile, every second estimate is late; a time that is not late is the device's alone."""

FAR_SLOWER = 3.0
LONG_NS = 2e6
"""A first execution longer than 2 ms and three times the best estimate is not repeated."""

WARM_NS, WARM_BATCHES = 20e6, 40
"""The first candidate runs for about 20 ms before any is estimated: an idle device's clocks need that to rise."""

GRAPH_NS = 0.7e6
"""A graph of a race lasts about this long: its finals take up to 12 rounds, so a slot needn't be as precise as a
sample's, which lasts three times as long. With those, 25 configs of 30 us took 0.5 s to race (H200)."""

SMALL_GRAPH, MANY, SHORT_NS, LARGE_GRAPH = 16, 6, 40e3, 50
"""A whole graph of 200 launches takes 10 ms to build, more than it ever runs for kernels shorter than 40 us. Where more
than six such candidates are left, and a whole one has more than 50 launches, one of 16 drops the slow ones first."""

DROP_SMALL, DROP_CACHED = 1.15, 1.3
"""After the small graph, as after a round of whole ones: the best was never read more than 2 % too long (201 readings
of two kernels' best configs, H200). The second where not all copies fit into it: the few may stay in the L2 cache,
which favours some."""

SCREENS = ((1, 1.15), (2, 1.05))
"""Rounds of the remaining candidates in turn, and how far behind the best a candidate may be after them."""

DROP_SECOND = SCREENS[-1][1]

MIN_FINAL_ROUNDS, MAX_FINAL_ROUNDS = 4, 12
"""Rounds of the finals: until each candidate is surely slower than the best by more than a tie, or surely within it."""

SURE = 4.0
"""Standard errors that make sure."""

LEAST_ERROR = 0.0005
"""Of a mean of paired log ratios: few rounds may agree better by chance than slots do."""

TIE = 0.005
"""The incumbent wins against what is faster by 0.5 % or less, so that winners don't flip from run to run."""

EQUAL = 0.003
"""Where no incumbent ties, the first in config order wins of those within 0.3 % of the best: three times what chance
makes of the same code (0.1 %, H200). While 0.5 % counted as equal there too, one of 18 fresh tunings of a key took a
config that is slower by 0.7 % in the median of them, and one of 6 of another key (a row sum of 9.4 us, a matrix
multiplication of 55 us, ``benchmarks/results/winner_contents_h200.json``)."""

LOAD_NS, LOAD_ROUNDS = 100e6, 8
"""A device that lowers its clock for its power does so within 15 to 60 ms of work, in some races and not in others, and
configs need not lose the same by it: two of a matrix multiplication were equal before and 2 to 3 % apart afterwards,
and half of 18 fresh tunings took either (H200). So those that tie run for so long, and then so many rounds decide."""

MOST_LOAD = 200
"""Rounds of load at most. Two graphs need 72. Slots that are shorter are event pairs around a few short executions:
they hardly load a device, and their times may even be read as 0."""

SLOT_NS, MOST_RUNS = 1.5e6, 8
"""An event slot of a race takes about this long: many short slots in turn tell more than few long ones."""


@dataclass(eq=False)
class Trial:
    """A candidate that runs, with its times. ``same`` are all candidates with this very code and grid."""

    index: int
    recording: Recording
    program: Program
    same: list[int] = field(default_factory=list)
    estimate: float = 0.0
    estimated: bool = False
    """Whether it has been run, and ``estimate`` is a time."""

    late: bool = False
    """Whether the host was late for that estimate, which was good enough all the same: the true time may be shorter."""

    slot: Slot | None = None
    times: list[float] = field(default_factory=list)
    settled: float = 0.0

    @property
    def time_ns(self) -> float:
        """Median over its slots, or the estimate; after the race, as it compares with the winner's."""
        return self.settled or (median(self.times) if self.times else self.estimate)


class Estimates:
    """Estimates in any order, while others are compiled. The device may be ``warm`` already, until a pause."""

    def __init__(self, warm: bool = False) -> None:
        self.best, self.warm = math.inf, warm

    def take(self, trial: Trial) -> None:
        """Set the trial's ``estimate``. Raises what launching raises."""
        if not self.warm:
            _warm_up(trial.program)
            self.warm = True
        (first,), in_time = executions(trial.program, 1)
        if in_time and first > max(LONG_NS, FAR_SLOWER * self.best):
            trial.estimate = first
        else:
            estimate(trial, DROP_FIRST * self.best)
        trial.estimated, self.best = True, min(self.best, trial.estimate)


def estimate(trial: Trial, limit: float) -> None:
    """Set a trial's ``estimate``, the shortest of a few runs; of more while a late one is above ``limit``."""
    times: list[float] = []
    for _ in range(1 + RETAKES):
        more, in_time = executions(trial.program, ESTIMATE_RUNS)
        times += more
        if in_time or min(times) <= limit:
            break
    trial.estimate = min(times)
    trial.late = not in_time and trial.estimate <= limit


def executions(program: Program, runs: int) -> tuple[list[float], bool]:
    """Nanoseconds of single runs on copy 0, flushed and restored before each; if the host was in time once."""
    pieces = flushed_runs(program.gpu, program.enqueue, runs, restore=program.restore)
    return [piece.ns() for piece in pieces], not all(piece.late for piece in pieces)


def slot_ns(slot: Slot) -> float:
    """A slot's time, taken again while the host is late."""
    times: list[float] = []
    for _ in range(1 + RETAKES):
        times.append(slot.enqueue()())
        if not slot.late:
            return times[-1]
    return min(times)


def _warm_up(program: Program) -> None:
    spent = 0.0
    for _ in range(WARM_BATCHES):
        spent += sum(executions(program, ESTIMATE_RUNS)[0])
        if spent >= WARM_NS:
            return


def worth_racing(trials: Sequence[Trial]) -> list[Trial]:
    """The trials whose estimate is near the best. Estimates only: a graph's times lack an event pair's microseconds.

    An estimate for which the host was late is repeated if it was good enough only until a better one came.
    """
    best = min((t.estimate for t in trials), default=math.inf)
    for trial in trials:
        if trial.late and trial.estimate > best * DROP_FIRST:
            estimate(trial, best * DROP_FIRST)
            best = min(best, trial.estimate)
    return [t for t in trials if t.estimate <= best * DROP_FIRST]


def screened(trials: Sequence[Trial]) -> list[Trial]:
    """The finalists among trials near the best: few slots each, in turn."""
    alive = _by_small_graphs(trials)
    _prepare(alive)
    done = 0
    for rounds, drop in SCREENS:
        if len(alive) > 1:
            for _ in range(rounds):
                _rounds(alive, backwards=bool(done % 2))
                done += 1
            alive = near_best(alive, drop)
    return alive


@dataclass
class Screening:
    """Chooses the finalists in one or several passes: as :func:`screened`, for candidates of which some come late.

    A late candidate is compared with those that earlier passes have left. A dropped candidate stays dropped: the best
    can only have become faster.
    """

    raced: list[Trial] = field(default_factory=list)
    finalists: list[Trial] = field(default_factory=list)

    def finalists_of(self, trials: Sequence[Trial]) -> list[Trial]:
        """The finalists of all that have an estimate; nothing runs if none of those near the best is new."""
        near = worth_racing(trials)
        new = [t for t in near if t not in self.raced]
        if new:
            self.raced += new
            self.finalists = screened([t for t in near if t in new or t in self.finalists])
        return self.finalists


def _by_small_graphs(trials: Sequence[Trial]) -> list[Trial]:
    """The trials, or where graphs of them are many and costly, those that small graphs don't rule out."""
    fastest = min((t.estimate for t in trials), default=math.inf)
    if len(trials) <= MANY or fastest >= SHORT_NS:
        return list(trials)
    copies = trials[0].program.memory.rotation(trials[0].recording)
    if copies < 2 or unrolled_runs(copies, 1, fastest, target_ns=GRAPH_NS) <= LARGE_GRAPH:
        return list(trials)
    few = min(copies, SMALL_GRAPH)
    drop = DROP_SMALL if few == copies else DROP_CACHED
    timed = [(t, _small_graph(t.program, few)) for t in trials]
    best = min(ns for _, ns in timed)
    return [t for t, ns in timed if ns <= best * drop]


def _small_graph(program: Program, copies: int) -> float:
    runs = copies if program.in_place else SMALL_GRAPH // copies * copies
    slot = GraphSlot(program, copies, runs)
    slot.enqueue()()
    return min(slot_ns(slot) for _ in range(2))


def decided(
    finalists: Sequence[Trial], incumbent: int | None = None, limited: Callable[[], bool] = lambda: False
) -> list[Trial]:
    """The finalists, best first, after as many rounds as their order needs.

    Ties go to the incumbent, then to the first in config order of those that are equal to the best: under lasting load
    if the device's clock is ``limited``, by its power or its heat, at the end of the race.
    """
    alive = list(finalists)
    for done in range(1, MAX_FINAL_ROUNDS + 1):
        if len(alive) < 2:
            break
        _rounds(alive, backwards=bool(done % 2))
        if done >= MIN_FINAL_ROUNDS:
            best = _fastest(alive)
            behind = {t: _behind(t, best) for t in alive if t is not best}
            alive = [t for t in alive if t is best or behind[t][0] <= TIE]
            if all(high <= TIE for low, high in behind.values() if low <= TIE):
                break
    best = _fastest(alive)
    tied = [t for t in alive if _ratio(t, best) <= TIE]
    kept = [t for t in tied if t.index == incumbent]
    winner = min(kept or _equal(tied, best, limited), key=lambda t: t.index)
    reference = best.time_ns
    for trial in finalists:  # as of the best one's rounds: a device that gets warm slows down all alike
        trial.settled = reference * math.exp(_ratio(trial, best))
    return [winner, *sorted((t for t in finalists if t is not winner), key=lambda t: t.time_ns)]


def _equal(tied: Sequence[Trial], best: Trial, limited: Callable[[], bool]) -> list[Trial]:
    """Those among which no time decides. A round as long as the load has brought the device under it already."""
    if len(tied) > 1 and _round_ns(tied) < LOAD_NS and limited():
        return _equal_under_load(tied)
    return [t for t in tied if _ratio(t, best) <= EQUAL]


def _equal_under_load(tied: Sequence[Trial]) -> list[Trial]:
    """Those that are equal to the fastest when the device has been busy for a while. No time of theirs changes."""
    loaded = [replace(t, times=[]) for t in tied]
    rounds = math.ceil(LOAD_NS / max(1.0, _round_ns(tied)))
    for _ in range(min(MOST_LOAD, rounds)):
        _rounds(loaded)
    for t in loaded:
        t.times.clear()
    for done in range(LOAD_ROUNDS):
        _rounds(loaded, backwards=bool(done % 2))
    best = _fastest(loaded)
    return [t for t, again in zip(tied, loaded, strict=True) if _ratio(again, best) <= EQUAL]


def _round_ns(trials: Sequence[Trial]) -> float:
    """Nanoseconds of device time that a slot of each takes together, without flushes and restores."""
    return sum(trial.time_ns * trial.slot.protocol.runs_per_slot for trial in trials if trial.slot is not None)


def _ratios(trial: Trial, best: Trial) -> list[float]:
    return [math.log(a / b) for a, b in zip(trial.times, best.times, strict=False) if a > 0 < b] or [0.0]


def _ratio(trial: Trial, best: Trial) -> float:
    """Rounds forwards and backwards may be of two kinds, and their median is of the kind that there is more of."""
    return hodges_lehmann(_ratios(trial, best)).point


def _fastest(trials: Sequence[Trial]) -> Trial:
    return min(trials, key=lambda trial: _ratio(trial, trials[0]))


def _behind(trial: Trial, best: Trial) -> tuple[float, float]:
    """Between what shares ``trial`` is surely slower than ``best``, from the rounds that both took."""
    ratios = _ratios(trial, best)
    mean = sum(ratios) / len(ratios)
    variance = sum((r - mean) ** 2 for r in ratios) / max(len(ratios) - 1, 1)
    error = SURE * max(math.sqrt(variance / len(ratios)), LEAST_ERROR)
    return mean - error, mean + error


def _prepare(trials: Sequence[Trial]) -> None:
    """Slots of one kind for all, and no times."""
    fastest = min((t.estimate for t in trials), default=math.inf)
    first: Slot | None = None
    for trial in trials:
        trial.times, trial.slot, trial.settled = [], None, 0.0
        if len(trials) > 1:
            trial.slot = _slot(trial.program, fastest) if first is None else same_kind(trial.program, first)
            first = first or trial.slot


def _slot(program: Program, fastest: float) -> Slot:
    slot = slot_for(program, fastest, graph_ns=GRAPH_NS)
    if slot.protocol.timer != "events":
        return slot
    return event_slot(program, int(min(MOST_RUNS, max(2, SLOT_NS / max(fastest, 1.0)))))


def near_best(trials: Sequence[Trial], factor: float) -> list[Trial]:
    """Those that take at most ``factor`` times as long as the fastest."""
    best = min((t.time_ns for t in trials), default=math.inf)
    return [t for t in trials if t.time_ns <= best * factor]


def _rounds(trials: Sequence[Trial], backwards: bool = False) -> None:
    for trial in reversed(trials) if backwards else trials:
        assert trial.slot is not None
        trial.times.append(slot_ns(trial.slot))
