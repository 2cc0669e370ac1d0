"""Attention forward, a fused bias and GELU, a transpose."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from benchmarks.suite.case import Call, Case, Shape, randn


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, length, stride_head, stride_row,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Softmax(q k' scale) v for one head's BM rows, keys visited BN at a time; all four tensors have one layout."""
    head = tl.program_id(1).to(tl.int64) * stride_head
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, HEAD)
    rows = head + m[:, None] * stride_row + d[None, :]
    q = tl.load(q_ptr + rows, mask=m[:, None] < length, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, HEAD), tl.float32)
    end = min((tl.program_id(0) + 1) * BM, length) if CAUSAL else length
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        at = head + n[:, None] * stride_row + d[None, :]
        k = tl.load(k_ptr + at, mask=n[:, None] < length, other=0.0)
        seen = n[None, :] < length
        if CAUSAL:
            seen = seen & (m[:, None] >= n[None, :])
        score = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        norm = norm * shrink + tl.sum(weight, axis=1)
        v = tl.load(v_ptr + at, mask=n[:, None] < length, other=0.0)
        total = tl.dot(weight.to(v.dtype), v, total * shrink[:, None])
        top = higher
    out = total / norm[:, None]
    tl.store(out_ptr + rows, out.to(out_ptr.dtype.element_ty), mask=m[:, None] < length)


def attention_call(shape: Shape, device: str) -> Call:
    heads, length, width, causal = shape["heads"], shape["length"], shape["width"], bool(shape["causal"])
    q, k, v = (randn(heads, length, width, device=device) for _ in range(3))
    out = torch.empty_like(q)

    def expected() -> dict[int, torch.Tensor]:
        scores = q.float() @ k.float().transpose(1, 2) * width**-0.5
        hidden = torch.ones(length, length, device=device, dtype=torch.bool).triu(1)
        return {3: (torch.softmax(scores.masked_fill(hidden, -math.inf) if causal else scores, -1) @ v.float()).half()}

    scale = width**-0.5 * math.log2(math.e)
    arguments = (q, k, v, out, scale, length, q.stride(0), q.stride(1), width, causal)
    return Call(lambda meta: (triton.cdiv(length, meta["BM"]), heads), arguments, expected)


def attention_configs(shape: Shape) -> list[triton.Config]:
    return [
        triton.Config({"BM": bm, "BN": bn}, num_warps=warps, num_stages=stages)
        for bm in (64, 128)
        for bn in (32, 64, 128)
        for warps in (4, 8)
        for stages in (2, 3)
    ]


ATTENTION = Case(
    name="attention",
    kernel=attention_kernel,
    shapes=(
        {"heads": 32, "length": 2048, "width": 64, "causal": 1},
        {"heads": 16, "length": 4096, "width": 128, "causal": 0},
        {"heads": 128, "length": 1024, "width": 64, "causal": 0},
    ),
    small={"heads": 2, "length": 130, "width": 32, "causal": 1},
    call=attention_call,
    configs=attention_configs,
    key=("length", "HEAD", "CAUSAL"),
)


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside).to(tl.float32) + tl.load(bias_ptr + i % cols, mask=inside).to(tl.float32)
    out = x * tl.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x))  # GELU by tanh: 2 sqrt(2 / pi)
    tl.store(out_ptr + i, out.to(out_ptr.dtype.element_ty), mask=inside)


def bias_gelu_call(shape: Shape, device: str) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x, bias = randn(rows, cols, device=device), randn(cols, device=device)
    out, n = torch.empty_like(x), rows * cols

    def expected() -> dict[int, torch.Tensor]:
        return {2: torch.nn.functional.gelu(x.float() + bias.float(), approximate="tanh").half()}

    return Call(lambda meta: (triton.cdiv(n, meta["BLOCK"]),), (x, bias, out, n, cols), expected)


def bias_gelu_configs(shape: Shape) -> list[triton.Config]:
    return [
        triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 512, 1024, 2048, 4096, 8192) for w in (1, 2, 4, 8, 16)
    ]


BIAS_GELU = Case(
    name="bias_gelu",
    kernel=bias_gelu_kernel,
    shapes=({"rows": 64, "cols": 4096}, {"rows": 1024, "cols": 4096}, {"rows": 8192, "cols": 4096}),
    small={"rows": 7, "cols": 130},
    call=bias_gelu_call,
    configs=bias_gelu_configs,
    key=("n",),
)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, x_stride, out_stride, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m[:, None] < rows) & (n[None, :] < cols)
    x = tl.load(x_ptr + m[:, None] * x_stride + n[None, :], mask=inside)
    tl.store(out_ptr + n[:, None] * out_stride + m[None, :], tl.trans(x), mask=tl.trans(inside))


def transpose_call(shape: Shape, device: str) -> Call:
    rows, cols = shape["rows"], shape["cols"]
    x = randn(rows, cols, device=device)
    out = torch.empty(cols, rows, device=device, dtype=x.dtype)
    return Call(
        lambda meta: (triton.cdiv(rows, meta["BM"]), triton.cdiv(cols, meta["BN"])),
        (x, out, rows, cols, x.stride(0), out.stride(0)),
        lambda: {1: x.T.contiguous()},
    )


def transpose_configs(shape: Shape) -> list[triton.Config]:
    sizes = ((16, 64), (64, 16), (32, 32), (32, 64), (64, 32), (64, 64), (32, 128), (128, 32))
    return [triton.Config({"BM": bm, "BN": bn}, num_warps=warps) for bm, bn in sizes for warps in (1, 2, 4, 8)]


TRANSPOSE = Case(
    name="transpose",
    kernel=transpose_kernel,
    shapes=({"rows": 1024, "cols": 1024}, {"rows": 4096, "cols": 4096}, {"rows": 32768, "cols": 512}),
    small={"rows": 50, "cols": 150},
    call=transpose_call,
    configs=transpose_configs,
    key=("rows", "cols"),
)
