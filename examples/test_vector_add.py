"""Vector add: a bare `@triton.jit` kernel whose block size is set by hand, so it is gated and not tuned."""

import pytest
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y for contiguous tensors of one shape."""
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out


@pytest.mark.autotune(interpret={"n": 98_432})
@pytest.mark.parametrize("n", [98_432, 2**26])
def test_vector_add(autotune, n):
    torch.manual_seed(0)
    x = torch.randn(n, device=autotune.device)
    y = torch.randn(n, device=autotune.device)
    autotune(add, x, y, reference=lambda: x + y, bytes=3 * n * x.element_size())


@pytest.mark.autotune
def test_vector_add_launches(autotune):
    """`kernel[grid]` is a callable too; several of them in one test have different names."""
    torch.manual_seed(0)
    n = 2**20
    x = torch.randn(n, device=autotune.device)
    y = torch.randn(n, device=autotune.device)
    out = torch.empty_like(x)
    autotune(add_kernel[(triton.cdiv(n, BLOCK),)], x, y, out, n, BLOCK=BLOCK, name="tuple")
    torch.testing.assert_close(out, x + y)

    def grid(meta):
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    autotune(add_kernel[grid], x_ptr=x, y_ptr=y, out_ptr=x, n=n, BLOCK=4 * BLOCK, num_warps=8, name="in_place")
    torch.testing.assert_close(x, out)
