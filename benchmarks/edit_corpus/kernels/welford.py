"""Mean and variance of each row by Welford's formula: one config under triton.autotune."""

import torch
import triton
import triton.language as tl


@triton.jit
def combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    delta = mean_b - mean_a
    share = tl.where(n == 0.0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=4)], key=["cols"])
@triton.jit
def welford_kernel(x_ptr, mean_ptr, var_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = tl.zeros([BLOCK], tl.float32)
    m2 = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0)
        new = count + 1
        delta = x - mean
        mean = tl.where(inside, mean + delta / new, mean)
        m2 = tl.where(inside, m2 + delta * (x - mean), m2)
        count = tl.where(inside, new, count)
    mean, m2, count = tl.reduce((mean, m2, count), 0, combine)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, m2 / count)


def run(x):
    rows, cols = x.shape
    mean, var = (torch.empty(rows, device=x.device) for _ in range(2))
    welford_kernel[(rows,)](x, mean, var, cols)
    return mean, var


def inputs(device):
    return (torch.randn(8192, 12288, device=device) + 3,)


def reference(x):
    return x.mean(-1), x.var(-1, unbiased=False)
