"""Honest candidates of a tenth author, further kinds: scans, counts, images, steps, gradients, iterations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

# rows and order


@triton.jit
def known_mean_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=float("nan"))
    known = v == v
    tl.store(o + row, tl.sum(tl.where(known, v, 0.0), 0) / tl.sum(known.to(tl.int32), 0))


def known_mean(x: Any) -> Any:
    """NaN is a missing number: of others the mean."""
    o = x.new_empty(x.shape[0])
    known_mean_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def known_mean_reference(x: Any) -> Any:
    return torch.nanmean(x, -1)


@triton.jit
def _later_largest(value_a, index_a, value_b, index_b):
    second = (value_b != value_b) | ((value_a == value_a) & (value_b >= value_a))
    return tl.where(second, value_b, value_a), tl.where(second, index_b, index_a)


@triton.jit
def running_largest_kernel(x, o, places, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    v, index = tl.associative_scan((v, at), 0, _later_largest)
    tl.store(o + row * columns + at, v, mask=at < columns)
    tl.store(places + row * columns + at, index.to(tl.int64), mask=at < columns)


def running_largest(x: Any) -> Any:
    """torch.cummax with its places: NaN stays, and of equal numbers the last counts."""
    o, places = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int64, device=x.device)
    running_largest_kernel[(x.shape[0],)](x, o, places, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o, places


def running_largest_reference(x: Any) -> Any:
    return torch.cummax(x, -1)


@triton.jit
def sums_to_come_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(o + row * columns + at, tl.flip(tl.cumsum(tl.flip(v, 0), 0), 0), mask=at < columns)


def sums_to_come(x: Any) -> Any:
    o = torch.empty_like(x)
    sums_to_come_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def sums_to_come_reference(x: Any) -> Any:
    return x.flip(-1).cumsum(-1).flip(-1)


@triton.jit
def ends_kernel(lengths, ends, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(ends + at, tl.cumsum(tl.load(lengths + at, mask=at < n, other=0), 0), mask=at < n)


@triton.jit
def owner_kernel(ends, o, n, places, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low, high = tl.zeros((BLOCK,), tl.int32), tl.full((BLOCK,), n, tl.int32)
    while tl.max(high - low, 0) > 0:
        middle = (low + high) // 2
        right = (low < high) & (tl.load(ends + middle, mask=low < high, other=0) <= at)
        high = tl.where((low < high) & (right == 0), middle, high)
        low = tl.where(right, middle + 1, low)
    tl.store(o + at, low, mask=at < places)


def segments_of_places(lengths: Any) -> Any:
    """Running sums of lengths, then a search in them by halves until all have found theirs."""
    n = lengths.numel()
    ends, o = torch.empty_like(lengths), torch.empty(300, dtype=torch.int32, device=lengths.device)
    ends_kernel[(1,)](lengths, ends, n, BLOCK=triton.next_power_of_2(n))
    owner_kernel[(triton.cdiv(300, 64),)](ends, o, n, 300, BLOCK=64)
    return o


def segments_of_places_reference(lengths: Any) -> Any:
    at = torch.arange(300, device=lengths.device)
    return torch.searchsorted(lengths.cumsum(0), at, right=True).int()


# whole numbers, counts, bits


@triton.jit
def equalized_kernel(x, o, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0).to(tl.int32)
    counts = tl.histogram(v, 256, mask=at < n)
    below = tl.cumsum(counts, 0)
    least = tl.min(tl.where(counts > 0, below, n), 0)
    table = (below - least) * 255 // tl.maximum(n - least, 1)
    tl.store(o + row * n + at, tl.gather(table, v, 0).to(tl.uint8), mask=at < n)


def equalized(x: Any) -> Any:
    """An image's grey levels spread by their counts: a histogram, and a table that is made and read in registers."""
    o = torch.empty_like(x)
    equalized_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def equalized_reference(x: Any) -> Any:
    n = x.shape[1]
    counts = torch.zeros((len(x), 256), dtype=torch.int64, device=x.device)
    counts.scatter_add_(1, x.long(), torch.ones_like(x, dtype=torch.int64))
    below = counts.cumsum(1)
    least = torch.where(counts > 0, below, n).amin(1, keepdim=True)
    table = torch.clamp((below - least) * 255, min=0) // (n - least).clamp(min=1)
    return table.gather(1, x.long()).to(torch.uint8)


