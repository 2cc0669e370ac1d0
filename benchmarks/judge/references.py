"""What candidates are held against: plain torch, in the dtype of the inputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def add(x: Any, y: Any) -> Any:
    return x + y


def axpy(x: Any, y: Any, a: float) -> Any:
    return a * x + y


def relu_(x: Any) -> Any:
    return x.relu_()


def gelu(x: Any) -> Any:
    return F.gelu(x)


def swiglu(x: Any, y: Any) -> Any:
    return F.silu(x) * y


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def log_softmax(x: Any) -> Any:
    return torch.log_softmax(x, -1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x: Any, w: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def row_sum(x: Any) -> Any:
    return x.sum(-1)


def row_mean(x: Any) -> Any:
    return x.mean(-1)


def mean_and_variance(x: Any) -> Any:
    return x.mean(-1), x.var(-1, correction=0)


def transpose(x: Any) -> Any:
    return x.t().contiguous()


def embedding(idx: Any, table: Any) -> Any:
    return table[idx]


def cross_entropy(x: Any, target: Any) -> Any:
    return F.cross_entropy(x, target, reduction="none")


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def cumsum(x: Any) -> Any:
    return x.cumsum(-1)


def argmax(x: Any) -> Any:
    return x.argmax(-1)


def softmax_backward(y: Any, g: Any) -> Any:
    return y * (g - (y * g).sum(-1, keepdim=True))


def layer_norm_backward(x: Any, w: Any, g: Any) -> Any:
    mean, var = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + 1e-5)
    hat, wg = (x - mean) * rstd, w * g
    return rstd * (wg - wg.mean(-1, keepdim=True) - hat * (wg * hat).mean(-1, keepdim=True))


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ v


def histogram(idx: Any) -> Any:
    return torch.bincount(idx.to(torch.int64), minlength=64).to(torch.int32)


def scatter_add(x: Any, idx: Any) -> Any:
    return torch.zeros(128, dtype=x.dtype, device=x.device).index_add(0, idx, x)


def masked_fill(x: Any, mask: Any) -> Any:
    return x.masked_fill(mask, -1.0)


def dot(x: Any, y: Any) -> Any:
    return (x * y).sum().reshape(1)


def l2_normalize(x: Any) -> Any:
    return x / x.norm()


def silu_backward(x: Any, g: Any) -> Any:
    s = torch.sigmoid(x)
    return g * (s + x * s * (1 - s))


def sgd_(p: Any, g: Any, lr: float) -> None:
    p.sub_(lr * g)


def depthwise_conv(x: Any, w: Any) -> Any:
    return F.conv1d(x[:, None], w[None, None], padding=1)[:, 0]


def quantize(x: Any) -> Any:
    return torch.clamp(torch.round(x * 16), -128, 127).to(torch.int8)


def batched_matmul(a: Any, b: Any) -> Any:
    return torch.bmm(a, b)


def group_mean(x: Any) -> Any:
    return x.reshape(x.shape[0], 8, -1).mean(-1)


def to_bfloat16(x: Any) -> Any:
    return x.to(torch.bfloat16)


def clamp(x: Any) -> Any:
    return x.clamp(-0.5, 0.5)


def kl_rows(p: Any, q: Any) -> Any:
    return (torch.softmax(p, -1) * (torch.log_softmax(p, -1) - torch.log_softmax(q, -1))).sum(-1)


def mean_of_softmax(x: Any) -> Any:
    """A task that is no evidence: the same number for all inputs (KernelBench#165 has such)."""
    return torch.softmax(x, -1).mean(-1)


def scale_by_table(x: Any) -> Any:
    table = torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=x.dtype, device=x.device)
    return x * table.repeat(x.numel() // 4)
