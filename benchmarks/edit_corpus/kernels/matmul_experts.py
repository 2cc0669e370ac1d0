"""Blocks of tokens, each by the matrix of its expert: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def experts_kernel(x_ptr, w_ptr, expert_ptr, out_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    block = tl.program_id(0)
    expert = tl.load(expert_ptr + block * BM // 64)
    rows = block * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    w_ptr += expert.to(tl.int64) * k * n
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :])
        w = tl.load(w_ptr + cols[:, None] * k + inner[None, :])
        total = tl.dot(x, w.T, total)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], total.to(tl.bfloat16))


def run(x, w, experts):
    (tokens, k), n = x.shape, w.shape[1]
    out = torch.empty(tokens, n, device=x.device, dtype=torch.bfloat16)
    grid = (triton.cdiv(tokens, 64), triton.cdiv(n, 128))
    experts_kernel[grid](x, w, experts, out, n, k, BM=64, BN=128, BK=64, num_warps=4, num_stages=4)
    return out


def inputs(device):
    x = torch.randn(4096, 2048, device=device, dtype=torch.bfloat16)
    w = torch.randn(8, 4096, 2048, device=device, dtype=torch.bfloat16)
    return x, w, torch.arange(64, device=device) % 8


def reference(x, w, experts):
    return torch.cat([block @ w[i % 8].T for i, block in enumerate(x.split(64))])
