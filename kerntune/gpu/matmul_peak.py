"""The rate that matrix products reach on a device: torch's own, large, of random numbers, timed by event pairs.

Random numbers, for a GPU's clocks depend on its power, and that on how many bits change: products of zeros are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from kerntune.errors import MeasurementError
from kerntune.gpu.base import Executor
from kerntune.gpu.cuda import CudaGpu

SIZE = 8192
"""Rows and columns: 1.1e12 operations, 1 to 2 ms of a large GPU in 16 bits."""

SIZES = {"float64": 4096}
"""Of dtypes that most GPUs are slow in."""

RUNS, WARM_UP = 10, 3


def measured_matmul(gpu: Executor, dtype: str) -> float | None:
    """Operations (a multiply-add is two) a second; None where there is no torch on this device, or no such product.

    ``float32`` is multiplied as Triton does by default, in TF32. Raises what torch raises if there is no room.
    """
    if not isinstance(gpu, CudaGpu):
        return None
    size = SIZES.get(dtype, SIZE)
    product = _product(dtype, size)
    if product is None:
        return None
    times = [_seconds(product) for _ in range(WARM_UP + RUNS)][WARM_UP:]
    return matmul_operations(size) / median(times)


def matmul_operations(size: int) -> float:
    """Of a square product."""
    return 2.0 * size**3


def _product(dtype: str, size: int, device: str = "cuda") -> Callable[[], object] | None:
    """The random numbers are of a generator of its own: a test's don't depend on what was measured before."""
    import torch

    own = torch.Generator(device)

    def random() -> Any:
        return torch.randn(size, size, device=device, generator=own)

    if dtype == "int8":
        shape = (size, size)
        a, b = (torch.randint(-128, 128, shape, device=device, dtype=torch.int8, generator=own) for _ in range(2))
        return lambda: torch._int_mm(a, b.t())
    if dtype == "float8_e4m3fn":
        one = torch.ones((), device=device)
        a, b = random().to(torch.float8_e4m3fn), random().to(torch.float8_e4m3fn)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        return None
    a, b = random().to(kind), random().to(kind)
    out = torch.empty_like(a)
    return _in_tf32(lambda: torch.mm(a, b, out=out)) if dtype == "float32" else lambda: torch.mm(a, b, out=out)


def _in_tf32(product: Callable[[], object]) -> Callable[[], object]:
    import torch

    def run() -> object:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return product()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return run


def _seconds(product: Callable[[], object]) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    product()
    end.record()
    end.synchronize()
    milliseconds = float(begin.elapsed_time(end))
    if milliseconds <= 0:
        raise MeasurementError("a matrix product took no time")
    return milliseconds / 1e3
