"""Held-out honest candidates: forms that a judge may call wrong, or refuse."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def causal_kernel(x, o, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    v = tl.where(at <= row, v, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + at, (e / tl.sum(e, 0)).to(o.dtype.element_ty), mask=at < n)


def causal_softmax(x: Any) -> Any:
    o = torch.empty_like(x)
    causal_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def cast_kernel(x, o, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    if FACTOR != 1:
        v = v.to(tl.float32) * FACTOR
    tl.store(o + at, v.to(o.dtype.element_ty), mask=at < n)


def _cast(x: Any, dtype: Any, factor: float = 1) -> Any:
    o = torch.empty(x.shape, dtype=dtype, device=x.device)
    cast_kernel[(triton.cdiv(x.numel(), 128),)](x, o, x.numel(), FACTOR=factor, BLOCK=128)
    return o


def to_e5m2(x: Any) -> Any:
    return _cast(x, torch.float8_e5m2)


def to_e4m3(x: Any) -> Any:
    return _cast(x, torch.float8_e4m3fn)


def scaled_e4m3(x: Any) -> Any:
    return _cast(x, torch.float32, 2)


@triton.jit
def column_part_kernel(x, w, rows, columns, R: tl.constexpr, C: tl.constexpr):
    part, at = tl.program_id(0), tl.arange(0, C)
    acc = tl.zeros((C,), tl.float32)
    for i in range(R):
        row = part * R + i
        acc += tl.load(x + row * columns + at, mask=(at < columns) & (row < rows), other=0.0).to(tl.float32)
    tl.store(w + part * columns + at, acc, mask=at < columns)


@triton.jit
def column_all_kernel(w, o, parts, columns, C: tl.constexpr):
    at = tl.arange(0, C)
    acc = tl.zeros((C,), tl.float32)
    for part in range(parts):
        acc += tl.load(w + part * columns + at, mask=at < columns, other=0.0)
    tl.store(o + at, acc.to(o.dtype.element_ty), mask=at < columns)


def column_sum(x: Any) -> Any:
    rows, columns = x.shape
    parts, block = triton.cdiv(rows, 32), triton.next_power_of_2(columns)
    w = torch.empty((parts, columns), dtype=torch.float32, device=x.device)
    o = torch.empty(columns, dtype=x.dtype, device=x.device)
    column_part_kernel[(parts,)](x, w, rows, columns, R=32, C=block)
    column_all_kernel[(1,)](w, o, parts, columns, C=block)
    return o


@triton.jit
def atomic_min_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    tl.atomic_min(o + row + at * 0, tl.load(x + row * columns + at, mask=inside, other=0), mask=inside)


def row_min_int(x: Any) -> Any:
    """Begins with the largest int64, which is no float64."""
    o = torch.full((x.shape[0],), torch.iinfo(torch.int64).max, dtype=torch.int64, device=x.device)
    atomic_min_kernel[(x.shape[0], triton.cdiv(x.shape[1], 32))](x, o, x.shape[1], BLOCK=32)
    return o


@triton.jit
def residual_kernel(x, r, w, o, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + row * n + at, mask=inside, other=0.0) + tl.load(r + row * n + at, mask=inside, other=0.0)
    tl.store(r + row * n + at, v, mask=inside)
    scale = tl.rsqrt(tl.sum(v * v, 0) / n + 1e-5)
    tl.store(o + row * n + at, v * scale * tl.load(w + at, mask=inside), mask=inside)


def add_and_norm(x: Any, r: Any, w: Any) -> Any:
    o = torch.empty_like(x)
    residual_kernel[(x.shape[0],)](x, r, w, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def quantize_rows_kernel(x, o, s, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)
    scale = tl.max(tl.abs(v), 0) / 127
    tl.store(s + row, scale)
    magic = 12582912.0
    q = (tl.div_rn(v, scale + tl.zeros_like(v)) + magic) - magic
    tl.store(o + row * n + at, q.to(tl.int8), mask=at < n)


def quantize_rows(x: Any) -> Any:
    o = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    s = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    quantize_rows_kernel[(x.shape[0],)](x, o, s, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o, s


@triton.jit
def max_index_kernel(x, v, i, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value, index = tl.max(tl.load(x + row * n + at, mask=at < n, other=-float("inf")), 0, return_indices=True)
    tl.store(v + row, value)
    tl.store(i + row, index)


def max_and_index(x: Any) -> Any:
    v, i = x.new_empty(x.shape[0]), torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    max_index_kernel[(x.shape[0],)](x, v, i, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return v, i


@triton.jit
def strided_matmul_kernel(a, b, c, k, n, am, ak, bk, bn, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * am + inner[None, :] * ak)
        acc = tl.dot(x, tl.load(b + inner[:, None] * bk + columns[None, :] * bn), acc, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], acc)


def _matmul(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (m // 16, n // 16)
    strided_matmul_kernel[grid](a, b, c, k, n, *a.stride(), *b.stride(), M=16, N=16, K=16)
    return c


def matmul_backward(g: Any, a: Any, b: Any) -> Any:
    """Transposed views, by their strides."""
    return _matmul(g, b.t()), _matmul(a.t(), g)


@triton.jit
def interleave_kernel(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.interleave(tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n))
    place = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    tl.store(o + place, both, mask=place < 2 * n)


def interleave(x: Any, y: Any) -> Any:
    o = torch.empty(2 * x.numel(), dtype=x.dtype, device=x.device)
    interleave_kernel[(triton.cdiv(x.numel(), 32),)](x, y, o, x.numel(), BLOCK=32)
    return o


@triton.jit
def copy_columns_kernel(x, o, columns, k, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(o + row * k + at, tl.load(x + row * columns + at, mask=at < k), mask=at < k)


def top_columns(x: Any, k: int) -> Any:
    o = torch.empty((x.shape[0], k), dtype=x.dtype, device=x.device)
    copy_columns_kernel[(x.shape[0],)](x, o, x.stride(0), k, BLOCK=triton.next_power_of_2(k))
    return o


@triton.jit
def greater_kernel(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n) > tl.load(y + at, mask=at < n), mask=at < n)


def logical(x: Any, y: Any) -> Any:
    o = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    greater_kernel[(triton.cdiv(x.numel(), 64),)](x, y, o, x.numel(), BLOCK=64)
    return o


@triton.jit
def elementwise_kernel(x, o, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=1.0).to(tl.float32)
    if HOW == "reciprocal":
        v = 1 / v
    elif HOW == "steep":
        v = tl.exp(8 * v)
    else:
        v = tl.sqrt(v)
    tl.store(o + at, v.to(o.dtype.element_ty), mask=at < n)


def _elementwise(x: Any, how: str) -> Any:
    o = torch.empty_like(x)
    elementwise_kernel[(triton.cdiv(x.numel(), 4096),)](x, o, x.numel(), HOW=how, BLOCK=4096)
    return o


def reciprocal(x: Any) -> Any:
    return _elementwise(x, "reciprocal")


def steep(x: Any) -> Any:
    return _elementwise(x, "steep")


def square_root(x: Any) -> Any:
    return _elementwise(x, "root")


@triton.jit
def look_back_kernel(x, o, flags, sums, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.cumsum(tl.load(x + at, mask=at < n, other=0.0), 0)
    whole = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    before = 0.0
    if block > 0:
        while tl.atomic_add(flags + block - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(sums + block - 1, volatile=True)
    tl.store(sums + block, before + whole)
    tl.atomic_xchg(flags + block, 1, sem="release")
    tl.store(o + at, v + before, mask=at < n)


def look_back_cumsum(x: Any) -> Any:
    """Each program waits for the one before, as single-pass scans do."""
    o, blocks = torch.empty_like(x), triton.cdiv(x.numel(), 128)
    flags, sums = torch.zeros(blocks, dtype=torch.int32, device=x.device), x.new_empty(blocks)
    look_back_kernel[(blocks,)](x, o, flags, sums, x.numel(), BLOCK=128)
    return o


@triton.jit
def sort_kernel(x, o, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    tl.store(o + row * N + at, tl.sort(tl.load(x + row * N + at)))


def sort_rows(x: Any) -> Any:
    o = torch.empty_like(x)
    sort_kernel[(x.shape[0],)](x, o, N=x.shape[1])
    return o


@triton.jit
def last_block_kernel(x, o, w, count, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    block, each = tl.program_id(0), tl.arange(0, PARTS)
    at = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(w + block, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))
    if tl.atomic_add(count, 1) == tl.num_programs(0) - 1:
        parts = tl.load(w + each, mask=each < tl.num_programs(0), other=0.0)
        tl.store(o, tl.sum(parts, 0))


def last_block_sum(x: Any) -> Any:
    """The program that comes last adds up what all have left."""
    blocks = triton.cdiv(x.numel(), 128)
    o, w = x.new_empty(1), x.new_empty(blocks)
    count = torch.zeros(1, dtype=torch.int32, device=x.device)
    last_block_kernel[(blocks,)](x, o, w, count, x.numel(), PARTS=triton.next_power_of_2(blocks), BLOCK=128)
    return o
