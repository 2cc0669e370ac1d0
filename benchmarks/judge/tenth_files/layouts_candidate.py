"""Each input is read by its own strides."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def strided_softmax_kernel(x, b, s, o, xi, xj, bi, bj, si, sj, columns, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.arange(0, BLOCK)
    there = j < columns
    v = tl.load(x + i * xi + j * xj, mask=there, other=0.0) * tl.load(s + i * si + j * sj, mask=there, other=0.0)
    v = tl.where(there, v + tl.load(b + i * bi + j * bj, mask=there, other=0.0), -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + i * columns + j, e / tl.sum(e, 0), mask=there)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        o = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        strides = (*x.stride(), *shift.stride(), *scale.stride())
        block = triton.next_power_of_2(x.shape[1])
        strided_softmax_kernel[(x.shape[0],)](x, shift, scale, o, *strides, x.shape[1], BLOCK=block)
        return o
