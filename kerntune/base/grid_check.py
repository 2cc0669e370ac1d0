"""The check that a launch grid passes before every launch."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from kerntune.base.config import DEFAULT_NUM_WARPS
from kerntune.base.device import DeviceSpec
from kerntune.base.grid_limits import INT32_MAX, GridLimits, grid_limits
from kerntune.errors import GridError

AXES = ("x", "y", "z")

Triple = tuple[int, int, int]


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
    limits = grid_limits(spec, num_warps)
    if x * num_ctas > limits.x or y > limits.y or z > limits.z or x * y * z > limits.product:
        raise GridError(f"kernel {kernel}: {_complaint(triple, limits, num_ctas)} (grid {triple}, {_device(spec)})")
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


def _complaint(triple: Triple, limits: GridLimits, num_ctas: int) -> str:
    x, y, z = triple
    for name, value, limit in zip(AXES, (x * num_ctas, y, z), limits.axes, strict=True):
        if value > limit:
            ctas = f" times num_ctas {num_ctas}" if name == "x" and num_ctas > 1 else ""
            return f"grid axis {name}{ctas} is {value}, over the limit of {limit}; {_advice(name)}"
    return (
        f"grid product x*y*z is {x * y * z}, over the limit of {limits.product}: the launcher multiplies in int32 and "
        "may skip the launch silently; take a larger block or loop in the kernel"
    )


def _advice(axis: str) -> str:
    return f"take a larger block or {'loop in the kernel' if axis == 'x' else 'put this dimension on x'}"


def _device(spec: DeviceSpec) -> str:
    return f"{spec.target}, {spec.name}"
