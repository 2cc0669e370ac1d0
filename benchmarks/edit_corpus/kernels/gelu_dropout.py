"""gelu(x + bias) with dropout of nothing: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, bias_ptr, out_ptr, cols, p, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * cols + columns, mask=inside).to(tl.float32)
        bias = tl.load(bias_ptr + columns, mask=inside).to(tl.float32)
        x += bias
        result = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
        random = tl.rand(seed, row * cols + columns)
        result = tl.where(random >= p, result / (1 - p), 0.0)
        tl.store(out_ptr + row * cols + columns, result.to(tl.float16), mask=inside)


def run(x, bias):
    rows, cols = x.shape
    out = torch.empty_like(x)
    gelu_kernel[(rows,)](x, bias, out, cols, 0.0, 7, BLOCK=2048, num_warps=8)
    return out


def inputs(device):
    return torch.randn(8192, 10240, device=device, dtype=torch.float16), torch.randn(
        10240, device=device, dtype=torch.float16
    )


def reference(x, bias):
    return torch.nn.functional.gelu(x.float() + bias.float()).half()
