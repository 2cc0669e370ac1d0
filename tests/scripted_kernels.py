"""Kernels for processes that tests start. Where ``KERNTUNE_TESTS_SCRIPTED`` is set, a process that imports them has a
scripted GPU, unless it has stand-ins already."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune
from kerntune.gpu.fake_cuda.session import are_active
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import context

BLOCKS = (64, 128, 256)

SCRIPTED = "KERNTUNE_TESTS_SCRIPTED"
"""Yes, or a file: the first process that finds none makes it and is killed, in the midst of its first job."""

if os.environ.get(SCRIPTED) and not are_active():
    RULES = [Rule(constexprs={"BLOCK": block}, time_ns=1000.0 * abs(block - 120)) for block in BLOCKS]
    BACKEND = FakeBackend(Script(RULES))
    ACTIVE = BACKEND.activate()
    ACTIVE.__enter__()
    context.this_gpu = lambda: BACKEND  # type: ignore[assignment]
    if os.sep in os.environ[SCRIPTED] and not os.path.exists(os.environ[SCRIPTED]):
        os.close(os.open(os.environ[SCRIPTED], os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)


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
