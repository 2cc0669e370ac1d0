"""References of the sixth author's attempts and of the honest candidates beside them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

# values


def not_at_most(x: Any, y: Any) -> Any:
    """True where neither is smaller nor equal: also where one is NaN."""
    return ~(x <= y)


def whole(x: Any) -> Any:
    """To the nearest whole number, of two the even one, as a float."""
    return torch.round(x)


def largest_marked(x: Any) -> Any:
    """1 at each place of a row's maximum."""
    return (x == x.amax(-1, keepdim=True)).to(torch.float32)


def hypotenuse(x: Any, y: Any) -> Any:
    return torch.hypot(x, y)


def first_largest(x: Any) -> Any:
    return x.argmax(-1)


def routed(ids: Any, x: Any) -> Any:
    """How many rows each of 8 experts has, and the rows with the weight of their expert."""
    return torch.bincount(ids.to(torch.int64), minlength=8).to(torch.int32), x * (ids[:, None] + 1)


def padded_rows(idx: Any, table: Any) -> Any:
    """Rows of a table; index 1 is padding, which has none."""
    return table[idx] * (idx != 1)[:, None]


def masked_mean(x: Any, m: Any) -> Any:
    return ((x * m).sum() / m.sum().clamp(min=1)).reshape(1)


def with_small_column(x: Any) -> Any:
    """Rows, with a small multiple of their first number at the end of each."""
    return torch.cat([x, x[:, :1] * 1e-8], -1)


def gated(p: Any, h: Any) -> Any:
    """What a branch adds is small beside the input."""
    return p + torch.tanh(h) * 0.005


def block_product(a: Any, b: Any) -> Any:
    return a @ b


def dequantized(q: Any, book: Any, s: Any) -> Any:
    """Numbers of a codebook, with a scale for each row."""
    return book[q.to(torch.int64)] * s[:, None]


# numbers and flags that are known when recording


def scaled_sum(x: Any, y: Any, alpha: float) -> Any:
    return x + alpha * y


def product_and_matrix(a: Any, b: Any, c: Any, beta: float) -> Any:
    return a @ b + beta * c


def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    s = q @ k.t() * q.shape[1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(s, -1) @ v


def running_mean(x: Any, window: int) -> Any:
    """Means of so many numbers, of those that are there."""
    at = torch.arange(x.shape[1], device=x.device)
    far = at[:, None] - at[None, :]
    inside = ((far >= 0) & (far < window)).to(x.dtype)
    return x @ inside.t() / inside.sum(-1)


def segment_sums(x: Any, offsets: Any) -> Any:
    which = torch.bucketize(torch.arange(len(x), device=x.device), offsets[1:].long(), right=True)
    return torch.zeros(len(offsets) - 1, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, which, x)


def row_sums(x: Any, lengths: Any) -> Any:
    """Sums of so many first numbers of each row."""
    keep = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
    return (x * keep).sum(-1)


# state and launches


def tripled(x: Any) -> Any:
    return 3 * x


def decayed_(p: Any, g: Any) -> Any:
    p.mul_(0.5).add_(g)
    return p


# sums


def running_sum(x: Any) -> Any:
    return x.cumsum(-1)


def normalized(x: Any) -> Any:
    return F.normalize(x, dim=-1)


# honest candidates


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def attention_of_all(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.t() * q.shape[1] ** -0.5, -1) @ v


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


def selective_scan(x: Any, d: Any) -> Any:
    """s = sigmoid(d) * s + x, from left to right."""
    a, s, found = torch.sigmoid(d), torch.zeros_like(x[:, 0]), []
    for i in range(x.shape[1]):
        s = a[:, i] * s + x[:, i]
        found.append(s)
    return torch.stack(found, 1)


def bilinear(x: Any) -> Any:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def doubled(x: Any) -> Any:
    return 2 * x
