"""Kernels of 16-bit floats beside references that upcast: judged by ``test_product_operands.py``."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q, k, v, o, n, scale, HOW: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(1) * n * D
    m, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    x = tl.load(q + first + m[:, None] * D + d[None, :], mask=m[:, None] < n, other=0.0)
    top, total = tl.full([BLOCK], -float("inf"), tl.float32), tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, n, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        inside, at = keys[None, :] < n, keys[:, None] * D + d[None, :]
        y = tl.load(k + first + at, mask=keys[:, None] < n, other=0.0)
        z = tl.load(v + first + at, mask=keys[:, None] < n, other=0.0)
        s = tl.where(inside, tl.dot(x, tl.trans(y)) * scale, -float("inf"))
        if HOW == "narrow_scores":
            s = s.to(z.dtype).to(tl.float32)
        higher = tl.maximum(top, tl.max(s, 1))
        p, less = tl.exp(s - higher[:, None]), tl.exp(top - higher)
        if HOW == "no_small_weights":
            p = tl.where(p < 0.02, 0.0, p)
        if HOW == "eight_bit_weights":
            p = p.to(tl.float8e5).to(tl.float32)
        total, top = total * less + tl.sum(p, 1), higher
        acc = acc * less[:, None] + tl.dot(p.to(z.dtype), z)
        if HOW == "narrow_sums":
            acc = acc.to(z.dtype).to(tl.float32)
    at = first + m[:, None] * D + d[None, :]
    tl.store(o + at, (acc / total[:, None]).to(o.dtype.element_ty), mask=m[:, None] < n)


def _attention(q: Any, k: Any, v: Any, how: str) -> Any:
    heads, n, d = q.shape
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(n, 16), heads)](q, k, v, o, n, d**-0.5, HOW=how, D=d, BLOCK=16)
    return o


def attention(q: Any, k: Any, v: Any) -> Any:
    """Weights are rounded to the values' dtype, as tensor cores take them."""
    return _attention(q, k, v, "")


def narrow_scores(q: Any, k: Any, v: Any) -> Any:
    """Scores are rounded, too: an exponential's argument."""
    return _attention(q, k, v, "narrow_scores")


def no_small_weights(q: Any, k: Any, v: Any) -> Any:
    """Weights below 2 % of the largest one are left out."""
    return _attention(q, k, v, "no_small_weights")


def eight_bit_weights(q: Any, k: Any, v: Any) -> Any:
    """Weights are rounded to fewer bits."""
    return _attention(q, k, v, "eight_bit_weights")


def narrow_sums(q: Any, k: Any, v: Any) -> Any:
    """Sums are rounded in each step."""
    return _attention(q, k, v, "narrow_sums")


def attention_reference(q: Any, k: Any, v: Any) -> Any:
    """Everything in float32."""
    scores = q.float() @ k.float().transpose(1, 2) * q.shape[2] ** -0.5
    return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)


def attention_by_sums(q: Any, k: Any, v: Any) -> Any:
    """The same by products of elements."""
    scores = (q.float()[:, :, None] * k.float()[:, None]).sum(-1) * q.shape[2] ** -0.5
    return (torch.softmax(scores, -1)[..., None] * v.float()[:, None]).sum(2).to(q.dtype)


@triton.jit
def linear_kernel(x, w, o, n, K: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    m, k, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, K), tl.arange(0, N)
    a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < n, other=0.0)
    b = tl.load(w + k[:, None] * N + c[None, :])
    tl.store(o + m[:, None] * N + c[None, :], tl.dot(a, b.to(a.dtype)), mask=m[:, None] < n)


def rounded_weights(x: Any, w: Any) -> Any:
    """Weights are rounded that never had 16 bits."""
    o = torch.empty(len(x), w.shape[1], dtype=torch.float32, device=x.device)
    linear_kernel[(triton.cdiv(len(x), 16),)](x, w, o, len(x), K=w.shape[0], N=w.shape[1], BLOCK=16)
    return o


def linear(x: Any, w: Any) -> Any:
    return x.float() @ w
