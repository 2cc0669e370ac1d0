"""silu(gate) * up in bf16: a bare kernel over rows and columns."""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    gate = tl.load(gate_ptr + row * stride + columns, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + row * stride + columns, mask=inside).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * stride + columns, result.to(tl.bfloat16), mask=inside)


def run(gate, up):
    rows, cols = gate.shape
    out = torch.empty_like(gate)
    grid = (rows, triton.cdiv(cols, 2048))
    swiglu_kernel[grid](gate, up, out, cols, gate.stride(0), BLOCK=2048)
    return out


def inputs(device):
    return tuple(torch.randn(4096, 14336, device=device, dtype=torch.bfloat16) for _ in range(2))


def reference(gate, up):
    return torch.nn.functional.silu(gate.float()).mul(up.float()).bfloat16()
