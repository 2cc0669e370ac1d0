"""A matrix transposed tile by tile: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m[:, None] < rows) & (n[None, :] < cols)
    x = tl.load(x_ptr + m[:, None] * cols + n[None, :], mask=inside)
    tl.store(out_ptr + n[:, None] * rows + m[None, :], tl.trans(x), mask=tl.trans(inside))


def run(x):
    rows, cols = x.shape
    out = torch.empty(cols, rows, device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))
    transpose_kernel[grid](x, out, rows, cols, BM=64, BN=64, num_warps=4)
    return out


def inputs(device):
    return (torch.randn(8192, 8192, device=device, dtype=torch.float16),)


def reference(x):
    return x.T.contiguous()