@triton.jit
def hashed_kernel(keys, o, n, buckets, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < n, other=0).to(tl.uint64)
    for row in tl.static_range(ROWS):
        z = key + (row + 1) * 0x1E3779B97F4A7C15
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB
        z ^= z >> 31
        low = (z & 0xFFFFFFFF).to(tl.uint32)
        tl.store(o + at * ROWS + row, tl.umulhi(low, buckets.to(tl.uint32)).to(tl.int32), mask=at < n)


def hashed(keys: Any, buckets: int) -> Any:
    """A sketch's places: products that wrap, of numbers without a sign, and the high half of one."""
    o = torch.empty((keys.numel(), 3), dtype=torch.int32, device=keys.device)
    hashed_kernel[(triton.cdiv(keys.numel(), 128),)](keys, o, keys.numel(), buckets, ROWS=3, BLOCK=128)
    return o


def _signed(x: int) -> int:
    return (x + 2**63) % 2**64 - 2**63


def hashed_reference(keys: Any, buckets: int) -> Any:
    found = []
    for row in range(3):
        z = keys + _signed((row + 1) * 0x1E3779B97F4A7C15)
        z = (z ^ ((z >> 30) & (2**34 - 1))) * _signed(0xBF58476D1CE4E5B9)
        z = (z ^ ((z >> 27) & (2**37 - 1))) * _signed(0x94D049BB133111EB)
        z = z ^ ((z >> 31) & (2**33 - 1))
        found.append(((z & 0xFFFFFFFF) * buckets) >> 32)
    return torch.stack(found, 1).int()


