"""Attention, forward, in one pass over the keys: two matmuls a block, and a helper that the kernel calls twice."""

import pytest
import torch
import triton
import triton.language as tl

BATCH, HEADS, HEAD = 2, 16, 128
LOG2_E = 1.4426950408889634


@triton.jit
def attend(
    total, weight, largest, q, k_ptr, v_ptr, rows, start, end, length, scale,
    HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Takes the keys in [start, end) into the running sum; MASKED where some of them may be out of sight."""
    dims = tl.arange(0, HEAD)
    for first in range(start, end, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        inside = (keys < length) | (not MASKED)
        k = tl.load(k_ptr + keys[None, :] * HEAD + dims[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k) * scale
        if MASKED:
            visible = inside[None, :]
            if CAUSAL:
                visible = visible & (rows[:, None] >= keys[None, :])
            scores = tl.where(visible, scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp2(largest - larger)
        p = tl.exp2(scores - larger[:, None])
        v = tl.load(v_ptr + keys[:, None] * HEAD + dims[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(p.to(v.dtype), v, total * shrink[:, None])
        weight = weight * shrink + tl.sum(p, axis=1)
        largest = larger
    return total, weight, largest


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages)
        for m, n, warps, stages in [
            (128, 128, 8, 2), (128, 64, 8, 2), (128, 64, 8, 3), (64, 128, 4, 2), (64, 32, 4, 4), (64, 64, 4, 3),
        ]
    ],
    key=["length", "CAUSAL"],
)  # fmt: skip
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    top = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = top + tl.arange(0, BLOCK_M)
    at_rows = base + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    q = tl.load(q_ptr + at_rows, mask=rows[:, None] < length, other=0.0)
    k_ptr += base
    v_ptr += base

    # The keys before `split` are seen by all rows of this block; only those from there to `end` need masks.
    end = tl.minimum(top + BLOCK_M, length) if CAUSAL else length
    split = (top if CAUSAL else length) // BLOCK_N * BLOCK_N
    total = tl.zeros((BLOCK_M, HEAD), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total, weight, largest = attend(
        total, weight, largest, q, k_ptr, v_ptr, rows, 0, split, length, scale, HEAD, BLOCK_N, False, CAUSAL
    )
    total, weight, largest = attend(
        total, weight, largest, q, k_ptr, v_ptr, rows, split, end, length, scale, HEAD, BLOCK_N, True, CAUSAL
    )
    out = total / weight[:, None]
    tl.store(out_ptr + at_rows, out.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """softmax(q kᵀ / √head) v for contiguous tensors of shape (batch, heads, length, head)."""
    batch, heads, length, head = q.shape
    out = torch.empty_like(q)
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)](
        q, k, v, out, length, LOG2_E / head**0.5, HEAD=head, CAUSAL=causal
    )
    return out


def expected(q, k, v, causal):
    scores = q.float() @ k.float().mT / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], device=q.device, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -float("inf"))
    return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)


@pytest.mark.autotune(interpret={"length": 200})
@pytest.mark.parametrize(("length", "causal"), [(1024, True), (4096, False), (4096, True)])
def test_attention(autotune, length, causal):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, BATCH, HEADS, length, HEAD, device=autotune.device, dtype=torch.float16)
    flops = 4 * q.numel() * length // (2 if causal else 1)
    autotune(
        attention, q, k, v, causal=causal,
        reference=lambda: expected(q, k, v, causal), rtol=1e-2, atol=5e-3, flops=flops,
    )  # fmt: skip
