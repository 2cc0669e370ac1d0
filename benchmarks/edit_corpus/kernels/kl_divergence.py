"""The divergence of two rows of logits, a row each program: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def divergence_kernel(p_ptr, q_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    p = tl.load(p_ptr + row * cols + columns, mask=inside, other=-1e30).to(tl.float32)
    q = tl.load(q_ptr + row * cols + columns, mask=inside, other=-1e30).to(tl.float32)
    p -= tl.max(p, axis=0)
    q -= tl.max(q, axis=0)
    weight = tl.exp(p)
    total = tl.sum(weight, axis=0)
    other = tl.sum(tl.exp(q), axis=0)
    result = tl.sum(tl.where(inside, weight * (p - q), 0.0), axis=0) / total + tl.log(other) - tl.log(total)
    tl.store(out_ptr + row, result)


def run(p, q):
    rows, cols = p.shape
    out = torch.empty(rows, device=p.device)
    divergence_kernel[(rows,)](p, q, out, cols, BLOCK=8192, num_warps=8)
    return out


def inputs(device):
    p, q = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    return p, q


def reference(p, q):
    p, q = p.float().log_softmax(1), q.float().log_softmax(1)
    return (p.exp() * (p - q)).sum(1)
