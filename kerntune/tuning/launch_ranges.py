"""Names of launches for profilers: kernel, hash, config, grid and stream, as a range of torch's profiler or of NVTX."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from kerntune.kernels import compat
from kerntune.kernels.dispatch.observers import ObservedLaunch
from kerntune.kernels.source import jit_of

NVTX = "KERNTUNE_NVTX"

SHORT_HASH = 12
"""Characters of a source's hash in a profile."""


def range_name(seen: ObservedLaunch) -> str:
    """``softmax_kernel [0a1b2c3d4e5f] BLOCK=1024, num_warps: 8, ... grid=(4096, 1, 1) stream=0``."""
    parts = [seen.kernel, f"[{jit_of(seen.tuner).cache_key[:SHORT_HASH]}]", str(seen.config)]
    grid = seen.grid
    if grid is not None:
        parts.append(f"grid={(*grid, 1, 1)[:3]}")
    stream = compat.current_stream()
    return " ".join([*parts, *([] if stream is None else [f"stream={stream}"])])


class NvtxRanges:
    """An observer that marks each launch for Nsight Systems and other tools that read NVTX."""

    def __init__(self) -> None:
        self._missing = False

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        """Within a range; a warning, once, where torch has no NVTX."""
        if self._missing:
            return run()
        try:
            end = compat.begin_nvtx_range(range_name(seen))
        except RuntimeError as exc:
            self._missing = True
            warnings.warn(f"{NVTX}: torch has no NVTX here: {exc}", RuntimeWarning, stacklevel=2)
            return run()
        try:
            return run()
        finally:
            end()
