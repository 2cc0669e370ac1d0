"""Layer norm, forward and backward, as an `autograd.Function` of three kernels.

Heuristics alone choose block and warps of the row kernels; the column sum of the backward pass is autotuned.
"""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

COLS = 4096
EPS = 1e-5
PROGRAMS = 512  # of the backward kernel; each keeps a partial sum of the weight's and the bias's gradient

one_row = triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["cols"]),
        "num_warps": lambda args: min(max(args["BLOCK"] // 512, 1), 16),
    }
)


@one_row
@triton.jit
def forward_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / cols
    centered = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=inside).to(tl.float32)
    out = centered * rstd * weight + bias
    tl.store(out_ptr + row * cols + columns, out.to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@one_row
@triton.jit
def backward_kernel(
    grad_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr, rows, cols, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    d_weight = tl.zeros((BLOCK,), tl.float32)
    d_bias = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        grad = tl.load(grad_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        scaled = grad * weight
        along = tl.sum(scaled * normal, axis=0) / cols
        dx = (scaled - normal * along - tl.sum(scaled, axis=0) / cols) * rstd
        tl.store(dx_ptr + row * cols + columns, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        d_weight += grad * normal
        d_bias += grad
    tl.store(partial_ptr + program * cols + columns, d_weight, mask=inside)
    tl.store(partial_ptr + (tl.num_programs(0) + program) * cols + columns, d_bias, mask=inside)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_ROWS": rows, "BLOCK_COLS": cols}, num_warps=warps)
        for rows, cols, warps in [(16, 32, 4), (32, 32, 4), (64, 32, 4), (64, 32, 8), (128, 16, 4), (128, 32, 8)]
    ],
    key=["rows", "cols"],
)
@triton.jit
def column_sum_kernel(partial_ptr, out_ptr, rows, cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    half = tl.program_id(1)  # 0 sums the weight's part, 1 the bias's
    columns = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLS), tl.float32)
    for start in range(0, rows, BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)
        inside = (row[:, None] < rows) & (columns[None, :] < cols)
        total += tl.load(partial_ptr + (half * rows + row[:, None]) * cols + columns[None, :], mask=inside, other=0.0)
    out = tl.sum(total, axis=0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + half * cols + columns, out, mask=columns < cols)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        rows, cols = x.shape
        out = torch.empty_like(x)
        mean, rstd = torch.empty(2, rows, device=x.device)
        forward_kernel[(rows,)](x, weight, bias, out, mean, rstd, cols, EPS)
        ctx.save_for_backward(x, weight, mean, rstd)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, mean, rstd = ctx.saved_tensors
        rows, cols = x.shape
        grad = grad.contiguous()
        dx = torch.empty_like(x)
        partial = torch.empty(2, PROGRAMS, cols, device=x.device)
        backward_kernel[(PROGRAMS,)](grad, x, weight, mean, rstd, dx, partial, rows, cols)
        sums = torch.empty(2, cols, device=x.device, dtype=weight.dtype)
        column_sum_kernel[lambda meta: (triton.cdiv(cols, meta["BLOCK_COLS"]), 2)](partial, sums, PROGRAMS, cols)
        d_weight, d_bias = sums
        return dx, d_weight, d_bias


def torch_layer_norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias, EPS)


def gradients(function, grad, *inputs):
    """Runs function(*inputs) forward and backward; the gradients of all inputs."""
    return torch.autograd.grad(function(*inputs), inputs, grad)


@pytest.mark.autotune(interpret={"rows": 16})
@pytest.mark.parametrize("rows", [2048, 16384])
def test_layer_norm(autotune, rows):
    torch.manual_seed(0)
    cols = 500 if autotune.interpreted else COLS
    half = {"device": autotune.device, "dtype": torch.float16}
    x = torch.randn(rows, cols, **half).requires_grad_()
    weight = torch.randn(cols, **half).requires_grad_()
    bias = torch.randn(cols, **half).requires_grad_()
    grad = torch.randn(rows, cols, **half)
    autotune(
        LayerNorm.apply, x, weight, bias, name="forward",
        reference=lambda: torch_layer_norm(x, weight, bias), rtol=1e-2, atol=1e-2,
    )  # fmt: skip
    autotune(
        gradients, LayerNorm.apply, grad, x, weight, bias, name="backward",
        reference=lambda: gradients(torch_layer_norm, grad, x, weight, bias), rtol=1e-2, atol=5e-2,
    )  # fmt: skip
