"""References: parts of models as they are submitted: attention, losses, experts, quantisation, optimizers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _scores(q: Any, k: Any) -> Any:
    return q.float() @ k.float().transpose(1, 2) * q.shape[-1] ** -0.5


def attention_in_float32(q: Any, k: Any, v: Any) -> Any:
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


def cross_entropy_but_ignored(x: Any, t: Any) -> Any:
    return F.cross_entropy_but_ignored(x, t, ignore_index=-1)


def smoothed(x: Any, t: Any, smoothing: float) -> Any:
    return F.cross_entropy_but_ignored(x, t, label_smoothing=smoothing)


def largest_of_nine(x: Any) -> Any:
    return F.max_pool2d(x, 3, 1, 1)


def mean_of_nine(x: Any) -> Any:
    return F.avg_pool2d(x, 3, 1, 1)


def rotate(x: Any, c: Any, s: Any) -> Any:
    a, b = x.chunk(2, -1)
    c, s = c[:, None], s[:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def two_experts(x: Any, w: Any, g: Any) -> Any:
    p, which = torch.softmax(g, -1).topk(2)
    p = p / p.sum(-1, keepdim=True)
    return (p[..., None] * torch.einsum("teij,tj->tei", w[which], x)).sum(1)


def quantized(x: Any) -> Any:
    s = x.abs().amax(-1).clamp(min=1e-8) / 127
    return (x / s[:, None]).round().clamp(-128, 127).to(torch.int8), s


def unpacked(w: Any, s: Any) -> Any:
    b = w.to(torch.int32)
    both = torch.stack([(b & 15) - 8, (b >> 4) - 8], -1).reshape(w.shape[0], -1)
    return both * s[:, None]


def adamw(p: Any, g: Any, m: Any, v: Any, lr: float, decay: float, eps: float, step: int) -> None:
    p.mul_(1 - lr * decay)
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.sub_(lr * (m / (1 - 0.9**step)) / ((v / (1 - 0.99**step)).sqrt() + eps))


def last_of_each(x: Any, idx: Any) -> Any:
    order = torch.arange(x.numel(), device=x.device)
    last = torch.full((64,), -1, device=x.device).scatter_reduce(0, idx, order, "amax")
    return torch.where(last >= 0, 3 * x[last.clamp(min=0)], 0.0)


def whole_product_of_bytes(a: Any, b: Any) -> Any:
    return (a.double() @ b.double()).to(torch.int32)


def whole_pool(a: Any) -> Any:
    return a.reshape(-1, a.shape[1] // 2, 2, a.shape[2] // 2, 2).amax((2, 4))


def middle(x: Any) -> Any:
    return x.sort(dim=-1, stable=True).indices[:, (x.shape[1] - 1) // 2].contiguous()


def scaled_product(a: Any, b: Any, bias: Any, scale: float) -> Any:
    return ((a.float() @ b.float() + bias.float()) * scale).to(a.dtype)


def by_norm(x: Any) -> Any:
    return x / torch.norm(x, p="fro")


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(1, 2)).tril() @ v


def largest_four(x: Any) -> Any:
    values, which = x.topk(4, -1)
    return torch.zeros_like(x).scatter(-1, which, values)


def chosen_experts(x: Any, w: Any, g: Any) -> Any:
    values, which = g.float().topk(2)
    p = torch.softmax(values, -1)
    return (p[..., None] * w[which]).sum(1) * x


def grouped_scores(q: Any, k: Any) -> Any:
    return torch.einsum("hd,hnd->hn", q, k.repeat_interleave(q.shape[0] // k.shape[0], 0))


def in_steps(x: Any) -> Any:
    step = x.abs().max() / 127
    return (x / step).round().clamp(-127, 127) * step


def flagged_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return causal_attention(q, k, v) if causal else attention_in_float32(q, k, v)


def in_eight_bits(x: Any) -> Any:
    s = x.abs().amax(-1).clamp(min=1e-12) / 448
    return (x / s[:, None]).to(torch.float8_e4m3fn), s


def gate_and_flags(x: Any) -> Any:
    return F.silu(x), x > 0


def small_update(p: Any, g: Any, v: Any) -> None:
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.sub_(1e-3 * (g / (v.sqrt() + 1e-8)))


def by_cosines_of_columns(x: Any) -> Any:
    return x * torch.cos(torch.arange(x.shape[1], device=x.device, dtype=x.dtype))


def directions_of_rows(x: Any) -> Any:
    return F.normalize(x, dim=1)
