"""Masked running sums: the mask is loaded as bytes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_sums_kernel(x, m, o, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    there = at < columns
    v = tl.load(x + row * columns + at, mask=there, other=0.0)
    keep = tl.load(m + row * columns + at, mask=there, other=0)
    tl.store(o + row * columns + at, tl.cumsum(tl.where(keep != 0, v, 0.0), 0), mask=there)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda, "x must be on a GPU"
        assert self.dim == 1
        o = torch.empty_like(x)
        mask = mask.to(torch.int8)
        masked_sums_kernel[(x.shape[0],)](x, mask, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return o
