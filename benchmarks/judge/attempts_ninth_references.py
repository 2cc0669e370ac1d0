"""References of a ninth author's attempts: plain torch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _scores(q: Any, k: Any) -> Any:
    return q.float() @ k.float().transpose(1, 2) * q.shape[-1] ** -0.5


def attention(q: Any, k: Any, v: Any) -> Any:
    return (torch.softmax(_scores(q, k), -1) @ v.float()).to(q.dtype)


def capped_attention(q: Any, k: Any, v: Any, cap: float) -> Any:
    return (torch.softmax(cap * torch.tanh(_scores(q, k) / cap), -1) @ v.float()).to(q.dtype)


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    return (torch.softmax(_scores(q, k).masked_fill(later, float("-inf")), -1) @ v.float()).to(q.dtype)


def window_attention(q: Any, k: Any, v: Any, window: int) -> Any:
    seen = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).tril()
    seen = seen.triu(1 - window)
    return (torch.softmax(_scores(q, k).masked_fill(~seen, float("-inf")), -1) @ v.float()).to(q.dtype)


def rms_norm(x: Any, w: Any, eps: float) -> Any:
    f = x.float()
    return (f * torch.rsqrt((f * f).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def log_softmax(x: Any) -> Any:
    return torch.log_softmax(x, -1)


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def tanh(x: Any) -> Any:
    return torch.tanh(x)


def cross_entropy(x: Any, t: Any) -> Any:
    return F.cross_entropy(x, t, ignore_index=-1)


def smoothed(x: Any, t: Any, smoothing: float) -> Any:
    return F.cross_entropy(x, t, label_smoothing=smoothing)


def largest_of_nine(x: Any) -> Any:
    return F.max_pool2d(x, 3, 1, 1)


def mean_of_nine(x: Any) -> Any:
    return F.avg_pool2d(x, 3, 1, 1)
