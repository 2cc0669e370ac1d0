"""A candidate in KernelBench's layout, with the reference's parameters under their names."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, o, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    r = v * tl.rsqrt(tl.sum(v * v, 0) / columns + eps)
    r = r * tl.load(w + at, mask=at < columns) + tl.load(b + at, mask=at < columns)
    tl.store(o + row * columns + at, r, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        norm_kernel[(x.shape[0],)](x, self.weight, self.bias, o, x.shape[1], self.eps, BLOCK=block)
        return o
