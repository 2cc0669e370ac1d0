"""Eight kernels with eight shapes each: 64 keys for ``many_gpus.py``, by tuners and as calls."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune

SCRIPTED = "MANY_GPUS_SCRIPTED"
"""With it, a process that imports this tunes on scripted GPUs."""

LINE = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 512, 1024, 2048, 4096) for w in (2, 4, 8)]
ROW = [triton.Config({"BLOCK": b}, num_warps=w) for b in (1024, 2048, 4096) for w in (2, 4, 8, 16)]
TILE = [
    triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=w, num_stages=s)
    for m, n in ((64, 64), (64, 128), (128, 64), (128, 128))
    for k in (32, 64)
    for w, s in ((4, 3), (8, 3))
]


@kerntune.autotune(LINE, key=["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@kerntune.autotune(LINE, key=["n"])
@triton.jit
def gelu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, 0.5 * x * (1 + tl.erf(x * 0.70710678)), mask=i < n)


@kerntune.autotune(LINE, key=["n"])
@triton.jit
def swiglu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x * tl.sigmoid(x) * tl.load(y_ptr + i, mask=i < n), mask=i < n)


@kerntune.autotune(ROW, key=["cols"])
@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        i = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=-float("inf"))
        above = tl.maximum(most, x)
        scale = tl.where(above == -float("inf"), 0.0, above)
        total = total * tl.exp(most - scale) + tl.exp(x - scale)
        most = above
    top = tl.max(most, 0)
    whole = tl.sum(total * tl.exp(most - top), 0)
    for at in range(0, cols, BLOCK):
        i = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + i, mask=i < cols)
        tl.store(out_ptr + row * cols + i, tl.exp(x - top) / whole, mask=i < cols)


@kerntune.autotune(ROW, key=["cols"])
@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        i = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, 0) / cols + 1e-6)
    for at in range(0, cols, BLOCK):
        i = at + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + i, mask=i < cols)
        tl.store(out_ptr + row * cols + i, x * scale, mask=i < cols)


@kerntune.autotune(ROW, key=["cols"])
@triton.jit
def row_sum_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, cols, BLOCK):
        i = at + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def product(a_ptr, b_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The tile of this program."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs, b_ptrs = a_ptr + rows[:, None] * k + inner[None, :], b_ptr + inner[:, None] * n + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        a = tl.load(a_ptrs, mask=rows[:, None] < m, other=0.0)
        total = tl.dot(a, tl.load(b_ptrs, mask=cols[None, :] < n, other=0.0), total)
        a_ptrs += BK
        b_ptrs += BK * n
    return total, rows, cols


@kerntune.autotune(TILE, key=["m", "n", "k"])
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    total, rows, cols = product(a_ptr, b_ptr, m, n, k, BM, BN, BK)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total, mask=(rows[:, None] < m) & (cols[None, :] < n))


@kerntune.autotune(TILE, key=["m", "n", "k"])
@triton.jit
def matmul_relu_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    total, rows, cols = product(a_ptr, b_ptr, m, n, k, BM, BN, BK)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], tl.maximum(total, 0.0), mask=inside)


@dataclass(frozen=True)
class Key:
    """A kernel and a shape."""

    kernel: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kernel}-{'x'.join(map(str, self.shape))}"

    @property
    def tuner(self) -> Any:
        """What is launched."""
        return KERNELS[self.kernel][0]

    def call(self, device: str = "cuda") -> tuple[Any, tuple[Any, ...]]:
        """Grid and arguments of a launch."""
        return KERNELS[self.kernel][1](self.shape, device)


def normal(shape: tuple[int, ...], device: str, dtype: Any = torch.float32) -> Any:
    """Normally distributed numbers, as ``tune_many`` makes them from a description: all ways tune with such, and
    winners are replayed with such. How fast a matmul is depends on its numbers, by the power that they take."""
    return torch.empty(shape, device=device, dtype=dtype).normal_()


def line(shape: tuple[int, ...], device: str) -> tuple[Any, tuple[Any, ...]]:
    (n,) = shape
    x, y, out = (normal((n,), device) for _ in range(3))
    return (lambda meta: (triton.cdiv(n, meta["BLOCK"]),)), (x, y, out, n)


def rows(shape: tuple[int, ...], device: str) -> tuple[Any, tuple[Any, ...]]:
    x = normal(shape, device)
    return (lambda meta: (shape[0],)), (x, torch.empty_like(x), shape[1])


def tiles(shape: tuple[int, ...], device: str) -> tuple[Any, tuple[Any, ...]]:
    m, n, k = shape
    a, b = (normal(s, device, torch.float16) for s in ((m, k), (k, n)))
    c = torch.empty((m, n), device=device, dtype=torch.float16)
    return (lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))), (a, b, c, m, n, k)


LINES = tuple((1 << p,) for p in range(18, 26))
ROWS = tuple((1 << 12, cols) for cols in (768, 1024, 1536, 2048, 3072, 4096, 6144, 8192))
TILES = tuple((m, 2048, k) for m in (256, 512, 1024, 2048) for k in (1024, 4096))

KERNELS: dict[str, tuple[Any, Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "add": (add_kernel, line, LINES),
    "gelu": (gelu_kernel, line, LINES),
    "swiglu": (swiglu_kernel, line, LINES),
    "softmax": (softmax_kernel, rows, ROWS),
    "rms_norm": (rms_norm_kernel, rows, ROWS),
    "row_sum": (row_sum_kernel, rows, ROWS),
    "matmul": (matmul_kernel, tiles, TILES),
    "matmul_relu": (matmul_relu_kernel, tiles, TILES),
}

KEYS = tuple(Key(name, KERNELS[name][2][i]) for i in range(8) for name in KERNELS)
"""The kernels in turn, so that a part of them is as mixed as all."""


def chosen_keys(keys: int = 0, kernels: int = 0) -> tuple[Key, ...]:
    """So many keys of so many kernels, by default as the environment says."""
    names = list(KERNELS)[: kernels or int(os.environ["MANY_GPUS_KERNELS"])]
    return tuple(key for key in KEYS if key.kernel in names)[: keys or int(os.environ["MANY_GPUS_KEYS"])]


def scripted_gpus() -> Any:
    """A host with two GPUs without a GPU: configs of 8 warps are the fastest."""
    from kerntune.gpu import device_lock
    from kerntune.gpu.scripted import Rule, Script, scripted_host

    device_lock.device_node = lambda uuid: None  # type: ignore[assignment]
    return scripted_host(2, Script([Rule(num_warps=8, time_ns=9_000.0), Rule(time_ns=10_000.0)]))


def begin_scripted() -> Any:
    """What this process tunes on is scripted from now on."""
    from kerntune.tuning import context

    backend = scripted_gpus()
    active = backend.activate()
    active.__enter__()
    context.this_gpu = lambda: backend
    return active


def note_compilations(path: str) -> None:
    """Write a line for each config that a compiler of this process is given: what, and how long it took."""
    from kerntune.compiling.farm import Farm

    settle = Farm._settle

    def noting(farm: Any, order: Any, *rest: Any) -> None:
        begin = time.time()
        settle(farm, order, *rest)
        what = "\0".join((order.job.ir, order.job.options_hash, str(order.job.arch)))
        row = {"code": hashlib.sha256(what.encode()).hexdigest()[:16], "process": os.getpid()}
        with open(path, "a") as file:
            file.write(json.dumps({**row, "begin": begin, "seconds": round(time.time() - begin, 4)}) + "\n")

    Farm._settle = noting  # type: ignore[method-assign]


if os.environ.get("MANY_GPUS_COMPILED"):
    note_compilations(os.environ["MANY_GPUS_COMPILED"])

ACTIVE = begin_scripted() if os.environ.get(SCRIPTED) else None
"""Kept: the stand-ins end with it."""
