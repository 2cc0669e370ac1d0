"""Sums of the rows of each segment, a segment and a block of columns each program: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def segment_kernel(x_ptr, offsets_ptr, out_ptr, cols, R: tl.constexpr, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(offsets_ptr + segment)
    last = tl.load(offsets_ptr + segment + 1)
    total = tl.zeros([R, BLOCK], tl.float32)
    for start in range(first, last, R):
        rows = start + tl.arange(0, R)
        x = tl.load(x_ptr + rows[:, None] * cols + columns[None, :], mask=(rows < last)[:, None], other=0.0)
        total += x.to(tl.float32)
    result = tl.sum(total, axis=0)
    tl.store(out_ptr + segment * cols + columns, result)


def run(x, offsets):
    segments, cols = offsets.numel() - 1, x.shape[1]
    out = torch.empty(segments, cols, device=x.device)
    segment_kernel[(segments, triton.cdiv(cols, 256))](x, offsets, out, cols, R=8, BLOCK=256, num_warps=4)
    return out


def inputs(device):
    x = torch.randn(65536, 1024, device=device, dtype=torch.float16)
    return x, torch.arange(0, 65537, 64, device=device, dtype=torch.int32)


def reference(x, offsets):
    return x.float().view(-1, 64, x.shape[1]).sum(1)
