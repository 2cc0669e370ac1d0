"""Races calls as a program makes them: one after another, so that the host's time counts where it is the longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerntune.gpu.base import Gpu
from kerntune.timing.event_pair import between_events
from kerntune.timing.sample import Reading, TimingProtocol
from kerntune.tuning.race import DROP_FIRST, SCREENS, Trial, decided

SLOT_NS, LEAST_CALLS, MOST_CALLS = 1e6, 2, 100
"""A slot is a stream of calls of about a millisecond: the device's first wait for the host is little of it then."""

WARM_CALLS = 2
"""Calls before the first that is timed: kernels are loaded, and prepared launches made, by the first two."""

ESTIMATE_CALLS, ESTIMATES = 3, 2


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
    trials = [_estimated(gpu, i, call, restore, min(ESTIMATE_CALLS, most)) for i, call in calls.items()]
    near = _near(trials, DROP_FIRST)
    fastest = min(t.estimate for t in trials)
    for trial in near:
        runs = int(min(most, max(LEAST_CALLS, SLOT_NS / max(fastest, 1.0))))
        trial.slot = CallStream(gpu, calls[trial.index], restore, runs)
    for rounds, factor in SCREENS if len(near) > 1 else ():
        for _ in range(rounds):
            for trial in near:
                assert trial.slot is not None
                trial.times.append(trial.slot.enqueue()())
        near = _near(near, factor)
        if len(near) == 1:
            break
    for trial in near:
        trial.times = []  # the finals pair rounds that all of them took
    order = decided(near, incumbent)
    return order[0].index, {t.index: t.time_ns for t in trials}


def _estimated(gpu: Gpu, index: int, call: Callable[[], object], restore: Callable[[], object], calls: int) -> Trial:
    nothing: Any = None  # of a call there is neither a recording nor a program
    trial = Trial(index, nothing, nothing)
    for _ in range(WARM_CALLS):
        restore()
        call()
    slot = CallStream(gpu, call, restore, calls)
    trial.estimate = min(slot.enqueue()() for _ in range(ESTIMATES))
    trial.estimated = True
    return trial


def _near(trials: Sequence[Trial], factor: float) -> list[Trial]:
    best = min(t.time_ns for t in trials)
    return [t for t in trials if t.time_ns <= best * factor]
