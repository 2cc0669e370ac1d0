"""Heuristics instead of config lists: what to try follows from the sizes, strides and code of each call."""

import pytest
import torch
import triton
import triton.language as tl

import kerntune
from kerntune.grids import Grid1D


@kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})
@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    out = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=inside)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """The exact GELU of a contiguous tensor."""
    out = torch.empty_like(x)
    gelu_kernel[Grid1D("n", "BLOCK")](x, out, x.numel())
    return out


@kerntune.reduction(sizes={"x": "rows", "r0": "cols"}, blocks={"x": "ROWS", "r0": "STEP"})
@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, cols, row_stride, col_stride, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, STEP), tl.float32)
    for start in range(0, cols, STEP):
        col = start + tl.arange(0, STEP)[None, :]
        inside = (row < rows) & (col < cols)
        total += tl.load(x_ptr + row * row_stride + col * col_stride, mask=inside, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=1)[:, None], mask=row < rows)


def row_sums(x: torch.Tensor) -> torch.Tensor:
    """The sums over the last dimension of x, shape (rows, cols), of any strides."""
    rows, cols = x.shape
    out = torch.empty(rows, device=x.device, dtype=torch.float32)
    sum_kernel[Grid1D("rows", "ROWS")](x, out, rows, cols, x.stride(0), x.stride(1))
    return out


@pytest.mark.autotune
def test_gelu(autotune):
    torch.manual_seed(0)
    n = 2**14 if autotune.interpreted else 2**24
    x = torch.randn(n, device=autotune.device, dtype=torch.float16)
    autotune(gelu, x, reference=lambda: torch.nn.functional.gelu(x), bytes=2 * x.numel() * x.element_size())


@pytest.mark.autotune
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_sums(autotune, order):
    """Contiguous along the reduced axis or across it: the strides choose between an inner and an outer reduction."""
    torch.manual_seed(0)
    rows, cols = (50, 1000) if autotune.interpreted else (4096, 8192)
    x = torch.randn(rows, cols, device=autotune.device)
    x = x if order == "rows" else x.T.contiguous().T
    autotune(row_sums, x, reference=lambda: x.sum(1), rtol=1e-4, atol=1e-2, bytes=x.numel() * x.element_size())
