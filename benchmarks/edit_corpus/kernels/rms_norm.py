"""x / rms(x) * weight in fp16: a bare kernel, a row each program."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside).to(tl.float32)
    tl.store(out_ptr + row * cols + columns, (x * rstd * weight).to(tl.float16), mask=inside)


def run(x, weight, residual):
    rows, cols = x.shape
    out = torch.empty_like(x)
    rms_norm_kernel[(rows,)](x, residual, weight, out, cols, 1e-6, BLOCK=triton.next_power_of_2(cols), num_warps=8)
    return out


def inputs(device):
    x = torch.randn(16384, 5120, device=device, dtype=torch.float16)
    return x, torch.randn(5120, device=device, dtype=torch.float16), torch.zeros_like(x)


def reference(x, weight, residual):
    x = x.float()
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight.float()).half()
