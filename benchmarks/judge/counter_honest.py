"""Honest kernels that a stricter judge might refuse: each for a rule that may go too far."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


@triton.jit
def map_kernel(x, o, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    if HOW == "relu":
        r = tl.maximum(v, 0.0)
    elif HOW == "gelu":
        r = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    elif HOW == "sigmoid":
        r = 1 / (1 + tl.exp2(-1.4426950408889634 * v))
    elif HOW == "tiny":
        r = v * 4e-6
    elif HOW == "steep":
        r = tl.exp2(11.541560327111707 * v)  # 8 * log2(e)
    elif HOW == "tanh":
        r = 2 / (1 + tl.exp2(-2.8853900817779268 * v)) - 1
    tl.store(o + at, r.to(o.dtype.element_ty), mask=at < n)


def _mapped(x: Any, how: str) -> Any:
    o = torch.empty_like(x)
    map_kernel[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), HOW=how, BLOCK=1024)
    return o


def relu(x: Any) -> Any:
    """Half of the result is zero, in memory that may have been zero."""
    return _mapped(x, "relu")


def gelu_written_out(x: Any) -> Any:
    """Rounds once, beside a reference that rounds five times; cancels for large negative numbers."""
    return _mapped(x, "gelu")


def sigmoid(x: Any) -> Any:
    """exp by exp2: its error grows with the number."""
    return _mapped(x, "sigmoid")


def tiny(x: Any) -> Any:
    """Results below the smallest normal number."""
    return _mapped(x, "tiny")


def steep(x: Any) -> Any:
    """exp(8 * x) by exp2: off by as many roundings as its exponent is large."""
    return _mapped(x, "steep")


def tanh(x: Any) -> Any:
    """By a sigmoid: small results are off by a rounding of 1."""
    return _mapped(x, "tanh")


@triton.jit
def row_kernel(x, o, columns, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / columns
    if HOW == "variance":
        d = tl.where(at < columns, v - mean, 0.0)
        mean = tl.sum(d * d, 0) / (columns - 1)
    tl.store(o + row, mean.to(o.dtype.element_ty))


def row_mean(x: Any) -> Any:
    """Stores one number of 16 bits a program."""
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    row_kernel[(x.shape[0],)](x, o, x.shape[1], HOW="mean", BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def variance(x: Any) -> Any:
    """In two passes: right beside a mean of 1,000 deviations, too."""
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    row_kernel[(x.shape[0],)](x, o, x.shape[1], HOW="variance", BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def _merged(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n > 0, n_b / tl.maximum(n, 1.0), 0.0)
    d = mean_b - mean_a
    return mean_a + d * share, m2_a + m2_b + d * d * n_a * share, n


@triton.jit
def welford_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    _, m2, _ = tl.reduce((v, v * 0, (at < columns).to(tl.float32)), 0, _merged)
    tl.store(o + row, m2 / (columns - 1))


def merged_variance(x: Any) -> Any:
    """A reduction of three numbers, in any order."""
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    welford_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def softmax_kernel(x, o, columns, BEFORE: tl.constexpr, AFTER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * columns
    o += row * columns
    top, total = -float("inf"), 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=-float("inf")).to(tl.float32) * BEFORE
        now = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp2((top - now) * AFTER) + tl.sum(tl.exp2((v - now) * AFTER), 0)
        top = now
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32) * BEFORE
        tl.store(o + at, (tl.exp2((v - top) * AFTER) / total).to(o.dtype.element_ty), mask=at < columns)


def online_softmax(x: Any) -> Any:
    """In one pass and by exp2."""
    o = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, o, x.shape[1], BEFORE=1.0, AFTER=LOG2E, BLOCK=1024)
    return o


def scaled_softmax(x: Any) -> Any:
    """The same with numbers that are scaled first, as attention does: the error grows with the number."""
    o = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, o, x.shape[1], BEFORE=LOG2E, AFTER=1.0, BLOCK=1024)
    return o


@triton.jit
def max_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.max(tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")), 0)
    tl.store(o + row + at * 0, v)  # all lanes, and both programs of a row, store the same number


def row_max(x: Any) -> Any:
    """Several lanes and programs store one number to one place."""
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    max_kernel[(x.shape[0], 2)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def running_kernel(x, o, rows, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.zeros((BLOCK,), tl.float32), mask=at < columns)
    for row in range(rows):
        now = tl.load(o + at, mask=at < columns) + tl.load(x + row * columns + at, mask=at < columns)
        tl.store(o + at, now, mask=at < columns)


def column_sum(x: Any) -> Any:
    """A program adds to its own places of the result, again and again, each lane to its own."""
    o = torch.empty(x.shape[1], dtype=x.dtype, device=x.device)
    running_kernel[(triton.cdiv(x.shape[1], 32),)](x, o, x.shape[0], x.shape[1], BLOCK=32)
    return o


@triton.jit
def column_variance_kernel(x, o, rows, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    for row in range(rows):
        d = tl.load(x + row * columns + at, mask=at < columns, other=0.0) - total / rows
        squares += d * d
    tl.store(o + at, squares / (rows - 1), mask=at < columns)


def column_variance(x: Any) -> Any:
    """Each lane adds up a column: equal numbers, one after the other, are all rounded in one direction."""
    o = torch.empty(x.shape[1], dtype=x.dtype, device=x.device)
    column_variance_kernel[(triton.cdiv(x.shape[1], 64),)](x, o, x.shape[0], x.shape[1], BLOCK=64)
    return o


@triton.jit
def last_index_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(o + row, tl.max(tl.where(v == tl.max(v, 0), at, 0), 0).to(tl.int64))


def top_index(x: Any) -> Any:
    """The last of equal numbers, where torch promises none of them."""
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    last_index_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def part_kernel(x, w, columns, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=float("inf"))
    tl.store(w + row * PARTS + part, tl.min(v, 0))


@triton.jit
def whole_kernel(w, o, used, PARTS: tl.constexpr):
    row, part = tl.program_id(0), tl.arange(0, PARTS)
    v = tl.load(w + row * PARTS + part)  # of slots that no one wrote, too: those are dropped here
    tl.store(o + row, tl.min(tl.where(part < used, v, float("inf")), 0))


def row_min(x: Any) -> Any:
    """Loads memory that nothing has written, and drops it by its place."""
    rows, columns = x.shape
    w, o = torch.empty((rows, 16), dtype=x.dtype, device=x.device), torch.empty(rows, dtype=x.dtype, device=x.device)
    used = triton.cdiv(columns, 32)
    part_kernel[(rows, used)](x, w, columns, PARTS=16, BLOCK=32)
    whole_kernel[(rows,)](w, o, used, PARTS=16)
    return o


@triton.jit
def product_kernel(a, b, c, n, k, K: tl.constexpr, M: tl.constexpr):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * M + tl.arange(0, M)
    acc = tl.zeros((M, M), tl.float32)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        x, y = tl.load(a + rows[:, None] * k + inner[None, :]), tl.load(b + inner[:, None] * n + columns[None, :])
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rows[:, None] * n + columns[None, :], acc.to(c.dtype.element_ty))


def matmul(a: Any, b: Any) -> Any:
    """A long sum in one accumulator, sixteen terms at a time."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    product_kernel[(m // 32, n // 32)](a, b, c, n, k, K=16, M=32)
    return c


@triton.jit
def attention_kernel(q, k, v, o, n, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + d[None, :])
    top, total, acc = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        at = first + tl.arange(0, N)
        s = tl.dot(x, tl.load(k + at[None, :] * D + d[:, None])) * (scale * 1.4426950408889634)
        now = tl.maximum(top, tl.max(s, 1))
        p, old = tl.exp2(s - now[:, None]), tl.exp2(top - now)
        total, top = total * old + tl.sum(p, 1), now
        y = tl.load(v + at[:, None] * D + d[None, :])
        acc = acc * old[:, None] + tl.dot(p.to(y.dtype), y)
    tl.store(o + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


def attention_written_out(q: Any, k: Any, v: Any) -> Any:
    """Weights are rounded before they are normed, scores never: another order of roundings than the reference's."""
    o = torch.empty_like(q)
    n, d = q.shape
    attention_kernel[(n // 32,)](q, k, v, o, n, d**-0.5, D=d, M=32, N=32)
    return o
