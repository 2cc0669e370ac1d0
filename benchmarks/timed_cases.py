"""Kernels from 2 us to 2 ms (on an H200) with twins: equal code under another option, so another identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + columns, mask=columns < cols, other=-float("inf"))
    exponentials = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + columns, exponentials / tl.sum(exponentials, axis=0), mask=columns < cols)


@triton.jit
def decay_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 0.5, mask=i < n)


@triton.jit
def sum_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(n, BN)
    first, width = tl.program_id(0) // (8 * tiles_n) * 8, 8 * tiles_n
    height = tl.minimum(tl.cdiv(m, BM) - first, 8)
    rows = (first + tl.program_id(0) % width % height) * BM + tl.arange(0, BM)
    cols = tl.program_id(0) % width // height * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs, b_ptrs = a_ptr + rows[:, None] * k + inner[None, :], b_ptr + inner[:, None] * n + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)
        a_ptrs += BK
        b_ptrs += BK * n
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(tl.float16))


def add(x, y, out, **options):
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024, **options)
    return out


def softmax(x, out, **options):
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), **options)
    return out


def decay(x, **options):
    decay_kernel[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024, **options)
    return x


def total(x, out, **options):
    sum_kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096, **options)
    return out


def matmul(a, b, out, **options):
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
    matmul_kernel[grid](a, b, out, m, n, k, BM=128, BN=128, BK=64, num_warps=8, num_stages=3, **options)
    return out


def add_then_softmax(x, y, between, out, **options):
    """Three launches."""
    add(x, y, between, **options)
    decay(between, **options)
    return softmax(between, out, **options)


@dataclass(frozen=True)
class Case:
    """A call. ``options(twin)`` are its compile options. A twin runs the same instructions: where nothing is pipelined
    the number of stages changes none, and the matmuls come nowhere near the limit of registers."""

    name: str
    fn: Callable[..., Any]
    make: Callable[[], tuple[torch.Tensor, ...]]
    other: str = "num_stages"

    def options(self, twin: bool) -> dict[str, int]:
        """Keywords of ``fn``."""
        return {self.other: {"num_stages": 2, "maxnreg": 255}[self.other]} if twin else {}


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=dtype)


def half(*shape: int) -> torch.Tensor:
    """Random fp16 numbers on the GPU."""
    return normal(*shape, dtype=torch.float16)


def cases() -> Iterator[Case]:
    """Ten, short ones first."""
    for n in (1 << 12, 1 << 20, 1 << 26):
        yield Case(f"add[{n}]", add, lambda n=n: (normal(n), normal(n), normal(n)))
    for rows in (64, 4096, 65536):
        yield Case(f"softmax[{rows}]", softmax, lambda r=rows: (normal(r, 1024), normal(r, 1024)))
    yield Case("in place[1048576]", decay, lambda: (normal(1 << 20),))
    yield Case("atomic sum[4194304]", total, lambda: (normal(1 << 22), torch.zeros(1, device="cuda")))
    yield Case("three kernels", add_then_softmax, lambda: tuple(normal(4096, 1024) for _ in range(4)))
    yield Case("matmul[4096]", matmul, lambda: (half(4096, 4096), half(4096, 4096), half(4096, 4096)), "maxnreg")
    yield Case(
        "matmul[8192x4096x4096]", matmul, lambda: (half(8192, 4096), half(4096, 4096), half(8192, 4096)), "maxnreg"
    )
