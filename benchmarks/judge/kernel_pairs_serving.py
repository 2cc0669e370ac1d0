"""Kernels as they were and as they are: a reviewer's question is whether the new one does the same.

In the style of Triton's tutorials, vLLM and FlagGems, at small shapes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x, w, b, y, means, roots, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        v = tl.where(at < n, v - mean, 0.0)
        total += v * v
    root = 1 / tl.sqrt(tl.sum(total, 0) / n + eps)
    tl.store(means + row, mean)
    tl.store(roots + row, root)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = (tl.load(x + row * n + at, mask=at < n).to(tl.float32) - mean) * root
        tl.store(y + row * n + at, v * tl.load(w + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


def _layer_norm(x: Any, w: Any, b: Any, eps: float, block: int) -> Any:
    rows, n = x.shape
    y, means = torch.empty_like(x), torch.empty(rows, dtype=torch.float32, device=x.device)
    roots = torch.empty_like(means)
    layer_norm_kernel[(rows,)](x, w, b, y, means, roots, n, eps, BLOCK=block)
    return y, means, roots


def old_layer_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    return _layer_norm(x, w, b, eps, 128)


def new_layer_norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    return _layer_norm(x, w, b, eps, 512)


@triton.jit
def attention_kernel(q, k, v, o, n, CAUSAL: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Weights are rounded to float16, beside a maximum that depends on the block."""
    rows, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, DIM)
    base = tl.program_id(1) * n * DIM
    mine = tl.load(q + base + rows[:, None] * DIM + d, mask=rows[:, None] < n, other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    for first in range(0, n, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = columns[None, :] < n
        scores = tl.dot(mine, tl.load(k + base + columns[None, :] * DIM + d[:, None], mask=inside, other=0.0)) * 0.25
        if CAUSAL:
            inside = inside & (columns[None, :] <= rows[:, None])
        scores = tl.where(inside, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights, back = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
        total = total * back + tl.sum(weights, 1)
        values = tl.load(v + base + columns[:, None] * DIM + d, mask=columns[:, None] < n, other=0.0)
        acc = tl.dot(weights.to(tl.float16), values, acc * back[:, None])
        top = higher
    tl.store(o + base + rows[:, None] * DIM + d, (acc / total[:, None]).to(tl.float16), mask=rows[:, None] < n)


def _attention(q: Any, k: Any, v: Any, causal: bool, rows: int, columns: int) -> Any:
    o, (heads, n, dim) = torch.empty_like(q), q.shape
    grid = (triton.cdiv(n, rows), heads)
    attention_kernel[grid](q, k, v, o, n, CAUSAL=causal, DIM=dim, ROWS=rows, COLUMNS=columns)
    return o


def old_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return _attention(q, k, v, causal, 32, 16)


def new_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return _attention(q, k, v, causal, 16, 64)


@triton.jit
def paged_kernel(q, k, v, table, lengths, o, H: tl.constexpr, KV: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    d, t = tl.arange(0, DIM), tl.arange(0, PAGE)
    mine = tl.load(q + (sequence * H + head) * DIM + d).to(tl.float32) * 0.2
    n, top, total = tl.load(lengths + sequence), -float("inf"), 0.0
    acc = tl.zeros([DIM], tl.float32)
    for page in range(0, tl.cdiv(n, PAGE)):
        at = (tl.load(table + sequence * 3 + page) * KV + head // (H // KV)) * PAGE * DIM + t[:, None] * DIM + d
        scores = tl.sum(mine * tl.load(k + at).to(tl.float32), 1)
        scores = tl.where(page * PAGE + t < n, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 0))
        weights, back = tl.exp(scores - higher), tl.exp(top - higher)
        total = total * back + tl.sum(weights, 0)
        acc = acc * back + tl.sum(weights[:, None] * tl.load(v + at).to(tl.float32), 0)
        top = higher
    tl.store(o + (sequence * H + head) * DIM + d, (acc / total).to(tl.float16))


@triton.jit
def page_kernel(
    q, k, v, table, lengths, parts, tops, totals,
    H: tl.constexpr, KV: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    sequence, head, page = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n, d, t = tl.load(lengths + sequence), tl.arange(0, DIM), tl.arange(0, PAGE)
    if page * PAGE >= n:
        return
    mine = tl.load(q + (sequence * H + head) * DIM + d).to(tl.float32) * 0.2
    at = (tl.load(table + sequence * 3 + page) * KV + head // (H // KV)) * PAGE * DIM + t[:, None] * DIM + d
    scores = tl.sum(mine * tl.load(k + at).to(tl.float32), 1)
    scores = tl.where(page * PAGE + t < n, scores, -float("inf"))
    top = tl.max(scores, 0)
    weights, to = tl.exp(scores - top), (sequence * H + head) * 3 + page
    tl.store(tops + to, top)
    tl.store(totals + to, tl.sum(weights, 0))
    tl.store(parts + to * DIM + d, tl.sum(weights[:, None] * tl.load(v + at).to(tl.float32), 0))


@triton.jit
def pages_kernel(parts, tops, totals, lengths, o, H: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    page, d = tl.arange(0, 4), tl.arange(0, DIM)
    at, inside = (sequence * H + head) * 3 + page, page < tl.cdiv(tl.load(lengths + sequence), PAGE)
    top = tl.load(tops + at, mask=inside, other=-float("inf"))
    weights = tl.exp(top - tl.max(top, 0))
    total = tl.sum(tl.load(totals + at, mask=inside, other=0.0) * weights, 0)
    part = tl.load(parts + at[:, None] * DIM + d, mask=inside[:, None], other=0.0)
    tl.store(o + (sequence * H + head) * DIM + d, (tl.sum(part * weights[:, None], 0) / total).to(tl.float16))


def old_paged_attention(q: Any, k: Any, v: Any, table: Any, n: Any) -> Any:
    o = torch.empty_like(q)
    paged_kernel[(3, 4)](q, k, v, table, n, o, H=4, KV=2, PAGE=16, DIM=32)
    return o


def new_paged_attention(q: Any, k: Any, v: Any, table: Any, n: Any) -> Any:
    """In parts, of which those beyond a length stay unwritten."""
    o, parts = torch.empty_like(q), torch.empty((3, 4, 3, 32), dtype=torch.float32, device=q.device)
    tops, totals = torch.empty((2, 3, 4, 3), dtype=torch.float32, device=q.device).unbind(0)
    page_kernel[(3, 4, 3)](q, k, v, table, n, parts, tops, totals, H=4, KV=2, PAGE=16, DIM=32)
    pages_kernel[(3, 4)](parts, tops, totals, n, o, H=4, PAGE=16, DIM=32)
    return o


@triton.jit
def experts_kernel(x, w, g, ids, o, count, K: tl.constexpr, N: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """Each block of 16 places has an expert; places from ``count`` on are padding."""
    expert, n = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = tl.load(ids + expert * 16 + tl.arange(0, 16))
    acc = tl.zeros((16, COLUMNS), tl.float32)
    for first in range(0, K, STEP):
        k = first + tl.arange(0, STEP)
        a = tl.load(x + (place // 2)[:, None] * K + k, mask=(place < count)[:, None], other=0.0)
        acc += tl.dot(a, tl.load(w + (expert * N + n[None, :]) * K + k[:, None]))
    acc *= tl.load(g + place, mask=place < count, other=0.0)[:, None]
    tl.store(o + place[:, None] * N + n, acc.to(tl.float16), mask=(place < count)[:, None])


def _experts(x: Any, w: Any, g: Any, ids: Any, columns: int, step: int) -> Any:
    o = torch.empty((6, 32), dtype=x.dtype, device=x.device)
    experts_kernel[(2, 32 // columns)](x, w, g, ids, o, 6, K=64, N=32, COLUMNS=columns, STEP=step)
    return o


def old_experts(x: Any, w: Any, g: Any, ids: Any) -> Any:
    return _experts(x, w, g, ids, 16, 32)


def new_experts(x: Any, w: Any, g: Any, ids: Any) -> Any:
    return _experts(x, w, g, ids, 32, 16)


@triton.jit
def rotate_kernel(q, at, t, rows, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """In place; cosines lie before sines in the table."""
    row, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 16)
    inside = (row < rows)[:, None]
    place = tl.load(at + row // 4, mask=row < rows, other=0)[:, None]
    c, s = tl.load(t + place * 32 + d), tl.load(t + place * 32 + 16 + d)
    to = q + row[:, None] * 32 + d
    x, y = tl.load(to, mask=inside), tl.load(to + 16, mask=inside)
    if WIDE:
        c, s, x, y = c.to(tl.float32), s.to(tl.float32), x.to(tl.float32), y.to(tl.float32)
    tl.store(to, x * c - y * s, mask=inside)
    tl.store(to + 16, y * c + x * s, mask=inside)


def old_rotate(q: Any, at: Any, t: Any) -> None:
    rotate_kernel[(9,)](q, at, t, 36, WIDE=False, BLOCK=4)


def new_rotate(q: Any, at: Any, t: Any) -> None:
    rotate_kernel[(3,)](q, at, t, 36, WIDE=True, BLOCK=16)


@triton.jit
def largest_kernel(x, values, places, N: tl.constexpr, K: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * N + at)
    for j in range(K):
        top, place = tl.max(v, 0, return_indices=True)
        tl.store(values + row * K + j, top)
        tl.store(places + row * K + j, place.to(tl.int64))
        v = tl.where(at == place, float("-inf"), v)


@triton.jit
def sorted_kernel(x, values, places, N: tl.constexpr, K: tl.constexpr):
    """Values and places in one number, whose order is theirs."""
    row, at = tl.program_id(0), tl.arange(0, N)
    bits = tl.load(x + row * N + at).to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.sort((bits.to(tl.int64) << 32) | (N - at).to(tl.int64), descending=True)
    bits = (key >> 32).to(tl.int32)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    tl.store(values + row * K + at, bits.to(tl.float32, bitcast=True), mask=at < K)
    tl.store(places + row * K + at, N - (key & 0xFFFFFFFF), mask=at < K)


def _largest(kernel: Any, x: Any, k: int) -> Any:
    values = torch.empty((8, k), dtype=torch.float32, device=x.device)
    places = torch.empty((8, k), dtype=torch.int64, device=x.device)
    kernel[(8,)](x, values, places, N=128, K=k)
    return values, places


def old_largest(x: Any, k: int) -> Any:
    return _largest(largest_kernel, x, k)


def new_largest(x: Any, k: int) -> Any:
    return _largest(sorted_kernel, x, k)


@triton.jit
def scaled_kernel(a, s, b, t, o, ROWS: tl.constexpr, STEP: tl.constexpr):
    m, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros((ROWS, ROWS), tl.float32)
    for first in range(0, 64, STEP):
        k, group = first + tl.arange(0, STEP), first // 32 + tl.arange(0, STEP // 32)
        x, y = tl.load(a + m[:, None] * 64 + k), tl.load(b + n[None, :] * 64 + k[:, None])
        of_x, of_y = tl.load(s + m[:, None] * 2 + group), tl.load(t + n[:, None] * 2 + group)
        acc = tl.dot_scaled(x, of_x, "e4m3", y, of_y, "e4m3", acc)
    tl.store(o + m[:, None] * 32 + n, acc)


@triton.jit
def unscaled_kernel(a, s, b, t, o, ROWS: tl.constexpr):
    m, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros((ROWS, ROWS), tl.float32)
    for group in range(2):
        k = group * 32 + tl.arange(0, 32)
        x = tl.load(a + m[:, None] * 64 + k).to(tl.float16)
        y = tl.load(b + n[None, :] * 64 + k[:, None]).to(tl.float16)
        of_x = tl.exp2(tl.load(s + m * 2 + group).to(tl.float32) - 127)
        of_y = tl.exp2(tl.load(t + n * 2 + group).to(tl.float32) - 127)
        acc += tl.dot(x, y) * of_x[:, None] * of_y[None, :]
    tl.store(o + m[:, None] * 32 + n, acc)


def old_scaled_product(a: Any, s: Any, b: Any, t: Any) -> Any:
    o = torch.empty((32, 32), dtype=torch.float32, device=a.device)
    scaled_kernel[(1, 1)](a, s, b, t, o, ROWS=32, STEP=64)
    return o


def new_scaled_product(a: Any, s: Any, b: Any, t: Any) -> Any:
    o = torch.empty((32, 32), dtype=torch.float32, device=a.device)
    unscaled_kernel[(2, 2)](a, s, b, t, o, ROWS=16)
    return o
