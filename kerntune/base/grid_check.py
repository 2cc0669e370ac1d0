"""The limits of launch grids by device, and the check that a grid passes before every launch."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from kerntune.base.config import DEFAULT_NUM_WARPS
from kerntune.base.device import MAX_GRID_YZ, DeviceSpec
from kerntune.errors import GridError

INT32_MAX = 2**31 - 1
"""Triton's launchers read each axis as a C ``int`` and multiply the three as ``int`` to see whether there is anything
to launch (``_launch`` in ``backends/nvidia/driver.c`` and ``backends/amd/driver.c`` of Triton 3.9, the generated C of
``driver.py`` in 3.6). A larger product is undefined behaviour there: in practice it wraps, and a product that wraps
to zero or below (CUDA) or to zero (HIP) skips the launch without an error."""

HIP_MAX_THREADS = 2**32 - 1
"""HIP refuses ``gridDim * blockDim >= 2**32`` in a dimension (notes on ``hipModuleLaunchKernel``): the dispatch packet
counts work-items in 32 bits (cupy pull request 9746). Inductor's heuristics stay below 2**31 - 1, a margin of two."""

AXES = ("x", "y", "z")

Triple = tuple[int, int, int]


def _limits(spec: DeviceSpec, num_warps: int) -> Triple:
    """The largest number of blocks on each axis (CTAs on x, so ``x * num_ctas`` counts); the launcher's for an unknown
    backend.

    HIP counts threads, and Triton's blocks are one-dimensional (``warp_size * num_warps`` threads on x). Its y and z
    are held to the launcher's int32 only: ROCm releases disagree on them (2**32 - 1 in the hardware tables, 65536 or
    65535 in device properties: rocm-systems pull request 5676), and a runtime that refuses a launch raises its own
    error.
    """
    backend = spec.target.backend
    by_threads = HIP_MAX_THREADS // (spec.warp_size * max(num_warps, 1))
    x = min(by_threads, INT32_MAX) if backend == "hip" else INT32_MAX
    yz = MAX_GRID_YZ if backend == "cuda" else INT32_MAX
    return x, yz, yz


def check_grid(
    grid: Sequence[int],
    *,
    kernel: str,
    spec: DeviceSpec,
    num_ctas: int = 1,
    num_warps: int = DEFAULT_NUM_WARPS,
) -> Triple:
    """A grid of one to three axes (in blocks) as a triple, missing axes 1, known to fit the device.

    ``num_ctas`` multiplies x in the launch; ``num_warps`` matters on HIP, whose limit counts threads. Any integer type
    with ``__index__`` will do. A grid with a zero axis launches nothing, as in Triton; it is an error only if the
    launcher could not read it.

    Raises :class:`GridError`, naming the kernel, the axis and the limit, for: not one to three integers, a negative
    axis, an axis over the device's limit (x times ``num_ctas`` included), a product over int32.
    """
    x, y, z = triple = grid_triple(grid, kernel=kernel)
    if num_ctas < 1:
        raise GridError(f"kernel {kernel}: num_ctas is {num_ctas}; a launch needs at least 1")
    if 0 in triple:
        return triple
    limits = _limits(spec, num_warps)
    if x * num_ctas > limits[0] or y > limits[1] or z > limits[2] or x * y * z > INT32_MAX:
        why = _complaint(triple, limits, num_ctas)
        raise GridError(f"kernel {kernel}: {why} (grid {triple}, {spec.target}, {spec.name})")
    return triple


def grid_triple(grid: Sequence[int], *, kernel: str) -> Triple:
    """A grid as three plain integers, missing axes 1; :class:`GridError` for anything the launcher can't read.

    Triton silently drops a fourth element and fails on an empty grid with an IndexError; both are :class:`GridError`
    here.
    """
    try:
        axes = [index(value) for value in grid]
    except TypeError:
        raise GridError(
            f"kernel {kernel}: grid {grid!r} is not a sequence of integers; write a tuple of one to three, such as (n,)"
        ) from None
    if not 1 <= len(axes) <= len(AXES):
        raise GridError(f"kernel {kernel}: grid {tuple(axes)} has {len(axes)} axes; a launch takes one to three")
    for name, value in zip(AXES, axes, strict=False):
        if not 0 <= value <= INT32_MAX:
            raise GridError(
                f"kernel {kernel}: grid axis {name} is {value}; the launcher reads it as int32, "
                f"so its limits are 0 and {INT32_MAX} (grid {tuple(axes)})"
            )
    x, y, z = (*axes, 1, 1)[:3]
    return x, y, z


def _complaint(triple: Triple, limits: Triple, num_ctas: int) -> str:
    x, y, z = triple
    for name, value, limit in zip(AXES, (x * num_ctas, y, z), limits, strict=True):
        if value > limit:
            ctas = f" times num_ctas {num_ctas}" if name == "x" and num_ctas > 1 else ""
            advice = "loop in the kernel" if name == "x" else "put this dimension on x"
            return f"grid axis {name}{ctas} is {value}, over the limit of {limit}; take a larger block or {advice}"
    return (
        f"grid product x*y*z is {x * y * z}, over the limit of {INT32_MAX}: the launcher multiplies in int32 and "
        "may skip the launch silently; take a larger block or loop in the kernel"
    )
