"""Attention, forward, in one pass over the keys: a bare kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, HEAD)
    q = tl.load(q_ptr + base + rows[:, None] * HEAD + dims[None, :])
    total = tl.zeros((BM, HEAD), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    for first in range(0, length, BN):
        keys = first + tl.arange(0, BN)
        k = tl.load(k_ptr + base + keys[None, :] * HEAD + dims[:, None])
        scores = tl.dot(q, k) * scale
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp(scores - larger[:, None])
        shrink = tl.exp(largest - larger)
        weight = weight * shrink + tl.sum(p, axis=1)
        total = total * shrink[:, None]
        v = tl.load(v_ptr + base + keys[:, None] * HEAD + dims[None, :])
        total = tl.dot(p.to(tl.bfloat16), v, total)
        largest = larger
    out = total / weight[:, None]
    tl.store(out_ptr + base + rows[:, None] * HEAD + dims[None, :], out.to(tl.bfloat16))


def run(q, k, v, lse):
    heads, length, head = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(length, 128), heads)
    attention_kernel[grid](q, k, v, out, length, head**-0.5, HEAD=head, BM=128, BN=64, num_warps=4, num_stages=3)
    return out


def inputs(device):
    q, k, v = (torch.randn(64, 2048, 128, device=device, dtype=torch.bfloat16) for _ in range(3))
    return q, k, v, torch.empty(64, 2048, device=device)


def reference(q, k, v, lse):
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
