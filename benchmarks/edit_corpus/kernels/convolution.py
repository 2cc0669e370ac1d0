"""Causal convolution of each channel over four steps: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def convolution_kernel(
    x_ptr, weight_ptr, out_ptr, steps, channels, WIDTH: tl.constexpr, T: tl.constexpr, C: tl.constexpr
):
    t = tl.program_id(0) * T + tl.arange(0, T)
    c = tl.program_id(1) * C + tl.arange(0, C)
    total = tl.zeros([T, C], tl.float32)
    for i in tl.static_range(WIDTH):
        at = t - (WIDTH - 1) + i
        x = tl.load(x_ptr + at[:, None] * channels + c[None, :], mask=(at >= 0)[:, None], other=0.0)
        weight = tl.load(weight_ptr + i * channels + c)
        total += x.to(tl.float32) * weight[None, :]
    tl.store(out_ptr + t[:, None] * channels + c[None, :], total.to(tl.bfloat16))


def run(x, weight):
    steps, channels = x.shape
    out = torch.empty_like(x)
    grid = (triton.cdiv(steps, 16), triton.cdiv(channels, 256))
    convolution_kernel[grid](x, weight, out, steps, channels, WIDTH=4, T=16, C=256, num_warps=4)
    return out


def inputs(device):
    return torch.randn(16384, 4096, device=device, dtype=torch.bfloat16), torch.randn(4, 4096, device=device)


def reference(x, weight):
    padded = torch.nn.functional.pad(x.float(), (0, 0, 3, 0))
    return sum(padded[i : i + x.shape[0]] * weight[i] for i in range(4)).bfloat16()
