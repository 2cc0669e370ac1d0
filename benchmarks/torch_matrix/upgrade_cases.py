"""Twelve kernels and eight compiled functions, as tests for :mod:`benchmarks.torch_matrix.upgrades`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x, y, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    if KIND == "copy":
        out = value
    elif KIND == "exp":
        out = tl.exp(value)
    elif KIND == "sigmoid":
        out = value * tl.sigmoid(value)
    elif KIND == "erf":
        out = 0.5 * value * (1 + tl.math.erf(value * 0.7071))
    elif KIND == "divide":
        out = value / (1 + tl.abs(value))
    elif KIND == "softmax":
        shifted = tl.exp(value - tl.max(value, 0))
        out = shifted / tl.sum(shifted, 0)
    elif KIND == "norm":
        out = value * tl.math.rsqrt(tl.sum(value * value, 0) / n + 1e-6)
    elif KIND == "cumsum":
        out = tl.cumsum(value, 0)
    elif KIND == "sort":
        out = tl.sort(value)
    elif KIND == "random":
        out = tl.where(tl.rand(17, row * n + at) > 0.1, value, 0.0)
    else:
        out = tl.sum(value, 0) + value
    tl.store(y + row * n + at, out, mask=at < n)


@triton.jit
def product_kernel(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


KINDS = ("copy", "exp", "sigmoid", "erf", "divide", "softmax", "norm", "cumsum", "sort", "random", "sum")


@pytest.mark.autotune
@pytest.mark.parametrize("kind", KINDS)
def test_row(autotune: Any, kind: str) -> None:
    x = torch.empty(512, 1024, device=autotune.device, dtype=torch.float16)
    autotune(lambda: row_kernel[(512,)](x, torch.empty_like(x), 1024, KIND=kind, BLOCK=1024))


@pytest.mark.autotune
def test_product(autotune: Any) -> None:
    a = torch.empty(128, 1024, device=autotune.device, dtype=torch.float16)
    b = torch.empty(1024, 128, device=autotune.device, dtype=torch.float16)
    c = torch.empty(128, 128, device=autotune.device)
    autotune(lambda: product_kernel[(1,)](a, b, c, 1024, M=128, N=128, K=64, num_warps=8))


def cross_entropy(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(x.float(), torch.zeros(512, dtype=torch.long, device=x.device))


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "norm_gelu": lambda x: torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (1024,))),
    "moments": lambda x: x.float().var(-1) + x.float().mean(-1),
    "cumsum": lambda x: x.float().cumsum(-1),
    "max_index": lambda x: x.float().max(-1).indices,
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.1),
    "cross_entropy": cross_entropy,
    "rms_norm": lambda x: torch.nn.functional.rms_norm(x, (1024,)) * torch.sigmoid(x),
}


@pytest.mark.autotune
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(autotune: Any, name: str) -> None:
    x = torch.randn(512, 1024, device=autotune.device, dtype=torch.float16)
    autotune(torch.compile(FUNCTIONS[name]), x)
