"""A product of fp8 matrices with a scale a row and a column: one config under triton.autotune."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BM": 128, "BN": 128, "BK": 128}, num_stages=3, num_warps=4)], key=["m", "n", "k"]
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] + cols[None, :] * k
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        total = tl.dot(a, b, total)
        a_ptrs += BK
        b_ptrs += BK
    total *= tl.load(a_scale_ptr + rows)[:, None]
    total *= tl.load(b_scale_ptr + cols)[None, :]
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(tl.bfloat16))


def run(a, b, a_scale, b_scale):
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, device=a.device, dtype=torch.bfloat16)
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](
        a, b, c, a_scale, b_scale, m, n, k
    )
    return c


def inputs(device):
    a, b = (torch.randn(4096, 4096, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    return a, b, torch.ones(4096, device=device), torch.ones(4096, device=device)


def reference(a, b, a_scale, b_scale):
    return ((a.float() @ b.float().T) * a_scale[:, None] * b_scale).bfloat16()
