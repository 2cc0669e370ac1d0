"""Honest kernels that a stricter emulator might refuse: each for one of its rules that may go too far."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

# programs that are ordered by atomics


@triton.jit
def look_back_kernel(x, o, states, parts, sums, n, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    own, before = tl.sum(v, 0), 0.0
    if tile == 0:
        tl.store(sums, own)
        tl.atomic_xchg(states, 2, sem="release")
    else:
        tl.store(parts + tile, own)
        tl.atomic_xchg(states + tile, 1, sem="release")
        behind = tile - 1
        while behind >= 0:
            state = tl.atomic_add(states + behind, 0, sem="acquire")
            if state == 2:
                before += tl.load(sums + behind)
                behind = -1
            elif state == 1:
                before += tl.load(parts + behind)
                behind -= 1
        tl.store(sums + tile, before + own)
        tl.atomic_xchg(states + tile, 2, sem="release")
    tl.store(o + at, tl.cumsum(v, 0) + before, mask=at < n)


def decoupled_look_back(x: Any) -> Any:
    """Merrill and Garland's scan in one pass: parts of those before until one knows its whole sum."""
    o, tiles = torch.empty_like(x), triton.cdiv(x.numel(), 64)
    states = torch.zeros(tiles, dtype=torch.int32, device=x.device)
    look_back_kernel[(tiles,)](x, o, states, x.new_empty(tiles), x.new_empty(tiles), x.numel(), BLOCK=64)
    return o


