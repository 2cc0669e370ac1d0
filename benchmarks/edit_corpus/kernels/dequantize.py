"""Four-bit weights, eight in an int32, to fp16 with a scale a group of 128: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def dequantize_kernel(packed_ptr, scale_ptr, out_ptr, n, group, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    packed = tl.load(packed_ptr + offsets // 8, mask=inside)
    values = (packed >> ((offsets % 8) * 4)) & 0xF
    scale = tl.load(scale_ptr + offsets // GROUP, mask=inside).to(tl.float32)
    result = (values - 8).to(tl.float32) * scale
    tl.store(out_ptr + offsets, result.to(tl.float16), mask=inside)


def run(packed, scale):
    n = packed.numel() * 8
    out = torch.empty(n, device=packed.device, dtype=torch.float16)
    dequantize_kernel[(triton.cdiv(n, 2048),)](packed, scale, out, n, 128, BLOCK=2048, GROUP=128, num_warps=4)
    return out


def inputs(device):
    n = 2**27
    packed = torch.randint(0, 2**31 - 1, (n // 8,), device=device, dtype=torch.int32)
    return packed, torch.randn(n // 128, device=device, dtype=torch.float16)


def reference(packed, scale):
    shifts = torch.arange(0, 32, 4, device=packed.device)
    values = ((packed[:, None] >> shifts) & 0xF).flatten() - 8
    return (values.view(-1, 128).float() * scale.float()[:, None]).half().flatten()
