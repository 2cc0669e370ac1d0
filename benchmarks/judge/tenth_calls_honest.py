"""Honest candidates of a tenth author, the last kinds: structured results, noise, sets of places, cells, norms that
keep statistics, assertions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

# results, noise, samples


@triton.jit
def centred_kernel(x, o, means, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / columns
    tl.store(means + row, mean)
    tl.store(o + row * columns + at, (v - mean).to(o.dtype.element_ty), mask=at < columns)


def by_names(x: Any) -> Any:
    """A mapping of results."""
    o, means = torch.empty_like(x), torch.empty((x.shape[0], 1), dtype=torch.float32, device=x.device)
    centred_kernel[(x.shape[0],)](x, o, means, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"centred": o, "mean": means}


def by_names_reference(x: Any) -> Any:
    mean = x.float().mean(-1, keepdim=True)
    return {"centred": (x.float() - mean).to(x.dtype), "mean": mean}


@triton.jit
def noisy_kernel(x, o, seed, sigma, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    noise = tl.randn(tl.load(seed), at)
    tl.store(o + at, tl.load(x + at, mask=at < n) + sigma * noise, mask=at < n)


def noisy(x: Any, seed: Any, sigma: float) -> Any:
    """Normal noise by Triton's generator, whose seed lies in memory."""
    o = torch.empty_like(x)
    noisy_kernel[(triton.cdiv(x.numel(), 256),)](x, o, seed, sigma, x.numel(), BLOCK=256)
    return o


def _wide(a: int, b: Any) -> Any:
    low, high = a * (b & 0xFFFF), a * (b >> 16)
    high = high + (low >> 16)
    return (high >> 16) & 0xFFFFFFFF, ((high << 16) | (low & 0xFFFF)) & 0xFFFFFFFF


def noisy_reference(x: Any, seed: Any, sigma: float) -> Any:
    """Philox 4x32-10, and the sine and cosine of Box and Muller."""
    words = [torch.arange(x.numel(), device=x.device), *(torch.zeros_like(x, dtype=torch.int64) for _ in range(3))]
    key, other = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        (a, b), (c, d) = _wide(0xCD9E8D57, words[2]), _wide(0xD2511F53, words[0])
        words = [a ^ words[1] ^ key, b, c ^ words[3] ^ other, d]
        key, other = (key + 0x9E3779B9) & 0xFFFFFFFF, (other + 0xBB67AE85) & 0xFFFFFFFF
    u, v = (torch.where(w >= 2**31, 2**32 - 1 - w, w).float() * 4.6566127342e-10 for w in words[:2])
    return x + sigma * (torch.sqrt(-2.0 * torch.log(u.clamp(min=1e-7))) * torch.cos(6.283185307179586 * v))


