"""Tuned kernels at the top level of a module, as other processes find them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from fake_runs import configs, increment_kernel, scale_kernel

import kerntune

scaled = kerntune.autotune(configs(64, 128, 256), key=["n"])(scale_kernel)
plain = triton.autotune(configs(64, 128, 256), key=["n"])(increment_kernel)
unkept = kerntune.autotune(configs(64, 128), key=["n"], cache_results=False)(scale_kernel)
single = kerntune.autotune(configs(64), key=["n"])(scale_kernel)


@triton.autotune(configs(64, 128), key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def below_kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 1.0, mask=EVEN or i < n)


@triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
@triton.autotune(configs(64, 128), key=["n"])
@triton.jit
def above_kernel(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 1.0, mask=EVEN or i < n)


@kerntune.autotune(configs(64, 128), key=["n"])
@triton.jit
def gather_kernel(index_ptr, x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(x_ptr + i, tl.load(x_ptr + at), mask=i < n)


class Kernels:
    """A class may hold kernels as well."""

    held = kerntune.autotune(configs(64, 128), key=["n"])(increment_kernel)


@kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})
@triton.jit
def proposed_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 1.0, mask=i < n)


def grid(n: int) -> Any:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def pair(n: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(n, device="cuda", dtype=dtype), torch.empty(n, device="cuda", dtype=dtype)


def scale(n: int, kernel: Any = scaled, dtype: torch.dtype = torch.float32) -> Any:
    return kernel[grid(n)](*pair(n, dtype), n, 2.0)
