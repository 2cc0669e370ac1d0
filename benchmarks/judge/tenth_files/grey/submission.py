"""Grey levels, one pixel a lane."""

import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def grey_kernel(rgb, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.load(rgb + 3 * at, mask=at < n)
    g = tl.load(rgb + 3 * at + 1, mask=at < n)
    b = tl.load(rgb + 3 * at + 2, mask=at < n)
    tl.store(out + at, r * 0.2989 + g * 0.5870 + b * 0.1140, mask=at < n)


def custom_kernel(data: input_t) -> output_t:
    rgb, output = data
    assert rgb.is_contiguous()
    assert output.dtype == torch.float32
    n = output.numel()
    grey_kernel[(triton.cdiv(n, 256),)](rgb, output, n, BLOCK=256)
    return output
