"""Whether several launches pay as one: both ways are timed as a user sees them, the host's share included."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune import capture as captures
from kerntune.gpu.base import Gpu
from kerntune.gpu.probe import captures_graph
from kerntune.kernels import compat
from kerntune.tuning import context

GAIN = 0.02
"""The least that one launch must save. Less is within what such a timing can tell."""

PAIRS = 11
"""Timings of each way, in turn; their order changes from pair to pair."""

MOST_CHOICES = 4096
"""Kinds of calls that are remembered; then all are forgotten, and decided anew."""

LEAST_S = 5e-4
"""The least time of one timing: calls are repeated until they take that long, and waited for together."""


@dataclass(frozen=True)
class ComboChoice:
    """What was chosen for one kind of call: ``together`` or each by itself. ``ratio`` is the time together over the
    time apart, host and device; None where it couldn't be measured."""

    together: bool
    ratio: float | None = None


LaunchAll = Callable[[Sequence[Any]], object]


def choose(together: LaunchAll, apart: LaunchAll, arguments: Sequence[Any]) -> ComboChoice | None:
    """Time both ways on copies of the call's tensors, after each has been tuned. Together where nothing can be timed:
    in a capture, in Triton's interpreter, without a GPU, without memory for copies. None while a CUDA graph is
    captured: decide at a later call."""
    backend = None if captures.current() is not None or compat.interprets() else context.this_gpu()
    if backend is None or backend.gpu is None:
        return ComboChoice(together=True)
    if captures_graph():
        return None
    try:
        copies = _copies(arguments)
    except RuntimeError:  # torch's for a full card
        return ComboChoice(together=True)
    ratio = ratio_of(backend.gpu, lambda: together(copies), lambda: apart(copies))
    return ComboChoice(ratio < 1 - GAIN, ratio)


def remembered(choices: dict[Any, ComboChoice], key: Any, found: ComboChoice | None) -> ComboChoice:
    """The choice, kept for later calls; together for this call alone where there is none yet."""
    if found is None:
        return ComboChoice(together=True)
    if len(choices) >= MOST_CHOICES:
        choices.clear()
    choices[key] = found
    return found


def ratio_of(gpu: Gpu, one: Callable[[], object], other: Callable[[], object]) -> float:
    """The median over pairs of the first's time over the second's, while no other process of ours uses the device."""
    for call in (one, other, one, other):  # tuned, under the lock of each tuning, compiled and loaded
        call()
    ratios = []
    with gpu.lock():
        runs = _runs(gpu, other)
        for i in range(PAIRS):
            order = (one, other) if i % 2 else (other, one)
            times = {call: _seconds(gpu, call, runs) for call in order}
            ratios.append(times[one] / times[other])
    return statistics.median(ratios)


def _runs(gpu: Gpu, call: Callable[[], object]) -> int:
    runs = 1
    while runs < 1024 and _seconds(gpu, call, runs) * runs < LEAST_S:
        runs *= 2
    return runs


def _seconds(gpu: Gpu, call: Callable[[], object], runs: int) -> float:
    """Of one call among several, until the device has done them all."""
    gpu.synchronize()
    begin = time.perf_counter()
    for _ in range(runs):
        call()
    gpu.synchronize()
    return (time.perf_counter() - begin) / runs


def _copies(arguments: Sequence[Any]) -> list[Any]:
    """The arguments with copies of tensors, the same copy for what is the same memory."""
    made: dict[Any, Any] = {}

    def copy(value: Any) -> Any:
        if not hasattr(value, "data_ptr"):
            return value
        key = (value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride()))
        if key not in made:
            made[key] = value.clone()
        return made[key]

    return [copy(value) for value in arguments]
