"""GELU of a long vector in Gluon, the next block copied asynchronously while one is computed: a bare kernel."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy


@gluon.jit
def gelu_kernel(x_ptr, out_ptr, BLOCK: gl.constexpr, ROUNDS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [gl.num_warps()], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    offsets = gl.arange(0, BLOCK, layout=layout)
    base = gl.program_id(0) * BLOCK * ROUNDS
    buffers = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [2, BLOCK], shared)
    async_copy.async_load(buffers.index(0), x_ptr + base + offsets)
    async_copy.commit_group()
    for i in range(ROUNDS):
        following = gl.minimum(i + 1, ROUNDS - 1)
        async_copy.async_load(buffers.index((i + 1) % 2), x_ptr + base + following * BLOCK + offsets)
        async_copy.commit_group()
        async_copy.wait_group(1)
        x = buffers.index(i % 2).load(layout).to(gl.float32)
        y = 0.5 * x * (1.0 + gl.erf(x * 0.7071067811865476))
        gl.store(out_ptr + base + i * BLOCK + offsets, y.to(gl.float16))


def run(x):
    out = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 2048 * 16),)](x, out, BLOCK=2048, ROUNDS=16, num_warps=8)
    return out


def inputs(device):
    return (torch.randn(2**26, device=device, dtype=torch.float16),)


def reference(x):
    return torch.nn.functional.gelu(x)
