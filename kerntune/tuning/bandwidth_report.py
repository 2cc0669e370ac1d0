"""The bandwidth of every tuned launch of a program: ``with kerntune.bandwidth():``, ``KERNTUNE_BANDWIDTH=FILE``.

Each launch is timed alone between two events and waited for, so the program is slower meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tabulate import tabulate

from kerntune import capture as captures
from kerntune.base.codec import to_json, write_atomic
from kerntune.base.formatting import NO_FIGURE, format_rate, format_time
from kerntune.base.roofline import Roofline, bytes_moved
from kerntune.base.stats import median
from kerntune.base.warn import warn
from kerntune.errors import KerntuneError
from kerntune.gpu.base import Gpu
from kerntune.gpu.probe import captures_graph
from kerntune.kernels.dispatch.launch_path import ObservedLaunch, unwatch, watch
from kerntune.kernels.source import is_kernel
from kerntune.tuning import context
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.device_figures import device_bandwidth
from kerntune.tuning.launch_files import staged_launch

SCHEMA = "kerntune.bandwidth/1"

PID = "%p"
"""Stands for the process's id in a file's name, where several processes report."""

HEADERS = ("kernel", "config", "grid", "launches", "time", "share", "bytes", "B/s", "of copy")


class LaunchBandwidth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All launches of a kernel with one config and grid, and equal layouts. ``time_ns`` is the median of one launch
    (without the first, if there are more), ``total_ns`` the sum; ``of_bandwidth`` the share of what a copy gets."""

    kernel: str
    config: str
    grid: tuple[int, ...]
    launches: int
    time_ns: float
    total_ns: float
    bytes_moved: int | None
    bytes_per_second: float | None
    of_bandwidth: float | None


class BandwidthFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``KERNTUNE_BANDWIDTH=FILE`` writes at the end of a program; ``bandwidth`` is that of a copy."""

    device: str
    bandwidth: float | None
    launches: tuple[LaunchBandwidth, ...]
    schema: str = SCHEMA


@dataclass
class _Seen:
    kernel: str
    config: str
    grid: tuple[int, ...]
    nbytes: int | None
    times_ns: list[float] = field(default_factory=list)


class bandwidth:  # used as a context manager, like a function
    """Times every tuned launch within ``with kerntune.bandwidth() as report:``, and prints a table at the end.

    ``file`` gets the figures as JSON instead. ``report.rows`` has them, the kind that took longest first. Launches into
    a CUDA graph that is being captured are not timed. Bytes are those of the memory plan
    (:func:`kerntune.base.roofline.bytes_moved`).
    """

    def __init__(self, file: str | Path | None = None) -> None:
        self._file = None if file is None else str(file)
        self._seen: dict[Any, _Seen] = {}
        self._lock = threading.Lock()
        self._gpu: Gpu | None = None

    def __enter__(self) -> bandwidth:
        watch(self)
        return self

    def __exit__(self, *error: object) -> None:
        unwatch(self)
        self.tell()

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        """Launch, timed."""
        gpu = self._device(seen)
        if gpu is None or captures_graph():
            return run()
        kind = self._kind(seen)
        begin = gpu.event()
        result = run()
        end = gpu.event()
        gpu.synchronize()
        kind.times_ns.append(gpu.elapsed_ns(begin, end))
        return result

    def _device(self, seen: ObservedLaunch) -> Gpu | None:
        if captures.current() is not None or not is_kernel(seen.tuner) or seen.kwargs.get("warmup"):
            return None
        backend = context.this_gpu()
        self._gpu = self._gpu if backend is None else backend.gpu
        return None if backend is None else backend.gpu

    def _kind(self, seen: ObservedLaunch) -> _Seen:
        grid = seen.grid or ()
        tensors = [v for v in seen.named.values() if hasattr(v, "stride")]
        layouts = tuple((tuple(v.shape), tuple(v.stride())) for v in tensors)
        key = (id(seen.tuner), seen.key, str(seen.config), grid, layouts)
        with self._lock:
            if key not in self._seen:
                self._seen[key] = _Seen(seen.kernel, str(seen.config), grid, self._bytes(seen))
            return self._seen[key]

    def _bytes(self, seen: ObservedLaunch) -> int | None:
        backend = context.this_gpu()
        assert backend is not None
        capture = context.open_capture(backend)
        try:
            recorded = staged_launch(capture, seen.tuner, seen.config, seen.args, dict(seen.kwargs))
        except KerntuneError:
            return None
        return None if recorded.failures else bytes_moved(recorded.recording, recorded.accesses)

    @property
    def copy_rate(self) -> float | None:
        """Bytes a second that a copy moves on the device; None before any launch."""
        return None if self._gpu is None else device_bandwidth(self._gpu, WinnerCache().folder)

    @property
    def rows(self) -> tuple[LaunchBandwidth, ...]:
        """The figures so far, what took longest first."""
        rate = self.copy_rate
        found = [_row(one, rate) for one in list(self._seen.values()) if one.times_ns]
        return tuple(sorted(found, key=lambda row: -row.total_ns))

    def text(self) -> str:
        """The figures as a table."""
        rows = self.rows
        whole = sum(row.total_ns for row in rows) or 1.0
        cells = [_cells(row, row.total_ns / whole) for row in rows]
        return str(tabulate(cells, headers=HEADERS, tablefmt="simple", disable_numparse=True))

    def tell(self) -> None:
        """Write the file, or print the table; nothing where nothing was launched."""
        rows = self.rows
        if not rows:
            return
        if self._file is None:
            print(self.text(), file=sys.stderr)
            return
        device = "" if self._gpu is None else self._gpu.spec.name
        path = Path(self._file.replace(PID, str(os.getpid()))).expanduser()
        try:
            write_atomic(path, to_json(BandwidthFile(device, self.copy_rate, rows)))
        except KerntuneError as exc:
            warn(f"the bandwidth report can't be written: {exc}")


def _row(one: _Seen, rate: float | None) -> LaunchBandwidth:
    time_ns = median(one.times_ns[1:] or one.times_ns)
    found = Roofline(time_ns, one.nbytes, bandwidth=rate)
    figures = len(one.times_ns), time_ns, sum(one.times_ns), one.nbytes, found.bytes_per_second, found.of_bandwidth
    return LaunchBandwidth(one.kernel, one.config, one.grid, *figures)


def _cells(row: LaunchBandwidth, share: float) -> tuple[str, ...]:
    return (
        row.kernel,
        row.config,
        "x".join(map(str, row.grid)),
        str(row.launches),
        format_time(row.time_ns),
        f"{share * 100:.1f} %",
        NO_FIGURE if row.bytes_moved is None else f"{row.bytes_moved:,}",
        format_rate(row.bytes_per_second, "B"),
        NO_FIGURE if row.of_bandwidth is None else f"{row.of_bandwidth * 100:.1f} %",
    )
