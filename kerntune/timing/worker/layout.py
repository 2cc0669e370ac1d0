"""Lays out memory and code anew for each request, so that the requests of one process differ as processes do."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from kerntune.base.recording import Artifacts, Recording
from kerntune.errors import MeasurementError
from kerntune.gpu.base import Buffer, Executor, Function

MAX_PADS = 12
"""Allocations made before a request's own; about half of them are freed again, so that there are holes too."""

PAD_BITS = (9, 23)
"""Sizes from 512 B to 8 MiB, their logarithm uniform: below and above the 2 MiB pages that CUDA maps memory in
(CUDA driver API, ``cuMemGetAllocationGranularity``)."""

MAX_LOADS = 3
"""A binary is loaded up to so many times before it is loaded to run, so that its place in code memory varies."""


class Scatter:
    """Random allocations and code before a request's own in the device's memory, held until :meth:`close`."""

    def __init__(self, gpu: Executor, chance: random.Random) -> None:
        self._gpu, self._chance = gpu, chance
        self._pads: list[Buffer] = []
        self._loaded: list[Function] = []

    def memory(self) -> None:
        """Allocate pads of random sizes and free a random half of them."""
        sizes = [1 << self._chance.randint(*PAD_BITS) for _ in range(self._chance.randint(0, MAX_PADS))]
        pads: list[Buffer] = []
        with contextlib.suppress(MeasurementError):  # a full device has no memory for more pads
            for size in sizes:
                pads.append(self._gpu.allocate(self._chance.randint(size // 2, size)))
        self._pads = [p for p in pads if self._chance.random() < 0.5]

    def code(self, sides: Sequence[Recording], artifacts: Artifacts) -> None:
        """Load the sides' binaries a random number of times each, in random order."""
        known = {b.sha256: b for side in sides for b in side.binaries if b.sha256 in artifacts}
        binaries = [b for b in known.values() if not b.unreplayable]
        wanted = [b for b in binaries for _ in range(self._chance.randint(0, MAX_LOADS))]
        self._chance.shuffle(wanted)
        self._loaded += [self._gpu.load(b, artifacts[b.sha256]) for b in wanted]

    def close(self) -> None:
        """Free all of it."""
        for function in self._loaded:
            self._gpu.unload(function)
        self._loaded.clear()
        self._pads.clear()
