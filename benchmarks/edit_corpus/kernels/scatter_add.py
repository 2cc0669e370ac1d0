"""An embedding's gradient: rows are added atomically, then rounded to bf16. Two bare kernels."""

import torch
import triton
import triton.language as tl


@triton.jit
def scatter_kernel(token_ptr, grad_ptr, sum_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    token = tl.load(token_ptr + row).to(tl.int64)
    grad = tl.load(grad_ptr + row * cols + columns, mask=inside).to(tl.float32)
    tl.atomic_add(sum_ptr + token * cols + columns, grad, mask=inside, sem="relaxed")


@triton.jit
def round_kernel(sum_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(sum_ptr + offsets, mask=offsets < n).to(tl.bfloat16), mask=offsets < n)


def run(tokens, grad):
    rows, cols = grad.shape
    sums = torch.zeros(8192, cols, device=grad.device)
    out = torch.empty(8192, cols, device=grad.device, dtype=torch.bfloat16)
    n = out.numel()
    scatter_kernel[(rows, triton.cdiv(cols, 1024))](tokens, grad, sums, cols, BLOCK=1024)
    round_kernel[(triton.cdiv(n, 2048),)](sums, out, n, BLOCK=2048)
    return out


def inputs(device):
    tokens = torch.randint(0, 8192, (16384,), device=device)
    return tokens, torch.randn(16384, 4096, device=device, dtype=torch.bfloat16)


def reference(tokens, grad):
    return torch.zeros(8192, grad.shape[1], device=grad.device).index_add(0, tokens, grad.float()).bfloat16()