@triton.jit
def volatile_kernel(x, o, flags, sums, n, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    v, before = tl.load(x + at, mask=at < n, other=0.0), 0.0
    if tile > 0:
        while tl.load(flags + tile - 1, volatile=True) == 0:
            pass
        tl.debug_barrier()
        before = tl.load(sums + tile - 1, volatile=True)
    tl.store(sums + tile, before + tl.sum(v, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flags + tile, 1)
    tl.store(o + at, tl.cumsum(v, 0) + before, mask=at < n)


def volatile_look_back(x: Any) -> Any:
    """Waits by volatile loads for a flag that an atomic sets."""
    o, tiles = torch.empty_like(x), triton.cdiv(x.numel(), 128)
    flags, sums = torch.zeros(tiles, dtype=torch.int32, device=x.device), x.new_empty(tiles)
    volatile_kernel[(tiles,)](x, o, flags, sums, x.numel(), BLOCK=128)
    return o


@triton.jit
def split_kernel(a, b, c, w, counts, m, n, k, SPLIT: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    tile, part = tl.program_id(0), tl.program_id(1)
    columns_of = tl.cdiv(n, M)
    rows, columns = tile // columns_of * M + tl.arange(0, M), tile % columns_of * M + tl.arange(0, M)
    acc = tl.zeros((M, M), tl.float32)
    for first in range(part * K, k, SPLIT * K):
        inner = first + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0.0)
        y = tl.load(b + inner[:, None] * n + columns[None, :], mask=inner[:, None] < k, other=0.0)
        acc += tl.dot(x, y)
    place = rows[:, None] * n + columns[None, :]
    tl.store(w + part * m * n + place, acc)
    if tl.atomic_add(counts + tile, 1) == SPLIT - 1:
        acc = tl.zeros((M, M), tl.float32)
        for one in range(SPLIT):
            acc += tl.load(w + one * m * n + place)
        tl.store(c + place, acc.to(c.dtype.element_ty))
        tl.atomic_xchg(counts + tile, 0)


def split_k_last(a: Any, b: Any) -> Any:
    """The last program of a tile adds up the parts of all, and sets the counter back."""
    (m, k), n = a.shape, b.shape[1]
    c, w = a.new_empty(m, n), torch.empty(4, m, n, device=a.device)
    tiles = triton.cdiv(m, 32) * triton.cdiv(n, 32)
    counts = torch.zeros(tiles, dtype=torch.int32, device=a.device)
    split_kernel[(tiles, 4)](a, b, c, w, counts, m, n, k, SPLIT=4, M=32, K=32)
    return c


@triton.jit
def locked_kernel(x, o, locks, counts, rows, columns, BLOCK: tl.constexpr):
    part, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    own = tl.zeros((BLOCK,), tl.float32)
    for row in range(part, rows, tl.num_programs(0)):
        own += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    lock = locks + tl.program_id(1)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    count = tl.load(counts + tl.program_id(1))
    if count == 0:
        tl.atomic_xchg(counts + tl.program_id(1), 1)
    else:
        own += tl.load(o + at, mask=at < columns, other=0.0)
    tl.store(o + at, own, mask=at < columns)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def column_sum_locked(x: Any) -> Any:
    """A lock around a sum, as in Triton's tutorial of layer norm."""
    rows, columns = x.shape
    o, blocks = x.new_empty(columns), triton.cdiv(columns, 32)
    locks, counts = (torch.zeros(blocks, dtype=torch.int32, device=x.device) for _ in range(2))
    locked_kernel[(7, blocks)](x, o, locks, counts, rows, columns, BLOCK=32)
    return o


@triton.jit
def queue_kernel(x, o, queue, n, BLOCK: tl.constexpr):
    tile = tl.atomic_add(queue, 1)
    while tile * BLOCK < n:
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(o + at, 3 * tl.load(x + at, mask=at < n), mask=at < n)
        tile = tl.atomic_add(queue, 1)


def tripled_from_queue(x: Any) -> Any:
    """Programs take tiles from a counter until none is left."""
    o, queue = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
    queue_kernel[(4,)](x, o, queue, x.numel(), BLOCK=64)
    return o


@triton.jit
def met_kernel(x, o, parts, count, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(parts + tl.program_id(0), tl.sum(v, 0))
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < PARTS:
        pass
    tl.store(o + at, v / tl.sum(tl.load(parts + tl.arange(0, PARTS)), 0), mask=at < n)


def by_total_at_once(x: Any) -> Any:
    """All of a few programs wait for all others, as cooperative launches do."""
    o, count = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
    met_kernel[(8,)](x, o, x.new_empty(8), count, x.numel(), PARTS=8, BLOCK=128)
    return o


# threads of one program


@triton.jit
def softmax_kernel(x, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * columns
    top, total = -float("inf"), 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        now = tl.maximum(top, tl.max(v, 0))
        total, top = total * tl.exp(top - now) + tl.sum(tl.exp(v - now), 0), now
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(x + at, (tl.exp(v - top) / total).to(x.dtype.element_ty), mask=at < columns)


def softmax_in_place(x: Any) -> Any:
    """Each thread stores where it has loaded."""
    softmax_kernel[(x.shape[0],)](x, x.shape[1], BLOCK=128)
    return x


@triton.jit
def rotary_kernel(x, c, s, HALF: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, HALF)
    a, b = tl.load(x + row * 2 * HALF + at), tl.load(x + row * 2 * HALF + HALF + at)
    cosine, sine = tl.load(c + row * HALF + at), tl.load(s + row * HALF + at)
    tl.store(x + row * 2 * HALF + at, a * cosine - b * sine)
    tl.store(x + row * 2 * HALF + HALF + at, b * cosine + a * sine)


def rotary_in_place(x: Any, c: Any, s: Any) -> Any:
    """Two halves, of which each goes back to its threads."""
    rotary_kernel[(x.shape[0],)](x, c, s, HALF=x.shape[1] // 2)
    return x


@triton.jit
def reversing_kernel(x, w, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    tl.store(w + row + at, tl.load(x + row + at))
    tl.debug_barrier()
    tl.store(o + row + at, tl.load(w + row + columns - 1 - at))


def reversed_with_barrier(x: Any) -> Any:
    """Threads exchange numbers through memory, and wait."""
    o, w = torch.empty_like(x), torch.empty_like(x)
    reversing_kernel[(x.shape[0],)](x, w, o, x.shape[1], BLOCK=x.shape[1])
    return o


@triton.jit
def turn_kernel(x, o, m, n, T: tl.constexpr):
    i, j = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T)
    v = tl.load(x + i[:, None] * n + j[None, :], mask=(i[:, None] < m) & (j[None, :] < n))
    tl.store(o + j[:, None] * m + i[None, :], tl.trans(v), mask=(j[:, None] < n) & (i[None, :] < m))


@triton.jit
def sum_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0), 0))


def column_sum_turned(x: Any) -> Any:
    """One launch turns a matrix in a workspace, the next reads what other programs wrote."""
    (m, n), w, o = x.shape, torch.empty_like(x), x.new_empty(x.shape[1])
    turn_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 16))](x, w, m, n, T=16)
    sum_kernel[(n,)](w, o, m, BLOCK=triton.next_power_of_2(m))
    return o


