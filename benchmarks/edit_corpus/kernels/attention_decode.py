"""One query a head over many keys, split between programs, then put together: two bare kernels."""

import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(q_ptr, k_ptr, v_ptr, part_ptr, top_ptr, sum_ptr, length, scale, D: tl.constexpr, BN: tl.constexpr):
    head, split, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    dims = tl.arange(0, D)
    q = tl.load(q_ptr + head * D + dims).to(tl.float32)
    largest = -float("inf")
    weight = 0.0
    total = tl.zeros([D], tl.float32)
    share = length // splits
    for first in range(split * share, (split + 1) * share, BN):
        keys = first + tl.arange(0, BN)
        at = (head * length + keys)[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + at).to(tl.float32)
        scores = tl.sum(q[None, :] * k, axis=1) * scale
        larger = tl.maximum(largest, tl.max(scores, axis=0))
        p = tl.exp(scores - larger)
        shrink = tl.exp(largest - larger)
        v = tl.load(v_ptr + at).to(tl.float32)
        total = total * shrink + tl.sum(p[:, None] * v, axis=0)
        weight = weight * shrink + tl.sum(p, axis=0)
        largest = larger
    tl.store(part_ptr + (head * splits + split) * D + dims, total)
    tl.store(top_ptr + head * splits + split, largest)
    tl.store(sum_ptr + head * splits + split, weight)


@triton.jit
def join_kernel(part_ptr, top_ptr, sum_ptr, out_ptr, D: tl.constexpr, SPLITS: tl.constexpr):
    head = tl.program_id(0)
    dims, splits = tl.arange(0, D), tl.arange(0, SPLITS)
    tops = tl.load(top_ptr + head * SPLITS + splits)
    factors = tl.exp(tops - tl.max(tops, axis=0))
    parts = tl.load(part_ptr + (head * SPLITS + splits)[:, None] * D + dims[None, :])
    total = tl.sum(parts * factors[:, None], axis=0)
    weight = tl.sum(tl.load(sum_ptr + head * SPLITS + splits) * factors, axis=0)
    tl.store(out_ptr + head * D + dims, (total / weight).to(tl.float16))


def run(q, k, v):
    heads, length, head = k.shape
    splits = 8
    part = torch.empty(heads, splits, head, device=q.device)
    top, weight = (torch.empty(heads, splits, device=q.device) for _ in range(2))
    out = torch.empty_like(q)
    part_kernel[(heads, splits)](q, k, v, part, top, weight, length, head**-0.5, D=head, BN=64, num_warps=4)
    join_kernel[(heads,)](part, top, weight, out, D=head, SPLITS=splits)
    return out


def inputs(device):
    k, v = (torch.randn(128, 4096, 128, device=device, dtype=torch.float16) for _ in range(2))
    return torch.randn(128, 128, device=device, dtype=torch.float16), k, v


def reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q[None, :, None], k[None], v[None])[0, :, 0]
