"""A SwiGLU feed-forward block with a scaled residual: three kernels and torch's matmuls behind one function.

The forward pass launches two of the kernels, the backward pass (on autograd's own thread) two, with matmuls between.
"""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="its matrix products take minutes on a CPU")

HIDDEN, INNER = 2048, 5632
RESIDUAL_SCALE = 0.25

pointwise = triton.autotune(
    configs=[
        triton.Config({"BLOCK": block}, num_warps=warps)
        for block, warps in [(512, 4), (1024, 4), (2048, 4), (2048, 8), (4096, 8)]
    ],
    key=["n"],
)


@pointwise
@triton.jit
def swiglu_kernel(both_ptr, out_ptr, n, inner, BLOCK: tl.constexpr):
    """out = silu(gate) * up; the rows of both hold gate, then up."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    gate_ptrs = both_ptr + offsets + offsets // inner * inner
    gate = tl.load(gate_ptrs, mask=inside).to(tl.float32)
    up = tl.load(gate_ptrs + inner, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=inside)


@pointwise
@triton.jit
def swiglu_backward_kernel(grad_ptr, both_ptr, d_both_ptr, n, inner, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    at_gate = offsets + offsets // inner * inner
    gate = tl.load(both_ptr + at_gate, mask=inside).to(tl.float32)
    up = tl.load(both_ptr + at_gate + inner, mask=inside).to(tl.float32)
    grad = tl.load(grad_ptr + offsets, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    d_gate = grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    tl.store(d_both_ptr + at_gate, d_gate.to(d_both_ptr.dtype.element_ty), mask=inside)
    tl.store(d_both_ptr + at_gate + inner, (grad * gate * sigmoid).to(d_both_ptr.dtype.element_ty), mask=inside)


@triton.jit
def add_scaled_kernel(x_ptr, y_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    """out = x + scale * y"""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, (x + scale * y).to(out_ptr.dtype.element_ty), mask=inside)


def add_scaled(x, y, scale):
    out = torch.empty_like(x)
    add_scaled_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, out, scale, x.numel(), BLOCK=2048, num_warps=8)
    return out


def blocks(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


class FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w_in, w_out):
        both = x @ w_in
        inner = w_out.shape[0]
        activated = torch.empty(x.shape[0], inner, device=x.device, dtype=x.dtype)
        swiglu_kernel[blocks(activated.numel())](both, activated, activated.numel(), inner)
        ctx.save_for_backward(x, w_in, w_out, both, activated)
        return add_scaled(x, activated @ w_out, RESIDUAL_SCALE)

    @staticmethod
    def backward(ctx, grad):
        x, w_in, w_out, both, activated = ctx.saved_tensors
        grad = grad.contiguous()
        scaled = grad * RESIDUAL_SCALE
        d_activated = scaled @ w_out.t()
        d_both = torch.empty_like(both)
        n, inner = d_activated.numel(), w_out.shape[0]
        swiglu_backward_kernel[blocks(n)](d_activated, both, d_both, n, inner)
        return add_scaled(grad, d_both @ w_in.t(), 1.0), x.t() @ d_both, activated.t() @ scaled


def torch_feed_forward(x, w_in, w_out):
    gate, up = (x @ w_in).chunk(2, dim=-1)
    return x + RESIDUAL_SCALE * ((F.silu(gate) * up) @ w_out)


def gradients(function, grad, *inputs):
    """Runs function(*inputs) forward and backward; the output, then the gradients of all inputs."""
    out = function(*inputs)
    return out.detach(), *torch.autograd.grad(out, inputs, grad)


@pytest.mark.autotune(interpret={"tokens": 16})
@pytest.mark.parametrize("tokens", [4096])
def test_feed_forward(autotune, tokens):
    torch.manual_seed(0)
    half = {"device": autotune.device, "dtype": torch.float16}
    x = torch.randn(tokens, HIDDEN, **half).requires_grad_()
    w_in = (torch.randn(HIDDEN, 2 * INNER, **half) / HIDDEN**0.5).requires_grad_()
    w_out = (torch.randn(INNER, HIDDEN, **half) / INNER**0.5).requires_grad_()
    grad = torch.randn(tokens, HIDDEN, **half)
    autotune(
        gradients, FeedForward.apply, grad, x, w_in, w_out,
        reference=lambda: gradients(torch_feed_forward, grad, x, w_in, w_out), rtol=1e-2, atol=5e-2,
    )  # fmt: skip
