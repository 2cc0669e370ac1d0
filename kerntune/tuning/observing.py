"""Launches as they are watched: observers that the environment asks for, and torch's profiler."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kerntune.errors import UsageError
from kerntune.kernels import compat
from kerntune.kernels.dispatch.observers import ObservedLaunch, Observer, observers, watch
from kerntune.tuning.launch_ranges import NVTX, NvtxRanges, range_name


def observed(seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
    """Make a launch, seen by all observers, in a range of torch's profiler while that is active."""
    for observer in observers():
        run = partial(observer.launch, seen, run)
    with compat.profiler_range(lambda: range_name(seen)):
        return run()


_WATCHED: list[Observer] | None = None
"""What this process's environment asked for; None before the first launch. (Dynamo warns of a ``functools.cache``.)"""


def watch_environment() -> None:
    """Begin what ``KERNTUNE_NVTX`` and ``KERNTUNE_BANDWIDTH`` ask for: once a process, before its first launch.
    :class:`UsageError` for a variable, these or another, that is what it can't be."""
    global _WATCHED
    if _WATCHED is not None:
        return
    from kerntune.tuning.variables import check_variables  # what all variables are for; not needed again

    check_variables()
    found = observers_of(os.environ)
    for observer in found:
        watch(observer)
    _WATCHED = found


def observers_of(environment: Mapping[str, str]) -> list[Observer]:
    """The observers that variables ask for; :class:`UsageError` for a value that one can't have."""
    found: list[Observer] = []
    text = environment.get(NVTX, "")
    if text not in ("", "0", "1"):
        raise UsageError(f"{NVTX} is {text!r}; it can be 1 or 0")
    if text == "1":
        found.append(NvtxRanges())
    if file := environment.get("KERNTUNE_BANDWIDTH", ""):
        from kerntune.tuning.bandwidth_report import bandwidth  # not loaded by programs that don't ask for it

        report = bandwidth(file)
        atexit.register(report.tell)
        found.append(report)
    return found
