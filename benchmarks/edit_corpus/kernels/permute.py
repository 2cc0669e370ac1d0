"""(tokens, heads, head) to (heads, tokens, head): a bare kernel over single elements."""

import torch
import triton
import triton.language as tl


@triton.jit
def permute_kernel(x_ptr, out_ptr, tokens, HEADS: tl.constexpr, HEAD: tl.constexpr, T: tl.constexpr):
    t = tl.program_id(0) * T + tl.arange(0, T)
    head = tl.program_id(1)
    dims = tl.arange(0, HEAD)
    inside = (t < tokens)[:, None]
    x = tl.load(x_ptr + (t[:, None] * HEADS + head) * HEAD + dims[None, :], mask=inside)
    tl.store(out_ptr + (head * tokens + t[:, None]) * HEAD + dims[None, :], x, mask=inside)


def run(x):
    tokens, heads, head = x.shape
    out = torch.empty(heads, tokens, head, device=x.device, dtype=x.dtype)
    permute_kernel[(triton.cdiv(tokens, 32), heads)](x, out, tokens, HEADS=heads, HEAD=head, T=32, num_warps=4)
    return out


def inputs(device):
    return (torch.randn(16384, 32, 128, device=device, dtype=torch.float16),)


def reference(x):
    return x.transpose(0, 1).contiguous()
