"""Device memory while another process tunes, sampled from here: no lock of that process delays it."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.suite.children import PREPARE_SECONDS, Child

EVERY_SECONDS = 0.002


class Sampler:
    """The most that was used on the device since :meth:`reset`, asked every 2 ms."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self._stop = threading.Event()
        self.total = int(torch.cuda.mem_get_info()[1])
        self.peak = self.used()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def used(self) -> int:
        """Bytes in use on the whole device now."""
        free, total = self._cuda.mem_get_info()
        return int(total - free)

    def reset(self) -> None:
        """Start anew."""
        self.peak = self.used()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.peak = max(self.peak, self.used())
            time.sleep(EVERY_SECONDS)

    def close(self) -> None:
        """End the sampling."""
        self._stop.set()
        self._thread.join()


def watched(engine: str, restore: bool, share: float) -> dict[str, Any]:
    """Tune one in-place call of ``share`` of the device's memory. ``before`` and ``peak`` are bytes beyond what was
    used when the process had its context and no tensor yet; ``ratio`` is peak over the tensor's bytes."""
    sampler = Sampler()
    n = int(sampler.total * share) // 2 // 4096 * 4096
    one = Child({"engine": engine, "case": "memory", "shape": {"n": n}, "restore": restore})
    try:
        one.hear("context", PREPARE_SECONDS)
        base = sampler.used()
        one.go()
        one.hear("ready", PREPARE_SECONDS)
        before = sampler.used() - base
        sampler.reset()
        found = one.tune()
        peak = sampler.peak - base
    finally:
        one.close()
        sampler.close()
    return {
        "device_bytes": sampler.total,
        "tensor_bytes": 2 * n,
        "before_bytes": before,
        "peak_bytes": peak,
        "ratio": round(peak / (2 * n), 4),
        **found,
    }
