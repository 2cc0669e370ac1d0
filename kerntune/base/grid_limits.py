"""The limits of launch grids by device."""

from __future__ import annotations

import msgspec

from kerntune.base.config import DEFAULT_NUM_WARPS
from kerntune.base.device import MAX_GRID_X, MAX_GRID_YZ, DeviceSpec

INT32_MAX = 2**31 - 1
"""Triton's launchers read each axis as a C ``int`` and multiply the three as ``int`` to see whether there is anything
to launch (``_launch`` in ``backends/nvidia/driver.c`` and ``backends/amd/driver.c`` of Triton 3.9, the generated C of
``driver.py`` in 3.6). A larger product is undefined behaviour there: in practice it wraps, and a product that wraps
to zero or below (CUDA) or to zero (HIP) skips the launch without an error."""

HIP_MAX_THREADS = 2**32 - 1
"""HIP refuses ``gridDim * blockDim >= 2**32`` in a dimension (notes on ``hipModuleLaunchKernel``): the dispatch packet
counts work-items in 32 bits (cupy pull request 9746). Inductor's heuristics stay below 2**31 - 1, a margin of two."""


class GridLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Largest number of blocks on each axis (CTAs on x, so ``x * num_ctas`` counts) and of all blocks together."""

    x: int
    y: int
    z: int
    product: int = INT32_MAX

    @property
    def axes(self) -> tuple[int, int, int]:
        """The limits of x, y and z."""
        return self.x, self.y, self.z


CUDA_LIMITS = GridLimits(MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ)
LAUNCHER_LIMITS = GridLimits(INT32_MAX, INT32_MAX, INT32_MAX)


def grid_limits(spec: DeviceSpec, num_warps: int = DEFAULT_NUM_WARPS) -> GridLimits:
    """The limits of a device for a kernel of ``num_warps`` warps; of the launcher alone for an unknown backend.

    HIP counts threads, and Triton's blocks are one-dimensional (``warp_size * num_warps`` threads on x). Its y and z
    are held to the launcher's int32 only: ROCm releases disagree on them (2**32 - 1 in the hardware tables, 65536 or
    65535 in device properties: rocm-systems pull request 5676), and a runtime that refuses a launch raises its own
    error.
    """
    backend = spec.target.backend
    if backend == "cuda":
        return CUDA_LIMITS
    if backend == "hip":
        by_threads = HIP_MAX_THREADS // (spec.warp_size * max(num_warps, 1))
        return GridLimits(min(by_threads, INT32_MAX), INT32_MAX, INT32_MAX)
    return LAUNCHER_LIMITS
