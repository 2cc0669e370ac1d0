"""Split-K matmul for few rows: programs share an output tile and add to it by atomics.

Every launch adds, so the autotuner must zero the output between trials: `reset_to_zero`.
"""

import pytest
import torch
import triton
import triton.language as tl

M = 16


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split}, num_warps=4, num_stages=stages)
        for n, k, stages in [(32, 256, 4), (64, 128, 4), (64, 128, 6), (128, 64, 6)]
        for split in (4, 8, 16)
    ],
    key=["n", "k"],
    reset_to_zero=["out_ptr"],
)
@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, out_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside_m = rows[:, None] < m
    inside_n = cols[None, :] < n
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(tl.program_id(2) * BLOCK_K, k, SPLIT_K * BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=inside_m & (inner[None, :] < k), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + cols[None, :], mask=inside_n & (inner[:, None] < k), other=0.0)
        total = tl.dot(a, b, total)
    tl.atomic_add(out_ptr + rows[:, None] * n + cols[None, :], total, mask=inside_m & inside_n, sem="relaxed")


def split_k_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b in float32 for contiguous a of shape (m, k) and b of shape (k, n)."""
    (m, k), (_, n) = a.shape, b.shape
    out = torch.zeros(m, n, device=a.device)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]), meta["SPLIT_K"])

    split_k_kernel[grid](a, b, out, m, n, k, BLOCK_M=16)
    return out


@pytest.mark.autotune(tolerance=0.03, interpret={"n": 100, "k": 1000})  # atomics arrive in another order every time
@pytest.mark.parametrize(("n", "k"), [(1024, 16384), (4096, 14336)])
def test_split_k(autotune, n, k):
    torch.manual_seed(0)
    a = torch.randn(M, k, device=autotune.device, dtype=torch.float16)
    b = torch.randn(k, n, device=autotune.device, dtype=torch.float16)
    autotune(
        split_k_matmul, a, b,
        reference=lambda: a.float() @ b.float(), rtol=1e-2, atol=1e-1, flops=2 * M * n * k,
    )  # fmt: skip
