"""fp16 by int8 weights that are widened in the kernel: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(x_ptr, w_ptr, scale_ptr, out_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :])
        w = tl.load(w_ptr + inner[:, None] * n + cols[None, :])
        total = tl.dot(x, w.to(tl.float16), total)
    scale = tl.load(scale_ptr + cols)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], (total * scale[None, :]).to(tl.float16))


def run(x, w, scale):
    (m, k), n = x.shape, w.shape[1]
    out = torch.empty(m, n, device=x.device, dtype=torch.float16)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 128))
    matmul_kernel[grid](x, w, scale, out, m, n, k, BM=64, BN=128, BK=64, num_warps=4, num_stages=3)
    return out


def inputs(device):
    x = torch.randn(1024, 4096, device=device, dtype=torch.float16)
    return (
        x,
        torch.randint(-128, 128, (4096, 8192), device=device, dtype=torch.int8),
        torch.full((8192,), 0.01, device=device),
    )


def reference(x, w, scale):
    return (x.float() @ w.float() * scale).half()
