"""What a session has for each GPU that its calls launch on: processes for replays, and for first launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kerntune.gpu.base import Backend, Gpu
from kerntune.gpu.cuda import CudaGpu
from kerntune.gpu.gpu_text import gpu_name
from kerntune.timing.worker.pool import LocalPairs, Pairs, WorkerPool
from kerntune.tuning.isolation import Isolate, Isolation


def pairs_for(backend: Backend) -> Pairs:
    """Fresh processes on a real device; a scripted one answers itself."""
    if isinstance(backend.gpu, CudaGpu):
        return WorkerPool(backend.gpu.ordinal)
    return LocalPairs(backend.gpu)


@dataclass
class MeasuredGpu:
    """One GPU of a session. Processes start when they are needed."""

    gpu: Gpu
    pairs: Pairs
    _isolations: dict[Isolate, Isolation] = field(default_factory=dict)

    def isolation(self, mode: Isolate) -> Isolation:
        """Where configs run first; one process for the whole run."""
        if mode not in self._isolations:
            self._isolations[mode] = Isolation(self.gpu, mode)
        return self._isolations[mode]

    def close(self) -> None:
        """End all processes."""
        self.pairs.close()
        for isolation in self._isolations.values():
            isolation.close()


class MeasuredGpus:
    """Those of a session, by number; the first one's replays are there from its start."""

    def __init__(self, backend: Backend) -> None:
        self.first_pairs, self._ordinal = pairs_for(backend), backend.ordinal
        self._known: dict[int, MeasuredGpu] = {}

    def of(self, backend: Backend) -> MeasuredGpu:
        """The GPU that a backend runs on."""
        assert backend.gpu is not None
        number = backend.ordinal
        if number not in self._known:
            pairs = self.first_pairs if number == self._ordinal else pairs_for(backend)
            self._known[number] = MeasuredGpu(backend.gpu, pairs)
        return self._known[number]

    def close(self) -> None:
        """End all processes."""
        self.first_pairs.close()
        for one in self._known.values():
            one.close()


def naming(gpu: Gpu, progress: Callable[[str], None]) -> Callable[[str], None]:
    """Progress that says on which of several GPUs."""
    name = gpu_name(gpu.spec)
    return lambda text: progress(f"{text} on {name}")
