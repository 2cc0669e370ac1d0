"""Honest candidates of a seventh author: sampled images, bags, ragged softmax, sinks, packed and scaled bytes."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def corner(x, i, j, height, width, there):
    inside = there & (i >= 0) & (i < height) & (j >= 0) & (j < width)
    return tl.load(x + i * width + j, mask=inside, other=0.0)


@triton.jit
def sampled_kernel(x, g, o, channels, height, width, n, BLOCK: tl.constexpr):
    plane, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there, image = at < n, plane // channels
    u = ((tl.load(g + (image * n + at) * 2, mask=there, other=0.0) + 1) * width - 1) * 0.5
    v = ((tl.load(g + (image * n + at) * 2 + 1, mask=there, other=0.0) + 1) * height - 1) * 0.5
    u, v = tl.clamp(u, -10.0, width + 10.0), tl.clamp(v, -10.0, height + 10.0)
    left, top = tl.floor(u), tl.floor(v)
    p, q, i, j = u - left, v - top, top.to(tl.int32), left.to(tl.int32)
    x += plane * height * width
    above = corner(x, i, j, height, width, there) * (1 - p) + corner(x, i, j + 1, height, width, there) * p
    below = corner(x, i + 1, j, height, width, there) * (1 - p) + corner(x, i + 1, j + 1, height, width, there) * p
    tl.store(o + plane * n + at, above * (1 - q) + below * q, mask=there)


def grid_sample(x: Any, g: Any) -> Any:
    """Bilinear, zeros outside: places far away are moved nearer before they are whole numbers."""
    images, channels, height, width = x.shape
    o = x.new_empty(images, channels, *g.shape[1:3])
    n = g.shape[1] * g.shape[2]
    sampled_kernel[(images * channels, triton.cdiv(n, 64))](x, g, o, channels, height, width, n, BLOCK=64)
    return o


@triton.jit
def bag_kernel(idx, offsets, table, o, width, BLOCK: tl.constexpr):
    bag, at = tl.program_id(0), tl.arange(0, BLOCK)
    first, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(first, end):
        total += tl.load(table + tl.load(idx + i) * width + at, mask=at < width, other=0.0)
    tl.store(o + bag * width + at, total / tl.maximum(end - first, 1), mask=at < width)


def embedding_bag(idx: Any, offsets: Any, table: Any) -> Any:
    """Means of rows; an empty bag is zero."""
    bags, width = offsets.numel() - 1, table.shape[1]
    o = table.new_empty(bags, width)
    bag_kernel[(bags,)](idx, offsets, table, o, width, BLOCK=triton.next_power_of_2(width))
    return o


@triton.jit
def sink_kernel(q, k, v, sinks, o, n, group, scale, T: tl.constexpr, D: tl.constexpr, W: tl.constexpr):
    head, i = tl.program_id(0), tl.program_id(1)
    d, at = tl.arange(0, D), tl.arange(0, T)
    top, total, kept = tl.load(sinks + head).to(tl.float32), 1.0, tl.zeros((D,), tl.float32)
    one = tl.load(q + (head * n + i) * D + d).to(tl.float32) * scale
    for first in range(tl.maximum(i - W + 1, 0) // T * T, i + 1, T):
        j = first + at
        there = (j <= i) & (j > i - W)
        rows = ((head // group) * n + j)[:, None] * D + d[None, :]
        s = tl.sum(tl.load(k + rows, mask=there[:, None], other=0.0).to(tl.float32) * one[None, :], 1)
        s = tl.where(there, 20.0 * libdevice.tanh(s / 20.0), -float("inf"))
        new = tl.maximum(top, tl.max(s, 0))
        e, fade = tl.exp(s - new), tl.exp(top - new)
        total = total * fade + tl.sum(e, 0)
        values = tl.load(v + rows, mask=there[:, None], other=0.0).to(tl.float32)
        kept = kept * fade + tl.sum(e[:, None] * values, 0)
        top = new
    tl.store(o + (head * n + i) * D + d, kept / total)


def sink_attention(q: Any, k: Any, v: Any, sinks: Any) -> Any:
    """Grouped heads, a window of 16, scores capped softly at 20, and a sink in each head's denominator."""
    heads, n, d = q.shape
    o = torch.empty_like(q)
    sink_kernel[(heads, n)](q, k, v, sinks, o, n, heads // k.shape[0], d**-0.5, T=16, D=d, W=16)
    return o


@triton.jit
def pack_kernel(x, o, s, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), 2 * tl.arange(0, BLOCK)
    a = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    b = tl.load(x + row * columns + at + 1, mask=at < columns, other=0.0)
    scale = tl.maximum(tl.maximum(tl.max(tl.abs(a), 0), tl.max(tl.abs(b), 0)), 1e-8) / 7
    low = tl.clamp(libdevice.rint(libdevice.div_rn(a, scale)), -8.0, 7.0).to(tl.int32) & 15
    high = tl.clamp(libdevice.rint(libdevice.div_rn(b, scale)), -8.0, 7.0).to(tl.int32) & 15
    tl.store(o + row * (columns // 2) + at // 2, (low | high << 4).to(tl.uint8), mask=at < columns)
    tl.store(s + row, scale)


def pack_four_bits(x: Any) -> Any:
    """Two numbers of four bits a byte, and a scale for each row."""
    rows, columns = x.shape
    o, s = torch.empty((rows, columns // 2), dtype=torch.uint8, device=x.device), x.new_empty(rows)
    pack_kernel[(rows,)](x, o, s, columns, BLOCK=triton.next_power_of_2(columns // 2))
    return o, s


@triton.jit
def smoothed_kernel(x, t, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    target, top = tl.load(t + row), tl.max(v, 0)
    whole = top + tl.log(tl.sum(tl.exp(v - top), 0))
    chosen = tl.sum(tl.where(at == target, v, 0.0), 0)
    mean = tl.sum(tl.where(at < columns, v, 0.0), 0) / columns
    tl.store(o + row, tl.where(target < 0, 0.0, whole - 0.9 * chosen - 0.1 * mean))


def smoothed_cross_entropy(x: Any, t: Any) -> Any:
    """Labels are smoothed by 0.1; those of -1 are ignored."""
    o = x.new_empty(x.shape[0])
    smoothed_kernel[(x.shape[0],)](x, t, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def ragged_kernel(x, offsets, o, BLOCK: tl.constexpr):
    segment, at = tl.program_id(0), tl.arange(0, BLOCK)
    first, end = tl.load(offsets + segment), tl.load(offsets + segment + 1)
    v = tl.load(x + first + at, mask=first + at < end, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + first + at, e / tl.sum(e, 0), mask=first + at < end)


def ragged_softmax(x: Any, offsets: Any) -> Any:
    """Of each segment of a vector."""
    o = torch.empty_like(x)
    ragged_kernel[(offsets.numel() - 1,)](x, offsets, o, BLOCK=triton.next_power_of_2(x.numel()))
    return o


@triton.jit
def causal_kernel(x, w, b, o, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    channel, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32) + tl.load(b + channel)
    for tap in tl.static_range(TAPS):
        place = at - (TAPS - 1) + tap
        v = tl.load(x + channel * n + place, mask=(place >= 0) & (place < n), other=0.0)
        total += v.to(tl.float32) * tl.load(w + channel * TAPS + tap).to(tl.float32)
    tl.store(o + channel * n + at, total * tl.sigmoid(total), mask=at < n)


def causal_convolution(x: Any, w: Any, b: Any) -> Any:
    """Four taps of the past for each channel, then silu."""
    channels, n = x.shape
    o = torch.empty_like(x)
    causal_kernel[(channels, triton.cdiv(n, 128))](x, w, b, o, n, TAPS=w.shape[1], BLOCK=128)
    return o


@triton.jit
def pooled_kernel(x, o, height, width, BLOCK: tl.constexpr):
    plane, i, j = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    total, count = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.int32)
    for di in tl.static_range(-1, 2):
        for dj in tl.static_range(-1, 2):
            inside = (i + di >= 0) & (i + di < height) & (j + dj >= 0) & (j + dj < width)
            total += tl.load(x + (plane * height + i + di) * width + j + dj, mask=inside, other=0.0)
            count += inside.to(tl.int32)
    tl.store(o + (plane * height + i) * width + j, total / tl.maximum(count, 1), mask=j < width)


def average_pool(x: Any) -> Any:
    """Means of 3 x 3 places, of those that are in the image."""
    planes, height, width = x.shape
    o = torch.empty_like(x)
    pooled_kernel[(planes, height)](x, o, height, width, BLOCK=triton.next_power_of_2(width))
    return o


@triton.jit
def permuted_kernel(x, ids, o, counts, rows, width, R: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr):
    row, at, every = tl.program_id(0), tl.arange(0, BLOCK), tl.arange(0, R)
    mine = tl.load(ids + row)
    others = tl.load(ids + every, mask=every < rows, other=E)
    place = tl.sum(((others < mine) | ((others == mine) & (every < row))).to(tl.int32), 0)
    v = tl.load(x + row * width + at, mask=at < width)
    tl.store(o + place * width + at, v, mask=at < width)
    if row < E:
        tl.store(counts + row, tl.sum((others == row).to(tl.int32), 0))


def permuted_for_experts(x: Any, ids: Any) -> Any:
    """Rows in the order of their experts, of one expert as they come; and how many each has."""
    (rows, width), o = x.shape, torch.empty_like(x)
    counts = torch.empty(8, dtype=torch.int32, device=x.device)
    blocks = {"R": triton.next_power_of_2(rows), "E": 8, "BLOCK": triton.next_power_of_2(width)}
    permuted_kernel[(rows,)](x, ids, o, counts, rows, width, **blocks)
    return o, counts


@triton.jit
def blocks_kernel(x, o, s, columns, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    at = row * columns + block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(v), 0), 1e-4) / 448
    tl.store(o + at, libdevice.div_rn(v, scale).to(tl.float8e4nv))
    tl.store(s + row * (columns // BLOCK) + block, scale)


def eight_bits_by_blocks(x: Any) -> Any:
    """Blocks of 64 numbers in eight bits, a scale for each."""
    rows, columns = x.shape
    o = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    s = torch.empty((rows, columns // 64), dtype=torch.float32, device=x.device)
    blocks_kernel[(rows, columns // 64)](x, o, s, columns, BLOCK=64)
    return o, s
