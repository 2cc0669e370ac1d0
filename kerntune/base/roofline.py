"""What launches move and compute, against the rates that a device reaches.

The roofline model (Williams, Waterman and Patterson, CACM 2009) says which rate bounds a kernel. The bytes come from a
recording: what its launches read and write, and the dtype that their arithmetic is in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

from kerntune.base.recording import Recording, View

MEMORY, MATMUL = "memory", "matmul"


class Roofline(NamedTuple):
    """``time_ns`` of work that moves ``nbytes`` and does ``flops`` operations, on a device that copies ``bandwidth``
    bytes a second (read and written together) and multiplies matrices at ``matmul_peak`` operations a second, as
    measured there. Each is None where it isn't known, and so is what follows from it."""

    time_ns: float | None
    nbytes: float | None = None
    flops: float | None = None
    bandwidth: float | None = None
    matmul_peak: float | None = None

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes a second."""
        return self.nbytes / self.time_ns * 1e9 if self.nbytes and self.time_ns else None

    @property
    def flops_per_second(self) -> float | None:
        """Operations a second."""
        return self.flops / self.time_ns * 1e9 if self.flops and self.time_ns else None

    @property
    def of_bandwidth(self) -> float | None:
        """The share of the device's bandwidth that is used (1.0 is all a copy gets)."""
        rate = self.bytes_per_second
        return rate / self.bandwidth if rate is not None and self.bandwidth else None

    @property
    def of_matmul(self) -> float | None:
        """The share of the device's matmul peak that is used."""
        rate = self.flops_per_second
        return rate / self.matmul_peak if rate is not None and self.matmul_peak else None

    @property
    def intensity(self) -> float | None:
        """Operations per byte that is moved."""
        return self.flops / self.nbytes if self.flops and self.nbytes else None

    @property
    def roof(self) -> str:
        """What limits such work on this device: :data:`MEMORY` or :data:`MATMUL`, whichever alone takes longer; empty
        where neither is known."""
        times = self.alone_ns
        return max(times, key=lambda name: times[name]) if times else ""

    @property
    def of_roof(self) -> float | None:
        """The share of the time that its roof alone would take: 1.0 is as fast as the device's copies or products
        are."""
        times = self.alone_ns
        return max(times.values()) / self.time_ns if times and self.time_ns else None

    @property
    def alone_ns(self) -> dict[str, float]:
        """Nanoseconds that memory and tensor cores alone would take."""
        found = {}
        if self.nbytes and self.bandwidth:
            found[MEMORY] = self.nbytes / self.bandwidth * 1e9
        if self.flops and self.matmul_peak:
            found[MATMUL] = self.flops / self.matmul_peak * 1e9
        return found


BITS = {"bool": 8, "complex32": 32, "complex64": 64, "complex128": 128, "bfloat16": 16, "float4_e2m1fn_x2": 8}
"""Sizes of dtypes whose names don't end in their number of bits."""

PointerAccess = tuple[Collection[int], Collection[int]]
"""Which of a kernel's pointer parameters it reads, and which it writes, by their places among the pointers."""


def bytes_moved(recording: Recording, accesses: Mapping[int, PointerAccess] | None = None) -> int:
    """Bytes that the launches read and write, if each touches each of its tensors once.

    From the memory plan: what a launch reads and writes in place counts twice, what passes from one launch to the next
    counts for both. Broadcast dimensions (stride 0) and overlapping views of one storage count once. Where a kernel
    reads a part of a tensor only, or reads it again and again, the caller can give the number (``bytes=``).

    ``accesses`` has, by the launch's index, what its compiled code reads and writes. Without it all views of a storage
    that a launch reads count as read, those that it only writes too: a recording knows storages alone.
    """
    return sum(bytes_by_launch(recording, accesses))


def bytes_by_launch(recording: Recording, accesses: Mapping[int, PointerAccess] | None = None) -> list[int]:
    """:func:`bytes_moved` of each launch, in order."""
    found = [0] * len(recording.launches)
    for index, launch in enumerate(recording.launches):
        if 0 in launch.grid:
            continue
        pointers = [p.view for p in launch.params if p.type.startswith("*") or p.type == "nvTmaDesc"]
        known = (accesses or {}).get(index)
        for side, storages in enumerate((launch.reads, launch.writes)):
            chosen = pointers if known is None else [pointers[i] for i in known[side] if i < len(pointers)]
            views = {recording.views[v] for v in chosen if v is not None}
            for storage in storages:  # all of one that is reached by no view
                whole, seen = recording.storages[storage].nbytes, [v for v in views if v.storage == storage]
                found[index] += min(sum(map(_nbytes, seen)), whole) if seen else whole
    return found


def _nbytes(view: View) -> int:
    count = prod(n for n, stride in zip(view.shape, view.strides, strict=True) if stride or n == 0)
    return count * bits_of(view.dtype) // 8


def bits_of(dtype: str) -> int:
    """Bits of one element of a torch dtype: ``float8_e4m3fn`` has 8, ``int64`` 64."""
    if dtype in BITS:
        return BITS[dtype]
    found = re.match(r"[^_]*?([0-9]{1,9})[^_0-9]*(_|$)", dtype)
    return int(found[1]) if found else 8  # a file may have any text there


MATMUL_DTYPES = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "int8")
"""Those that tensor cores multiply and a peak is measured for; a float8_e5m2 counts as the other one."""


def matmul_dtype(recording: Recording) -> str:
    """The dtype of most bytes that the launches read, of those that a matmul peak is known for; empty without any."""
    found: Counter[str] = Counter()
    for launch in recording.launches:
        for view in {recording.views[p.view] for p in launch.params if p.view is not None}:
            dtype = "float8_e4m3fn" if view.dtype.startswith("float8") else view.dtype
            if view.storage in launch.reads and dtype in MATMUL_DTYPES:
                found[dtype] += _nbytes(view)
    return found.most_common(1)[0][0] if found else ""
