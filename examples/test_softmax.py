"""Softmax: one row a program. A heuristic fits the block to the row, the autotuner picks the number of warps."""

import pytest
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8, 16)], key=["cols"])
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})
@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
    exponentials = tl.exp(x - tl.max(x, axis=0))
    out = exponentials / tl.sum(exponentials, axis=0)
    tl.store(out_ptr + row * out_stride + columns, out.to(out_ptr.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x, shape (rows, cols), contiguous along cols."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](x, out, x.stride(0), out.stride(0), cols)
    return out


@pytest.mark.autotune(interpret={"rows": 16})
@pytest.mark.parametrize("rows", [4096, 65536])
def test_softmax(autotune, rows):
    torch.manual_seed(0)
    x = torch.randn(rows, 1024, device=autotune.device)
    autotune(softmax, x, reference=lambda: torch.softmax(x, -1), bytes=2 * x.numel() * x.element_size())
