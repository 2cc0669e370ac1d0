"""Kernel timestamps of the profiler (CUPTI, through ``torch.profiler``): a cross-check of the other timers.

Resolution: each kernel's own start and end, to about 32 ns on recent GPUs, without launch overhead and gaps between
launches. So it reads lower than a graph by the gap between two kernels (about a microsecond each), and gives the time
of a kernel rather than of a call. It is never chosen automatically: CUPTI slows every launch of its process from then
on, needs torch, and other profilers must be off. Only in the user's own process; replays don't use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kerntune.base.stats import median
from kerntune.errors import MeasurementError
from kerntune.gpu.program import Program
from kerntune.timing.sample import Reading, TimingProtocol

if TYPE_CHECKING:
    from pathlib import Path  # not loaded by timing workers

DEFAULT_RUNS = 20


class ProfilerSlot:
    """``runs`` executions, each restored and flushed; the slot's time is the median of their kernels' summed times.

    The profiler starts and stops with each slot, which takes milliseconds: all is done when ``enqueue`` returns.
    """

    def __init__(self, program: Program, runs: int = DEFAULT_RUNS) -> None:
        self._program = program
        self._symbols = [program.recording.binary_of(x).symbol for x in program.recording.launches if 0 not in x.grid]
        self.protocol = TimingProtocol("profiler", runs, 1)
        self.late = False  # the profiler's times contain none of the host's

    def enqueue(self) -> Reading:
        """Run all executions under the profiler."""
        ours = set(self._symbols)
        seen = [(name, ns) for name, ns in kernels_of(self._work) if name in ours]
        time_ns = median([sum(x) for x in executions(seen, self._symbols)])
        return lambda: time_ns

    def _work(self) -> None:
        for _ in range(self.protocol.runs_per_slot):
            self._program.restore()
            self._program.gpu.flush_l2()
            self._program.enqueue()
        self._program.gpu.synchronize()


def executions(seen: Sequence[tuple[str, float]], symbols: Sequence[str]) -> list[Sequence[float]]:
    """Kernel times, a row an execution. :class:`MeasurementError` if they aren't the launches that were made."""
    names, times = [name for name, _ in seen], [ns for _, ns in seen]
    whole = len(names) // max(len(symbols), 1)
    if not whole or names != list(symbols) * whole:
        raise MeasurementError(
            f"the profiler saw {len(names)} kernels that are not {', '.join(dict.fromkeys(symbols))} in turn; "
            "end other profilers, or use another timer"
        )
    return [times[i : i + len(symbols)] for i in range(0, len(times), len(symbols))]


def kernels_of(work: Callable[[], None]) -> list[tuple[str, float]]:
    """Name and nanoseconds of each kernel that ``work`` runs, in the order in which they started."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        raise MeasurementError("the profiler's timestamps need torch and a CUDA device; use another timer")
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        work()
    events = [e for e in found.events() or () if e.device_type == DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    return [(str(e.name), 1e3 * float(e.time_range.elapsed_us())) for e in events]


def write_trace(path: Path, work: Callable[[], object], metadata: Mapping[str, str]) -> None:
    """Run ``work`` under torch's profiler, and write what the host and, where there is one, the GPU did as a Chrome
    trace (``chrome://tracing``, Perfetto), with ``metadata`` as texts. ``OSError`` where the file can't be written."""
    import json

    import torch
    from torch.profiler import ProfilerActivity, profile, supported_activities

    wanted = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & set(supported_activities())
    with profile(activities=sorted(wanted, key=str)) as found:
        work()
        if ProfilerActivity.CUDA in wanted:
            torch.cuda.synchronize()
        for name, text in metadata.items():
            found.add_metadata(name, json.dumps(text)[1:-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    found.export_chrome_trace(str(path))
