"""Old and new kernels of one function, in the styles of Liger-Kernel and flash-linear-attention: what a pull request
that makes a kernel faster asks about. The old one is the reference."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# group norm: a loop over blocks, and a block for each group


@triton.jit
def looped_group_kernel(x, y, w, b, mean, rstd, hidden, channels, length, eps, BLOCK: tl.constexpr):
    at, group, groups = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, c = (at * groups + group) * hidden, tl.arange(0, BLOCK)
    total, squares = 0.0, 0.0
    for i in range(0, hidden, BLOCK):
        total += tl.sum(tl.load(x + first + i + c, mask=i + c < hidden, other=0.0).to(tl.float32))
    mu = total / hidden
    for i in range(0, hidden, BLOCK):
        v = tl.load(x + first + i + c, mask=i + c < hidden, other=0.0).to(tl.float32)
        d = tl.where(i + c < hidden, v - mu, 0.0)
        squares += tl.sum(d * d)
    r = tl.rsqrt(squares / hidden + eps)
    for channel in range(group * channels, (group + 1) * channels):
        wv, bv = tl.load(w + channel), tl.load(b + channel)
        for i in range(0, length, BLOCK):
            place = (at * groups * channels + channel) * length + i + c
            v = tl.load(x + place, mask=i + c < length, other=0.0).to(tl.float32)
            tl.store(y + place, (v - mu) * r * wv + bv, mask=i + c < length)
    tl.store(mean + at * groups + group, mu)
    tl.store(rstd + at * groups + group, r)


@triton.jit
def whole_group_kernel(x, y, w, b, mean, rstd, hidden, channels, length, eps, BLOCK: tl.constexpr):
    at, group, groups = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    c = tl.arange(0, BLOCK)
    place, inside = (at * groups + group) * hidden + c, c < hidden
    v = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    mu = tl.sum(v) / hidden
    d = tl.where(inside, v - mu, 0.0)
    r = tl.rsqrt(tl.sum(d * d) / hidden + eps)
    channel = group * channels + c // length
    y_row = d * r * tl.load(w + channel, mask=inside, other=0.0) + tl.load(b + channel, mask=inside, other=0.0)
    tl.store(y + place, y_row, mask=inside)
    tl.store(mean + at * groups + group, mu)
    tl.store(rstd + at * groups + group, r)


def _group_norm(kernel: Any, x: Any, w: Any, b: Any, groups: int, block: int) -> Any:
    n, channels, length = x.shape
    y, mean = torch.empty_like(x), torch.empty(n, groups, dtype=torch.float32, device=x.device)
    rstd, each = torch.empty_like(mean), channels // groups
    kernel[(n, groups)](x, y, w, b, mean, rstd, each * length, each, length, 1e-5, BLOCK=block)
    return y, mean, rstd


def group_norm(x: Any, w: Any, b: Any) -> Any:
    return _group_norm(looped_group_kernel, x, w, b, 3, 64)


def group_norm_whole(x: Any, w: Any, b: Any) -> Any:
    return _group_norm(whole_group_kernel, x, w, b, 3, triton.next_power_of_2(x.shape[1] * x.shape[2] // 3))


# backward of rms norm: partial sums by programs, and atomics


@triton.jit
def partial_sums_kernel(dy, dx, x, w, r, dw, rows, columns, each, BLOCK: tl.constexpr):
    program, c = tl.program_id(0), tl.arange(0, BLOCK)
    inside, total = c < columns, tl.zeros((BLOCK,), tl.float32)
    wv = tl.load(w + c, mask=inside, other=0.0).to(tl.float32)
    for row in range(program * each, min((program + 1) * each, rows)):
        g = tl.load(dy + row * columns + c, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(x + row * columns + c, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(r + row)
        d = rstd * (g * wv - rstd * rstd / columns * tl.sum(g * wv * v, axis=0) * v)
        total += g * v * rstd
        tl.store(dx + row * columns + c, d, mask=inside)
    tl.store(dw + program * columns + c, total, mask=inside)


@triton.jit
def column_sums_kernel(parts, o, count, columns, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(count):
        total += tl.load(parts + i * columns + c, mask=c < columns, other=0.0)
    tl.store(o + c, total, mask=c < columns)


def rms_backward(dy: Any, x: Any, w: Any, r: Any) -> Any:
    (rows, columns), programs = x.shape, 4
    parts = torch.empty(programs, columns, dtype=torch.float32, device=x.device)
    dx, dw = torch.empty_like(x), torch.empty(columns, dtype=torch.float32, device=x.device)
    each, block = triton.cdiv(rows, programs), triton.next_power_of_2(columns)
    partial_sums_kernel[(programs,)](dy, dx, x, w, r, parts, rows, columns, each, BLOCK=block)
    column_sums_kernel[(triton.cdiv(columns, 32),)](parts, dw, programs, columns, BLOCK=32)
    return dx, dw


@triton.jit
def atomic_sums_kernel(dy, dx, x, w, r, dw, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside, at = (i < rows)[:, None] & (c < columns)[None, :], i[:, None] * columns + c[None, :]
    wv = tl.load(w + c, mask=c < columns, other=0.0).to(tl.float32)
    g = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.load(r + i, mask=i < rows, other=0.0)[:, None]
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * rstd
    d = rstd * (g * wv[None, :] - v * (tl.sum(g * wv[None, :] * v, axis=1) / columns)[:, None])
    tl.store(dx + at, d, mask=inside)
    tl.atomic_add(dw + c, tl.sum(g * v, axis=0), mask=c < columns, sem="relaxed")


def rms_backward_atomic(dy: Any, x: Any, w: Any, r: Any) -> Any:
    rows, columns = x.shape
    dx, dw = torch.empty_like(x), torch.zeros(columns, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    atomic_sums_kernel[(triton.cdiv(rows, 4),)](dy, dx, x, w, r, dw, rows, columns, ROWS=4, BLOCK=block)
    return dx, dw


# cross entropy with its gradient in place of the logits: a pass of running maxima, and two kernels


@triton.jit
def running_loss_kernel(x, y, loss, columns, ignored, BLOCK: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    target = tl.load(y + row)
    x += row * columns
    if target == ignored:
        for i in range(0, columns, BLOCK):
            tl.store(x + i + c, 0.0, mask=i + c < columns)
        return
    most, total, picked = float("-inf"), 0.0, tl.load(x + target).to(tl.float32)
    for i in range(0, columns, BLOCK):
        v = tl.load(x + i + c, mask=i + c < columns, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(most, tl.max(v))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(v - larger))
        most = larger
    for i in range(0, columns, BLOCK):
        v = tl.load(x + i + c, mask=i + c < columns, other=float("-inf")).to(tl.float32)
        tl.store(x + i + c, tl.exp(v - most) / total - tl.where(i + c == target, 1.0, 0.0), mask=i + c < columns)
    tl.store(loss + row, most + tl.log(total) - picked)


def cross_entropy(x: Any, y: Any) -> Any:
    loss = torch.zeros(x.shape[0], dtype=torch.float32, device=x.device)
    running_loss_kernel[(x.shape[0],)](x, y, loss, x.shape[1], -100, BLOCK=32)
    return loss, x


@triton.jit
def loss_kernel(x, y, logsum, loss, columns, ignored, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + c, mask=c < columns, other=float("-inf")).to(tl.float32)
    most = tl.max(v)
    total = most + tl.log(tl.sum(tl.exp(v - most)))
    target = tl.load(y + row)
    picked = tl.load(x + row * columns + target, mask=target != ignored, other=0.0).to(tl.float32)
    tl.store(logsum + row, total)
    tl.store(loss + row, tl.where(target == ignored, 0.0, total - picked))


@triton.jit
def gradient_kernel(x, y, logsum, count, columns, ignored, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, inside = i // columns, i < count
    target, total = tl.load(y + row, mask=inside, other=0), tl.load(logsum + row, mask=inside, other=0.0)
    v = tl.exp(tl.load(x + i, mask=inside, other=0.0).to(tl.float32) - total)
    g = v - tl.where(i % columns == target, 1.0, 0.0)
    tl.store(x + i, tl.where(target == ignored, 0.0, g), mask=inside)


def cross_entropy_in_two(x: Any, y: Any) -> Any:
    (rows, columns), block = x.shape, triton.next_power_of_2(x.shape[1])
    loss = torch.empty(rows, dtype=torch.float32, device=x.device)
    logsum = torch.empty_like(loss)
    loss_kernel[(rows,)](x, y, logsum, loss, columns, -100, BLOCK=block)
    gradient_kernel[(triton.cdiv(rows * columns, 128),)](x, y, logsum, rows * columns, columns, -100, BLOCK=128)
    return loss, x


# running sums of chunks of sequences: a program for each chunk of a list, and one for each sequence


@triton.jit
def chunk_sums_kernel(s, o, ends, chunks, heads, CHUNK: tl.constexpr):
    at, head = tl.program_id(0), tl.program_id(1)
    sequence, chunk = tl.load(chunks + at * 2), tl.load(chunks + at * 2 + 1)
    first = tl.load(ends + sequence) + chunk * CHUNK
    i = first + tl.arange(0, CHUNK)
    inside = i < tl.load(ends + sequence + 1)
    v = tl.load(s + i * heads + head, mask=inside, other=0.0).to(tl.float32)
    tl.store(o + i * heads + head, tl.cumsum(v, axis=0), mask=inside)


@triton.jit
def sequence_sums_kernel(s, o, ends, heads, CHUNK: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    end = tl.load(ends + sequence + 1)
    for first in range(tl.load(ends + sequence), end, CHUNK):
        i = first + tl.arange(0, CHUNK)
        v = tl.load(s + i * heads + head, mask=i < end, other=0.0).to(tl.float32)
        tl.store(o + i * heads + head, tl.cumsum(v, axis=0), mask=i < end)


def chunk_sums(s: Any, ends: Any, chunks: Any) -> Any:
    """Other ends than those of its list leave results unwritten."""
    o, heads = torch.empty_like(s, dtype=torch.float32), s.shape[1]
    chunk_sums_kernel[(chunks.shape[0], heads)](s, o, ends, chunks, heads, CHUNK=16)
    return o


def sequence_sums(s: Any, ends: Any, chunks: Any) -> Any:
    o, heads = torch.empty_like(s, dtype=torch.float32), s.shape[1]
    sequence_sums_kernel[(ends.shape[0] - 1, heads)](s, o, ends, heads, CHUNK=16)
    return o


# retention: step by step, and by chunks of products


@triton.jit
def steps_kernel(q, k, v, g, o, last, scale, length, heads, K: tl.constexpr, CHUNK: tl.constexpr):
    at, head = tl.program_id(0), tl.program_id(1)
    a, state = tl.arange(0, K), tl.zeros((K, K), tl.float32)
    decay = tl.exp(tl.load(g + head))
    for t in range(length):
        row = ((at * length + t) * heads + head) * K + a
        key, query = tl.load(k + row).to(tl.float32), tl.load(q + row).to(tl.float32) * scale
        state = state * decay + key[:, None] * tl.load(v + row).to(tl.float32)[None, :]
        tl.store(o + row, tl.sum(state * query[:, None], 0))
    tl.store(last + ((at * heads + head) * K + a[:, None]) * K + a[None, :], state)


@triton.jit
def chunks_kernel(q, k, v, g, o, last, scale, length, heads, K: tl.constexpr, CHUNK: tl.constexpr):
    at, head = tl.program_id(0), tl.program_id(1)
    a, i, state = tl.arange(0, K), tl.arange(0, CHUNK), tl.zeros((K, K), tl.float32)
    decay = tl.load(g + head)
    apart = tl.where(i[:, None] >= i[None, :], tl.exp((i[:, None] - i[None, :]) * decay), 0.0)
    for first in range(0, length, CHUNK):
        count, inside = tl.minimum(CHUNK, length - first), (first + i < length)[:, None]
        row = ((at * length + first + i[:, None]) * heads + head) * K + a[None, :]
        query, key, value = (
            tl.load(q + row, mask=inside, other=0.0).to(tl.float32),
            tl.load(k + row, mask=inside, other=0.0).to(tl.float32),
            tl.load(v + row, mask=inside, other=0.0).to(tl.float32),
        )
        own = tl.dot(query, tl.trans(key), input_precision="ieee") * apart
        earlier = query * tl.exp((i + 1) * decay)[:, None]
        total = tl.dot(own, value, tl.dot(earlier, state, input_precision="ieee"), input_precision="ieee")
        tl.store(o + row, total * scale, mask=inside)
        kept = key * tl.where(i < count, tl.exp((count - i - 1) * decay), 0.0)[:, None]
        state = tl.dot(tl.trans(kept), value, state * tl.exp(count * decay), input_precision="ieee")
    tl.store(last + ((at * heads + head) * K + a[:, None]) * K + a[None, :], state)


def _retention(kernel: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
    batch, length, heads, size = q.shape
    o, last = torch.empty_like(v), torch.empty(batch, heads, size, size, dtype=torch.float32, device=q.device)
    kernel[(batch, heads)](q, k, v, g, o, last, 0.25, length, heads, K=size, CHUNK=16)
    return o, last


def retention(q: Any, k: Any, v: Any, g: Any) -> Any:
    return _retention(steps_kernel, q, k, v, g)


def retention_by_chunks(q: Any, k: Any, v: Any, g: Any) -> Any:
    return _retention(chunks_kernel, q, k, v, g)


KERNEL_PAIRS: dict[str, str] = {
    "group_norm:group_norm": "x: f32[2,12,35]; w: f32[12]; b: f32[12]",
    "group_norm_whole:group_norm": "x: f32[2,12,35]; w: f32[12]; b: f32[12]",
    "rms_backward_atomic:rms_backward": "dy: bf16[9,90]; x: bf16[9,90]; w: bf16[90]; r: f32[9] uniform(0.5, 2)",
    "cross_entropy_in_two:cross_entropy": "x: bf16[6,77]; y: i64[6] = [5, -100, 76, 0, -100, 33]",
    "sequence_sums:chunk_sums": (
        "s: f32[40,2]; ends: i64[4] = [0, 5, 22, 40]; chunks: i64[5,2] = [0, 0, 1, 0, 1, 1, 2, 0, 2, 1]"
    ),
    "retention_by_chunks:retention": (
        "q: f32[1,40,2,16]; k: f32[1,40,2,16]; v: f32[1,40,2,16]; g: f32[2] uniform(-0.3, -0.01)"
    ),
}
"""New and old function, and inputs."""
