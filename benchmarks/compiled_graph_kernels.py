"""Kernels in functions to compile: eight of ours, four of installed packages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import kerntune
from kerntune import grids


@dataclass(frozen=True)
class CompiledCase:
    """A function to compile, its sizes, and the arguments of a size."""

    run: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]
    sizes: Sequence[int] = (1 << 14, 1 << 18, 1 << 22)


def blocks(*sizes: int, **options: Any) -> list[triton.Config]:
    """Configs."""
    return [triton.Config({"BLOCK": size}, **options) for size in sizes]


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def add_relu(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(total, 0.0), mask=i < n)


@triton.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1.0, mask=i < n)


@triton.jit
def histogram(x_ptr, count_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(count_ptr + tl.load(x_ptr + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + i, mask=i < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * columns + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        inside = first + k < K
        a = tl.load(a_ptr + m[:, None] * K + (first + k)[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptr + (first + k)[:, None] * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


PRODUCT = [
    triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=w, num_stages=s)
    for m, n, k, w, s in itertools.product((64, 128), (64, 128), (32, 64), (4, 8), (2, 3, 4))
]
"""48 configs."""


def tuned_scale() -> Any:
    """``scale`` with two configs."""
    return kerntune.autotune(blocks(64, 128), key=["n"])(scale)


def one_config(kernel: Any) -> Any:
    """Triton's tuner of the same kernel with its winner alone: Inductor launches that itself."""
    return triton.autotune([kernel.best_config], key=[])(kernel.fn)


def scale_function(kernel: Any, again: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that launches it; ``again`` makes another code object, and so another graph."""

    def run(x: torch.Tensor) -> torch.Tensor:
        y, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 2.0)
        return y

    def rerun(x: torch.Tensor) -> torch.Tensor:
        y, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 2.0)
        return y

    return rerun if again else run


def matmul_function(side: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A product of matrices with 48 configs, tuned by kerntune or left to Inductor."""
    decorate = kerntune.autotune if side == "kerntune" else triton.autotune
    kernel = decorate(PRODUCT, key=["M", "N", "K"])(product)

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (m, k), n = a.shape, b.shape[1]
        c = a.new_empty(m, n)
        kernel[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](a, b, c, m, n, k)
        return c

    return run


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=dtype)


def cases() -> dict[str, CompiledCase]:
    """All that are measured; of packages that aren't installed a case that says so."""
    return {**our_cases(), **package_cases()}


