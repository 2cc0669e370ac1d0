"""What follows from a time: bytes and operations a second, against what the device gives, and each launch's share."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

import msgspec

from kerntune.base.case_result import LaunchShare
from kerntune.base.recording import Recording, View
from kerntune.errors import CacheError, MeasurementError
from kerntune.gpu.base import Executor
from kerntune.timing.bandwidth import measured_bandwidth
from kerntune.tuning.cache.entries import Entries

SCHEMA = "kerntune.device/1"

BITS = {"bool": 8, "complex32": 32, "complex64": 64, "complex128": 128, "bfloat16": 16, "float4_e2m1fn_x2": 8}
"""Sizes of dtypes whose names don't end in their number of bits."""


class DeviceFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured of one device, by its UUID. ``bandwidth`` in bytes a second."""

    schema: str
    name: str
    uuid: str
    bandwidth: float


def device_bandwidth(gpu: Executor, cache: Path) -> float | None:
    """The device's measured bandwidth in bytes a second: from the cache folder, else measured now (some 20 ms) and kept
    there. None where it can't be measured."""
    entries = Entries(cache, "devices", DeviceFigures, SCHEMA)
    path = entries.path(gpu.spec.uuid or gpu.spec.slug)
    found = entries.read(path)
    if found is not None and found.name == gpu.spec.name:
        return found.bandwidth
    try:
        measured = measured_bandwidth(gpu)
    except MeasurementError:  # no free memory now
        return None
    if measured is not None and gpu.spec.uuid:
        try:
            entries.write(path, DeviceFigures(SCHEMA, gpu.spec.name, gpu.spec.uuid, round(measured)))
        except CacheError:  # measured again by the next run
            return measured
    return measured


def bytes_moved(recording: Recording) -> int:
    """Bytes that the launches read and write, if each touches each of its tensors once.

    From the memory plan: what a launch reads and writes in place counts twice, what passes from one launch to the next
    counts for both. Broadcast dimensions (stride 0) and overlapping views of one storage count once. Where a kernel
    reads a part of a tensor only, or reads it again and again, the caller can give the number (``bytes=``).
    """
    total = 0
    for launch in (x for x in recording.launches if 0 not in x.grid):
        views = [recording.views[p.view] for p in launch.params if p.view is not None]
        for side in (launch.reads, launch.writes):
            total += sum(_touched(recording, storage, views) for storage in side)
    return total


def _touched(recording: Recording, storage: int, views: Sequence[View]) -> int:
    seen = {(v.offset_bytes, v.dtype, v.shape, v.strides): _nbytes(v) for v in views if v.storage == storage}
    whole = recording.storages[storage].nbytes
    return min(sum(seen.values()), whole) if seen else whole


def _nbytes(view: View) -> int:
    count = prod(n for n, stride in zip(view.shape, view.strides, strict=True) if stride or n == 0)
    return count * bits_of(view.dtype) // 8


def bits_of(dtype: str) -> int:
    """Bits of one element of a torch dtype: ``float8_e4m3fn`` has 8, ``int64`` 64."""
    if dtype in BITS:
        return BITS[dtype]
    digits = "".join(c if c.isdigit() else " " for c in dtype.partition("_")[0]).split()
    return int(digits[-1]) if digits else 8


def launch_shares(recording: Recording, times_ns: Sequence[float]) -> tuple[LaunchShare, ...]:
    """Shares of the launches' summed times, slowest first. ``times_ns`` is as
    :func:`kerntune.timing.launch_shares.launch_times` gives it; without times there are no shares."""
    whole = sum(times_ns)
    if whole <= 0:
        return ()
    named = zip(recording.launches, times_ns, strict=True)
    found = [LaunchShare(i, x.kernel, round(ns, 1), round(ns / whole, 4)) for i, (x, ns) in enumerate(named)]
    return tuple(sorted(found, key=lambda s: -s.time_ns))
