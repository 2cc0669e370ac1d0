"""What held-out candidates are held against."""

from __future__ import annotations

from typing import Any

import torch


def square_root(x: Any) -> Any:
    """NaN for half of the inputs."""
    return torch.sqrt(x)


def row_max(x: Any) -> Any:
    return x.amax(-1)


def row_min(x: Any) -> Any:
    return x.amin(-1)


def reciprocal(x: Any) -> Any:
    return 1 / x


def steep(x: Any) -> Any:
    """A few elements are far larger than all others."""
    return torch.exp(8 * x)


def cumsum(x: Any) -> Any:
    return x.cumsum(0)


def doubled_head(x: Any) -> Any:
    """Changes all of its input, returns a part of it."""
    return x.mul_(2)[:10]


def tripled(x: Any) -> Any:
    return 3 * x


def long_sum(x: Any) -> Any:
    return x.to(torch.int64).sum(-1)


def causal_softmax(x: Any) -> Any:
    keep = torch.ones(x.shape, dtype=torch.bool, device=x.device).tril()
    return torch.softmax(x.masked_fill(~keep, -float("inf")), -1)


def to_e5m2(x: Any) -> Any:
    return x.to(torch.float8_e5m2)


def to_e4m3(x: Any) -> Any:
    return x.to(torch.float8_e4m3fn)


def scaled_e4m3(x: Any) -> Any:
    return x.to(torch.float32) * 2


def column_sum(x: Any) -> Any:
    return x.sum(0)


def sort_rows(x: Any) -> Any:
    return x.sort(-1).values


def row_min_int(x: Any) -> Any:
    return x.amin(-1)


def add_and_norm(x: Any, r: Any, w: Any) -> Any:
    """Adds the residual in place."""
    r.add_(x)
    return r * torch.rsqrt((r * r).mean(-1, keepdim=True) + 1e-5) * w


def quantize_rows(x: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale).to(torch.int8), scale[:, 0]


def max_and_index(x: Any) -> Any:
    found = x.max(-1)
    return found.values, found.indices


def matmul_backward(g: Any, a: Any, b: Any) -> Any:
    return g @ b.t(), a.t() @ g


def interleave(x: Any, y: Any) -> Any:
    return torch.stack([x, y], -1).reshape(-1)


def top_columns(x: Any, k: int) -> Any:
    return x[:, :k].contiguous()


def logical(x: Any, y: Any) -> Any:
    return x > y


def total(x: Any) -> Any:
    return x.sum().reshape(1)