def our_cases() -> dict[str, CompiledCase]:
    """Eight kernels of every kind of decorator, grid and access."""
    every = (256, 512, 1024)
    added = kerntune.autotune(blocks(*every), key=["n"])(add_relu)
    counted = kerntune.autotune(blocks(*every), key=["n"], reset_to_zero=["count_ptr"])(histogram)
    bumped = kerntune.autotune([triton.Config({"BLOCK": b}, pre_hook=lambda named: None) for b in every], key=["n"])(
        increment
    )
    rows = kerntune.autotune([triton.Config({}, num_warps=w) for w in (1, 2, 4, 8)], key=["columns"])(softmax)
    proposed = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(scale)
    squares = (512, 1024, 2048)

    def with_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        added[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out.sin()

    def with_histogram(x: torch.Tensor) -> torch.Tensor:
        count = torch.zeros(64, device=x.device, dtype=torch.int32)
        counted[BY_N](x, count, x.numel())
        return count

    def with_increment(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        bumped[BY_N](x, x.numel())
        return x

    def with_softmax(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return scale_function(differentiated)(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return scale_function(differentiated)(gradient.contiguous())

    differentiated = kerntune.autotune(blocks(*every), key=["n"])(scale)

    def with_gradient(x: torch.Tensor) -> torch.Tensor:
        return Scaled.apply(x)

    def one(n: int) -> tuple[Any, ...]:
        return (normal(n),)

    def labels(n: int) -> tuple[Any, ...]:
        return (torch.randint(0, 64, (n,), device="cuda", dtype=torch.int32),)

    def matrices(n: int) -> tuple[Any, ...]:
        return normal(n, n, dtype=torch.float16), normal(n, n, dtype=torch.float16)

    return {
        "scale": CompiledCase(scale_function(kerntune.autotune(blocks(*every), key=["n"])(scale)), one),
        "add and relu": CompiledCase(with_add, lambda n: (normal(n), normal(n))),
        "histogram, atomics, reset_to_zero": CompiledCase(with_histogram, labels),
        "increment in place, hooks": CompiledCase(with_increment, one),
        "softmax": CompiledCase(with_softmax, lambda n: (normal(512, n),), (256, 1000, 4096)),
        "pointwise decorator": CompiledCase(scale_function(proposed), one),
        "autograd.Function": CompiledCase(with_gradient, one),
        "product": CompiledCase(matmul_function("kerntune"), matrices, squares),
    }


BY_N = grids.FixedGrid(grids.ceil_div(grids.Name("n"), grids.Name("BLOCK")))
"""The grid of one axis."""


def package_cases() -> dict[str, CompiledCase]:
    """Two kernels of liger-kernel with configs of ours, two of flash-linear-attention with its own, under
    ``kerntune.install()``."""
    return {**liger_cases(), **fla_cases()}


def liger_cases() -> dict[str, CompiledCase]:
    """liger-kernel chooses its settings by a rule: here warps are tuned."""
    from liger_kernel.ops.geglu import _geglu_tanh_forward_kernel
    from liger_kernel.ops.swiglu import _swiglu_forward_kernel

    def case(jit: Any, **words: Any) -> CompiledCase:
        kernel = kerntune.autotune([triton.Config({}, num_warps=w) for w in (2, 4, 8)], key=["n_cols"])(jit)

        def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            c, columns = torch.empty_like(a), a.shape[1]
            block = triton.next_power_of_2(columns)
            kernel[(a.shape[0],)](a, b, c, c.stride(0), n_cols=columns, BLOCK_SIZE=block, **words)
            return c

        return CompiledCase(run, lambda n: (normal(256, n), normal(256, n)), (512, 2000, 8192))

    swiglu = case(_swiglu_forward_kernel, gate_multiplier=1.0)
    return {"liger swiglu": swiglu, "liger geglu": case(_geglu_tanh_forward_kernel)}


def fla_cases() -> dict[str, CompiledCase]:
    """flash-linear-attention's own tuners (a subclass of Triton's; heuristics above one), under
    ``kerntune.install()``."""
    from fla.modules.norm.l2norm import l2norm_fwd_kernel
    from fla.ops.utils.cumsum import chunk_local_cumsum_scalar_kernel

    kerntune.install()

    def cumulated(g: torch.Tensor) -> torch.Tensor:
        (batch, length, heads), out = g.shape, torch.empty_like(g)
        chunk_local_cumsum_scalar_kernel[(triton.cdiv(length, 64) * batch * heads,)](
            s=g, o=out, scale=None, cu_seqlens=None, chunk_indices=None, T=length, B=batch, H=heads, BT=64,
            REVERSE=False,
        )  # fmt: skip
        return out

    def normed(x: torch.Tensor) -> torch.Tensor:
        (rows, columns), y = x.shape, torch.empty_like(x)
        rstd = x.new_empty(rows)
        l2norm_fwd_kernel[lambda meta: (triton.cdiv(rows, meta["BT"]),)](
            x=x, y=y, rstd=rstd, eps=1e-6, T=rows, D=columns, BD=triton.next_power_of_2(columns), NB=rows // 2048
        )
        return y

    return {
        "fla cumsum": CompiledCase(cumulated, lambda n: (normal(2, n, 16),), (1024, 2048, 4096)),
        "fla l2norm": CompiledCase(normed, lambda n: (normal(n, 128),), (1024, 4096, 16384)),
    }
