"""Gradients of keys and values of attention, in one pass over the queries: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def gradient_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, length, scale,
    HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    at = tl.program_id(1) * length
    keys = tl.program_id(0) * BN + tl.arange(0, BN)
    dims = tl.arange(0, HEAD)
    here = keys[:, None] * HEAD + dims[None, :]
    k = tl.load(k_ptr + base + here)
    v = tl.load(v_ptr + base + here)
    dk = tl.zeros((BN, HEAD), tl.float32)
    dv = tl.zeros((BN, HEAD), tl.float32)
    for first in range(0, length, BM):
        rows = first + tl.arange(0, BM)
        q = tl.load(q_ptr + base + rows[:, None] * HEAD + dims[None, :])
        do = tl.load(do_ptr + base + rows[:, None] * HEAD + dims[None, :])
        lse = tl.load(lse_ptr + at + rows)
        delta = tl.load(delta_ptr + at + rows)
        p = tl.exp2(tl.dot(k, q.T) * scale - lse[None, :])
        dv = tl.dot(p.to(tl.bfloat16), do, dv)
        dp = tl.dot(v, do.T)
        ds = p * (dp - delta[None, :])
        dk = tl.dot(ds.to(tl.bfloat16), q, dk)
    tl.store(dk_ptr + base + here, dk.to(tl.bfloat16))
    tl.store(dv_ptr + base + here, dv.to(tl.bfloat16))


def run(q, k, v, do, lse, delta):
    heads, length, head = q.shape
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    grid = (triton.cdiv(length, 128), heads)
    gradient_kernel[grid](
        q, k, v, do, lse, delta, dk, dv, length, head**-0.5, HEAD=head, BM=64, BN=128, num_warps=8, num_stages=3
    )
    return dk, dv


def inputs(device):
    q, k, v, do = (torch.randn(32, 2048, 64, device=device, dtype=torch.bfloat16) for _ in range(4))
    return q, k, v, do, torch.zeros(32, 2048, device=device), torch.zeros(32, 2048, device=device)


def reference(q, k, v, do, lse, delta):
    p = torch.exp2(q.float() @ k.float().mT * q.shape[2] ** -0.5)
    ds = p * (do.float() @ v.float().mT)
    return (ds.mT @ q.float()).bfloat16(), (p.mT @ do.float()).bfloat16()
