"""RMS norm: the wrapper fixes the block, the autotuner chooses how many rows a program takes, and its warps."""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

COLS = 4096
DTYPE = torch.bfloat16
EPS = 1e-6


@triton.autotune(
    configs=[
        triton.Config({"ROWS": rows}, num_warps=warps)
        for rows, warps in [(1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 8), (4, 16)]
    ],
    key=["rows", "cols"],
)
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    offsets = row[:, None] * cols + columns[None, :]
    inside = (row[:, None] < rows) & (columns[None, :] < cols)
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=columns < cols).to(tl.float32)
    out = x * rstd[:, None] * weight[None, :]
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x / sqrt(mean(x²) + EPS) · weight over the rows of x, shape (rows, cols), contiguous."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)  # noqa: E731  a grid is a lambda in Triton's idiom
    rms_norm_kernel[grid](x, weight, out, rows, cols, EPS, BLOCK=triton.next_power_of_2(cols))
    return out


@pytest.mark.autotune(interpret={"rows": 16})
@pytest.mark.parametrize("rows", [512, 16384])
def test_rms_norm(autotune, rows):
    torch.manual_seed(0)
    x = torch.randn(rows, COLS, device=autotune.device, dtype=DTYPE)
    weight = torch.randn(COLS, device=autotune.device, dtype=DTYPE)

    def expected():
        return F.rms_norm(x.float(), (COLS,), weight.float(), EPS).to(DTYPE)

    autotune(rms_norm, x, weight, reference=expected, bytes=2 * x.numel() * x.element_size())
