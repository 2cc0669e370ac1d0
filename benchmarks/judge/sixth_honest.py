"""Honest candidates of a sixth author: descriptors of the host, lazy rescaling, recurrences, solvers, transforms."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

# descriptors


@triton.jit
def host_kernel(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        total = tl.dot(a.load([i, first]), b.load([first, j]), total)
    c.store([i, j], total.to(tl.float16))


def matmul(a: Any, b: Any) -> Any:
    """The host makes the descriptors; tiles reach over the edges."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    made = [TensorDescriptor.from_tensor(t, block) for t, block in ((a, [32, 16]), (b, [16, 32]), (c, [32, 32]))]
    host_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](*made, k, M=32, N=32, K=16)
    return c


@triton.jit
def reducing_kernel(x, o, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(o, [1, columns], [columns, 1], [1, N])
    v = source.load([tl.program_id(0) * M, tl.program_id(1) * N])
    target.atomic_add([0, tl.program_id(1) * N], tl.sum(v, 0)[None, :])


def column_sum(x: Any) -> Any:
    """Adds blocks' sums by a descriptor."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    (rows, columns), o = x.shape, x.new_zeros(x.shape[1])
    reducing_kernel[(triton.cdiv(rows, 16), triton.cdiv(columns, 32))](x, o, rows, columns, M=16, N=32)
    return o


# how it is called


@triton.jit
def softmax_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        o = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(o)
        return o

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (o,) = ctx.saved_tensors
        return o * (g - (o * g).sum(-1, keepdim=True))


softmax = Softmax.apply


# attention


@triton.jit
def lazy_kernel(q, k, v, o, n, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    x = tl.load(q + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        j = first + tl.arange(0, N)
        y = tl.load(k + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        s = tl.where(j[None, :] < n, tl.dot(x, tl.trans(y)) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        new = tl.where(new - top > 8.0, new, top)
        old = tl.exp2(top - new)
        p = tl.exp2(s - new[:, None])
        z = tl.load(v + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        acc = acc * old[:, None] + tl.dot(p.to(tl.float16), z)
        total, top = total * old + tl.sum(p, 1), new
    tl.store(o + i[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=i[:, None] < n)


def attention_of_all(q: Any, k: Any, v: Any) -> Any:
    """Rescales where a maximum grows by a factor of 256, and not before (FlashAttention-4)."""
    o, (n, d) = torch.empty_like(q), q.shape
    lazy_kernel[(triton.cdiv(n, 32),)](q, k, v, o, n, d**-0.5 * 1.4426950408889634, D=d, M=32, N=32)
    return o


# recurrences and solvers


@triton.jit
def substitution_kernel(a, b, o, N: tl.constexpr):
    system, at = tl.program_id(0), tl.arange(0, N)
    rest = tl.load(b + system * N + at)
    found = tl.zeros((N,), tl.float32)
    for i in range(N):
        column = tl.load(a + (system * N + at) * N + i)
        here = at == i
        diagonal = 8 + tl.abs(tl.sum(tl.where(here, column, 0.0), 0))
        value = tl.sum(tl.where(here, rest, 0.0), 0) / diagonal
        found = tl.where(here, value, found)
        rest -= tl.where(at > i, column * value, 0.0)
    tl.store(o + system * N + at, found)


def forward_substitution(a: Any, b: Any) -> Any:
    o = torch.empty_like(b)
    substitution_kernel[(b.shape[0],)](a, b, o, N=b.shape[1])
    return o


@triton.jit
def joined(a, x, b, y):
    return a * b, x * b + y


@triton.jit
def scan_kernel(x, d, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    state = 0.0
    for first in range(0, columns, BLOCK):
        where = row * columns + first + at
        inside = first + at < columns
        v = tl.load(x + where, mask=inside, other=0.0)
        gate = tl.sigmoid(tl.load(d + where, mask=inside, other=0.0))
        decay, found = tl.associative_scan((gate, v), 0, joined)
        found += decay * state
        tl.store(o + where, found, mask=inside)
        state = tl.sum(tl.where(at == BLOCK - 1, found, 0.0), 0)


def selective_scan(x: Any, d: Any) -> Any:
    o = torch.empty_like(x)
    scan_kernel[(x.shape[0],)](x, d, o, x.shape[1], BLOCK=128)
    return o


# for rules that a mend could carry too far


@triton.jit
def parts_kernel(x, parts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


@triton.jit
def parts_sum_kernel(parts, o, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o, tl.sum(tl.load(parts + at, mask=at < count, other=0.0), 0))


PARTS = torch.empty(1024, device="cuda")


def total(x: Any) -> Any:
    """All calls have one workspace, which each writes before it reads."""
    o, blocks = x.new_empty(1), triton.cdiv(x.numel(), 128)
    parts_kernel[(blocks,)](x, PARTS, x.numel(), BLOCK=128)
    parts_sum_kernel[(1,)](PARTS, o, blocks, BLOCK=triton.next_power_of_2(blocks))
    return o


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"], restore_value=["p"])
@triton.jit
def decayed_kernel(p, g, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p + at, 0.5 * tl.load(p + at, mask=at < n) + tl.load(g + at, mask=at < n), mask=at < n)


def decayed_(p: Any, g: Any) -> Any:
    """Tunes a kernel that changes its input, which the tuner restores."""
    decayed_kernel[lambda meta: (triton.cdiv(p.numel(), meta["BLOCK"]),)](p, g, p.numel())
    return p


@triton.jit
def hypotenuse_kernel(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.abs(tl.load(x + at, mask=at < n, other=0.0)), tl.abs(tl.load(y + at, mask=at < n, other=0.0))
    most, least = tl.maximum(a, b), tl.minimum(a, b)
    q = tl.where(most > 0, least / most, 0.0)
    tl.store(o + at, most * tl.sqrt(1 + q * q), mask=at < n)


def hypotenuse(x: Any, y: Any) -> Any:
    o = torch.empty_like(x)
    hypotenuse_kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), BLOCK=256)
    return o


@triton.jit
def even_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, libdevice.rint(tl.load(x + at, mask=at < n)), mask=at < n)


def whole(x: Any) -> Any:
    o = torch.empty_like(x)
    even_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


# transforms


@triton.jit
def hadamard_kernel(x, o, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * N + at)
    for bit in tl.static_range(6):
        pairs = tl.permute(tl.reshape(v, (N >> (bit + 1), 2, 1 << bit)), (0, 2, 1))
        a, b = tl.split(pairs)
        v = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (N,))
    tl.store(o + row * N + at, v)


def hadamard(x: Any) -> Any:
    """Sums and differences in six steps instead of a product."""
    o = torch.empty_like(x)
    hadamard_kernel[(x.shape[0],)](x, o, N=64)
    return o


@triton.jit
def bilinear_kernel(x, o, height, width, BLOCK: tl.constexpr):
    channel, row, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    inside = at < 2 * width
    down = tl.maximum((row + 0.5) * 0.5 - 0.5, 0.0)
    across = tl.maximum((at + 0.5) * 0.5 - 0.5, 0.0)
    y, z = down.to(tl.int32), across.to(tl.int32)
    y1, z1 = tl.minimum(y + 1, height - 1), tl.minimum(z + 1, width - 1)
    p, q = down - y, across - z
    from_ = x + channel * height * width
    top = tl.load(from_ + y * width + z, mask=inside) * (1 - q) + tl.load(from_ + y * width + z1, mask=inside) * q
    low = tl.load(from_ + y1 * width + z, mask=inside) * (1 - q) + tl.load(from_ + y1 * width + z1, mask=inside) * q
    tl.store(o + (channel * 2 * height + row) * 2 * width + at, top * (1 - p) + low * p, mask=inside)


def bilinear(x: Any) -> Any:
    images, channels, height, width = x.shape
    o = torch.empty((images, channels, 2 * height, 2 * width), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(2 * width)
    bilinear_kernel[(images * channels, 2 * height)](x, o, height, width, BLOCK=block)
    return o
