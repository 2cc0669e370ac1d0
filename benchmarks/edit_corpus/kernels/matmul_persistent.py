"""A product of bf16 matrices by programs that each take several tiles: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * tiles_n
    inner = tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile // tiles_n * BM + tl.arange(0, BM)
        cols = tile % tiles_n * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            a = tl.load(a_ptr + rows[:, None] * k + (start + inner)[None, :])
            b = tl.load(b_ptr + (start + inner)[:, None] * n + cols[None, :])
            total = tl.dot(a, b, total)
        tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(tl.bfloat16))


def run(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=torch.bfloat16)
    programs = 132
    matmul_kernel[(programs,)](a, b, c, m, n, k, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
    return c


def inputs(device):
    a = torch.randn(4096, 2048, device=device, dtype=torch.bfloat16)
    return a, torch.randn(2048, 4096, device=device, dtype=torch.bfloat16)


def reference(a, b):
    return a @ b
