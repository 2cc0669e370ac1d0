"""Products of batches of fp16 matrices: a tuned kernel."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    [
        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=4, num_stages=4),
        triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_warps=4, num_stages=3),
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=2),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + batch * m * k + rows[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + batch * k * n + inner[:, None] * n + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        total = tl.dot(a, b, total)
        a_ptrs += BK
        b_ptrs += BK * n
    out = c_ptr + batch * m * n + rows[:, None] * n + cols[None, :]
    tl.store(out, total.to(tl.float16))


def run(a, b):
    (batches, m, k), n = a.shape, b.shape[2]
    c = torch.empty(batches, m, n, device=a.device, dtype=torch.float16)

    def grid(meta):
        return triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]), batches

    product_kernel[grid](a, b, c, m, n, k)
    return c


def inputs(device):
    a, b = (torch.randn(16, 1024, 1024, device=device, dtype=torch.float16) for _ in range(2))
    return a, b


def reference(a, b):
    return a @ b
