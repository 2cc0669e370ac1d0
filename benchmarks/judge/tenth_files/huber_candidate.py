"""Blocks add their parts to one number by atomics."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def smooth_kernel(p, t, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.abs(tl.load(p + at, mask=at < n, other=0.0) - tl.load(t + at, mask=at < n, other=0.0))
    tl.atomic_add(o, tl.sum(tl.where(d < 1.0, 0.5 * d * d, d - 0.5), axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        predictions, targets = predictions.contiguous(), targets.contiguous()
        n = predictions.numel()
        out = torch.zeros((), device=predictions.device, dtype=torch.float32)
        smooth_kernel[(triton.cdiv(n, 1024),)](predictions, targets, out, n, BLOCK=1024, num_warps=4)
        return out
