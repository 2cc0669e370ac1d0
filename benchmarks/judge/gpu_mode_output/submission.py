"""Running sums in memory that the task hands out; of a single block, so that all are summed in one program."""

import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def running_sums(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    found = tl.cumsum(tl.load(x + at, mask=at < n, other=0.0), axis=0)
    tl.store(o + at, found, mask=at < n)


def custom_kernel(data: input_t) -> output_t:
    x, output = data
    running_sums[(1,)](x, output, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return output
