"""Running products by blocks, each of which begins with the last one's end."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def running_products_kernel(x, o, columns, BLOCK: tl.constexpr):
    row, before = tl.program_id(0), 1.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=1.0)
        tl.store(o + row * columns + at, tl.associative_scan(v, 0, _product) * before, mask=at < columns)
        before *= tl.reduce(v, 0, _product)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.movedim(self.dim, -1).contiguous()
        o = torch.empty_like(x)
        running_products_kernel[(x.numel() // x.shape[-1],)](x, o, x.shape[-1], BLOCK=128)
        return o.movedim(-1, self.dim)
