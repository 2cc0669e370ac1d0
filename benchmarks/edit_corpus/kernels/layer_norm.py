"""Layer norm of long rows, in loops over blocks: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * cols
    out_ptr += row * cols
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / cols
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < cols, other=0.0).to(tl.float32)
        x = tl.where(columns < cols, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside)
        bias = tl.load(bias_ptr + columns, mask=inside)
        tl.store(out_ptr + columns, ((x - mean) * rstd * weight + bias).to(tl.bfloat16), mask=inside)


def run(x, weight, bias):
    rows, cols = x.shape
    out = torch.empty_like(x)
    mean, rstd = (torch.empty(rows, device=x.device) for _ in range(2))
    layer_norm_kernel[(rows,)](x, weight, bias, out, mean, rstd, cols, 1e-5, BLOCK=1024, num_warps=4)
    return out, mean, rstd


def inputs(device):
    x = torch.randn(8192, 12288, device=device, dtype=torch.bfloat16)
    return x, torch.randn(12288, device=device), torch.randn(12288, device=device)


def reference(x, weight, bias):
    x = x.float()
    mean, rstd = x.mean(-1), torch.rsqrt(x.var(-1, unbiased=False) + 1e-5)
    return ((x - mean[:, None]) * rstd[:, None] * weight + bias).bfloat16(), mean, rstd
