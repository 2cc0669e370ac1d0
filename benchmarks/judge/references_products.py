"""References: products of matrices, attention, convolutions and rotations."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ v


def depthwise_conv(x: Any, w: Any) -> Any:
    return F.conv1d(x[:, None], w[None, None], padding=1)[:, 0]


def batched_matmul(a: Any, b: Any) -> Any:
    return torch.bmm(a, b)


def matmul_backward(g: Any, a: Any, b: Any) -> Any:
    return g @ b.t(), a.t() @ g


def attention_written_out(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v


def flat_transpose(x: Any) -> Any:
    """Of each row, which is a square matrix."""
    n = int(x.shape[1] ** 0.5)
    return x.view(-1, n, n).transpose(1, 2).reshape(x.shape)


def rotary_(x: Any, c: Any, s: Any) -> Any:
    a, b = x.chunk(2, -1)
    x.copy_(torch.cat([a * c - b * s, b * c + a * s], -1))
    return x


def gradient_added_(dw: Any, a: Any, g: Any) -> Any:
    dw.add_(a.t() @ g)
    return dw


def seven_taps(x: Any, w: Any) -> Any:
    return F.conv1d(x[:, None], w[None, None], padding=3)[:, 0]


def requantized(a: Any, b: Any) -> Any:
    found = a.to(torch.int64) @ b.to(torch.int64)
    return torch.clamp(found // 1024, -128, 127).to(torch.int8)


def scaled_columns(x: Any, w: Any) -> Any:
    return x * w


def biased_attention(q: Any, k: Any, v: Any) -> Any:
    """With a bias that falls with the distance (Press and others, ALiBi); causal."""
    at = torch.arange(q.shape[0], device=q.device)
    far = (at[:, None] - at[None, :]).to(q.dtype)
    s = q @ k.t() * q.shape[1] ** -0.5 - 0.5 * far
    return torch.softmax(s.masked_fill(far < 0, -float("inf")), -1) @ v


def attention_of_two(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.t() * q.shape[1] ** -0.5, -1) @ v


def grouped_gemm(x: Any, w: Any, offsets: Any) -> Any:
    """Rows between neighbouring offsets have a matrix each."""
    ends = offsets.tolist()
    return torch.cat([x[a:b] @ m for a, b, m in zip(ends, ends[1:], w, strict=False)])


def scaled_int8_gemm(a: Any, b: Any, s: Any, t: Any) -> Any:
    return (a.to(torch.float32) @ b.to(torch.float32)) * s[:, None] * t[None, :]


def rotary_at(x: Any, at: Any, cos: Any, sin: Any) -> Any:
    """Neighbouring pairs turn by the angle of their row's position."""
    c, s = cos[at], sin[at]
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(1)


def paged_decode(q: Any, pages: Any, table: Any, lengths: Any) -> Any:
    """One query a sequence; its keys are their own values, in pages of 16."""
    found = []
    for one, where, n in zip(q, table, lengths.tolist(), strict=True):
        k = pages[where].reshape(-1, q.shape[1])[:n]
        found.append(torch.softmax(k @ one * q.shape[1] ** -0.5, 0) @ k)
    return torch.stack(found)


def packed_gemm(x: Any, w: Any, s: Any) -> Any:
    """Two weights of four bits in a byte, the low one first; 8 is zero."""
    pair = torch.stack([w & 15, w >> 4], 1).reshape(-1, w.shape[1]).to(torch.float32) - 8
    return x.to(torch.float32) @ (pair * s[None, :])


def convolution(x: Any, w: Any) -> Any:
    return F.conv2d(x, w, padding=1)


def gated(p: Any, h: Any) -> Any:
    """What a branch adds is small beside the input."""
    return p + torch.tanh(h) * 0.005


def dequantized(q: Any, book: Any, s: Any) -> Any:
    """Numbers of a codebook, with a scale for each row."""
    return book[q.to(torch.int64)] * s[:, None]


def product_and_matrix(a: Any, b: Any, c: Any, beta: float) -> Any:
    return a @ b + beta * c


def attention_by_flag(q: Any, k: Any, v: Any, causal: bool) -> Any:
    s = q @ k.t() * q.shape[1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(s, -1) @ v


def forward_substitution(a: Any, b: Any) -> Any:
    """Solves a system whose matrix is lower triangular, with a diagonal of about 8."""
    lower = torch.tril(a, -1) + torch.diag_embed(8 + a.diagonal(dim1=-2, dim2=-1).abs())
    return torch.linalg.solve_triangular(lower, b[..., None], upper=False)[..., 0]


def hadamard(x: Any) -> Any:
    """The product with the matrix of Walsh and Hadamard, of rows of 64."""
    h = torch.ones(1, 1, dtype=x.dtype, device=x.device)
    for _ in range(6):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return x @ h


def bilinear(x: Any) -> Any:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def requantized_by(a: Any, b: Any, s: Any) -> Any:
    """A product of whole numbers, in bytes by a scale for each column."""
    return ((a.long() @ b.long()).to(s.dtype) * s).round().clamp(-128, 127).to(torch.int8)


def interpolated(t: Any, g: Any) -> Any:
    """A table of n numbers at places from -1 to 1, which are its ends."""
    at = (g + 1) * 0.5 * (len(t) - 1)
    low = at.floor().long().clamp(0, len(t) - 1)
    part = at - low
    return t[low] * (1 - part) + t[(low + 1).clamp(max=len(t) - 1)] * part


def grid_sample(x: Any, g: Any) -> Any:
    return F.grid_sample(x, g, mode="bilinear", padding_mode="zeros", align_corners=False)


def sink_attention(q: Any, k: Any, v: Any, sinks: Any) -> Any:
    """Grouped heads, a window of 16, scores capped softly at 20, and a sink in each head's denominator."""
    n, group = q.shape[1], len(q) // len(k)
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    s = 20 * torch.tanh(q.float() @ k.float().transpose(1, 2) * q.shape[2] ** -0.5 / 20)
    far = torch.arange(n, device=q.device)[:, None] - torch.arange(n, device=q.device)[None, :]
    s = s.masked_fill((far < 0) | (far >= 16), -torch.inf)
    s = torch.cat([s, sinks.float()[:, None, None].expand(-1, n, 1)], -1)
    return (torch.softmax(s, -1)[..., :-1] @ v.float()).to(q.dtype)


def causal_convolution(x: Any, w: Any, b: Any) -> Any:
    channels, taps = w.shape
    y = F.conv1d(F.pad(x[None], (taps - 1, 0)), w[:, None], b, groups=channels)
    return F.silu(y)[0]


def branch_by_product(p: Any, h: Any) -> Any:
    """Adds a branch that is small, by a product with a number of torch's usual dtype."""
    part = torch.full((1, 1), 0.005, device=p.device)
    return (p + (torch.tanh(h)[:, None] @ part)[:, 0]).to(torch.bfloat16)


def by_cosines(x: Any) -> Any:
    rows, columns = x.shape
    at = torch.arange(rows, device=x.device)[:, None] * torch.arange(1, columns + 1, device=x.device)
    return x * torch.cos(at * 0.001)
