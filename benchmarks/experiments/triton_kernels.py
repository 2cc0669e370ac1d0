"""Triton kernels: a grouped product by a table of addresses, and attention of one query a sequence."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def grouped(table, sizes, count: tl.constexpr, BLOCK: tl.constexpr):
    """``c[g] = a[g] @ b[g]``; ``table`` has the addresses of all a, all b and all c, ``sizes`` rows of m, n, k."""
    g = tl.program_id(0)
    a = tl.load(table + g).to(tl.pointer_type(tl.bfloat16))
    b = tl.load(table + count + g).to(tl.pointer_type(tl.bfloat16))
    c = tl.load(table + 2 * count + g).to(tl.pointer_type(tl.float32))
    m, n, k = tl.load(sizes + 3 * g), tl.load(sizes + 3 * g + 1), tl.load(sizes + 3 * g + 2)
    across = tl.cdiv(n, BLOCK)
    tile = tl.program_id(1)
    while tile < tl.cdiv(m, BLOCK) * across:
        row = tile // across * BLOCK + tl.arange(0, BLOCK)
        column = tile % across * BLOCK + tl.arange(0, BLOCK)
        inner = tl.arange(0, 32)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, k, 32):
            one = tl.load(a + row[:, None] * k + (start + inner)[None, :], mask=row[:, None] < m, other=0.0)
            two = tl.load(b + (start + inner)[:, None] * n + column[None, :], mask=column[None, :] < n, other=0.0)
            total += tl.dot(one, two)
        keep = (row[:, None] < m) & (column[None, :] < n)
        tl.store(c + row[:, None] * n + column[None, :], total, mask=keep)
        tile += tl.num_programs(1)


@triton.jit
def decode_part(
    q, k, v, pages, lengths, out, top, SPLITS: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr
):
    sequence, part = tl.program_id(0), tl.program_id(1)
    heads, dim, slot = tl.arange(0, HEADS), tl.arange(0, DIM), tl.arange(0, PAGE)
    length = tl.load(lengths + sequence)
    query = tl.load(q + (sequence * HEADS + heads[:, None]) * DIM + dim[None, :])
    best = tl.full((HEADS,), -1e30, dtype=tl.float32)
    weight = tl.zeros((HEADS,), dtype=tl.float32)
    total = tl.zeros((HEADS, DIM), dtype=tl.float32)
    for number in range(part, tl.cdiv(length, PAGE), SPLITS):
        page = tl.load(pages + sequence * 16 + number)
        at = (page * PAGE + slot[:, None]) * DIM + dim[None, :]
        scores = tl.dot(query, tl.trans(tl.load(k + at))) * 0.125
        scores = tl.where((number * PAGE + slot)[None, :] < length, scores, -1e30)
        new = tl.maximum(best, tl.max(scores, 1))
        shares = tl.exp(scores - new[:, None])
        rescale = tl.exp(best - new)
        weight = weight * rescale + tl.sum(shares, 1)
        total = total * rescale[:, None] + tl.dot(shares.to(tl.bfloat16), tl.load(v + at))
        best = new
    where = (sequence * SPLITS + part) * HEADS + heads
    tl.store(out + where[:, None] * DIM + dim[None, :], total)
    tl.store(top + where * 2, best)
    tl.store(top + where * 2 + 1, weight)


@triton.jit
def decode_join(parts, top, out, SPLITS: tl.constexpr, DIM: tl.constexpr, HEADS: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    split, dim = tl.arange(0, SPLITS), tl.arange(0, DIM)
    where = (sequence * SPLITS + split) * HEADS + head
    best, weight = tl.load(top + where * 2), tl.load(top + where * 2 + 1)
    scale = tl.exp(best - tl.max(best, 0))
    values = tl.load(parts + where[:, None] * DIM + dim[None, :])
    joined = tl.sum(values * scale[:, None], 0) / tl.sum(weight * scale, 0)
    tl.store(out + (sequence * HEADS + head) * DIM + dim, joined)


def decode_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pages: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Attention of ``q[sequence, head, dim]`` over pages of 32 keys: float32 of the same shape."""
    sequences, heads, dim = q.shape
    parts = torch.empty(sequences, 4, heads, dim, device=q.device)
    top = torch.empty(sequences, 4, heads, 2, device=q.device)
    out = torch.empty(sequences, heads, dim, device=q.device)
    decode_part[(sequences, 4)](q, k, v, pages, lengths, parts, top, SPLITS=4, PAGE=32, DIM=dim, HEADS=heads)
    decode_join[(sequences, heads)](parts, top, out, SPLITS=4, DIM=dim, HEADS=heads)
    return out
