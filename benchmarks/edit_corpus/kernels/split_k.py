"""A product of a thin matrix, the inner dimension split between programs that add atomically: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):
    rows = tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    inner = tl.program_id(1) * BK + tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * n + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK * SPLIT):
        a = tl.load(a_ptrs, mask=rows[:, None] < m, other=0.0)
        b = tl.load(b_ptrs)
        total = tl.dot(a, b, total)
        a_ptrs += BK * SPLIT
        b_ptrs += BK * SPLIT * n
    tl.atomic_add(c_ptr + rows[:, None] * n + cols[None, :], total, mask=rows[:, None] < m)


def run(a, b):
    (m, k), n = a.shape, b.shape[1]
    SPLIT = 4
    c = torch.zeros(m, n, device=a.device)
    split_k_kernel[(triton.cdiv(n, 64), SPLIT)](
        a, b, c, m, n, k, BM=16, BN=64, BK=128, SPLIT=SPLIT, num_warps=4, num_stages=4
    )
    return c


def inputs(device):
    a = torch.randn(16, 16384, device=device, dtype=torch.float16)
    return a, torch.randn(16384, 8192, device=device, dtype=torch.float16)


def reference(a, b):
    return (a @ b).float()