@triton.jit
def overlapping_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.minimum(tl.program_id(0) * BLOCK, n - BLOCK) + tl.arange(0, BLOCK)
    tl.store(o + at, 3 * tl.load(x + at))


def tripled_twice_at_the_end(x: Any) -> Any:
    """The last program begins earlier than it should, and stores again what another does."""
    o = torch.empty_like(x)
    overlapping_kernel[(triton.cdiv(x.numel(), 128),)](x, o, x.numel(), BLOCK=128)
    return o


# promises that are kept, or where it doesn't matter


@triton.jit
def hinted_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tl.assume(k > 0)
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    rows = tl.max_contiguous(tl.multiple_of(i % m, M), M)
    columns = tl.max_contiguous(tl.multiple_of(j % n, N), N)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0.0)
        y = tl.load(b + inner[:, None] * n + columns[None, :], mask=inner[:, None] < k, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc.to(c.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


def matmul_hinted(a: Any, b: Any) -> Any:
    """Hints that hold but where rows begin again, whose results aren't stored: as many kernels have them."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    hinted_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, M=32, N=32, K=32)
    return c


@triton.jit
def tiled_kernel(a, b, c, m, n, k, T: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [T, T])
    right = tl.make_tensor_descriptor(b, [k, n], [n, 1], [T, T])
    to = tl.make_tensor_descriptor(c, [m, n], [n, 1], [T, T])
    i, j = tl.program_id(0) * T, tl.program_id(1) * T
    acc = tl.zeros((T, T), tl.float32)
    for first in range(0, k, T):
        acc = tl.dot(left.load([i, first]), right.load([first, j]), acc)
    to.store([i, j], acc.to(c.dtype.element_ty))


def matmul_described(a: Any, b: Any) -> Any:
    """Descriptors, at the edges of their tensors too."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    tiled_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, T=32)
    return c


# reductions in any order


@triton.jit
def _joined(top_a, sum_a, top_b, sum_b):
    top = tl.maximum(top_a, top_b)
    return top, sum_a * tl.exp(top_a - top) + sum_b * tl.exp(top_b - top)


@triton.jit
def pairs_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    v = tl.load(x + row + at, mask=at < columns, other=-1e30)
    top, total = tl.reduce((v, tl.where(at < columns, 1.0, 0.0)), 0, _joined)
    tl.store(o + row + at, tl.exp(v - top) / total, mask=at < columns)


def softmax_by_pairs(x: Any) -> Any:
    """Maximum and sum in one reduction."""
    o = torch.empty_like(x)
    pairs_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def _first_best(value_a, index_a, value_b, index_b):
    takes_a = (value_a > value_b) | ((value_a == value_b) & (index_a < index_b))
    return tl.where(takes_a, value_a, value_b), tl.where(takes_a, index_a, index_b)


@triton.jit
def best_kernel(x, o, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    _, index = tl.reduce((v, at), 0, _first_best)
    tl.store(o + tl.program_id(0), index.to(tl.int64))


def argmax_by_pairs(x: Any) -> Any:
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    best_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def any_order_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.reshape(tl.load(x + at, mask=at < n, other=0.0), [16, BLOCK // 16], can_reorder=True)
    both = tl.cat(tl.sum(v * v, 0), tl.zeros((BLOCK // 16,), tl.float32), can_reorder=True)
    tl.atomic_add(o, tl.sum(both, 0), sem="relaxed")


def squares_in_any_order(x: Any) -> Any:
    """Allows any order of what is added up."""
    o = torch.zeros(1, dtype=x.dtype, device=x.device)
    any_order_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


# approximations that are good enough


@triton.jit
def fast_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(o + at, libdevice.fast_dividef(1.0, 1.0 + libdevice.fast_expf(-v)).to(o.dtype.element_ty), mask=at < n)


def fast_sigmoid(x: Any) -> Any:
    """Functions of the hardware, whose errors are far below the result's rounding."""
    o = torch.empty_like(x)
    fast_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o
