"""How often each of 256 values occurs: a bare kernel with atomic additions."""

import torch
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    counts = tl.histogram(x, BINS, mask=offsets < n)
    tl.atomic_add(counts_ptr + tl.arange(0, BINS), counts)


def run(x):
    n = x.numel()
    counts = torch.zeros(256, device=x.device, dtype=torch.int32)
    histogram_kernel[(triton.cdiv(n, 8192),)](x, counts, n, BLOCK=8192, BINS=256, num_warps=4)
    return counts


def inputs(device):
    return (torch.randint(0, 256, (2**25,), device=device, dtype=torch.int32),)


def reference(x):
    return torch.bincount(x, minlength=256).int()
