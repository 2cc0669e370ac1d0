"""One program sorts all, padded with infinity."""

import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def sorted_kernel(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=float("inf"))
    tl.store(o + at, tl.sort(v), mask=at < n)


def custom_kernel(data: input_t) -> output_t:
    n = data.shape[0]
    o = torch.empty_like(data)
    sorted_kernel[(1,)](data, o, n, BLOCK=triton.next_power_of_2(n))
    return o
