"""References of the seventh author's attempts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

# values


def scaled_and_largest_finite(x: Any) -> Any:
    """A scaled copy, and each row's largest finite number."""
    return x * 0.3, torch.where(torch.isfinite(x), x, -torch.inf).amax(-1)


def unscaled_and_marked(g: Any) -> Any:
    """Gradients without their scale, and where they aren't small: NaN isn't."""
    return g * 0.37, ~(g.abs() <= 1)


def requantized_by(a: Any, b: Any, s: Any) -> Any:
    """A product of whole numbers, in bytes by a scale for each column."""
    return ((a.long() @ b.long()).to(s.dtype) * s).round().clamp(-128, 127).to(torch.int8)


def interpolated(t: Any, g: Any) -> Any:
    """A table of n numbers at places from -1 to 1, which are its ends."""
    at = (g + 1) * 0.5 * (len(t) - 1)
    low = at.floor().long().clamp(0, len(t) - 1)
    part = at - low
    return t[low] * (1 - part) + t[(low + 1).clamp(max=len(t) - 1)] * part


def directions(x: Any, y: Any) -> Any:
    """From y to x, of length one, or none."""
    d = x - y
    return d / d.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def maximum_backward(x: Any, y: Any, g: Any) -> Any:
    """As torch.maximum has it: of equal numbers each gets half."""
    half = 0.5 * (x == y)
    return g * ((x > y) + half), g * ((x < y) + half)


def relu6_backward(x: Any, g: Any) -> Any:
    return g * ((x > 0) & (x < 6))


def angle(y: Any, x: Any) -> Any:
    return torch.atan2(y, x)


def hypotenuse(x: Any, y: Any) -> Any:
    return torch.hypot(x, y)


def floor(x: Any) -> Any:
    return torch.floor(x)


def row_mean(x: Any) -> Any:
    return x.float().mean(-1).to(x.dtype)


def rows_in_eight_bits(x: Any) -> Any:
    """Each row by its largest number; rows of zeros stay zero."""
    return (x / (x.abs().amax(-1, keepdim=True) / 448).clamp(min=1e-12)).to(torch.float8_e4m3fn)


# what is known when recording


def adam_update(m: Any, v: Any, step: int) -> Any:
    """What Adam subtracts, with its corrections of the first steps."""
    return m / (1 - 0.9**step) / (torch.sqrt(v / (1 - 0.999**step)) + 1e-8)


def sums_from(x: Any, starts: Any) -> Any:
    """Sums of rows that begin behind their padding."""
    return (x * (torch.arange(x.shape[1], device=x.device)[None, :] >= starts[:, None])).sum(-1)


def with_slopes(x: Any, slopes: Any) -> Any:
    """Scores of heads, less by each head's slope with the distance (ALiBi)."""
    i, j = (torch.arange(n, device=x.device) for n in x.shape[1:])
    return x - slopes[:, None, None] * (i[:, None] - j[None, :]).abs()


def row_sums(x: Any, lengths: Any) -> Any:
    return (x * (torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None])).sum(-1)


def running_sums(x: Any, reverse: bool, exclusive: bool) -> Any:
    found = x.flip(-1).cumsum(-1).flip(-1) if reverse else x.cumsum(-1)
    return found - x if exclusive else found


def mean_of_ends(x: Any, window: int, sink: int) -> Any:
    """Of the first numbers, and of the last in a window."""
    return (x[:, :sink].sum(-1) + x[:, -window:].sum(-1)) / (sink + window)


def rms_norm(x: Any, w: Any, eps: float) -> Any:
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


# what is small


def gated(p: Any, h: Any) -> Any:
    """What a branch adds is small beside the input; it may be one for each row."""
    return p + torch.tanh(h) * 0.005


