"""Rotary embedding of all heads of a token: a bare kernel, a token each program."""

import torch
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(q_ptr, cos_ptr, sin_ptr, out_ptr, length, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0)
    position = token % length
    heads = tl.arange(0, HEADS)
    dims = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + position * HALF + dims)[None, :]
    sin = tl.load(sin_ptr + position * HALF + dims)[None, :]
    offsets = token * HEADS * HALF * 2 + heads[:, None] * HALF * 2 + dims[None, :]
    first = tl.load(q_ptr + offsets).to(tl.float32)
    second = tl.load(q_ptr + offsets + HALF).to(tl.float32)
    tl.store(out_ptr + offsets, (first * cos - second * sin).to(tl.bfloat16))
    tl.store(out_ptr + offsets + HALF, (second * cos + first * sin).to(tl.bfloat16))


def run(q, cos, sin, angles):
    tokens, heads, head = q.shape
    out = torch.empty_like(q)
    rotary_kernel[(tokens,)](q, cos, sin, out, cos.shape[0], HEADS=heads, HALF=head // 2, num_warps=4)
    return out


def inputs(device):
    q = torch.randn(16384, 32, 128, device=device, dtype=torch.bfloat16)
    angles = torch.randn(4096, 64, device=device)
    return q, torch.cos(angles), torch.sin(angles), angles


def reference(q, cos, sin, angles):
    first, second = q.float().chunk(2, -1)
    cos, sin = (x.repeat(q.shape[0] // x.shape[0], 1)[:, None, :] for x in (cos, sin))
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).bfloat16()