@triton.jit
def chosen_kernel(x, u, t, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")) / tl.load(t + row)
    noise = -tl.log(-tl.log(tl.load(u + row * columns + at, mask=at < columns, other=0.5)))
    tl.store(o + row, tl.argmax(v + noise, 0).to(tl.int64))


def chosen_with_noise(x: Any, u: Any, t: Any) -> Any:
    """A token by Gumbel's noise; the numbers are drawn outside."""
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    chosen_kernel[(x.shape[0],)](x, u, t, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def chosen_with_noise_reference(x: Any, u: Any, t: Any) -> Any:
    return (x / t[:, None] - torch.log(-torch.log(u))).argmax(-1)


@triton.jit
def kept_largest_kernel(x, o, columns, k, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    bits = v.to(tl.uint32, bitcast=True)
    keys = tl.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    least = tl.zeros((), tl.uint32)
    for bit in range(32):
        more = least | (tl.full((), 1, tl.uint32) << (31 - bit))
        least = tl.where(tl.sum(((keys >= more) & (at < columns)).to(tl.int32), 0) >= k, more, least)
    bits = tl.where(least >> 31 == 1, least ^ 0x80000000, least ^ 0xFFFFFFFF)
    bound = bits.to(tl.float32, bitcast=True)
    tl.store(o + row * columns + at, tl.where(v >= bound, v, -float("inf")), mask=at < columns)


def kept_largest(x: Any, k: int) -> Any:
    """The k-th largest number is found bit by bit."""
    o = torch.empty_like(x)
    kept_largest_kernel[(x.shape[0],)](x, o, x.shape[1], k, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def kept_largest_reference(x: Any, k: int) -> Any:
    return x.masked_fill(x < x.topk(k, dim=-1).values[:, -1:], -torch.inf)


# places


@triton.jit
def from_blocks_kernel(cache, table, o, pages, width, PAGE: tl.constexpr, N: tl.constexpr):
    one, place, at = tl.program_id(0), tl.program_id(1), tl.arange(0, N)
    page = tl.load(table + one * pages + place // PAGE).to(tl.int64)
    v = tl.load(cache + (page * PAGE + place % PAGE) * width + at, mask=at < width)
    tl.store(o + (one * pages * PAGE + place) * width + at, v, mask=at < width)


def from_blocks(cache: Any, table: Any) -> Any:
    """Pages are gathered, as they are."""
    (batch, pages), (_, page, *rest) = table.shape, cache.shape
    width = rest[0] * rest[1]
    o = torch.empty((batch, pages * page, *rest), dtype=cache.dtype, device=cache.device)
    grid = (batch, pages * page)
    from_blocks_kernel[grid](cache, table, o, pages, width, PAGE=page, N=triton.next_power_of_2(width))
    return o


def from_blocks_reference(cache: Any, table: Any) -> Any:
    return cache[table.long()].flatten(1, 2)


@triton.jit
def sharded_kernel(ids, table, o, first, end, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    token = tl.load(ids + row)
    own = (token >= first) & (token < end)
    v = tl.load(table + tl.where(own, token - first, 0) * width + at, mask=own & (at < width), other=0.0)
    tl.store(o + row * width + at, v, mask=at < width)


def sharded_embedding(ids: Any, table: Any, first: int) -> Any:
    """Rows of a part of a table: of other tokens zeros."""
    o = torch.empty((ids.numel(), table.shape[1]), dtype=table.dtype, device=table.device)
    end, block = first + table.shape[0], triton.next_power_of_2(table.shape[1])
    sharded_kernel[(ids.numel(),)](ids, table, o, first, end, table.shape[1], BLOCK=block)
    return o


def sharded_embedding_reference(ids: Any, table: Any, first: int) -> Any:
    own = (ids >= first) & (ids < first + len(table))
    return F.embedding(torch.where(own, ids - first, 0), table).masked_fill(~own[:, None], 0)


@triton.jit
def compacted_kernel(m, o, count, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    kept = tl.load(m + at, mask=at < n, other=0).to(tl.int32)
    tl.store(o + tl.cumsum(kept, 0) - 1, at.to(tl.int64), mask=kept != 0)
    tl.store(count, tl.sum(kept, 0))


def compacted(m: Any) -> Any:
    """Where flags are set, and how many: the rest of the places is -1."""
    o = torch.full((m.numel(),), -1, dtype=torch.int64, device=m.device)
    count = torch.empty(1, dtype=torch.int32, device=m.device)
    compacted_kernel[(1,)](m, o, count, m.numel(), BLOCK=triton.next_power_of_2(m.numel()))
    return o, count


def compacted_reference(m: Any) -> Any:
    at = torch.arange(m.numel(), device=m.device)
    first = torch.argsort((~m).to(torch.int8), stable=True)
    count = m.sum().reshape(1)
    return torch.where(at < count, first, -1), count.int()


@triton.jit
def own_counts_kernel(x, parts, n, each, BINS: tl.constexpr, BLOCK: tl.constexpr):
    program, counts = tl.program_id(0), tl.zeros((BINS,), tl.int32)
    for first in range(program * each, tl.minimum(program * each + each, n), BLOCK):
        at = first + tl.arange(0, BLOCK)
        there = at < tl.minimum(program * each + each, n)
        counts += tl.histogram(tl.load(x + at, mask=there, other=0), BINS, mask=there)
    tl.store(parts + program * BINS + tl.arange(0, BINS), counts)


@triton.jit
def sum_counts_kernel(parts, o, PARTS: tl.constexpr, BINS: tl.constexpr):
    i, j = tl.arange(0, PARTS)[:, None], tl.arange(0, BINS)
    tl.store(o + j, tl.sum(tl.load(parts + i * BINS + j[None, :]), 0).to(tl.int64))


def own_counts(x: Any) -> Any:
    """Each program counts for itself, in registers; a second kernel adds these."""
    parts = torch.empty((4, 64), dtype=torch.int32, device=x.device)
    o, n = torch.empty(64, dtype=torch.int64, device=x.device), x.numel()
    own_counts_kernel[(4,)](x, parts, n, triton.cdiv(n, 4), BINS=64, BLOCK=128)
    sum_counts_kernel[(1,)](parts, o, PARTS=4, BINS=64)
    return o


def own_counts_reference(x: Any) -> Any:
    return torch.bincount(x, minlength=64)


@triton.jit
def across_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0).to(tl.int32)
    tl.store(o + row * columns + at, tl.cumsum(v, 0), mask=at < columns)


@triton.jit
def down_kernel(o, rows, columns, BLOCK: tl.constexpr):
    image, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for row in range(rows):
        where = o + (image * rows + row) * columns + at
        total += tl.load(where, mask=at < columns, other=0)
        tl.store(where, total, mask=at < columns)


def integral_image(x: Any) -> Any:
    """Sums above and to the left: along rows, then down columns in place."""
    (images, rows, columns), o = x.shape, torch.empty(x.shape, dtype=torch.int32, device=x.device)
    across_kernel[(images * rows,)](x, o, columns, BLOCK=triton.next_power_of_2(columns))
    down_kernel[(images, triton.cdiv(columns, 16))](o, rows, columns, BLOCK=16)
    return o


def integral_image_reference(x: Any) -> Any:
    return x.int().cumsum(-1, dtype=torch.int32).cumsum(-2, dtype=torch.int32)


@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b)


@triton.jit
def distance_kernel(a, b, o, m, n, BLOCK: tl.constexpr):
    pair, j = tl.program_id(0), tl.arange(0, BLOCK)
    other = tl.load(b + pair * n + j - 1, mask=(j > 0) & (j <= n), other=-1)
    row = j
    for i in range(m):
        off = (other != tl.load(a + pair * m + i)).to(tl.int32)
        before = tl.gather(row, tl.maximum(j - 1, 0), 0)
        best = tl.where(j == 0, i + 1, tl.minimum(row + 1, before + off))
        row = j + tl.associative_scan(best - j, 0, _smaller)
    tl.store(o + pair, tl.sum(tl.where(j == n, row, 0), 0))


def edit_distance(a: Any, b: Any) -> Any:
    """Rows of a table of distances: neighbours by a gather, what runs along a row by a scan."""
    o = torch.empty(a.shape[0], dtype=torch.int32, device=a.device)
    distance_kernel[(a.shape[0],)](a, b, o, a.shape[1], b.shape[1], BLOCK=triton.next_power_of_2(b.shape[1] + 1))
    return o


def edit_distance_reference(a: Any, b: Any) -> Any:
    (pairs, m), n = a.shape, b.shape[1]
    row = torch.arange(n + 1, device=a.device).repeat(pairs, 1)
    for i in range(m):
        off, new = (b != a[:, i : i + 1]).long(), [torch.full_like(row[:, 0], i + 1)]
        for j in range(n):
            new.append(torch.minimum(torch.minimum(row[:, j + 1], new[-1]) + 1, row[:, j] + off[:, j]))
        row = torch.stack(new, 1)
    return row[:, -1].int()


@triton.jit
def nearest_kernel(x, book, o, codes, D: tl.constexpr, CODES: tl.constexpr):
    row, c, d = tl.program_id(0), tl.arange(0, CODES), tl.arange(0, D)
    off = tl.load(x + row * D + d)[None, :] - tl.load(book + c[:, None] * D + d[None, :], mask=c[:, None] < codes)
    far = tl.where(c < codes, tl.sum(off * off, 1), float("inf"))
    tl.store(o + row, tl.argmin(far, 0).to(tl.int64))


def nearest_codes(x: Any, book: Any) -> Any:
    """The index of the nearest row of a codebook; sums in any order decide between two that are as near."""
    o, codes = torch.empty(x.shape[0], dtype=torch.int64, device=x.device), book.shape[0]
    nearest_kernel[(x.shape[0],)](x, book, o, codes, D=x.shape[1], CODES=triton.next_power_of_2(codes))
    return o


def nearest_codes_reference(x: Any, book: Any) -> Any:
    return (x[:, None] - book).square().sum(-1).argmin(-1)


# cells, norms, activations


@triton.jit
def batch_norm_kernel(x, w, b, mean, var, o, images, channels, places, rate, IMAGES: tl.constexpr, P: tl.constexpr):
    c, i, p = tl.program_id(0), tl.arange(0, IMAGES)[:, None], tl.arange(0, P)[None, :]
    at, there, n = (i * channels + c) * places + p, (i < images) & (p < places), images * places
    v = tl.load(x + at, mask=there, other=0.0)
    m = tl.sum(v) / n
    off = tl.where(there, v - m, 0.0)
    square = tl.sum(off * off)
    tl.store(o + at, off * tl.rsqrt(square / n + 1e-5) * tl.load(w + c) + tl.load(b + c), mask=there)
    tl.store(mean + c, tl.load(mean + c) * (1 - rate) + m * rate)
    tl.store(var + c, tl.load(var + c) * (1 - rate) + square / (n - 1) * rate)


def batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, rate: float) -> Any:
    """Of a batch in training, which changes running statistics."""
    o, (images, channels, places) = torch.empty_like(x), x.shape
    sizes = {"IMAGES": triton.next_power_of_2(images), "P": triton.next_power_of_2(places)}
    batch_norm_kernel[(channels,)](x, w, b, mean, var, o, images, channels, places, rate, **sizes)
    return o


def batch_norm_reference(x: Any, w: Any, b: Any, mean: Any, var: Any, rate: float) -> Any:
    return F.batch_norm(x, mean, var, w, b, training=True, momentum=rate)


@triton.jit
def cell_kernel(x, y, h, o, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    there, base = at < width, row * 3 * width + at
    reset = tl.sigmoid(tl.load(x + base, mask=there, other=0.0) + tl.load(y + base, mask=there, other=0.0))
    base += width
    keep = tl.sigmoid(tl.load(x + base, mask=there, other=0.0) + tl.load(y + base, mask=there, other=0.0))
    base += width
    inner = tl.load(x + base, mask=there, other=0.0) + reset * tl.load(y + base, mask=there, other=0.0)
    new, old = libdevice.tanh(inner), tl.load(h + row * width + at, mask=there, other=0.0)
    tl.store(o + row * width + at, new + keep * (old - new), mask=there)


def gated_cell(x: Any, y: Any, h: Any) -> Any:
    """A GRU's step behind its two products."""
    o = torch.empty_like(h)
    cell_kernel[(h.shape[0],)](x, y, h, o, h.shape[1], BLOCK=triton.next_power_of_2(h.shape[1]))
    return o


def gated_cell_reference(x: Any, y: Any, h: Any) -> Any:
    (a, b, c), (d, e, f) = x.chunk(3, -1), y.chunk(3, -1)
    reset, keep = torch.sigmoid(a + d), torch.sigmoid(b + e)
    return (1 - keep) * torch.tanh(c + reset * f) + keep * h


@triton.jit
def mish_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    soft = tl.where(v > 20, v, libdevice.log1p(tl.exp(v)))
    tl.store(o + at, (v * libdevice.tanh(soft)).to(o.dtype.element_ty), mask=at < n)


def mish(x: Any) -> Any:
    o = torch.empty_like(x)
    mish_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


def mish_reference(x: Any) -> Any:
    return F.mish(x)


@triton.jit
def focal_kernel(x, t, o, n, alpha, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v, y = tl.load(x + at, mask=at < n, other=0.0), tl.load(t + at, mask=at < n, other=0).to(tl.float32)
    loss = tl.maximum(v, 0.0) - v * y + libdevice.log1p(tl.exp(-tl.abs(v)))
    p = tl.sigmoid(v)
    miss = 1 - (p * y + (1 - p) * (1 - y))
    tl.store(o + at, (alpha * y + (1 - alpha) * (1 - y)) * miss * miss * loss, mask=at < n)


def focal_loss(x: Any, t: Any, alpha: float) -> Any:
    """torchvision's sigmoid_focal_loss, whose targets are flags."""
    o = torch.empty_like(x)
    focal_kernel[(triton.cdiv(x.numel(), 256),)](x, t, o, x.numel(), alpha, BLOCK=256)
    return o


def focal_loss_reference(x: Any, t: Any, alpha: float) -> Any:
    y, p = t.to(x.dtype), torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    hit = p * y + (1 - p) * (1 - y)
    return (alpha * y + (1 - alpha) * (1 - y)) * (1 - hit) ** 2 * loss


@triton.jit
def wide_sum_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    top = tl.max(v, 0)
    tl.store(o + row, top + tl.log(tl.sum(tl.exp(v - top), 0)))


def wide_logarithms(x: Any) -> Any:
    """In float64."""
    o = x.new_empty(x.shape[0])
    wide_sum_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def wide_logarithms_reference(x: Any) -> Any:
    return torch.logsumexp(x, -1)


@triton.jit
def dilated_kernel(x, w, o, channels, height, width, down, across, BLOCK: tl.constexpr):
    one, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    y, z, total = at // across * 2 - 2, at % across * 2 - 2, tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(9):
        u, v = y + tap // 3 * 2, z + tap % 3 * 2
        inside = (u >= 0) & (u < height) & (v >= 0) & (v < width) & (at < down * across)
        pixel = tl.load(x + (one * height + u) * width + v, mask=inside, other=0.0).to(tl.float32)
        total += pixel * tl.load(w + one % channels * 9 + tap).to(tl.float32)
    tl.store(o + one * down * across + at, total.to(o.dtype.element_ty), mask=at < down * across)


def dilated_channels(x: Any, w: Any) -> Any:
    """Each channel has its own filter, with gaps and steps of two."""
    images, channels, height, width = x.shape
    down, across = (height - 1) // 2 + 1, (width - 1) // 2 + 1
    o = x.new_empty((images, channels, down, across))
    grid = (images * channels, triton.cdiv(down * across, 64))
    dilated_kernel[grid](x, w, o, channels, height, width, down, across, BLOCK=64)
    return o


def dilated_channels_reference(x: Any, w: Any) -> Any:
    return F.conv2d(x, w, stride=2, padding=2, dilation=2, groups=x.shape[1])


# attention, assertions


@triton.jit
def flagged_kernel(q, k, v, m, o, n, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    head, i, d = tl.program_id(0), tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, D)
    base, rows = head * n * D, i[:, None] < n
    x = tl.load(q + base + i[:, None] * D + d[None, :], mask=rows, other=0.0)
    top, total, acc = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        j = first + tl.arange(0, N)
        y = tl.load(k + base + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        seen = tl.load(m + i[:, None] * n + j[None, :], mask=rows & (j[None, :] < n), other=0)
        s = tl.where(seen != 0, tl.dot(x, tl.trans(y)) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        safe = tl.where(new == -float("inf"), 0.0, new)
        p, old = tl.exp(s - safe[:, None]), tl.exp(top - safe)
        z = tl.load(v + base + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        total, acc, top = total * old + tl.sum(p, 1), tl.dot(p.to(z.dtype), z, acc * old[:, None]), new
    tl.store(o + base + i[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=rows)


def flagged_attention(q: Any, k: Any, v: Any, m: Any) -> Any:
    """Which keys a query sees is given as flags, of which a whole block may be false."""
    o, (heads, n, d) = torch.empty_like(q), q.shape
    flagged_kernel[(heads, triton.cdiv(n, 32))](q, k, v, m, o, n, d**-0.5, D=d, M=32, N=16)
    return o


def flagged_attention_reference(q: Any, k: Any, v: Any, m: Any) -> Any:
    s = (q.float() @ k.float().mT) * q.shape[-1] ** -0.5
    return (torch.softmax(s.masked_fill(~m, -torch.inf), -1).to(v.dtype) @ v).to(q.dtype)


@triton.jit(debug=True)
def asserted_kernel(x, idx, o, n, rows, width, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 16)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.assume(width > 0)
    there = at < n * width
    row = tl.load(idx + at // width, mask=there, other=0)
    tl.device_assert((row >= -rows) & (row < rows), "an index is outside of the table")
    row = tl.where(row < 0, row + rows, row)
    tl.store(o + at, tl.load(x + row * width + at % width, mask=there), mask=there)


def asserted_rows(x: Any, idx: Any) -> Any:
    """Rows by places, of which negative ones count from the end; the kernel asserts that they are inside."""
    o = x.new_empty((idx.numel(), x.shape[1]))
    grid = (triton.cdiv(o.numel(), 128),)
    asserted_kernel[grid](x, idx, o, idx.numel(), x.shape[0], x.shape[1], BLOCK=128)
    return o


def asserted_rows_reference(x: Any, idx: Any) -> Any:
    return x[idx]


TENTH_CALLS_HONEST: dict[str, str] = {
    "by_names": "x: bf16[12,100]",
    "noisy": "x: f32[700]; seed: i64[1] < 1000000000; sigma = 0.1",
    "chosen_with_noise": "x: f32[12,100]; u: f32[12,100] uniform(0.001, 0.999); t: f32[12] uniform(0.5, 2)",
    "kept_largest": "x: f32[8,200]; k = 20",
    "from_blocks": "cache: f8e4m3[8,4,2,24]; table: i32[3,3] < 8",
    "sharded_embedding": "ids: i64[50] < 100; table: bf16[40,48]; first = 30",
    "compacted": "m: bool[200]",
    "own_counts": "x: i32[900] < 64",
    "integral_image": "x: u8[2,30,40] in 0..255",
    "edit_distance": "a: i32[12,15] < 4; b: i32[12,20] < 4",
    "nearest_codes": "x: f32[60,16]; book: f32[30,16]",
    "batch_norm": "x: f32[6,5,50]; w: f32[5]; b: f32[5]; mean: f32[5]; var: f32[5] uniform(0.5, 2); rate = 0.1",
    "gated_cell": "x: f32[10,90]; y: f32[10,90]; h: f32[10,30] uniform(-1, 1)",
    "mish": "x: bf16[900]",
    "focal_loss": "x: f32[800]; t: bool[800]; alpha = 0.25",
    "wide_logarithms": "x: f64[12,100]",
    "dilated_channels": "x: f16[2,3,15,18]; w: f16[3,1,3,3]",
    "flagged_attention": "q: bf16[2,50,32]; k: bf16[2,50,32]; v: bf16[2,50,32]; m: bool[50,50]",
    "asserted_rows": "x: f32[30,24]; idx: i64[40] in -30..29",
}
"""By function, whose reference is beside."""
