"""The sum of each column, by atomic additions: a bare kernel, over tiles of rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * ROWS
    total = tl.zeros([TILE, COLUMNS], tl.float32)
    for start in range(0, ROWS, TILE):
        row = first + start + tl.arange(0, TILE)
        inside = (row[:, None] < rows) & (columns[None, :] < cols)
        total += tl.load(x_ptr + row[:, None] * cols + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + columns, tl.sum(total, axis=0), mask=columns < cols)


def run(x):
    rows, cols = x.shape
    out = torch.zeros(cols, device=x.device)
    grid = (triton.cdiv(cols, 128), triton.cdiv(rows, 512))
    column_sum_kernel[grid](x, out, rows, cols, ROWS=512, TILE=16, COLUMNS=128, num_warps=4)
    return out


def inputs(device):
    return (torch.randn(16384, 8192, device=device, dtype=torch.float16),)


def reference(x):
    return x.float().sum(0)
