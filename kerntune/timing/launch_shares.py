"""The time of each launch of a recording, timed by itself: where an operation's time goes."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.base.recording import Artifacts, Launch, Recording
from kerntune.base.stats import median
from kerntune.errors import MeasurementError
from kerntune.gpu.memory import Source
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.timing.sampling import estimate_ns, slot_for
from kerntune.timing.stopping import MIN_WARM_UP

MAX_LAUNCHES = 16
"""Different launches that are timed; a table of more shares is too long to read, and would cost a second."""

SLOTS = 3
"""Slots, after as many to warm up. Shares are shown in percent, so the median of three is enough."""


def launch_times(
    loader: Loader, recording: Recording, sources: Sequence[Source], artifacts: Artifacts, spaced: bool = False
) -> tuple[float, ...]:
    """Nanoseconds of each launch alone, in their order; empty for one launch, for more than are timed, and
    where the device has no memory left.

    Each launch reads what the launches before it have written, but from outside the L2 cache; in the whole recording it
    may still be in the cache. So the times can add up to more than the whole; their shares show where the time goes.
    Equal launches are timed once. ``spaced`` as for :class:`~kerntune.gpu.memory.Memory`.
    """
    launches = [(i, x) for i, x in enumerate(recording.launches) if 0 not in x.grid]
    kinds = {_kind(x): i for i, x in reversed(launches)}
    if len(launches) < 2 or len(kinds) > MAX_LAUNCHES:
        return ()
    try:
        times = {kind: _time(loader, recording, sources, artifacts, i, spaced) for kind, i in kinds.items()}
    except MeasurementError:  # no memory for another copy; no verdict needs these times
        return ()
    return tuple(times.get(_kind(x), 0.0) for x in recording.launches)


def _kind(launch: Launch) -> tuple[object, ...]:
    return launch.binary, launch.grid, launch.params


def _time(
    loader: Loader, recording: Recording, sources: Sequence[Source], artifacts: Artifacts, index: int, spaced: bool
) -> float:
    memory = memory_at(loader, recording, sources, artifacts, index, spaced=spaced)
    program = Program(loader, recording.only(index).pruned(), memory, artifacts)
    slot = slot_for(program, estimate_ns(program))
    return median([slot.enqueue()() for _ in range(MIN_WARM_UP + SLOTS)][MIN_WARM_UP:])
