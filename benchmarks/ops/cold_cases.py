"""Twelve compiled functions, as tests for :mod:`benchmarks.ops.cold_run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

ROWS, COLS = 512, 1024


def gated_mlp(x: torch.Tensor) -> torch.Tensor:
    weights = x.new_ones(COLS, COLS)
    return functional.silu(x @ weights) * (x @ weights)


def rotated(x: torch.Tensor) -> torch.Tensor:
    half = x.chunk(2, -1)
    angle = torch.arange(COLS // 2, device=x.device) / COLS
    return torch.cat((half[0] * angle.cos(), half[1] * angle.sin()), -1)


def cross_entropy(x: torch.Tensor) -> torch.Tensor:
    labels = torch.zeros(ROWS, dtype=torch.long, device=x.device)
    return functional.cross_entropy(x.float(), labels)


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(1, ROWS, 16, 64).transpose(1, 2)
    return functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "norm_gelu": lambda x: functional.gelu(functional.layer_norm(x, (COLS,))),
    "moments": lambda x: x.float().var(-1) + x.float().mean(-1),
    "cumsum": lambda x: x.float().cumsum(-1),
    "max_index": lambda x: x.float().max(-1).indices,
    "dropout": lambda x: functional.dropout(x, 0.1),
    "cross_entropy": cross_entropy,
    "rms_norm": lambda x: functional.rms_norm(x, (COLS,)) * torch.sigmoid(x),
    "gated_mlp": gated_mlp,
    "rotated": rotated,
    "column_sums": lambda x: x.float().pow(2).sum(0),
    "attention": attention,
}


@pytest.mark.autotune
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(autotune: Any, name: str) -> None:
    x = torch.randn(ROWS, COLS, device="cuda", dtype=torch.float16)
    autotune(torch.compile(FUNCTIONS[name]), x)
