"""int8 by int8, with scales of rows and columns: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def integer_kernel(
    a_ptr, b_ptr, row_scale_ptr, col_scale_ptr, out_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.int32)
    for start in range(0, k, BK):
        a = tl.load(a_ptr + rows[:, None] * k + (start + inner)[None, :])
        b = tl.load(b_ptr + cols[:, None] * k + (start + inner)[None, :])
        total = tl.dot(a, b.T, total)
    scale = tl.load(row_scale_ptr + rows)[:, None] * tl.load(col_scale_ptr + cols)[None, :]
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], (total.to(tl.float32) * scale).to(tl.float16))


def run(a, b, row_scale, col_scale):
    (m, k), n = a.shape, b.shape[0]
    out = torch.empty(m, n, device=a.device, dtype=torch.float16)
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
    integer_kernel[grid](a, b, row_scale, col_scale, out, n, k, BM=128, BN=128, BK=128, num_warps=8, num_stages=3)
    return out


def inputs(device):
    a, b = (torch.randint(-8, 8, (4096, 4096), device=device, dtype=torch.int8) for _ in range(2))
    return a, b, torch.full((4096,), 0.01, device=device), torch.full((4096,), 0.1, device=device)


def reference(a, b, row_scale, col_scale):
    return (a.float() @ b.float().T * row_scale[:, None] * col_scale[None, :]).half()
