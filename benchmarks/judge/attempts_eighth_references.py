"""References of the eighth author's attempts."""

from __future__ import annotations

from typing import Any

import torch


def tripled(x: Any) -> Any:
    return x * 3


def running_sums(x: Any) -> Any:
    return x.cumsum(0)


def overlapped(x: Any) -> Any:
    """Frames, each 16 behind the one before, summed where they overlap."""
    frames, length = x.shape
    o = torch.zeros(16 * (frames - 1) + length, device=x.device, dtype=x.dtype)
    for i in range(frames):
        o[16 * i : 16 * i + length] += 0.5 * x[i]
    return o


def overlaid(x: Any) -> Any:
    """Frames, each 16 behind the one before, of which the last one counts."""
    frames, _ = x.shape
    return 0.5 * torch.cat([*(x[i, :16] for i in range(frames - 1)), x[-1]])


def four_largest(x: Any) -> Any:
    return torch.topk(x, 4).values * 3


def stable_order(x: Any) -> Any:
    return torch.sort(x, dim=-1, stable=True).indices


def not_numbers(x: Any) -> Any:
    return torch.isnan(x)


def clamped_whole(x: Any) -> Any:
    """The whole part, from -7 to 7; what is too large for 32 bits is -7."""
    large = x.abs() >= 2.0**31
    return torch.where(large | x.isnan(), torch.full_like(x, -7.0), x.trunc()).clamp(-7, 7).to(torch.int32)


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def by_log_gamma(x: Any, n: Any) -> Any:
    at = n.to(torch.float32)[:, None] + torch.arange(x.shape[1], device=x.device)
    return x * torch.lgamma(at)


def by_cosines(x: Any) -> Any:
    rows, columns = x.shape
    at = torch.arange(rows, device=x.device)[:, None] * torch.arange(1, columns + 1, device=x.device)
    return x * torch.cos(at * 0.001)


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def relu(x: Any) -> Any:
    return torch.relu(x)


def column_sum(x: Any) -> Any:
    return x.sum(0)


def running_mean(x: Any, window: int) -> Any:
    """Of each number and those before it, as if zeros were before the first."""
    padded = torch.nn.functional.pad(x, (window - 1, 0))
    return padded.unfold(-1, window, 1).sum(-1) / window


def mean_around(x: Any, window: int, causal: bool) -> Any:
    """The same; if it isn't causal, of those behind it, too."""
    padded = torch.nn.functional.pad(x, (window - 1, 0 if causal else window - 1))
    return padded.unfold(-1, window if causal else 2 * window - 1, 1).sum(-1) / window


def mirrored(x: Any) -> Any:
    """What is above the diagonal is as below it."""
    return x.tril() + x.tril(-1).t()


def without_nan(x: Any) -> Any:
    return torch.where(torch.isnan(x), torch.zeros_like(x), x)


def rolled(x: Any, shift: int) -> Any:
    return torch.roll(x, shift, -1)


def sums_of_lengths(x: Any, lengths: Any) -> Any:
    return (x * (torch.arange(x.shape[1], device=x.device) < lengths[:, None])).sum(-1)


def tripled_and_number(x: Any) -> Any:
    return x * 3, x.numel()


def tripled_by_name(x: Any) -> Any:
    return {"tripled": x * 3}


def times(x: Any, alpha: float) -> Any:
    return x * alpha


def chosen_or_most(x: Any, m: Any) -> Any:
    """Numbers that are chosen, and the largest of 8 bits for others."""
    return torch.where(m, x, torch.full_like(x, 57344.0))
