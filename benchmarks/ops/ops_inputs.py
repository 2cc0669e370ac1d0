"""Inputs for other packages' ops: made on the GPU, or stood in for, with values that are safe to run on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

Ops = Mapping[str, Callable[[Any], Any]]
"""By name, functions that make inputs and call an op of the module that they get."""

BATCH, LENGTH, HEADS, DIM = 2, 512, 4, 64
"""Small enough that a real run of each op takes milliseconds, large enough that every grid has many blocks."""

SPREAD = 7919
"""A prime, so that consecutive labels are far apart."""

HIDDEN, VOCABULARY, ROWS = 2048, 32000, 1024


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = True) -> torch.Tensor:
    """A leaf of normal numbers."""
    return torch.randn(shape, device="cuda", dtype=dtype, requires_grad=grad)


def full(*shape: int, grad: bool = True) -> torch.Tensor:
    """Normal numbers in float32."""
    return normal(*shape, dtype=torch.float32, grad=grad)


def labels(*shape: int, upto: int = VOCABULARY) -> torch.Tensor:
    """Class numbers, the same on every device: drawn ones depend on the device's generator, and ops count them."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device="cuda") * SPREAD % upto).view(shape)


def heads(dim: int = DIM, number: int = HEADS, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """What linear attention calls q, k, v: ``[batch, length, heads, dim]``."""
    return normal(BATCH, LENGTH, number, dim, dtype=dtype)


def unit(dim: int = DIM, number: int = HEADS) -> torch.Tensor:
    """Keys of length 1, so that delta rules don't blow up."""
    return leaf(F.normalize(heads(dim, number, torch.float32).detach(), dim=-1).to(torch.bfloat16))


def gate(*trailing: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Log decays, below zero: ``[batch, length, *trailing]``."""
    return leaf(F.logsigmoid(torch.randn(BATCH, LENGTH, *trailing, device="cuda", dtype=dtype)))


def share(*trailing: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Numbers between 0 and 1: ``[batch, length, *trailing]``."""
    return leaf(torch.rand(BATCH, LENGTH, *trailing, device="cuda", dtype=dtype).sigmoid())


def probabilities(*shape: int) -> torch.Tensor:
    """Rows that add up to 1."""
    return leaf(torch.softmax(torch.randn(*shape, device="cuda"), dim=-1))


def log_probabilities(*shape: int) -> torch.Tensor:
    """Logarithms of rows that add up to 1."""
    return leaf(torch.log_softmax(torch.randn(*shape, device="cuda"), dim=-1))


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a leaf that requires a gradient."""
    return tensor.detach().contiguous().requires_grad_()


def bound(module: str, ops: Ops) -> dict[str, Callable[[], Any]]:
    """Functions of a package's module as ones without arguments, by their names: it is imported when one is called."""
    return {name: partial(_called, module, op) for name, op in ops.items()}


def _called(module: str, op: Callable[[Any], Any]) -> Any:
    return op(importlib.import_module(module))
