"""References that are kernels themselves: what must be the same random numbers, say."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def plain_dropout_kernel(x, seed, o, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(tl.load(seed), at) > p
    tl.store(o + at, tl.where(kept, tl.load(x + at, mask=at < n, other=0.0) / (1 - p), 0.0), mask=at < n)


def dropout(x: Any, seed: Any, p: float) -> Any:
    o = torch.empty_like(x)
    plain_dropout_kernel[(triton.cdiv(x.numel(), 64),)](x, seed, o, x.numel(), p, BLOCK=64)
    return o
