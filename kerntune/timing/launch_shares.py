"""What each launch of a recording takes, timed by itself: where an operation's time goes."""

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
"""Different launches that are looked at; with more, a table of shares wouldn't be read, and would cost a second."""

SLOTS = 3
"""After as many to warm up. Shares are reported in percent, so the median of three is enough."""


def launch_times(
    loader: Loader, recording: Recording, sources: Sequence[Source], artifacts: Artifacts
) -> tuple[float, ...]:
    """Nanoseconds of each launch alone, in their order; empty for one launch, for more than are looked at, and
    where the device has no room.

    Each works on what the launches before it leave behind, but finds it outside the L2 cache, where in the whole it may
    find what the one before has just written. So the times can come to more than the whole; their shares say where to
    look. Equal launches are timed once.
    """
    launches = [(i, x) for i, x in enumerate(recording.launches) if 0 not in x.grid]
    kinds = {_kind(x): i for i, x in reversed(launches)}
    if len(launches) < 2 or len(kinds) > MAX_LAUNCHES:
        return ()
    try:
        times = {kind: _time(loader, recording, sources, artifacts, i) for kind, i in kinds.items()}
    except MeasurementError:  # no room for another copy: nothing that a verdict needs
        return ()
    return tuple(times.get(_kind(x), 0.0) for x in recording.launches)


def _kind(launch: Launch) -> tuple[object, ...]:
    return launch.binary, launch.grid, launch.params


def _time(loader: Loader, recording: Recording, sources: Sequence[Source], artifacts: Artifacts, index: int) -> float:
    memory = memory_at(loader, recording, sources, artifacts, index)
    program = Program(loader, recording.only(index).pruned(), memory, artifacts)
    slot = slot_for(program, estimate_ns(program))
    return median([slot.enqueue()() for _ in range(MIN_WARM_UP + SLOTS)][MIN_WARM_UP:])
