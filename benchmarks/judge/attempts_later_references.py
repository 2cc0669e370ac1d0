"""References of the later attempts and of the honest candidates beside them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

# values and ties


def not_less(x: Any, y: Any) -> Any:
    return x >= y


def to_eighths(x: Any) -> Any:
    """Whole eighths, to nearest, of two the even one."""
    return torch.round(x * 8).to(torch.int32)


def bins(x: Any, edges: Any) -> Any:
    return torch.bucketize(x, edges)


def stable_order(x: Any) -> Any:
    return x.argsort(dim=-1, stable=True)


def whole_part(x: Any) -> Any:
    return torch.floor(x).to(torch.int32)


def without_nan(x: Any) -> Any:
    return torch.nan_to_num(x)


def sign_bit(x: Any) -> Any:
    return torch.signbit(x)


def masked_zero(x: Any, m: Any) -> Any:
    return x.masked_fill(m, 0.0)


def any_above_three(x: Any) -> Any:
    return (x > 3).any(-1)


def rows_at(idx: Any, table: Any) -> Any:
    return table[idx] * 2


def low_bits(x: Any, bits: Any) -> Any:
    return x & ((1 << bits.to(torch.int64)) - 1).to(torch.int32)


# what is known when recording


def segment_sums(x: Any, offsets: Any) -> Any:
    """Sums of rows between neighbouring offsets."""
    which = torch.bucketize(torch.arange(len(x), device=x.device), offsets[1:].long(), right=True)
    return torch.zeros(len(offsets) - 1, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, which, x)


def in_order_of(x: Any, key: Any) -> Any:
    return x[key.argsort()] * 2


def gradient_added_(dw: Any, a: Any, g: Any) -> Any:
    dw.add_(a.t() @ g)
    return dw


def doubled_into_(out: Any, x: Any) -> Any:
    return out.copy_(2 * x)


# numbers


def seven_taps(x: Any, w: Any) -> Any:
    return F.conv1d(x[:, None], w[None, None], padding=3)[:, 0]


def packed_rows(x: Any, s: Any) -> Any:
    """Rows of large numbers, with a small one at the end of each."""
    return torch.cat([x * 1000, s[:, None] * 1e-4], -1)


def gelu(x: Any) -> Any:
    return F.gelu(x)


def whole_product(a: Any, b: Any) -> Any:
    return (a.to(torch.int64) @ b.to(torch.int64)).to(torch.int32)


def to_half(x: Any) -> Any:
    return x.to(torch.float16)


def eightfold(x: Any) -> Any:
    return x * 8


def tripled(x: Any) -> Any:
    return 3 * x


def requantized(a: Any, b: Any) -> Any:
    found = a.to(torch.int64) @ b.to(torch.int64)
    return torch.clamp(found // 1024, -128, 127).to(torch.int8)


def scaled_columns(x: Any, w: Any) -> Any:
    return x * w


def embedding_gradient(g: Any, idx: Any) -> Any:
    return torch.zeros(50, g.shape[1], dtype=g.dtype, device=g.device).index_add(0, idx, g)


# attention


def biased_attention(q: Any, k: Any, v: Any) -> Any:
    """With a bias that falls with the distance (Press and others, ALiBi); causal."""
    at = torch.arange(q.shape[0], device=q.device)
    far = (at[:, None] - at[None, :]).to(q.dtype)
    s = q @ k.t() * q.shape[1] ** -0.5 - 0.5 * far
    return torch.softmax(s.masked_fill(far < 0, -float("inf")), -1) @ v


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.t() * q.shape[1] ** -0.5, -1) @ v


# honest candidates


def grouped_gemm(x: Any, w: Any, offsets: Any) -> Any:
    """Rows between neighbouring offsets have a matrix each."""
    ends = offsets.tolist()
    return torch.cat([x[a:b] @ m for a, b, m in zip(ends, ends[1:], w, strict=False)])


def top_four(x: Any) -> Any:
    return x.topk(4, -1).values


def scaled_int8_gemm(a: Any, b: Any, s: Any, t: Any) -> Any:
    return (a.to(torch.float32) @ b.to(torch.float32)) * s[:, None] * t[None, :]


def rotary_at(x: Any, at: Any, cos: Any, sin: Any) -> Any:
    """Neighbouring pairs turn by the angle of their row's position."""
    c, s = cos[at], sin[at]
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(1)


def adamw_(p: Any, m: Any, v: Any, g: Any, lr: float) -> None:
    p.mul_(1 - lr * 0.01)
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m / 0.271, (v / 0.0297).sqrt_().add_(1e-8), value=-lr)


def cross_entropy_backward(x: Any, t: Any) -> Any:
    """The gradient of a mean of which targets of -1 are no part."""
    kept = (t >= 0)[:, None].to(x.dtype)
    hot = F.one_hot(t.clamp(min=0), x.shape[1]).to(x.dtype)
    return (torch.softmax(x, -1) - hot) * kept / kept.sum()


def cumulative_maximum(x: Any) -> Any:
    return x.cummax(-1).values


def first_largest(x: Any) -> Any:
    return x.argmax(-1)


def paged_decode(q: Any, pages: Any, table: Any, lengths: Any) -> Any:
    """One query a sequence; its keys are their own values, in pages of 16."""
    found = []
    for one, where, n in zip(q, table, lengths.tolist(), strict=True):
        k = pages[where].reshape(-1, q.shape[1])[:n]
        found.append(torch.softmax(k @ one * q.shape[1] ** -0.5, 0) @ k)
    return torch.stack(found)


def padded_channels_last(x: Any) -> Any:
    return F.pad(x, (1, 2, 1, 2)).permute(0, 2, 3, 1).contiguous()


def max_pool(x: Any) -> Any:
    return F.max_pool2d(x[None], 3, stride=2, padding=1)[0]


def packed_gemm(x: Any, w: Any, s: Any) -> Any:
    """Two weights of four bits in a byte, the low one first; 8 is zero."""
    pair = torch.stack([w & 15, w >> 4], 1).reshape(-1, w.shape[1]).to(torch.float32) - 8
    return x.to(torch.float32) @ (pair * s[None, :])


def group_norm(x: Any, w: Any, b: Any) -> Any:
    return F.group_norm(x, 4, w, b)


def convolution(x: Any, w: Any) -> Any:
    return F.conv2d(x, w, padding=1)
