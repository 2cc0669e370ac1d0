"""Attention of one new token over pages of 16 keys and values, in parts that a second kernel combines: bare kernels."""

import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, part_ptr, sum_ptr, max_ptr, pages, scale,
    PARTS: tl.constexpr, PAGE: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    which, part = tl.program_id(0), tl.program_id(1)
    dims, slot = tl.arange(0, HEAD), tl.arange(0, PAGE)
    q = tl.load(q_ptr + which * HEAD + dims).to(tl.float32) * scale
    largest = -float("inf")
    weight = 0.0
    total = tl.zeros([HEAD], tl.float32)
    for page in range(part * pages // PARTS, (part + 1) * pages // PARTS):
        at = tl.load(table_ptr + which * pages + page).to(tl.int64) * PAGE * HEAD
        at += slot[:, None] * HEAD + dims[None, :]
        k = tl.load(k_ptr + at).to(tl.float32)
        scores = tl.sum(q[None, :] * k, axis=1)
        larger = tl.maximum(largest, tl.max(scores, axis=0))
        p = tl.exp(scores - larger)
        v = tl.load(v_ptr + at).to(tl.float32)
        factor = tl.exp(largest - larger)
        total = total * factor + tl.sum(p[:, None] * v, axis=0)
        weight = weight * factor + tl.sum(p, axis=0)
        largest = larger
    place = which * PARTS + part
    tl.store(part_ptr + place * HEAD + dims, total)
    tl.store(sum_ptr + place, weight)
    tl.store(max_ptr + place, largest)


@triton.jit
def combine_kernel(part_ptr, sum_ptr, max_ptr, out_ptr, PARTS: tl.constexpr, HEAD: tl.constexpr):
    which = tl.program_id(0)
    dims, part = tl.arange(0, HEAD), which * PARTS + tl.arange(0, PARTS)
    largest = tl.load(max_ptr + part)
    factor = tl.exp(largest - tl.max(largest, axis=0))
    weight = tl.sum(tl.load(sum_ptr + part) * factor, axis=0)
    total = tl.sum(tl.load(part_ptr + part[:, None] * HEAD + dims[None, :]) * factor[:, None], axis=0)
    tl.store(out_ptr + which * HEAD + dims, (total / weight).to(tl.float16))


def run(q, k, v, table):
    (heads, head), pages = q.shape, table.shape[1]
    parts = torch.empty(heads, 8, head, device=q.device)
    sums, largest = torch.empty(heads, 8, device=q.device), torch.empty(heads, 8, device=q.device)
    out = torch.empty_like(q)
    part_kernel[(heads, 8)](
        q, k, v, table, parts, sums, largest, pages, head**-0.5, PARTS=8, PAGE=16, HEAD=head, num_warps=4
    )
    combine_kernel[(heads,)](parts, sums, largest, out, PARTS=8, HEAD=head, num_warps=4)
    return out


def inputs(device):
    q = torch.randn(256, 128, device=device, dtype=torch.float16)
    k, v = (torch.randn(256 * 128, 16, 128, device=device, dtype=torch.float16) for _ in range(2))
    return q, k, v, torch.arange(256 * 128, device=device, dtype=torch.int32).view(256, 128)


def reference(q, k, v, table):
    k, v = (x[table.long()].flatten(1, 2).float() for x in (k, v))
    weight = (torch.einsum("hd,htd->ht", q.float(), k) * q.shape[1] ** -0.5).softmax(-1)
    return torch.einsum("ht,htd->hd", weight, v).half()