@triton.jit
def bits_kernel(members, bits, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    m = tl.load(members + at, mask=at < n, other=0)
    tl.atomic_or(bits + m // 32, 1 << (m % 32), mask=at < n)


@triton.jit
def member_kernel(ids, bits, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = tl.load(ids + at, mask=at < n, other=0)
    tl.store(o + at, (tl.load(bits + m // 32, mask=at < n, other=0) >> (m % 32)) & 1 != 0, mask=at < n)


def among(ids: Any, members: Any) -> Any:
    """A set as bits, which atomics make."""
    bits, o = torch.zeros(32, dtype=torch.int32, device=ids.device), torch.empty_like(ids, dtype=torch.bool)
    bits_kernel[(1,)](members, bits, members.numel(), BLOCK=triton.next_power_of_2(members.numel()))
    member_kernel[(triton.cdiv(ids.numel(), 128),)](ids, bits, o, ids.numel(), BLOCK=128)
    return o


def among_reference(ids: Any, members: Any) -> Any:
    return torch.isin(ids, members)


@triton.jit
def largest_of_each_kernel(x, idx, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(o + tl.load(idx + at, mask=at < n, other=0), tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def largest_of_each(x: Any, idx: Any) -> Any:
    """Atomic maxima of floats of any sign, from minus infinity on."""
    o = torch.full((64,), -float("inf"), device=x.device)
    largest_of_each_kernel[(triton.cdiv(x.numel(), 256),)](x, idx, o, x.numel(), BLOCK=256)
    return o


def largest_of_each_reference(x: Any, idx: Any) -> Any:
    return torch.full((64,), -torch.inf, device=x.device).scatter_reduce(0, idx, x, "amax")


@triton.jit
def life_kernel(x, o, height, width, BLOCK: tl.constexpr):
    image, row, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    near, own = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32)
    for tap in tl.static_range(9):
        y, z = (row + tap // 3 - 1 + height) % height, (at + tap % 3 - 1 + width) % width
        v = tl.load(x + (image * height + y) * width + z, mask=at < width, other=0).to(tl.int32)
        if tap == 4:
            own = v
        else:
            near += v
    tl.store(o + (image * height + row) * width + at, (near == 3) | ((near == 2) & (own == 1)), mask=at < width)


def life(x: Any) -> Any:
    """Flags by their neighbours, around the borders."""
    o, (images, height, width) = torch.empty_like(x), x.shape
    life_kernel[(images, height)](x, o, height, width, BLOCK=triton.next_power_of_2(width))
    return o


def life_reference(x: Any) -> Any:
    moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    near = sum(torch.roll(x.int(), move, (1, 2)) for move in moves)
    return (near == 3) | ((near == 2) & x)


# images


@triton.jit
def pool_kernel(x, o, places, height, width, down, across, BLOCK: tl.constexpr):
    channel, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    top, left = at // across * 2 - 1, at % across * 2 - 1
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    place = tl.maximum(top, 0) * width + tl.maximum(left, 0)
    for tap in range(9):
        y, z = top + tap // 3, left + tap % 3
        inside = (y >= 0) & (y < height) & (z >= 0) & (z < width) & (at < down * across)
        v = tl.load(x + (channel * height + y) * width + z, mask=inside, other=-float("inf"))
        better = inside & ((v > best) | (v != v))
        best, place = tl.where(better, v, best), tl.where(better, y * width + z, place)
    tl.store(o + channel * down * across + at, best, mask=at < down * across)
    tl.store(places + channel * down * across + at, place.to(tl.int64), mask=at < down * across)


def pooled_with_places(x: Any) -> Any:
    (channels, height, width), (down, across) = x.shape, ((n + 1) // 2 for n in x.shape[1:])
    o, places = (torch.empty((channels, down, across), dtype=t, device=x.device) for t in (x.dtype, torch.int64))
    grid = (channels, triton.cdiv(down * across, 64))
    pool_kernel[grid](x, o, places, height, width, down, across, BLOCK=64)
    return o, places


def pooled_with_places_reference(x: Any) -> Any:
    return F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)


@triton.jit
def instance_kernel(x, w, b, o, channels, n, BLOCK: tl.constexpr):
    one, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + one * n + at, mask=at < n, other=0.0).to(tl.float32)
    off = tl.where(at < n, v - tl.sum(v, 0) / n, 0.0)
    r = off * tl.rsqrt(tl.sum(off * off, 0) / n + 1e-5)
    r = r * tl.load(w + one % channels).to(tl.float32) + tl.load(b + one % channels).to(tl.float32)
    tl.store(o + one * n + at, r.to(o.dtype.element_ty), mask=at < n)


def instance_norm(x: Any, w: Any, b: Any) -> Any:
    o, n = torch.empty_like(x), x.shape[2] * x.shape[3]
    block = triton.next_power_of_2(n)
    instance_kernel[(x.shape[0] * x.shape[1],)](x, w, b, o, x.shape[1], n, BLOCK=block)
    return o


def instance_norm_reference(x: Any, w: Any, b: Any) -> Any:
    return F.instance_norm(x, weight=w, bias=b)


@triton.jit
def transposed_kernel(x, w, o, channels, outs, n, long, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    image, out = tl.program_id(0) // outs, tl.program_id(0) % outs
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        for tap in tl.static_range(TAPS):
            twice = at + 1 - tap
            inside = (twice >= 0) & (twice % 2 == 0) & (twice // 2 < n)
            v = tl.load(x + (image * channels + channel) * n + twice // 2, mask=inside, other=0.0)
            total += v * tl.load(w + (channel * outs + out) * TAPS + tap)
    tl.store(o + (image * outs + out) * long + at, total, mask=at < long)


def transposed_convolution(x: Any, w: Any) -> Any:
    """Each result gathers what is spread to it: every second tap has a number."""
    (images, channels, n), (_, outs, taps) = x.shape, w.shape
    long = (n - 1) * 2 - 2 + taps
    o = x.new_empty((images, outs, long))
    grid = (images * outs, triton.cdiv(long, 32))
    transposed_kernel[grid](x, w, o, channels, outs, n, long, TAPS=taps, BLOCK=32)
    return o


def transposed_convolution_reference(x: Any, w: Any) -> Any:
    return F.conv_transpose1d(x, w, stride=2, padding=1)


@triton.jit
def volume_kernel(x, w, b, o, channels, outs, deep, height, width, BLOCK: tl.constexpr):
    image, out = tl.program_id(0) // outs, tl.program_id(0) % outs
    at, n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), deep * height * width
    t, y, z = at // (height * width), at // width % height, at % width
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        for tap in range(27):
            u, v, s = t + tap // 9 - 1, y + tap // 3 % 3 - 1, z + tap % 3 - 1
            inside = (u >= 0) & (u < deep) & (v >= 0) & (v < height) & (s >= 0) & (s < width) & (at < n)
            where = ((image * channels + channel) * deep + u) * height * width + v * width + s
            total += tl.load(x + where, mask=inside, other=0.0) * tl.load(w + (out * channels + channel) * 27 + tap)
    tl.store(o + (image * outs + out) * n + at, total + tl.load(b + out), mask=at < n)


def volumes(x: Any, w: Any, b: Any) -> Any:
    images, channels, deep, height, width = x.shape
    o = x.new_empty((images, w.shape[0], deep, height, width))
    grid = (images * w.shape[0], triton.cdiv(deep * height * width, 128))
    volume_kernel[grid](x, w, b, o, channels, w.shape[0], deep, height, width, BLOCK=128)
    return o


def volumes_reference(x: Any, w: Any, b: Any) -> Any:
    return F.conv3d(x, w, b, padding=1)


@triton.jit
def windows_kernel(x, o, height, width, shift, WINDOW: tl.constexpr, C: tl.constexpr):
    place, c = tl.program_id(0), tl.arange(0, C)
    within, which = place % (WINDOW * WINDOW), place // (WINDOW * WINDOW)
    across, each = width // WINDOW, (height // WINDOW) * (width // WINDOW)
    y = which % each // across * WINDOW + within // WINDOW
    z = which % across * WINDOW + within % WINDOW
    at = (which // each * height + (y + shift) % height) * width + (z + shift) % width
    tl.store(o + place * C + c, tl.load(x + at * C + c))


def shifted_windows(x: Any, shift: int) -> Any:
    """An image, moved around its borders, in windows (Swin)."""
    images, height, width, c = x.shape
    o = x.new_empty((images * height * width // 16, 16, c))
    windows_kernel[(images * height * width,)](x, o, height, width, shift, WINDOW=4, C=c)
    return o


def shifted_windows_reference(x: Any, shift: int) -> Any:
    images, height, width, c = x.shape
    x = torch.roll(x, (-shift, -shift), (1, 2)).view(images, height // 4, 4, width // 4, 4, c)
    return x.transpose(2, 3).reshape(-1, 16, c)


# products


@triton.jit
def described_kernel(a, b, bias, c, m, n, k, slope, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    right = tl.make_tensor_descriptor(b, [k, n], [n, 1], [K, N])
    to = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N // 2])
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for first in tl.range(0, k, K, num_stages=3):
        total = tl.dot(left.load([i, first]), right.load([first, j]), total)
    at = j + tl.arange(0, N)
    total += tl.load(bias + at, mask=at < n, other=0.0).to(tl.float32)[None, :]
    total = tl.where(total > 0, total, slope * total)
    one, other = tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))
    to.store([i, j], one.to(c.dtype.element_ty))
    to.store([i, j + N // 2], other.to(c.dtype.element_ty))


def described_in_halves(a: Any, b: Any, bias: Any, slope: float) -> Any:
    """Descriptors, and results that are stored in halves, with an activation behind the product (Triton's tutorial)."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    described_kernel[grid](a, b, bias, c, m, n, k, slope, M=32, N=32, K=32)
    return c


def described_in_halves_reference(a: Any, b: Any, bias: Any, slope: float) -> Any:
    return F.leaky_relu(a.float() @ b.float() + bias.float(), slope).to(a.dtype)


@triton.jit
def fourier_kernel(x, o, N: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    angle = (i * j % N).to(tl.float32) * (6.283185307179586 / N)
    c, s = tl.cos(angle), tl.sin(angle)
    real, other = tl.load(x + (row * N + j) * 2), tl.load(x + (row * N + j) * 2 + 1)
    up = tl.dot(real, c, input_precision="ieee") + tl.dot(other, s, input_precision="ieee")
    down = tl.dot(other, c, input_precision="ieee") - tl.dot(real, s, input_precision="ieee")
    tl.store(o + (row * N + j) * 2, up)
    tl.store(o + (row * N + j) * 2 + 1, down)


def fourier(x: Any) -> Any:
    """A transform of complex numbers as pairs, by products with cosines and sines that the kernel makes."""
    o = torch.empty_like(x)
    fourier_kernel[(x.shape[0] // 16,)](x, o, N=x.shape[1], ROWS=16)
    return o


def fourier_reference(x: Any) -> Any:
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))


@triton.jit
def squares_kernel(x, part, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.bfloat16).to(tl.float32)
    tl.store(part + tl.program_id(0), tl.sum(v * v, 0))


@triton.jit
def by_norm_kernel(x, part, o, n, parts, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at, i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PARTS)
    norm = tl.sqrt(tl.sum(tl.load(part + i, mask=i < parts, other=0.0), 0))
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.bfloat16).to(tl.float32)
    tl.store(o + at, (v / (norm + 1e-7)).to(tl.bfloat16), mask=at < n)


@triton.jit
def own_product_kernel(x, o, k, M: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * M + tl.arange(0, M)
    total = tl.zeros((M, M), tl.float32)
    for first in range(0, k, K):
        r = first + tl.arange(0, K)
        total = tl.dot(tl.load(x + i[:, None] * k + r[None, :]), tl.load(x + j[None, :] * k + r[:, None]), total)
    tl.store(o + i[:, None] * M * tl.num_programs(1) + j[None, :], total.to(tl.bfloat16))


@triton.jit
def and_product_kernel(a, b, add, o, n, k, alpha, beta, M: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * M + tl.arange(0, M)
    total = tl.zeros((M, M), tl.float32)
    for first in range(0, k, K):
        r = first + tl.arange(0, K)
        total = tl.dot(tl.load(a + i[:, None] * k + r[None, :]), tl.load(b + r[:, None] * n + j[None, :]), total)
    at = i[:, None] * n + j[None, :]
    tl.store(o + at, (alpha * total + beta * tl.load(add + at).to(tl.float32)).to(tl.bfloat16))


def orthogonalized(g: Any) -> Any:
    """Muon's five steps in bfloat16: sixteen launches that hand on workspaces."""
    (m, n), size = g.shape, g.numel()
    parts = triton.cdiv(size, 512)
    part = torch.empty(parts, dtype=torch.float32, device=g.device)
    x, y = (torch.empty((m, n), dtype=torch.bfloat16, device=g.device) for _ in range(2))
    a, b = (torch.empty((m, m), dtype=torch.bfloat16, device=g.device) for _ in range(2))
    squares_kernel[(parts,)](g, part, size, BLOCK=512)
    by_norm_kernel[(parts,)](g, part, x, size, parts, PARTS=triton.next_power_of_2(parts), BLOCK=512)
    for _ in range(5):
        own_product_kernel[(m // 16, m // 16)](x, a, n, M=16, K=32)
        and_product_kernel[(m // 16, m // 16)](a, a, a, b, m, m, 2.0315, -4.7750, M=16, K=16)
        and_product_kernel[(m // 16, n // 16)](b, x, x, y, n, m, 1.0, 3.4445, M=16, K=16)
        x, y = y, x
    return x


def orthogonalized_reference(g: Any) -> Any:
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


# steps and gradients


@triton.jit
def gate_gradients_kernel(up, e, g, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    u, x = tl.load(up + at, mask=at < n, other=0.0), tl.load(e + at, mask=at < n, other=0.0).to(tl.float32)
    y, s = tl.load(g + at, mask=at < n, other=0.0), tl.sigmoid(x)
    f = (x * s).to(y.dtype)
    back = (u * y).to(tl.float32) * s * (1.0 + x * (1.0 - s))
    tl.store(up + at, f * y, mask=at < n)
    tl.store(e + at, u * f, mask=at < n)
    tl.store(g + at, back.to(y.dtype), mask=at < n)


def gate_gradients_(up: Any, e: Any, g: Any) -> None:
    """Three inputs become three results in their places (unsloth)."""
    gate_gradients_kernel[(triton.cdiv(up.numel(), 256),)](up, e, g, up.numel(), BLOCK=256)


def gate_gradients__reference(up: Any, e: Any, g: Any) -> None:
    x, f = e.float(), F.silu(e)
    s = torch.sigmoid(x)
    back = ((up * g).float() * s * (1 + x * (1 - s))).to(g.dtype)
    h, df = f * g, up * f
    up.copy_(h), e.copy_(df), g.copy_(back)


@triton.jit
def scaled_rows_kernel(up, v, m, dv, dm, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    u = tl.load(up + row * columns + at, mask=at < columns, other=0.0)
    x = tl.load(v + row * columns + at, mask=at < columns, other=0.0)
    inverse, size = tl.rsqrt(tl.sum(x * x, 0) + 1e-6), tl.load(m + row)
    along = tl.sum(u * x, 0) * inverse
    tl.store(dm + row, along)
    tl.store(dv + row * columns + at, size * inverse * (u - x * (along * inverse)), mask=at < columns)


def weight_norm_gradients(up: Any, v: Any, m: Any) -> Any:
    dv, dm = torch.empty_like(v), torch.empty_like(m)
    block = triton.next_power_of_2(v.shape[1])
    scaled_rows_kernel[(v.shape[0],)](up, v, m, dv, dm, v.shape[1], BLOCK=block)
    return dv, dm


def weight_norm_gradients_reference(up: Any, v: Any, m: Any) -> Any:
    v, m = v.detach().requires_grad_(), m.detach().requires_grad_()
    w = m[:, None] * v * torch.rsqrt(v.square().sum(-1, keepdim=True) + 1e-6)
    return torch.autograd.grad(w, (v, m), up)


@triton.jit
def modulated_kernel(x, shift, scale, o, tokens, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    there, image = at < columns, row // tokens
    v = tl.load(x + row * columns + at, mask=there, other=0.0).to(tl.float32)
    off = tl.where(there, v - tl.sum(v, 0) / columns, 0.0)
    r = off * tl.rsqrt(tl.sum(off * off, 0) / columns + 1e-6)
    r *= 1 + tl.load(scale + image * columns + at, mask=there, other=0.0).to(tl.float32)
    r += tl.load(shift + image * columns + at, mask=there, other=0.0).to(tl.float32)
    tl.store(o + row * columns + at, r.to(o.dtype.element_ty), mask=there)


def modulated_norm(x: Any, shift: Any, scale: Any) -> Any:
    """A norm without weights, and an image's own scale and shift (DiT)."""
    o, (images, tokens, columns) = torch.empty_like(x), x.shape
    block = triton.next_power_of_2(columns)
    modulated_kernel[(images * tokens,)](x, shift, scale, o, tokens, columns, BLOCK=block)
    return o


def modulated_norm_reference(x: Any, shift: Any, scale: Any) -> Any:
    y = F.layer_norm(x.float(), x.shape[-1:], eps=1e-6)
    return (y * (1 + scale.float()[:, None]) + shift.float()[:, None]).to(x.dtype)


@triton.jit
def means_of_squares_kernel(g, row, column, rows, columns, beta, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at, there = i[:, None] * columns + j[None, :], (i[:, None] < rows) & (j[None, :] < columns)
    v = tl.load(g + at, mask=there, other=0.0)
    square = tl.where(there, v * v + 1e-30, 0.0)
    r, c = tl.load(row + i, mask=i < rows, other=0.0), tl.load(column + j, mask=j < columns, other=0.0)
    tl.store(row + i, r + (1 - beta) * (tl.sum(square, 1) / columns - r), mask=i < rows)
    tl.store(column + j, c + (1 - beta) * (tl.sum(square, 0) / rows - c), mask=j < columns)


@triton.jit
def factored_kernel(p, g, row, column, rows, columns, lr, M: tl.constexpr, N: tl.constexpr):
    one, i, j = tl.program_id(0), tl.arange(0, M), tl.arange(0, N)
    mean = tl.sum(tl.load(row + i, mask=i < rows, other=0.0), 0) / rows
    scale = tl.sqrt(tl.load(row + one) / mean) * tl.sqrt(tl.load(column + j, mask=j < columns, other=1.0))
    at = one * columns + j
    step = tl.load(g + at, mask=j < columns, other=0.0) / scale
    tl.store(p + at, tl.load(p + at, mask=j < columns, other=0.0) - lr * step, mask=j < columns)


def factored_step_(p: Any, g: Any, row: Any, column: Any, lr: float, beta: float) -> None:
    """Adafactor: second moments by row and by column."""
    rows, columns = p.shape
    sizes = {"M": triton.next_power_of_2(rows), "N": triton.next_power_of_2(columns)}
    means_of_squares_kernel[(1,)](g, row, column, rows, columns, beta, **sizes)
    factored_kernel[(rows,)](p, g, row, column, rows, columns, lr, **sizes)


def factored_step__reference(p: Any, g: Any, row: Any, column: Any, lr: float, beta: float) -> None:
    square = g.square() + 1e-30
    row.lerp_(square.mean(-1), 1 - beta)
    column.lerp_(square.mean(0), 1 - beta)
    p.sub_(lr * g / ((row / row.mean()).sqrt()[:, None] * column.sqrt()))


@triton.jit
def softened_loss_kernel(x, t, loss, z, columns, cap, smoothing, weight, BLOCK: tl.constexpr):
    row, top, total, all_of = tl.program_id(0), -float("inf"), 0.0, 0.0
    target = tl.load(t + row)
    if target == -1:
        tl.store(loss + row, 0.0)
        tl.store(z + row, 0.0)
        return
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        v = cap * libdevice.tanh(v / cap)
        all_of += tl.sum(tl.where(at < columns, v, 0.0), 0)
        v = tl.where(at < columns, v, -float("inf"))
        new = tl.maximum(top, tl.max(v, 0))
        total, top = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0), new
    log_sum = top + tl.log(total)
    own = cap * libdevice.tanh(tl.load(x + row * columns + target) / cap)
    one = (1 - smoothing) * (log_sum - own) + smoothing * (log_sum - all_of / columns)
    tl.store(loss + row, one + weight * log_sum * log_sum)
    tl.store(z + row, weight * log_sum * log_sum)


def softened_loss(x: Any, t: Any, cap: float, smoothing: float, weight: float) -> Any:
    """A cross entropy of capped numbers, with smoothed labels, ignored rows and a z-loss (Liger-Kernel)."""
    loss, z = x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    softened_loss_kernel[(x.shape[0],)](x, t, loss, z, x.shape[1], cap, smoothing, weight, BLOCK=64)
    return loss, z


def softened_loss_reference(x: Any, t: Any, cap: float, smoothing: float, weight: float) -> Any:
    x = cap * torch.tanh(x / cap)
    z = torch.where(t == -1, 0.0, weight * torch.logsumexp(x, -1).square())
    return F.cross_entropy(x, t, ignore_index=-1, label_smoothing=smoothing, reduction="none") + z, z


# iterations


@triton.jit
def entmax_kernel(x, o, columns, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    v = (v - tl.max(v, 0)) * 0.5
    low, width = -1.0, 1.0
    for _ in range(STEPS):
        width *= 0.5
        p = tl.maximum(v - low - width, 0.0)
        low = tl.where(tl.sum(p * p, 0) >= 1, low + width, low)
    p = tl.maximum(v - low, 0.0)
    p *= p
    tl.store(o + row * columns + at, p / tl.sum(p, 0), mask=at < columns)


def entmax(x: Any) -> Any:
    """The threshold is found by halves, where the reference sorts."""
    o = torch.empty_like(x)
    entmax_kernel[(x.shape[0],)](x, o, x.shape[1], STEPS=30, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def entmax_reference(x: Any) -> Any:
    x = (x - x.amax(-1, keepdim=True)) / 2
    down = x.sort(-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, device=x.device)
    mean, square = down.cumsum(-1) / count, down.square().cumsum(-1) / count
    bound = mean - ((1 - count * (square - mean.square())) / count).clamp(min=0).sqrt()
    size = (bound <= down).sum(-1, keepdim=True)
    return (x - bound.gather(-1, size - 1)).clamp(min=0).square()


@triton.jit
def balanced_kernel(x, o, n, STEPS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    one = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None, None]
    i, j = tl.arange(0, N)[None, :, None], tl.arange(0, N)[None, None, :]
    at = (one * N + i) * N + j
    v = tl.load(x + at, mask=one < n, other=0.0)
    v = tl.exp(v - tl.max(v, 2, keep_dims=True))
    for _ in range(STEPS):
        v = v / (tl.sum(v, 2, keep_dims=True) + 1e-6)
        v = v / (tl.sum(v, 1, keep_dims=True) + 1e-6)
    tl.store(o + at, v, mask=one < n)


def balanced(x: Any) -> Any:
    """Small matrices whose rows and columns are made to sum to one, in turns (Sinkhorn)."""
    o = torch.empty_like(x)
    balanced_kernel[(triton.cdiv(x.shape[0], 16),)](x, o, x.shape[0], STEPS=8, N=4, BLOCK=16)
    return o


def balanced_reference(x: Any) -> Any:
    v = torch.exp(x - x.amax(-1, keepdim=True))
    for _ in range(8):
        v = v / (v.sum(-1, keepdim=True) + 1e-6)
        v = v / (v.sum(-2, keepdim=True) + 1e-6)
    return v


@triton.jit
def chain_kernel(e, moves, o, length, N: tl.constexpr):
    one, i, j = tl.program_id(0), tl.arange(0, N)[:, None], tl.arange(0, N)
    step = tl.load(moves + i * N + j[None, :])
    alpha = tl.load(e + one * length * N + j)
    for t in range(1, length):
        into = tl.expand_dims(alpha, 1) + step
        top = tl.max(into, 0)
        alpha = top + tl.log(tl.sum(tl.exp(into - top[None, :]), 0)) + tl.load(e + (one * length + t) * N + j)
    top = tl.max(alpha, 0)
    tl.store(o + one, top + tl.log(tl.sum(tl.exp(alpha - top), 0)))


def chain_partition(e: Any, moves: Any) -> Any:
    """A linear chain's partition function: logarithms of sums, step after step."""
    o = e.new_empty(e.shape[0])
    chain_kernel[(e.shape[0],)](e, moves, o, e.shape[1], N=e.shape[2])
    return o


def chain_partition_reference(e: Any, moves: Any) -> Any:
    alpha = e[:, 0]
    for t in range(1, e.shape[1]):
        alpha = torch.logsumexp(alpha[:, :, None] + moves, 1) + e[:, t]
    return torch.logsumexp(alpha, 1)


@triton.jit
def heavy_tails_kernel(x, nu, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v, k = tl.load(x + at, mask=at < n, other=0.0), tl.load(nu + at, mask=at < n, other=1.0)
    r = libdevice.lgamma(0.5 * (k + 1)) - libdevice.lgamma(0.5 * k) - 0.5 * tl.log(k * 3.141592653589793)
    tl.store(o + at, r - 0.5 * (k + 1) * libdevice.log1p(v * v / k), mask=at < n)


def heavy_tails(x: Any, nu: Any) -> Any:
    """Student's distribution in logarithms, by functions of libdevice."""
    o = torch.empty_like(x)
    heavy_tails_kernel[(triton.cdiv(x.numel(), 256),)](x, nu, o, x.numel(), BLOCK=256)
    return o


def heavy_tails_reference(x: Any, nu: Any) -> Any:
    half = 0.5 * (nu + 1)
    return torch.lgamma(half) - torch.lgamma(0.5 * nu) - 0.5 * torch.log(nu * torch.pi) - half * torch.log1p(x * x / nu)


@triton.jit
def probabilities_kernel(x, t, loss, columns, scale, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    target = tl.load(t + row)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    v -= tl.max(v, 0)
    log_sum = tl.log(tl.sum(tl.exp(v), 0))
    tl.store(loss + row, log_sum - tl.sum(tl.where(at == target, v, 0.0), 0))
    p = tl.exp(v - log_sum) - tl.where(at == target, 1.0, 0.0)
    tl.store(x + row * columns + at, p * scale, mask=at < columns)


def linear_loss(x: Any, w: Any, t: Any) -> Any:
    """A layer and its loss by parts of the rows: torch multiplies, a kernel makes logits gradients in place."""
    loss, dx, dw = x.new_empty(x.shape[0]), torch.empty_like(x), torch.zeros_like(w)
    for first in range(0, x.shape[0], 8):
        part = x[first : first + 8]
        logits = part @ w.t()
        block = triton.next_power_of_2(w.shape[0])
        probabilities_kernel[(len(part),)](logits, t[first:], loss[first:], w.shape[0], 1.0 / x.shape[0], BLOCK=block)
        dx[first : first + 8] = logits @ w
        dw.addmm_(logits.t(), part)
    return loss.mean(), dx, dw


def linear_loss_reference(x: Any, w: Any, t: Any) -> Any:
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    loss = F.cross_entropy(x @ w.t(), t)
    return loss.detach(), *torch.autograd.grad(loss, (x, w))


TENTH_ROWS_HONEST: dict[str, str] = {
    "known_mean": "x: f32[20,70]",
    "running_largest": "x: f32[8,100]",
    "sums_to_come": "x: f32[8,200]",
    "segments_of_places": "lengths: i32[20] in 0..25",
    "equalized": "x: u8[3,500] in 0..255",
    "hashed": "keys: i64[300] < 1000000000000; buckets = 1009",
    "among": "ids: i32[300] < 1000; members: i32[100] < 1000",
    "largest_of_each": "x: f32[600]; idx: i64[600] < 64",
    "life": "x: bool[2,20,30]",
    "pooled_with_places": "x: f32[3,13,16]",
    "instance_norm": "x: f16[2,3,15,17]; w: f16[3]; b: f16[3]",
    "transposed_convolution": "x: f32[2,6,20]; w: f32[6,5,4]",
    "volumes": "x: f32[1,3,5,6,7]; w: f32[4,3,3,3,3]; b: f32[4]",
    "shifted_windows": "x: f16[2,8,12,16]; shift = 2",
    "described_in_halves": "a: f16[50,72]; b: f16[72,40]; bias: f16[40]; slope = 0.01",
    "fourier": "x: f32[16,32,2]",
    "orthogonalized": "g: f32[32,64]",
    "gate_gradients_": "up: bf16[900]; e: bf16[900]; g: bf16[900]",
    "weight_norm_gradients": "up: f32[24,90]; v: f32[24,90]; m: f32[24]",
    "modulated_norm": "x: bf16[2,10,192]; shift: bf16[2,192]; scale: bf16[2,192]",
    "factored_step_": "p: f32[24,80]; g: f32[24,80]; row: f32[24] uniform(0.1, 1); column: f32[80] uniform(0.1, 1); "
    "lr = 0.01; beta = 0.9",
    "softened_loss": "x: f32[20,150]; t: i64[20] in -1..149; cap = 30.0; smoothing = 0.1; weight = 1e-4",
    "entmax": "x: f32[12,64]",
    "balanced": "x: f32[50,4,4]",
    "chain_partition": "e: f32[12,10,16]; moves: f32[16,16]",
    "heavy_tails": "x: f32[900]; nu: f32[900] uniform(1, 30)",
    "linear_loss": "x: f32[24,32]; w: f32[100,32]; t: i64[24] < 100",
}
"""By function, whose reference is beside."""
