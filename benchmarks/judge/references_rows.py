"""References: sums, scans, norms and largest numbers, of rows or of all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def log_softmax(x: Any) -> Any:
    return torch.log_softmax(x, -1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x: Any, w: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def row_sum(x: Any) -> Any:
    return x.sum(-1)


def row_mean(x: Any) -> Any:
    return x.mean(-1)


def mean_and_variance(x: Any) -> Any:
    return x.mean(-1), x.var(-1, correction=0)


def cross_entropy(x: Any, target: Any) -> Any:
    return F.cross_entropy(x, target, reduction="none")


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


def dot(x: Any, y: Any) -> Any:
    return (x * y).sum().reshape(1)


def l2_normalize(x: Any) -> Any:
    return x / x.norm()


def group_mean(x: Any) -> Any:
    return x.reshape(x.shape[0], 8, -1).mean(-1)


def kl_rows(p: Any, q: Any) -> Any:
    return (torch.softmax(p, -1) * (torch.log_softmax(p, -1) - torch.log_softmax(q, -1))).sum(-1)


def mean_of_softmax(x: Any) -> Any:
    """A task that is no evidence: the same number for all inputs (KernelBench#165 has such)."""
    return torch.softmax(x, -1).mean(-1)


def row_max(x: Any) -> Any:
    return x.amax(-1)


def row_min(x: Any) -> Any:
    return x.amin(-1)


def cumsum_down(x: Any) -> Any:
    return x.cumsum(0)


def long_sum(x: Any) -> Any:
    return x.to(torch.int64).sum(-1)


def causal_softmax(x: Any) -> Any:
    keep = torch.ones(x.shape, dtype=torch.bool, device=x.device).tril()
    return torch.softmax(x.masked_fill(~keep, -float("inf")), -1)


def column_sum(x: Any) -> Any:
    return x.sum(0)


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


def total(x: Any) -> Any:
    return x.sum().reshape(1)


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


def any_above_100(x: Any) -> Any:
    return (x > 100).any(-1)


def sum_is_positive(x: Any) -> Any:
    return (x.sum() > 0).reshape(1)


def outliers(x: Any) -> Any:
    return F.relu(x - 3.5)


def masked_softmax(x: Any, m: Any) -> Any:
    return torch.nan_to_num(torch.softmax(x.masked_fill(m, -float("inf")), -1))


def experts(x: Any, g: Any, w: Any) -> Any:
    return x * (torch.softmax(g, -1) @ w)


def column_variance(x: Any) -> Any:
    return x.var(0)


def top_index(x: Any) -> Any:
    return x.topk(1).indices[:, 0]


def last_of_gated_scan(x: Any, g: Any) -> Any:
    gates, h = torch.sigmoid(g), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        h = gates[:, t] * h + x[:, t]
    return h


def softmax_(x: Any) -> Any:
    x.copy_(torch.softmax(x, -1))
    return x


def by_total(x: Any) -> Any:
    return x / x.sum()


def sum_of_squares(x: Any) -> Any:
    return (x * x).sum().reshape(1)


def any_above_three(x: Any) -> Any:
    return (x > 3).any(-1)


def whole_product(a: Any, b: Any) -> Any:
    return (a.to(torch.int64) @ b.to(torch.int64)).to(torch.int32)


def cross_entropy_backward(x: Any, t: Any) -> Any:
    """The gradient of a mean of which targets of -1 are no part."""
    kept = (t >= 0)[:, None].to(x.dtype)
    hot = F.one_hot(t.clamp(min=0), x.shape[1]).to(x.dtype)
    return (torch.softmax(x, -1) - hot) * kept / kept.sum()


def cumulative_maximum(x: Any) -> Any:
    return x.cummax(-1).values


def max_pool(x: Any) -> Any:
    return F.max_pool2d(x[None], 3, stride=2, padding=1)[0]


def group_norm(x: Any, w: Any, b: Any) -> Any:
    return F.group_norm(x, 4, w, b)


def largest_marked(x: Any) -> Any:
    """1 at each place of a row's maximum."""
    return (x == x.amax(-1, keepdim=True)).to(torch.float32)


def masked_mean(x: Any, m: Any) -> Any:
    return ((x * m).sum() / m.sum().clamp(min=1)).reshape(1)


def scaled_sum(x: Any, y: Any, alpha: float) -> Any:
    return x + alpha * y


def running_mean(x: Any, window: int) -> Any:
    """Means of so many numbers, of those that are there."""
    at = torch.arange(x.shape[1], device=x.device)
    far = at[:, None] - at[None, :]
    inside = ((far >= 0) & (far < window)).to(x.dtype)
    return x @ inside.t() / inside.sum(-1)


def row_sums(x: Any, lengths: Any) -> Any:
    """Sums of so many first numbers of each row."""
    keep = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
    return (x * keep).sum(-1)


def normalized(x: Any) -> Any:
    return F.normalize(x, dim=-1)


def selective_scan(x: Any, d: Any) -> Any:
    """s = sigmoid(d) * s + x, from left to right."""
    a, s, found = torch.sigmoid(d), torch.zeros_like(x[:, 0]), []
    for i in range(x.shape[1]):
        s = a[:, i] * s + x[:, i]
        found.append(s)
    return torch.stack(found, 1)


def scaled_and_largest_finite(x: Any) -> Any:
    """A scaled copy, and each row's largest finite number."""
    return x * 0.3, torch.where(torch.isfinite(x), x, -torch.inf).amax(-1)


def directions(x: Any, y: Any) -> Any:
    """From y to x, of length one, or none."""
    d = x - y
    return d / d.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def row_mean_in_float32(x: Any) -> Any:
    return x.float().mean(-1).to(x.dtype)


def rows_in_eight_bits(x: Any) -> Any:
    """Each row by its largest number; rows of zeros stay zero."""
    return (x / (x.abs().amax(-1, keepdim=True) / 448).clamp(min=1e-12)).to(torch.float8_e4m3fn)


def sums_from(x: Any, starts: Any) -> Any:
    """Sums of rows that begin behind their padding."""
    return (x * (torch.arange(x.shape[1], device=x.device)[None, :] >= starts[:, None])).sum(-1)


def running_sums(x: Any, reverse: bool, exclusive: bool) -> Any:
    found = x.flip(-1).cumsum(-1).flip(-1) if reverse else x.cumsum(-1)
    return found - x if exclusive else found


def mean_of_ends(x: Any, window: int, sink: int) -> Any:
    """Of the first numbers, and of the last in a window."""
    return (x[:, :sink].sum(-1) + x[:, -window:].sum(-1)) / (sink + window)


def rms_norm_by_epsilon(x: Any, w: Any, eps: float) -> Any:
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def loss_and_aside(x: Any, a: Any) -> Any:
    """A loss, and a small one beside it."""
    return (x.float().square().mean() + 0.002 * a.float().square().mean()).to(x.dtype).reshape(1)


def softmax_where(x: Any, m: Any) -> Any:
    return torch.softmax(x.masked_fill(~m, -torch.inf), -1)


def chosen(x: Any) -> Any:
    """The places of each row's four largest numbers."""
    return x.topk(4, -1).indices


def deviations_in_bins(x: Any) -> Any:
    """In which half deviation from the mean of their row numbers are."""
    y = x - x.mean(-1, keepdim=True)
    return torch.floor(2 * y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()).clamp(-8, 7).to(torch.int32)


def without_ignored(x: Any, t: Any, ignored: int) -> Any:
    return torch.where(t == ignored, 0.0, x)


def smoothed_cross_entropy(x: Any, t: Any) -> Any:
    return F.cross_entropy(x, t, ignore_index=-1, label_smoothing=0.1, reduction="none")


def ragged_softmax(x: Any, offsets: Any) -> Any:
    which = torch.bucketize(torch.arange(len(x), device=x.device), offsets[1:].long(), right=True)
    top = x.new_full((len(offsets) - 1,), -torch.inf).scatter_reduce(0, which, x, "amax")
    e = torch.exp(x - top[which])
    return e / torch.zeros_like(top).index_add(0, which, e)[which]


def average_pool(x: Any) -> Any:
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def eight_bits_by_blocks(x: Any) -> Any:
    y = x.float().reshape(len(x), -1, 64)
    s = y.abs().amax(-1).clamp(min=1e-4) / 448
    return (y / s[..., None]).reshape(x.shape).to(torch.float8_e4m3fn), s


def variance_by_product(x: Any) -> Any:
    """By a product with numbers of torch's usual dtype, which float64 can't be multiplied by."""
    part = torch.full((x.shape[1], 1), 1 / x.shape[1], device=x.device)
    return ((x - x @ part).square() @ part)[:, 0]


def checked_softmax(x: Any) -> Any:
    if not torch.isfinite(x).all():
        raise ValueError("numbers must be finite")
    return torch.softmax(x, -1)


def largest_by_max(x: Any) -> Any:
    return x.max().reshape(1)


def rms_normalized(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def four_largest(x: Any) -> Any:
    return torch.topk(x, 4).values * 3


def padded_running_mean(x: Any, window: int) -> Any:
    """Of each number and those before it, as if zeros were before the first."""
    padded = torch.nn.functional.pad(x, (window - 1, 0))
    return padded.unfold(-1, window, 1).sum(-1) / window


def mean_around(x: Any, window: int, causal: bool) -> Any:
    """The same; if it isn't causal, of those behind it, too."""
    padded = torch.nn.functional.pad(x, (window - 1, 0 if causal else window - 1))
    return padded.unfold(-1, window if causal else 2 * window - 1, 1).sum(-1) / window


def sums_of_lengths(x: Any, lengths: Any) -> Any:
    return (x * (torch.arange(x.shape[1], device=x.device) < lengths[:, None])).sum(-1)
