"""Races calls as a program makes them: one after another, so that the host's time counts where it is the longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerntune.gpu.base import Gpu
from kerntune.timing.event_pair import between_events
from kerntune.timing.sample import Reading, TimingProtocol
from kerntune.tuning.race import DROP_FIRST, Trial, decided

SLOT_NS, LEAST_CALLS, MOST_CALLS = 1e6, 2, 100
"""A slot is a stream of calls of about a millisecond: the device's first wait for the host is little of it then."""

WARM_CALLS = 2
"""Calls before the first that is timed: kernels are loaded, and prepared launches made, by the first two."""

WARM_NS, WARM_SLOTS = 10e6, 12
"""The first candidate runs so long before any is timed, in as many slots at most: the clocks of a device and of a
processor that waited rise. Tuning what the candidates launch went before."""

ESTIMATE_NS, ESTIMATE_CALLS, ESTIMATES = 0.25e6, 10, 4
"""How long a slot of an estimate lasts, and the calls that it has, at most; the shortest of four counts."""

SCREEN_ROUNDS, DROP_SCREENED = 3, 1.15
"""Rounds before the finals, and how far behind the best a candidate's shortest time may be then. A single reading drops
none: the host may pause, and clocks may rise (two of 48 decisions were lost in rounds that dropped sooner: H200)."""


class CallStream:
    """A slot of calls between two events, with what they write restored before. The device's wait for the host between
    the calls is part of their time, so it is never ``late``."""

    late = False

    def __init__(self, gpu: Gpu, call: Callable[[], object], restore: Callable[[], object], calls: int) -> None:
        self._gpu, self._call, self._restore, self._calls = gpu, call, restore, calls
        self.protocol = TimingProtocol("stream", calls, 1)

    def enqueue(self) -> Reading:
        """The calls; the device is idle before them, as it is after a call that waits."""
        self._restore()
        self._gpu.synchronize()
        piece = between_events(self._gpu, self._calls_in_turn)
        return lambda: piece.ns() / self._calls

    def _calls_in_turn(self) -> None:
        for _ in range(self._calls):
            self._call()


def race_calls(
    gpu: Gpu,
    calls: Mapping[int, Callable[[], object]],
    restore: Callable[[], object],
    incumbent: int | None,
    most: int = MOST_CALLS,
) -> tuple[int, dict[int, float]]:
    """The fastest of some calls by index, and nanoseconds of each. Ties go to the ``incumbent``, then to the first. At
    ``most`` so many calls run between two calls of ``restore``.

    Each is estimated; those near the best are timed in turn, until their order is clear
    (:func:`kerntune.tuning.race.decided`).
    """
    nothing: Any = None  # of a call there is neither a recording nor a program
    trials = [Trial(i, nothing, nothing) for i in calls]
    for call in calls.values():
        for _ in range(WARM_CALLS):
            restore()
            call()
    _warm_up(gpu, next(iter(calls.values())), restore, most)
    for trial in trials:
        trial.estimate, trial.estimated = _estimate(gpu, calls[trial.index], restore, most), True
    near = _near(trials, DROP_FIRST)
    count = _calls_within(SLOT_NS, min(t.estimate for t in trials), most)
    for trial in near:
        trial.slot = CallStream(gpu, calls[trial.index], restore, count)
    finalists = _screened(near) if len(near) > 1 else near
    winner = decided(finalists, incumbent)[0]
    for trial in trials:
        if not any(trial is one for one in finalists):
            _settle(trial, winner)
    return winner.index, {t.index: t.time_ns for t in trials}


def _calls_within(ns: float, one_ns: float, most: int) -> int:
    return int(min(most, max(LEAST_CALLS, ns / max(one_ns, 1.0))))


def _warm_up(gpu: Gpu, call: Callable[[], object], restore: Callable[[], object], most: int) -> None:
    one_ns, spent = CallStream(gpu, call, restore, min(LEAST_CALLS, most)).enqueue()(), 0.0
    slot = CallStream(gpu, call, restore, _calls_within(SLOT_NS, one_ns, most))
    for _ in range(WARM_SLOTS):
        spent += slot.enqueue()() * slot.protocol.runs_per_slot
        if spent >= WARM_NS:
            return


def _estimate(gpu: Gpu, call: Callable[[], object], restore: Callable[[], object], most: int) -> float:
    first = CallStream(gpu, call, restore, min(LEAST_CALLS, most)).enqueue()()
    slot = CallStream(gpu, call, restore, _calls_within(ESTIMATE_NS, first, min(ESTIMATE_CALLS, most)))
    return min(slot.enqueue()() for _ in range(ESTIMATES))


def _screened(trials: Sequence[Trial]) -> list[Trial]:
    """The finalists. They keep the rounds, which all took."""
    for done in range(SCREEN_ROUNDS):
        for trial in trials[:: -1 if done % 2 else 1]:
            assert trial.slot is not None
            trial.times.append(trial.slot.enqueue()())
    best = min(min(t.times) for t in trials)
    return [t for t in trials if min(t.times) <= best * DROP_SCREENED]


def _settle(trial: Trial, winner: Trial) -> None:
    """The time of one that dropped out early, as it compared with the winner's then."""
    if trial.times and winner.times:
        mine, winners = min(trial.times), min(winner.times[: len(trial.times)])
    else:
        mine, winners = trial.estimate, winner.estimate
    trial.settled = winner.time_ns * mine / winners if winners else mine


def _near(trials: Sequence[Trial], factor: float) -> list[Trial]:
    best = min(t.time_ns for t in trials)
    return [t for t in trials if t.time_ns <= best * factor]
