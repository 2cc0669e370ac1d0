"""x + y: a bare kernel, whose block size is an argument of the launch."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


def run(x, y, zeros, ones):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out


def inputs(device):
    n = 2**25
    x, y = torch.randn(n, device=device), torch.randn(n, device=device)
    return x, y, torch.zeros(n, device=device), torch.ones(1, device=device)


def reference(x, y, zeros, ones):
    return x + y
