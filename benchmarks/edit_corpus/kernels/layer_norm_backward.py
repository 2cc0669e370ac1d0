"""Layer norm backward: partial sums of the weights' gradients by one kernel, added up by a second."""

import torch
import triton
import triton.language as tl


@triton.jit
def backward_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, cols, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        dy = tl.load(dy_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(inside, (x - mean) * rstd, 0.0)
        scaled = dy * weight
        first = tl.sum(normal * scaled, axis=0) / cols
        second = tl.sum(scaled, axis=0) / cols
        dx = (scaled - (normal * first + second)) * rstd
        tl.store(dx_ptr + row * cols + columns, dx.to(tl.float16), mask=inside)
        dw += dy * normal
        db += dy
    tl.store(dw_ptr + program * cols + columns, dw, mask=inside)
    tl.store(db_ptr + program * cols + columns, db, mask=inside)


@triton.jit
def sum_kernel(parts_ptr, out_ptr, parts, cols, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, parts, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows[:, None] < parts) & (columns[None, :] < cols)
        total += tl.load(parts_ptr + rows[:, None] * cols + columns[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, axis=0), mask=columns < cols)


def run(dy, x, weight, mean, rstd):
    rows, cols = x.shape
    parts = 264
    dx = torch.empty_like(x)
    dws, dbs = (torch.empty(parts, cols, device=x.device) for _ in range(2))
    dw, db = torch.empty_like(weight), torch.empty_like(weight)
    backward_kernel[(parts,)](dy, x, weight, mean, rstd, dx, dws, dbs, rows, cols, BLOCK=2048, num_warps=8)
    sum_kernel[(triton.cdiv(cols, 64),)](dws, dw, parts, cols, ROWS=32, COLUMNS=64)
    sum_kernel[(triton.cdiv(cols, 64),)](dbs, db, parts, cols, ROWS=32, COLUMNS=64)
    return dx, dw, db


def inputs(device):
    dy, x = (torch.randn(32768, 2048, device=device, dtype=torch.float16) for _ in range(2))
    mean, rstd = torch.zeros(32768, device=device), torch.ones(32768, device=device)
    return dy, x, torch.randn(2048, device=device), mean, rstd


def reference(dy, x, weight, mean, rstd):
    dy, normal = dy.float(), (x.float() - mean[:, None]) * rstd[:, None]
    scaled = dy * weight
    first, second = (normal * scaled).mean(-1, keepdim=True), scaled.mean(-1, keepdim=True)
    dx = (scaled - (normal * first + second)) * rstd[:, None]
    return dx.half(), (dy * normal).sum(0), dy.sum(0)
