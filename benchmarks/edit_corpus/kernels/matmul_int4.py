"""fp16 by 4-bit weights, two to a byte: row i in the low half, row i + k / 2 in the high one: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def unpacked_kernel(x_ptr, w_ptr, scale_ptr, out_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    half = k // 2
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, half, BK):
        inner = start + tl.arange(0, BK)
        packed = tl.load(w_ptr + inner[:, None] * n + cols[None, :])
        first = tl.load(x_ptr + rows[:, None] * k + inner[None, :])
        second = tl.load(x_ptr + rows[:, None] * k + half + inner[None, :])
        low = (packed & 15).to(tl.float16) - 8
        high = (packed >> 4).to(tl.float16) - 8
        total = tl.dot(first, low, total)
        total = tl.dot(second, high, total)
    scale = tl.load(scale_ptr + cols)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], (total * scale[None, :]).to(tl.float16))


def run(x, w, scale):
    (m, k), n = x.shape, w.shape[1]
    out = torch.empty(m, n, device=x.device, dtype=torch.float16)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 128))
    unpacked_kernel[grid](x, w, scale, out, n, k, BM=64, BN=128, BK=64, num_warps=4, num_stages=3)
    return out


def inputs(device):
    x = torch.randn(512, 4096, device=device, dtype=torch.float16)
    w = torch.randint(0, 256, (2048, 8192), device=device, dtype=torch.uint8)
    return x, w, torch.full((8192,), 0.01, device=device)


def reference(x, w, scale):
    whole = torch.cat([(w & 15).float() - 8, (w >> 4).float() - 8])
    return (x.float() @ whole * scale).half()
