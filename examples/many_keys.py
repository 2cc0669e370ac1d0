"""Tunes a kernel for many sizes ahead of time, on all GPUs of this host; a second start does only what is left.

``python examples/many_keys.py``, or with Dask ``python examples/many_keys.py HOST:PORT``.
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import kerntune

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 1024, 4096) for warps in (4, 8)]
SIZES = [rows * columns for rows in (1, 16, 256) for columns in (1024, 4096, 16384)]


@kerntune.autotune(CONFIGS, key=["n"])
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    tl.store(y_ptr + i, x * tl.sigmoid(x), mask=i < n)


def grid_of(n: int):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def jobs() -> list:
    """A job for each size: tensors on the meta device have a size, and no memory."""
    found = []
    for n in SIZES:
        x = torch.empty(n, dtype=torch.bfloat16, device="meta")
        found.append(kerntune.tuning_job(silu_kernel, grid_of(n), x, torch.empty_like(x), n))
    return found


def main(scheduler: str = "") -> int:
    executor = None
    if scheduler:
        from distributed import Client

        executor = Client(scheduler).get_executor()
    done = kerntune.tune_many(jobs(), executor=executor)
    for outcome in done.outcomes:
        print(f"{outcome.key}: {outcome.config or outcome.error} ({outcome.ended.value})")
    return 1 if done.failed else 0


if __name__ == "__main__":  # each GPU's process imports this file for its kernel
    sys.exit(main(*sys.argv[1:]))