def nine(p: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    every = sum(x.float() for x in (p, a, b, c, d, e, f, g))
    return (every + torch.tanh(h.float()) * 0.005).to(p.dtype)


def loss_and_aside(x: Any, a: Any) -> Any:
    """A loss, and a small one beside it."""
    return (x.float().square().mean() + 0.002 * a.float().square().mean()).to(x.dtype).reshape(1)


# structure that no content has


def masked_softmax(x: Any, m: Any) -> Any:
    return torch.softmax(x.masked_fill(~m, -torch.inf), -1)


def bit_lengths(x: Any) -> Any:
    """How many bits whole numbers above zero have."""
    return sum(((x >> k) > 0).to(torch.int32) for k in range(31))


def scaled_bytes(x: Any, s: Any) -> Any:
    return (x / s).round().clamp(-128, 127).to(torch.int8)


def bins(x: Any, edges: Any) -> Any:
    """How many edges are at most as large."""
    return torch.bucketize(x, edges, right=True).to(torch.int32)


def chosen(x: Any) -> Any:
    """The places of each row's four largest numbers."""
    return x.topk(4, -1).indices


def steep(x: Any) -> Any:
    return torch.exp(4 * x)


def lion(p: Any, m: Any, g: Any, lr: float) -> Any:
    """A step by signs, and none where there is no gradient, nor was one."""
    return p - lr * torch.sign(0.9 * m + 0.1 * g)


def bins_of_bins(x: Any) -> Any:
    """256 bins, and 16 of these each."""
    fine = torch.floor(x * 256)
    return fine.to(torch.int32), torch.floor(fine / 16).to(torch.int32)


def segment_sums(x: Any, ids: Any) -> Any:
    return torch.zeros(80, dtype=x.dtype, device=x.device).index_add(0, ids, x)


def counts(ids: Any) -> Any:
    return torch.bincount(ids.long(), minlength=64).to(torch.int32)


def between_ends(x: Any) -> Any:
    """Numbers from 0 to 1; zeros where all are equal."""
    low, high = x.min(), x.max()
    return torch.where(high > low, (x - low) / (high - low), torch.zeros_like(x))


def deviations_in_bins(x: Any) -> Any:
    """In which half deviation from the mean of their row numbers are."""
    y = x - x.mean(-1, keepdim=True)
    return torch.floor(2 * y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()).clamp(-8, 7).to(torch.int32)


# infinities, NaN, and bits


def to_half(x: Any) -> Any:
    return x.to(torch.float16)


def transposed(x: Any) -> Any:
    return x.t().contiguous()


def logaddexp(x: Any, y: Any) -> Any:
    return torch.logaddexp(x, y)


def floor_divided(x: Any, y: Any) -> Any:
    """The largest whole number of times that y is in x."""
    return torch.floor_divide(x, y)


def power(x: Any, y: Any) -> Any:
    return torch.pow(x, y)


def rounded_at_random(x: Any, r: Any) -> Any:
    """To bfloat16, up with the chance of what is cut off: r has 16 random bits each."""
    return ((x.view(torch.int32) + r) >> 16 << 16).view(torch.float32).to(torch.bfloat16)


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def not_zero(x: Any) -> Any:
    """Numbers below 0.3 but zero."""
    return (x != 0) & (x < 0.3)


def without_ignored(x: Any, t: Any, ignored: int) -> Any:
    return torch.where(t == ignored, 0.0, x)


def tripled(x: Any) -> Any:
    return 3 * x


# honest candidates


def grid_sample(x: Any, g: Any) -> Any:
    return F.grid_sample(x, g, mode="bilinear", padding_mode="zeros", align_corners=False)


def embedding_bag(idx: Any, offsets: Any, table: Any) -> Any:
    return F.embedding_bag(idx, table, offsets[:-1], mode="mean")


def sink_attention(q: Any, k: Any, v: Any, sinks: Any) -> Any:
    """Grouped heads, a window of 16, scores capped softly at 20, and a sink in each head's denominator."""
    n, group = q.shape[1], len(q) // len(k)
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    s = 20 * torch.tanh(q.float() @ k.float().transpose(1, 2) * q.shape[2] ** -0.5 / 20)
    far = torch.arange(n, device=q.device)[:, None] - torch.arange(n, device=q.device)[None, :]
    s = s.masked_fill((far < 0) | (far >= 16), -torch.inf)
    s = torch.cat([s, sinks.float()[:, None, None].expand(-1, n, 1)], -1)
    return (torch.softmax(s, -1)[..., :-1] @ v.float()).to(q.dtype)


def pack_four_bits(x: Any) -> Any:
    s = x.abs().amax(-1).clamp(min=1e-8) / 7
    q = (x / s[:, None]).round().clamp(-8, 7).to(torch.int32) & 15
    return (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8), s


def smoothed_cross_entropy(x: Any, t: Any) -> Any:
    return F.cross_entropy(x, t, ignore_index=-1, label_smoothing=0.1, reduction="none")


def ragged_softmax(x: Any, offsets: Any) -> Any:
    which = torch.bucketize(torch.arange(len(x), device=x.device), offsets[1:].long(), right=True)
    top = x.new_full((len(offsets) - 1,), -torch.inf).scatter_reduce(0, which, x, "amax")
    e = torch.exp(x - top[which])
    return e / torch.zeros_like(top).index_add(0, which, e)[which]


def causal_convolution(x: Any, w: Any, b: Any) -> Any:
    channels, taps = w.shape
    y = F.conv1d(F.pad(x[None], (taps - 1, 0)), w[:, None], b, groups=channels)
    return F.silu(y)[0]


def average_pool(x: Any) -> Any:
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def permuted_for_experts(x: Any, ids: Any) -> Any:
    return x[torch.argsort(ids, stable=True)], torch.bincount(ids.long(), minlength=8).to(torch.int32)


def eight_bits_by_blocks(x: Any) -> Any:
    y = x.float().reshape(len(x), -1, 64)
    s = y.abs().amax(-1).clamp(min=1e-4) / 448
    return (y / s[..., None]).reshape(x.shape).to(torch.float8_e4m3fn), s


# further


def log_of(x: Any) -> Any:
    """Of zero minus infinity."""
    return torch.log(x)


def silu(x: Any) -> Any:
    return F.silu(x)


def largest_four(x: Any) -> Any:
    return x.topk(4, -1).values


def placed(ids: Any, capacity: int) -> Any:
    """Which place each row has with its expert, of 64; -1 where that is full."""
    one = F.one_hot(ids.long(), 64)
    place = ((one.cumsum(0) - 1) * one).sum(-1)
    return torch.where(place < capacity, place, -1).to(torch.int32)


def between_ends_or_zero(x: Any) -> Any:
    """Numbers from 0 to 1; zeros where all are equal, or some aren't numbers."""
    low, high = x.min(), x.max()
    return torch.where(high > low, (x - low) / (high - low), torch.zeros_like(x))


# of which nothing is known in float64, or which fail


def variance_by_product(x: Any) -> Any:
    """By a product with numbers of torch's usual dtype, which float64 can't be multiplied by."""
    part = torch.full((x.shape[1], 1), 1 / x.shape[1], device=x.device)
    return ((x - x @ part).square() @ part)[:, 0]


def branch_by_product(p: Any, h: Any) -> Any:
    """Adds a branch that is small, by a product with a number of torch's usual dtype."""
    part = torch.full((1, 1), 0.005, device=p.device)
    return (p + (torch.tanh(h)[:, None] @ part)[:, 0]).to(torch.bfloat16)


def checked_softmax(x: Any) -> Any:
    if not torch.isfinite(x).all():
        raise ValueError("numbers must be finite")
    return torch.softmax(x, -1)


def largest(x: Any) -> Any:
    return x.max().reshape(1)


def remainders(x: Any) -> Any:
    return torch.fmod(x, 3.0)


# float64


def row_sums_of(x: Any) -> Any:
    return x.sum(-1)


def millionths(x: Any) -> Any:
    return torch.floor(x * 1e7).to(torch.int64)


def normalized(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
