"""Honest candidates of public kernels beside torch, where the reference promises no one number for some elements."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def routed_kernel(logits, w, ids, E: tl.constexpr):
    token, i = tl.program_id(0), tl.arange(0, E)
    score = tl.load(logits + token * E + i).to(tl.float32)
    one, first = tl.max(score, 0, return_indices=True)
    other, second = tl.max(tl.where(i == first, -float("inf"), score), 0, return_indices=True)
    share = tl.exp(other - one)
    tl.store(w + token * 2, 1 / (1 + share))
    tl.store(w + token * 2 + 1, share / (1 + share))
    tl.store(ids + token * 2, first)
    tl.store(ids + token * 2 + 1, second)


def routed(logits: Any) -> Any:
    w = torch.empty((logits.shape[0], 2), dtype=torch.float32, device=logits.device)
    ids = torch.empty_like(w, dtype=torch.int32)
    routed_kernel[(logits.shape[0],)](logits, w, ids, E=logits.shape[1])
    return w, ids


def routed_reference(logits: Any) -> Any:
    """The weights of two experts; all others may be zero."""
    w, ids = torch.topk(torch.softmax(logits.float(), -1), 2, -1)
    return w / w.sum(-1, keepdim=True), ids.to(torch.int32)


@triton.jit
def nucleus_kernel(x, o, p, N: tl.constexpr):
    row, i = tl.program_id(0) * N, tl.arange(0, N)
    v = tl.load(x + row + i)
    e = tl.exp(v - tl.max(v, 0))
    share = e / tl.sum(e, 0)
    before = (v[None, :] > v[:, None]) | ((v[None, :] == v[:, None]) & (i[None, :] < i[:, None]))
    mass = tl.sum(tl.where(before, share[None, :], 0.0), 1)
    tl.store(o + row + i, tl.where(mass > p, -float("inf"), v))


def nucleus(x: Any, p: float) -> Any:
    o = torch.empty_like(x)
    nucleus_kernel[(x.shape[0],)](x, o, p, N=x.shape[1])
    return o


def nucleus_reference(x: Any, p: float) -> Any:
    """Logits but for those beyond the mass p of larger ones."""
    ordered, places = x.sort(-1, descending=True)
    drop = torch.softmax(ordered, -1).cumsum(-1) > p
    drop = F.pad(drop[..., :-1], (1, 0))
    return x.masked_fill(drop.scatter(-1, places, drop), -float("inf"))


@triton.jit
def window_kernel(q, k, v, o, scale, T: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, M: tl.constexpr):
    head, i, d = tl.program_id(0) * T * D, tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, D)
    inside = (i < T)[:, None]
    query = tl.load(q + head + i[:, None] * D + d[None, :], mask=inside, other=0.0)
    top = tl.full((M,), -3e38, tl.float32)  # below scores of vast numbers
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    begin = tl.maximum(tl.program_id(1) * M - WINDOW + 1, 0) // M * M
    for first in range(begin, (tl.program_id(1) + 1) * M, M):
        j = first + tl.arange(0, M)
        at = head + j[:, None] * D + d[None, :]
        key = tl.load(k + at, mask=(j < T)[:, None], other=0.0)
        value = tl.load(v + at, mask=(j < T)[:, None], other=0.0)
        far = i[:, None] - j[None, :]
        s = tl.where((far >= 0) & (far < WINDOW), tl.dot(query, tl.trans(key)) * scale, -float("inf"))
        largest = tl.maximum(top, tl.max(s, 1))
        weights, old = tl.exp(s - largest[:, None]), tl.exp(top - largest)
        total = total * old + tl.sum(weights, 1)
        acc = acc * old[:, None] + tl.dot(weights.to(value.dtype), value)
        top = largest
    tl.store(o + head + i[:, None] * D + d[None, :], acc / total[:, None], mask=inside)


def window(q: Any, k: Any, v: Any) -> Any:
    o = torch.empty_like(q)
    heads, t, d = q.shape
    window_kernel[(heads, triton.cdiv(t, 16))](q, k, v, o, d**-0.5, T=t, D=d, WINDOW=17, M=16)
    return o


def window_reference(q: Any, k: Any, v: Any) -> Any:
    """Of three dimensions: torch has no fused kernel for these."""
    far = torch.arange(q.shape[1], device=q.device)[:, None] - torch.arange(q.shape[1], device=q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(far >= 0) & (far < 17))


@triton.jit
def steps_kernel(x, o, s, n, N: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(v), 0), 1e-5)
    tl.store(o + row * n + i, libdevice.rint(v * (127 / most)).to(tl.int8), mask=i < n)
    tl.store(s + row, most / 127)


def steps(x: Any) -> Any:
    o, s = torch.empty_like(x, dtype=torch.int8), x.new_empty((x.shape[0], 1), dtype=torch.float32)
    steps_kernel[(x.shape[0],)](x, o, s, x.shape[1], N=triton.next_power_of_2(x.shape[1]))
    return o, s


def steps_reference(x: Any) -> Any:
    """By a quotient, which is a half at times; the kernel multiplies by an inverse."""
    s = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    return (x.float() / s).round().to(torch.int8), s


OPEN_HONEST: dict[str, str] = {
    "routed": "logits: bf16[20,16]",
    "nucleus": "x: f32[16,64]; p = 0.8",
    "window": "q: bf16[2,70,16]; k: bf16[2,70,16]; v: bf16[2,70,16]",
    "steps": "x: f16[16,100]",
}
"""By function, whose reference is beside."""
