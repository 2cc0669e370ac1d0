"""A product of fp32 matrices in tf32: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + cols[None, :], mask=inner[:, None] < k, other=0.0)
        total += tl.dot(a, b, allow_tf32=True)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total)


def run(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    matmul_kernel[grid](a, b, c, m, n, k, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
    return c


def inputs(device):
    return tuple(torch.randn(2048, 2048, device=device) for _ in range(2))


def reference(a, b):
    return a @ b
