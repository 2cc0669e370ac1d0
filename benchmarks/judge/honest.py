"""Honest candidates in the forms that people write: in place, workspaces, split-K, autotuned, several kernels, seeds,
backward passes."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add_kernel(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(o + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def add(x: Any, y: Any) -> Any:
    o = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), BLOCK=256)
    return o


@triton.jit
def persistent_add_kernel(x, y, o, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    for first in range(tl.program_id(0) * BLOCK, n, PROGRAMS * BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(o + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def persistent_add(x: Any, y: Any) -> Any:
    o = torch.empty_like(x)
    persistent_add_kernel[(3,)](x, y, o, x.numel(), PROGRAMS=3, BLOCK=128)
    return o


tuned_add_kernel = triton.autotune(
    [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 512}, num_warps=8)], key=["n"]
)(add_kernel)


def autotuned_add(x: Any, y: Any) -> Any:
    o = torch.empty_like(x)
    tuned_add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, o, x.numel())
    return o


heuristic_add_kernel = triton.heuristics({"BLOCK": lambda args: 256 if args["n"] > 500 else 64})(add_kernel)


def heuristic_add(x: Any, y: Any) -> Any:
    o = torch.empty_like(x)
    heuristic_add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, o, x.numel())
    return o


@triton.jit
def axpy_kernel(x, y, o, n, a, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(o + at, a * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def axpy(x: Any, y: Any, a: float) -> Any:
    o = torch.empty_like(x)
    axpy_kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), a, BLOCK=256)
    return o


@triton.jit
def relu_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(x + at, tl.maximum(tl.load(x + at, mask=inside), 0.0), mask=inside)


def relu_(x: Any) -> Any:
    relu_kernel[(triton.cdiv(x.numel(), 256),)](x, x.numel(), BLOCK=256)
    return x


@triton.jit
def pointwise_kernel(x, y, o, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside).to(tl.float32)
    b = tl.load(y + at, mask=inside).to(tl.float32)
    if HOW == "gelu":
        r = 0.5 * a * (1 + libdevice.erf(a * 0.7071067811865476))
    elif HOW == "swiglu":
        r = a * tl.sigmoid(a) * b
    elif HOW == "silu_backward":
        s = tl.sigmoid(a)
        r = b * (s + a * s * (1 - s))
    elif HOW == "clamp":
        r = tl.clamp(a, -0.5, 0.5)
    else:
        r = a
    tl.store(o + at, r.to(o.dtype.element_ty), mask=inside)


def _pointwise(x: Any, y: Any, how: str, o: Any = None) -> Any:
    o = torch.empty_like(x) if o is None else o
    pointwise_kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), HOW=how, BLOCK=256)
    return o


def gelu(x: Any) -> Any:
    return _pointwise(x, x, "gelu")


def swiglu(x: Any, y: Any) -> Any:
    return _pointwise(x, y, "swiglu")


def silu_backward(x: Any, g: Any) -> Any:
    return _pointwise(x, g, "silu_backward")


def clamp(x: Any) -> Any:
    return _pointwise(x, x, "clamp")


def to_bfloat16(x: Any) -> Any:
    return _pointwise(x, x, "copy", torch.empty(x.shape, dtype=torch.bfloat16, device=x.device))


@triton.jit
def softmax_kernel(x, o, columns, LOG: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    v = v - tl.max(v, 0)
    total = tl.sum(tl.exp(v), 0)
    r = v - tl.log(total) if LOG else tl.exp(v) / total
    tl.store(o + row * columns + at, r.to(o.dtype.element_ty), mask=at < columns)


def softmax(x: Any) -> Any:
    o = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, o, x.shape[1], LOG=False, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def log_softmax(x: Any) -> Any:
    o = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, o, x.shape[1], LOG=True, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def layer_norm_kernel(x, w, b, o, columns, RMS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    if RMS:
        r = v * tl.rsqrt(tl.sum(v * v, 0) / columns + 1e-5)
        r = r * tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    else:
        d = tl.where(inside, v - tl.sum(v, 0) / columns, 0.0)
        r = d * tl.rsqrt(tl.sum(d * d, 0) / columns + 1e-5)
        r = r * tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
        r = r + tl.load(b + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(o + row * columns + at, r.to(o.dtype.element_ty), mask=inside)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    o = torch.empty_like(x)
    layer_norm_kernel[(x.shape[0],)](x, w, b, o, x.shape[1], RMS=False, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


def rms_norm(x: Any, w: Any) -> Any:
    o = torch.empty_like(x)
    layer_norm_kernel[(x.shape[0],)](x, w, w, o, x.shape[1], RMS=True, BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def layer_norm_backward_kernel(x, w, g, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    d = tl.where(inside, v - tl.sum(v, 0) / columns, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, 0) / columns + 1e-5)
    hat = d * rstd
    wg = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    wg = wg * tl.load(g + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    r = rstd * (wg - tl.sum(wg, 0) / columns - hat * tl.sum(wg * hat, 0) / columns)
    tl.store(o + row * columns + at, r.to(o.dtype.element_ty), mask=inside)


def layer_norm_backward(x: Any, w: Any, g: Any) -> Any:
    o = torch.empty_like(x)
    layer_norm_backward_kernel[(x.shape[0],)](x, w, g, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def softmax_backward_kernel(y, g, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    a = tl.load(y + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    b = tl.load(g + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    r = a * (b - tl.sum(a * b, 0))
    tl.store(o + row * columns + at, r.to(o.dtype.element_ty), mask=at < columns)


def softmax_backward(y: Any, g: Any) -> Any:
    o = torch.empty_like(y)
    softmax_backward_kernel[(y.shape[0],)](y, g, o, y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1]))
    return o


@triton.jit
def matmul_kernel(
    a, b, c, m, n, k, SPLIT: tl.constexpr, HOW: tl.constexpr, PRECISION: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    part = tl.program_id(2)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(part * K, k, SPLIT * K):
        inner = first + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        y = tl.load(
            b + inner[:, None] * n + columns[None, :], mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0
        )
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    at = rows[:, None] * n + columns[None, :]
    if HOW == "atomic":
        tl.atomic_add(c + at, acc, mask=inside)
    elif HOW == "workspace":
        tl.store(c + part * m * n + at, acc, mask=inside)
    else:
        tl.store(c + at, acc.to(c.dtype.element_ty), mask=inside)


def _matmul(a: Any, b: Any, c: Any, split: int = 1, how: str = "store", precision: str = "ieee") -> None:
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32), split)
    matmul_kernel[grid](a, b, c, m, n, k, SPLIT=split, HOW=how, PRECISION=precision, M=32, N=32, K=32)


def matmul(a: Any, b: Any) -> Any:
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    _matmul(a, b, c)
    return c


def split_k_atomic(a: Any, b: Any) -> Any:
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    _matmul(a, b, c, split=2, how="atomic")
    return c


@triton.jit
def sum_parts_kernel(w, o, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    acc = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        acc += tl.load(w + part * n + at, mask=inside, other=0.0)
    tl.store(o + at, acc.to(o.dtype.element_ty), mask=inside)


def split_k_workspace(a: Any, b: Any) -> Any:
    m, n = a.shape[0], b.shape[1]
    work = torch.empty((4, m, n), dtype=torch.float32, device=a.device)
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    _matmul(a, b, work, split=4, how="workspace")
    sum_parts_kernel[(triton.cdiv(m * n, 256),)](work, c, m * n, PARTS=4, BLOCK=256)
    return c


@triton.jit
def batched_matmul_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch = tl.program_id(0)
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + batch * m * k + rows[:, None] * k + inner[None, :])
    y = tl.load(b + batch * k * n + inner[:, None] * n + columns[None, :])
    r = tl.dot(x, y)
    tl.store(c + batch * m * n + rows[:, None] * n + columns[None, :], r.to(c.dtype.element_ty))


def batched_matmul(a: Any, b: Any) -> Any:
    (batch, m, k), n = a.shape, b.shape[2]
    c = torch.empty((batch, m, n), dtype=a.dtype, device=a.device)
    batched_matmul_kernel[(batch,)](a, b, c, m, n, k, M=m, N=n, K=k)
    return c


@triton.jit
def attention_kernel(q, k, v, o, scale, T: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(0)
    rows, width = tl.arange(0, T), tl.arange(0, D)
    base = head * T * D
    x = tl.load(q + base + rows[:, None] * D + width[None, :])
    top = tl.full((T,), -float("inf"), tl.float32)
    total = tl.zeros((T,), tl.float32)
    acc = tl.zeros((T, D), tl.float32)
    for first in range(0, T, BLOCK):
        keys = first + tl.arange(0, BLOCK)
        y = tl.load(k + base + keys[:, None] * D + width[None, :])
        s = tl.dot(x, tl.trans(y)) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(p, 1)
        z = tl.load(v + base + keys[:, None] * D + width[None, :])
        acc = acc * shrink[:, None] + tl.dot(p.to(z.dtype), z)
        top = new
    tl.store(o + base + rows[:, None] * D + width[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


def attention(q: Any, k: Any, v: Any) -> Any:
    heads, t, d = q.shape
    o = torch.empty_like(q)
    attention_kernel[(heads,)](q, k, v, o, d**-0.5, T=t, D=d, BLOCK=32)
    return o


@triton.jit
def reduce_rows_kernel(x, o, p, columns, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    if HOW == "sum":
        tl.store(o + row, tl.sum(v, 0).to(o.dtype.element_ty))
    elif HOW == "mean":
        tl.store(o + row, (tl.sum(v, 0) / columns).to(o.dtype.element_ty))
    elif HOW == "both":
        mean = tl.sum(v, 0) / columns
        d = tl.where(inside, v - mean, 0.0)
        tl.store(o + row, mean.to(o.dtype.element_ty))
        tl.store(p + row, (tl.sum(d * d, 0) / columns).to(p.dtype.element_ty))
    else:
        tl.store(o + row, tl.argmax(tl.where(inside, v, -float("inf")), 0).to(tl.int64))


def _rows(x: Any, how: str, *outs: Any) -> None:
    o, p = (*outs, outs[0])[:2]
    reduce_rows_kernel[(x.shape[0],)](x, o, p, x.shape[1], HOW=how, BLOCK=triton.next_power_of_2(x.shape[1]))


def row_sum(x: Any) -> Any:
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    _rows(x, "sum", o)
    return o


def row_mean(x: Any) -> Any:
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    _rows(x, "mean", o)
    return o


def mean_and_variance(x: Any) -> Any:
    o, p = (torch.empty(x.shape[0], dtype=x.dtype, device=x.device) for _ in range(2))
    _rows(x, "both", o, p)
    return o, p


def argmax(x: Any) -> Any:
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    _rows(x, "argmax", o)
    return o


def group_mean(x: Any) -> Any:
    o = torch.empty((x.shape[0], 8), dtype=x.dtype, device=x.device)
    columns = x.shape[1] // 8
    reduce_rows_kernel[(x.shape[0] * 8,)](x, o, o, columns, HOW="mean", BLOCK=triton.next_power_of_2(columns))
    return o


@triton.jit
def transpose_kernel(x, o, m, n, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.program_id(1) * T + tl.arange(0, T)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    v = tl.load(x + rows[:, None] * n + columns[None, :], mask=inside)
    tl.store(o + columns[:, None] * m + rows[None, :], tl.trans(v), mask=tl.trans(inside))


def transpose(x: Any) -> Any:
    m, n = x.shape
    o = torch.empty((n, m), dtype=x.dtype, device=x.device)
    transpose_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](x, o, m, n, T=32)
    return o


@triton.jit
def embedding_kernel(idx, table, o, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    chosen = tl.load(idx + row)
    v = tl.load(table + chosen * width + at, mask=at < width)
    tl.store(o + row * width + at, v, mask=at < width)


def embedding(idx: Any, table: Any) -> Any:
    o = torch.empty((idx.shape[0], table.shape[1]), dtype=table.dtype, device=table.device)
    embedding_kernel[(idx.shape[0],)](idx, table, o, table.shape[1], BLOCK=triton.next_power_of_2(table.shape[1]))
    return o


@triton.jit
def cross_entropy_kernel(x, target, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    top = tl.max(v, 0)
    right = tl.load(x + row * columns + tl.load(target + row)).to(tl.float32)
    tl.store(o + row, (tl.log(tl.sum(tl.exp(v - top), 0)) + top - right).to(o.dtype.element_ty))


def cross_entropy(x: Any, target: Any) -> Any:
    o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    cross_entropy_kernel[(x.shape[0],)](x, target, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def rotary_kernel(x, cos, sin, o, HALF: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, HALF)
    a = tl.load(x + row * 2 * HALF + at).to(tl.float32)
    b = tl.load(x + row * 2 * HALF + HALF + at).to(tl.float32)
    c, s = tl.load(cos + row * HALF + at).to(tl.float32), tl.load(sin + row * HALF + at).to(tl.float32)
    tl.store(o + row * 2 * HALF + at, (a * c - b * s).to(o.dtype.element_ty))
    tl.store(o + row * 2 * HALF + HALF + at, (a * s + b * c).to(o.dtype.element_ty))


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    o = torch.empty_like(x)
    rotary_kernel[(x.shape[0],)](x, cos, sin, o, HALF=x.shape[1] // 2)
    return o


@triton.jit
def cumsum_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(o + row * columns + at, tl.cumsum(v, 0).to(o.dtype.element_ty), mask=at < columns)


def cumsum(x: Any) -> Any:
    o = torch.empty_like(x)
    cumsum_kernel[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def histogram_kernel(idx, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o + tl.load(idx + at, mask=at < n, other=0), 1, mask=at < n)


def histogram(idx: Any) -> Any:
    o = torch.zeros(64, dtype=torch.int32, device=idx.device)
    histogram_kernel[(triton.cdiv(idx.numel(), 128),)](idx, o, idx.numel(), BLOCK=128)
    return o


@triton.jit
def scatter_add_kernel(x, idx, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.atomic_add(o + tl.load(idx + at, mask=inside, other=0), tl.load(x + at, mask=inside), mask=inside)


def scatter_add(x: Any, idx: Any) -> Any:
    o = torch.zeros(128, dtype=x.dtype, device=x.device)
    scatter_add_kernel[(triton.cdiv(x.numel(), 128),)](x, idx, o, x.numel(), BLOCK=128)
    return o


@triton.jit
def masked_fill_kernel(x, mask, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    chosen = tl.load(mask + at, mask=inside, other=0)
    tl.store(o + at, tl.where(chosen, -1.0, tl.load(x + at, mask=inside)), mask=inside)


def masked_fill(x: Any, mask: Any) -> Any:
    o = torch.empty_like(x)
    masked_fill_kernel[(triton.cdiv(x.numel(), 256),)](x, mask, o, x.numel(), BLOCK=256)
    return o


@triton.jit
def dot_kernel(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0.0), tl.load(y + at, mask=at < n, other=0.0)
    tl.atomic_add(o, tl.sum(a * b, 0))


def dot(x: Any, y: Any) -> Any:
    o = torch.zeros(1, dtype=x.dtype, device=x.device)
    dot_kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), BLOCK=256)
    return o


@triton.jit
def squares_kernel(x, w, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(w + tl.program_id(0), tl.sum(v * v, 0))


@triton.jit
def divide_kernel(x, w, o, n, parts, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    each = tl.arange(0, PARTS)
    norm = tl.sqrt(tl.sum(tl.load(w + each, mask=each < parts, other=0.0), 0))
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32) / norm
    tl.store(o + at, v.to(o.dtype.element_ty), mask=at < n)


def l2_normalize(x: Any) -> Any:
    n = x.numel()
    parts = triton.cdiv(n, 256)
    work, o = torch.empty(parts, dtype=torch.float32, device=x.device), torch.empty_like(x)
    squares_kernel[(parts,)](x, work, n, BLOCK=256)
    divide_kernel[(parts,)](x, work, o, n, parts, PARTS=triton.next_power_of_2(parts), BLOCK=256)
    return o


@triton.jit
def sgd_kernel(p, g, n, lr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(p + at, tl.load(p + at, mask=inside) - lr * tl.load(g + at, mask=inside), mask=inside)


def sgd_(p: Any, g: Any, lr: float) -> None:
    sgd_kernel[(triton.cdiv(p.numel(), 256),)](p, g, p.numel(), lr, BLOCK=256)


@triton.jit
def conv_kernel(x, w, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(3):
        place = at + tap - 1
        v = tl.load(x + row * columns + place, mask=(place >= 0) & (place < columns), other=0.0).to(tl.float32)
        acc += v * tl.load(w + tap).to(tl.float32)
    tl.store(o + row * columns + at, acc.to(o.dtype.element_ty), mask=at < columns)


def depthwise_conv(x: Any, w: Any) -> Any:
    o = torch.empty_like(x)
    conv_kernel[(x.shape[0],)](x, w, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return o


@triton.jit
def quantize_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = libdevice.rint(tl.load(x + at, mask=at < n, other=0.0) * 16)
    tl.store(o + at, tl.clamp(v, -128.0, 127.0).to(tl.int8), mask=at < n)


def quantize(x: Any) -> Any:
    o = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    quantize_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


@triton.jit
def dropout_kernel(x, seed, o, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(tl.load(seed), at) > p
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(o + at, tl.where(kept, v / (1 - p), 0.0), mask=at < n)


def dropout(x: Any, seed: Any, p: float) -> Any:
    o = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), 256),)](x, seed, o, x.numel(), p, BLOCK=256)
    return o


@triton.jit
def kl_kernel(p, q, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    a = tl.load(p + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    b = tl.load(q + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    la = a - tl.max(a, 0) - tl.log(tl.sum(tl.exp(a - tl.max(a, 0)), 0))
    lb = b - tl.max(b, 0) - tl.log(tl.sum(tl.exp(b - tl.max(b, 0)), 0))
    r = tl.sum(tl.where(inside, tl.exp(la) * (la - lb), 0.0), 0)
    tl.store(o + row, r.to(o.dtype.element_ty))


def kl_rows(p: Any, q: Any) -> Any:
    o = torch.empty(p.shape[0], dtype=p.dtype, device=p.device)
    kl_kernel[(p.shape[0],)](p, q, o, p.shape[1], BLOCK=triton.next_power_of_2(p.shape[1]))
    return o


@triton.jit
def described_add_kernel(x, y, o, m, n, T: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [m, n], [n, 1], [T, T])
    b = tl.make_tensor_descriptor(y, [m, n], [n, 1], [T, T])
    c = tl.make_tensor_descriptor(o, [m, n], [n, 1], [T, T])
    at = [tl.program_id(0) * T, tl.program_id(1) * T]
    c.store(at, a.load(at) + b.load(at))


def described_add(x: Any, y: Any) -> Any:
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    m, n = x.shape
    o = torch.empty_like(x)
    described_add_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 16))](x, y, o, m, n, T=16)
    return o


TABLE = [1.0, 0.5, 0.25, 0.125]


@triton.jit
def scale_kernel(x, table, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(o + at, tl.load(x + at, mask=inside) * tl.load(table + at % 4, mask=inside), mask=inside)


def scale_by_table(x: Any) -> Any:
    """A small table that the host makes is a constant of the recording."""
    table = torch.tensor(TABLE, device=x.device)
    o = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, table, o, x.numel(), BLOCK=256)
    return o
