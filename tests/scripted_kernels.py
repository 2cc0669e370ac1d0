"""Kernels for processes that tests start: whoever imports this module has a scripted GPU, unless it has stand-ins."""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune
from kerntune.gpu.fake_cuda.session import are_active
from kerntune.gpu.scripted import FakeBackend, Rule, Script
from kerntune.tuning import context

BLOCKS = (64, 128, 256)

if not are_active():
    RULES = [Rule(constexprs={"BLOCK": block}, time_ns=1000.0 * abs(block - 120)) for block in BLOCKS]
    BACKEND = FakeBackend(Script(RULES))
    ACTIVE = BACKEND.activate()
    ACTIVE.__enter__()
    context.this_gpu = lambda: BACKEND  # type: ignore[assignment]


def configs() -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}) for block in BLOCKS]


@kerntune.autotune(configs(), key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.autotune(configs(), key=["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def bare_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) - 1, mask=i < n)


@kerntune.autotune(configs(), key=["n"])
@triton.jit
def deadly_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """A process in which it is to be tuned ends: its grid is asked for."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def grid(n: int) -> Any:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def pair(n: int, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.empty(n, device=device)
    return x, torch.empty_like(x)


def scale(n: int) -> None:
    x, y = pair(n)
    scale_kernel[grid(n)](x, y, n, 2.0)


def add(n: int) -> None:
    x, y = pair(n)
    add_kernel[grid(n)](x, y, n)


if "KERNTUNE_TESTS_END" in os.environ:
    os.kill(os.getpid(), 9)
