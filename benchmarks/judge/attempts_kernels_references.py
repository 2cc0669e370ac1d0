"""What attempts at kernels, numbers and inputs are held against."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def exp_of_forty(x: Any) -> Any:
    return torch.exp(40 * x)


def tiny(x: Any) -> Any:
    """Numbers below the smallest normal one of float16."""
    return x * 4e-6


def clamp_20(x: Any) -> Any:
    return x.clamp(-20, 20)


def nan_to_num(x: Any) -> Any:
    return torch.nan_to_num(x)


def softplus(x: Any) -> Any:
    return F.softplus(x)


def sinc(x: Any) -> Any:
    return torch.sinc(x)


def log1p(x: Any) -> Any:
    return torch.log1p(x)


def logsumexp(x: Any) -> Any:
    return torch.logsumexp(x, -1)


def squared_loss(x: Any, y: Any) -> Any:
    return ((x - y) ** 2).mean().reshape(1)


def variance(x: Any) -> Any:
    return x.var(-1)


def norm(x: Any) -> Any:
    return torch.linalg.vector_norm(x, dim=-1)


def index_of_largest(x: Any) -> Any:
    return x.argmax().reshape(1)


def largest(x: Any) -> Any:
    return x.amax().reshape(1)


def sinkhorn(x: Any) -> Any:
    """Rows and columns of exp(x) are scaled in turn, 40 times."""
    p = torch.exp(x)
    for _ in range(40):
        p = p / p.sum(-1, keepdim=True)
        p = p / p.sum(-2, keepdim=True)
    return p


def gated_scan(x: Any, g: Any) -> Any:
    gates, h, found = torch.sigmoid(g), torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = gates[:, t] * h + x[:, t]
        found.append(h)
    return torch.stack(found, 1)


def biased(x: Any, b: Any) -> Any:
    return x * 3 + b


def scaled(x: Any, w: Any) -> Any:
    return x * 3 * w


def picked(x: Any, idx: Any) -> Any:
    """One of the rows for all, by index."""
    return x[idx]


def rows_from(x: Any, k: int) -> Any:
    return (x * 2)[k:]


def reversed_rows(x: Any) -> Any:
    return x.flip(-1)


def last_column(x: Any) -> Any:
    return x[:, -1] * 2


def with_positions(x: Any) -> Any:
    """Adds the table of sines of Vaswani and others, made in each call."""
    rows, columns = x.shape
    at = torch.arange(rows, dtype=x.dtype, device=x.device)[:, None]
    step = torch.exp(torch.arange(columns, dtype=x.dtype, device=x.device) * (-9.0 / columns))
    return x + torch.sin(at * step)


def lower_triangle(x: Any) -> Any:
    return x.tril()


def attention_written_out(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v


def gelu_written_out(x: Any) -> Any:
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


def fast_wave(x: Any) -> Any:
    return torch.sin(100 * x)


def doubled_columns(x: Any) -> Any:
    """Its strides are those of a transposed tensor."""
    return (x * 2).t()


def doubled_rows(x: Any) -> Any:
    return x * 2


def nothing(x: Any) -> Any:
    return x * 0


def any_above_100(x: Any) -> Any:
    return (x > 100).any(-1)


def sum_is_positive(x: Any) -> Any:
    return (x.sum() > 0).reshape(1)


def outliers(x: Any) -> Any:
    return F.relu(x - 3.5)


def masked_softmax(x: Any, m: Any) -> Any:
    return torch.nan_to_num(torch.softmax(x.masked_fill(m, -float("inf")), -1))


def leaky(x: Any) -> Any:
    return F.leaky_relu(x, 0.01)


def tangent(x: Any) -> Any:
    return torch.tan(1.7 * x)


def thousand_more(x: Any) -> Any:
    return x + 1000


def spread(x: Any, idx: Any) -> Any:
    return torch.zeros(1000000, dtype=x.dtype, device=x.device).index_add(0, idx, x)


def faded(x: Any) -> Any:
    h, found = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = 0.5 * h + x[:, t]
        found.append(h)
    return torch.stack(found, 1)


def experts(x: Any, g: Any, w: Any) -> Any:
    return x * (torch.softmax(g, -1) @ w)


def whole_sum(x: Any) -> Any:
    return x.sum(-1)


def clamp_20_(x: Any) -> Any:
    return x.clamp_(-20, 20)


def flipped_(x: Any) -> Any:
    return x.copy_(x.flip(0))


def cut_rows(x: Any, n: Any) -> Any:
    at = torch.arange(x.shape[1], device=x.device)
    return torch.where(at[None, :] < n[:, None], x, 0.0)


def relu(x: Any) -> Any:
    return F.relu(x)


def sigmoid(x: Any) -> Any:
    return torch.sigmoid(x)


def tanh(x: Any) -> Any:
    return torch.tanh(x)


def column_variance(x: Any) -> Any:
    return x.var(0)


def top_index(x: Any) -> Any:
    return x.topk(1).indices[:, 0]
