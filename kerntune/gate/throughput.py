"""Each launch's share of a case's time."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.base.case_result import LaunchShare
from kerntune.base.recording import Recording


def launch_shares(recording: Recording, times_ns: Sequence[float]) -> tuple[LaunchShare, ...]:
    """Shares of the launches' summed times, slowest first. ``times_ns`` is as
    :func:`kerntune.timing.launch_shares.launch_times` gives it; without times there are no shares."""
    whole = sum(times_ns)
    if whole <= 0:
        return ()
    named = zip(recording.launches, times_ns, strict=True)
    found = [LaunchShare(i, x.kernel, round(ns, 1), round(ns / whole, 4)) for i, (x, ns) in enumerate(named)]
    return tuple(sorted(found, key=lambda s: -s.time_ns))
