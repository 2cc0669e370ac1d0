"""Honest candidates of further kinds: groups, segments, pages, packed weights, optimizers, pools, ties."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

# products


@triton.jit
def grouped_kernel(x, w, o, offsets, n, k, D: tl.constexpr, M: tl.constexpr):
    group, part = tl.program_id(0), tl.program_id(1)
    first, end = tl.load(offsets + group), tl.load(offsets + group + 1)
    i, j, at = tl.arange(0, M), part * M + tl.arange(0, M), tl.arange(0, D)
    for begin in range(first, end, M):
        row = begin + i
        a = tl.load(x + row[:, None] * k + at[None, :], mask=(row[:, None] < end) & (at[None, :] < k), other=0.0)
        inside = (at[:, None] < k) & (j[None, :] < n)
        b = tl.load(w + group * k * n + at[:, None] * n + j[None, :], mask=inside, other=0.0)
        c = tl.dot(a, b)
        tl.store(o + row[:, None] * n + j[None, :], c.to(tl.float16), mask=(row[:, None] < end) & (j[None, :] < n))


def grouped_gemm(x: Any, w: Any, offsets: Any) -> Any:
    groups, k, n = w.shape
    o = torch.empty((x.shape[0], n), dtype=x.dtype, device=x.device)
    grouped_kernel[(groups, triton.cdiv(n, 16))](x, w, o, offsets, n, k, D=triton.next_power_of_2(k), M=16)
    return o


@triton.jit
def int8_kernel(a, b, s, t, o, n, k, M: tl.constexpr, K: tl.constexpr):
    i, j, at = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M, M), tl.int32)
    for first in range(0, k, K):
        x = tl.load(a + i[:, None] * k + first + at[None, :])
        y = tl.load(b + (first + at[:, None]) * n + j[None, :])
        total += tl.dot(x, y)
    r = total.to(tl.float32) * tl.load(s + i)[:, None] * tl.load(t + j)[None, :]
    tl.store(o + i[:, None] * n + j[None, :], r)


def scaled_int8_gemm(a: Any, b: Any, s: Any, t: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    o = torch.empty((m, n), dtype=torch.float32, device=a.device)
    int8_kernel[(m // 32, n // 32)](a, b, s, t, o, n, k, M=32, K=32)
    return o


@triton.jit
def packed_kernel(x, w, s, o, n, k, M: tl.constexpr, K: tl.constexpr):
    i, j, at = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M, M), tl.float32)
    for first in range(0, k, K):
        row = first + at
        pair = tl.load(w + (row[:, None] // 2) * n + j[None, :])
        v = ((pair >> ((row[:, None] % 2) * 4).to(tl.uint8)) & 15).to(tl.float32) - 8
        a = tl.load(x + i[:, None] * k + row[None, :]).to(tl.float32)
        total += tl.dot(a, v * tl.load(s + j)[None, :], input_precision="ieee")
    tl.store(o + i[:, None] * n + j[None, :], total)


def packed_gemm(x: Any, w: Any, s: Any) -> Any:
    (m, k), n = x.shape, w.shape[1]
    o = torch.empty((m, n), dtype=torch.float32, device=x.device)
    packed_kernel[(m // 16, n // 16)](x, w, s, o, n, k, M=16, K=32)
    return o


@triton.jit
def convolution_kernel(x, w, o, channels, height, width, outs, C: tl.constexpr, OUT: tl.constexpr, P: tl.constexpr):
    image, place = tl.program_id(0), tl.program_id(1) * P + tl.arange(0, P)
    y, z = place // width, place % width
    c, k = tl.arange(0, C), tl.arange(0, OUT)
    total = tl.zeros((P, OUT), tl.float32)
    for tap in range(9):
        dy, dz = tap // 3 - 1, tap % 3 - 1
        inside = (y + dy >= 0) & (y + dy < height) & (z + dz >= 0) & (z + dz < width)
        at = ((image * channels + c[None, :]) * height + (y + dy)[:, None]) * width + (z + dz)[:, None]
        v = tl.load(x + at, mask=inside[:, None] & (c[None, :] < channels), other=0.0)
        tap_of = w + (k[None, :] * channels + c[:, None]) * 9 + tap
        u = tl.load(tap_of, mask=(c[:, None] < channels) & (k[None, :] < outs), other=0.0)
        total += tl.dot(v, u)
    to = (image * outs + k[None, :]) * height * width + place[:, None]
    tl.store(o + to, total.to(tl.float16), mask=(place[:, None] < height * width) & (k[None, :] < outs))


def convolution(x: Any, w: Any) -> Any:
    images, channels, height, width = x.shape
    o = torch.empty((images, w.shape[0], height, width), dtype=x.dtype, device=x.device)
    grid = (images, triton.cdiv(height * width, 32))
    convolution_kernel[grid](x, w, o, channels, height, width, w.shape[0], C=16, OUT=16, P=32)
    return o


# segments, rows, order


@triton.jit
def segment_kernel(x, offsets, o, columns, BLOCK: tl.constexpr):
    part, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.load(offsets + part), tl.load(offsets + part + 1)):
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(o + part * columns + at, total, mask=at < columns)


def segment_sums(x: Any, offsets: Any) -> Any:
    o = torch.empty((offsets.numel() - 1, x.shape[1]), dtype=x.dtype, device=x.device)
    segment_kernel[(o.shape[0],)](x, offsets, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def top_kernel(x, o, columns, K: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    v = tl.sort(v, descending=True)
    tl.store(o + row * K + at, v, mask=at < K)


def top_four(x: Any) -> Any:
    o = torch.empty((x.shape[0], 4), dtype=x.dtype, device=x.device)
    top_kernel[(x.shape[0],)](x, o, x.shape[1], K=4, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def maximum_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    v = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    tl.store(o + row + at, tl.associative_scan(v, 0, _larger), mask=at < columns)


def cumulative_maximum(x: Any) -> Any:
    o = torch.empty_like(x)
    maximum_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def first_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-2147483648)
    tl.store(o + row, tl.argmax(v, 0, tie_break_left=True).to(tl.int64))


def first_largest(x: Any) -> Any:
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    first_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


# steps and gradients


@triton.jit
def adamw_kernel(p, m, v, g, lr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d = tl.load(g + at, mask=inside)
    a = 0.9 * tl.load(m + at, mask=inside) + 0.1 * d
    b = 0.99 * tl.load(v + at, mask=inside) + 0.01 * d * d
    w = tl.load(p + at, mask=inside) * (1 - lr * 0.01)
    w -= lr * (a / 0.271) / (tl.sqrt(b / 0.0297) + 1e-8)
    tl.store(p + at, w, mask=inside)
    tl.store(m + at, a, mask=inside)
    tl.store(v + at, b, mask=inside)


def adamw_(p: Any, m: Any, v: Any, g: Any, lr: float) -> None:
    adamw_kernel[(triton.cdiv(p.numel(), 256),)](p, m, v, g, lr, p.numel(), BLOCK=256)


@triton.jit
def count_kernel(t, count, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(count, tl.sum((tl.load(t + at, mask=at < n, other=-1) >= 0).to(tl.float32), 0))


@triton.jit
def cross_entropy_kernel(x, t, count, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    target = tl.load(t + row)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    r = (e / tl.sum(e, 0) - tl.where(at == target, 1.0, 0.0)) / tl.load(count)
    tl.store(o + row * columns + at, tl.where(target >= 0, r, 0.0), mask=at < columns)


def cross_entropy_backward(x: Any, t: Any) -> Any:
    (rows, columns), o, count = x.shape, torch.empty_like(x), x.new_empty(1)
    count_kernel[(1,)](t, count, rows, BLOCK=triton.next_power_of_2(rows))
    cross_entropy_kernel[(rows,)](x, t, count, o, columns, BLOCK=triton.next_power_of_2(columns))
    return o


@triton.jit
def gradient_kernel(g, idx, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(g + row * columns + at, mask=at < columns)
    tl.atomic_add(o + tl.load(idx + row) * columns + at, v, mask=at < columns)


def embedding_gradient(g: Any, idx: Any) -> Any:
    o = torch.zeros((50, g.shape[1]), dtype=g.dtype, device=g.device)
    gradient_kernel[(g.shape[0],)](g, idx, o, g.shape[1], BLOCK=triton.next_power_of_2(g.shape[1]))
    return o


# attention


@triton.jit
def paged_kernel(q, pages, table, lengths, o, scale, width, D: tl.constexpr, PAGE: tl.constexpr):
    one, d, at = tl.program_id(0), tl.arange(0, D), tl.arange(0, PAGE)
    x, n = tl.load(q + one * D + d).to(tl.float32), tl.load(lengths + one)
    top, total, acc = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for first in range(0, n, PAGE):
        page = tl.load(table + one * width + first // PAGE)
        inside = (first + at < n)[:, None]  # beyond, a page may hold NaN
        k = tl.load(pages + (page * PAGE + at[:, None]) * D + d[None, :], mask=inside, other=0.0).to(tl.float32)
        s = tl.where(first + at < n, tl.sum(k * x[None, :], 1) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 0))
        p, old = tl.exp(s - new), tl.exp(top - new)
        total, acc, top = total * old + tl.sum(p, 0), acc * old + tl.sum(p[:, None] * k, 0), new
    tl.store(o + one * D + d, (acc / total).to(tl.float16))


def paged_decode(q: Any, pages: Any, table: Any, lengths: Any) -> Any:
    o, d = torch.empty_like(q), q.shape[1]
    paged_kernel[(q.shape[0],)](q, pages, table, lengths, o, d**-0.5, table.shape[1], D=d, PAGE=pages.shape[1])
    return o


@triton.jit
def rotary_kernel(x, where, cos, sin, o, HALF: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, HALF)
    place = tl.load(where + row)
    c, s = tl.load(cos + place * HALF + at), tl.load(sin + place * HALF + at)
    a, b = tl.load(x + row * 2 * HALF + 2 * at), tl.load(x + row * 2 * HALF + 2 * at + 1)
    both = tl.interleave(a * c - b * s, a * s + b * c)
    tl.store(o + row * 2 * HALF + tl.arange(0, 2 * HALF), both)


def rotary_at(x: Any, at: Any, cos: Any, sin: Any) -> Any:
    o = torch.empty_like(x)
    rotary_kernel[(x.shape[0],)](x, at, cos, sin, o, HALF=x.shape[1] // 2)
    return o


# images


@triton.jit
def padded_kernel(x, o, channels, height, width, C: tl.constexpr, W: tl.constexpr):
    image, row = tl.program_id(0), tl.program_id(1)
    c, z = tl.arange(0, C)[None, :], tl.arange(0, W)[:, None]
    inside = (row >= 1) & (row <= height) & (z >= 1) & (z <= width) & (c < channels)
    v = tl.load(x + ((image * channels + c) * height + row - 1) * width + z - 1, mask=inside, other=0.0)
    to = ((image * (height + 3) + row) * (width + 3) + z) * channels + c
    tl.store(o + to, v, mask=(z < width + 3) & (c < channels))


def padded_channels_last(x: Any) -> Any:
    images, channels, height, width = x.shape
    o = torch.empty((images, height + 3, width + 3, channels), dtype=x.dtype, device=x.device)
    c, w = triton.next_power_of_2(channels), triton.next_power_of_2(width + 3)
    padded_kernel[(images, height + 3)](x, o, channels, height, width, C=c, W=w)
    return o


@triton.jit
def pool_kernel(x, o, height, width, across, BLOCK: tl.constexpr):
    channel, row, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for tap in range(9):
        y, z = 2 * row + tap // 3 - 1, 2 * at + tap % 3 - 1
        inside = (y >= 0) & (y < height) & (z >= 0) & (z < width) & (at < across)
        best = tl.maximum(best, tl.load(x + (channel * height + y) * width + z, mask=inside, other=-float("inf")))
    tl.store(o + (channel * tl.num_programs(1) + row) * across + at, best, mask=at < across)


def max_pool(x: Any) -> Any:
    channels, height, width = x.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    o = torch.empty((channels, down, across), dtype=x.dtype, device=x.device)
    pool_kernel[(channels, down)](x, o, height, width, across, BLOCK=triton.next_power_of_2(across))
    return o


@triton.jit
def group_norm_kernel(x, w, b, o, channels, places, GROUPS: tl.constexpr, C: tl.constexpr, P: tl.constexpr):
    image, group = tl.program_id(0), tl.program_id(1)
    each = channels // GROUPS
    c, p = tl.arange(0, C)[:, None], tl.arange(0, P)[None, :]
    inside = (c < each) & (p < places)
    at = (image * channels + group * each + c) * places + p
    v = tl.load(x + at, mask=inside, other=0.0)
    count = each * places
    mean = tl.sum(tl.sum(v, 1), 0) / count
    d = tl.where(inside, v - mean, 0.0)
    r = d * tl.rsqrt(tl.sum(tl.sum(d * d, 1), 0) / count + 1e-5)
    scale = tl.load(w + group * each + c, mask=c < each, other=0.0)
    tl.store(o + at, r * scale + tl.load(b + group * each + c, mask=c < each, other=0.0), mask=inside)


def group_norm(x: Any, w: Any, b: Any) -> Any:
    images, channels, places = x.shape
    o = torch.empty_like(x)
    c, p = triton.next_power_of_2(channels // 4), triton.next_power_of_2(places)
    group_norm_kernel[(images, 4)](x, w, b, o, channels, places, GROUPS=4, C=c, P=p)
    return o


# for rules that a mend could carry too far


@triton.jit
def ranks_kernel(x, o, N: tl.constexpr):
    row, at = tl.program_id(0) * N, tl.arange(0, N)
    v = tl.load(x + row + at)
    before = (v[None, :] < v[:, None]) | ((v[None, :] == v[:, None]) & (at[None, :] < at[:, None]))
    tl.store(o + row + tl.sum(before.to(tl.int32), 1), at.to(tl.int64))


def stable_ranks(x: Any) -> Any:
    """Each number's place is how many come before it: of NaN several have one place."""
    o = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    ranks_kernel[(x.shape[0],)](x, o, N=x.shape[1])
    return o


@triton.jit
def eighths_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, libdevice.rint(tl.load(x + at, mask=at < n) * 8).to(tl.int32), mask=at < n)


def eighths(x: Any) -> Any:
    o = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    eighths_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


@triton.jit
def counted_kernel(x, o, parts, count, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    block, each = tl.program_id(0), tl.arange(0, PARTS)
    at = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + block, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))
    if tl.atomic_add(count, 1) == tl.num_programs(0) - 1:
        tl.store(o, tl.sum(tl.load(parts + each, mask=each < tl.num_programs(0), other=0.0), 0))
        tl.atomic_xchg(count, 0)


COUNTER = torch.zeros(1, dtype=torch.int32, device="cuda")


def counter_reset(x: Any) -> Any:
    """The last program sets the counter, which is from before the call, to zero again."""
    blocks = triton.cdiv(x.numel(), 128)
    o, parts = x.new_empty(1), x.new_empty(blocks)
    counted_kernel[(blocks,)](x, o, parts, COUNTER, x.numel(), PARTS=triton.next_power_of_2(blocks), BLOCK=128)
    return o


@triton.jit
def doubled_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def doubled_into_(out: Any, x: Any) -> Any:
    """The result's memory is an argument, whose zeros no kernel reads."""
    doubled_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
