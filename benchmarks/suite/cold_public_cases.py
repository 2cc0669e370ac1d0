"""Calls of public kernels that are tuned when they are first made: of installed packages, and of well-known kinds.

Each case makes its inputs and gives its steps, functions that are called once each, in this order (a forward and a
backward, say). All use Triton's own decorator; the process decides whether kerntune has replaced it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

Steps = Sequence[Callable[[], Any]]

CASES: dict[str, Callable[[], Steps]] = {}


def case(make: Callable[[], Steps]) -> Callable[[], Steps]:
    """Enter a case under its function's name."""
    CASES[make.__name__] = make
    return make


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> torch.Tensor:
    """Normal numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=dtype, requires_grad=grad)


def forward_and_backward(function: Callable[[], torch.Tensor]) -> Steps:
    """A call, and the backward of its result through autograd's thread."""
    found: list[torch.Tensor] = []

    def forward() -> None:
        found.append(function())

    return forward, lambda: found[0].backward(torch.ones_like(found[0]))


# of Liger-Kernel and flash-linear-attention


@case
def liger_dyt() -> Steps:
    """18 configs forward, 18 backward; libdevice's tanh."""
    from liger_kernel.ops.dyt import LigerDyTFunction

    x, width = normal(4096, 4096, grad=True), 4096
    alpha = torch.full((1,), 0.5, device="cuda", dtype=x.dtype, requires_grad=True)
    gamma, beta = normal(width, grad=True), normal(width, grad=True)
    return forward_and_backward(lambda: LigerDyTFunction.apply(x, alpha, gamma, beta))


@case
def liger_swiglu_mlp() -> Steps:
    """32 configs, each with a hook that sets the blocks of six TMA descriptors."""
    from liger_kernel.ops.mlp import gemm_swiglu

    x, gate, up = normal(1, 2048, 1024), normal(2048, 1024), normal(2048, 1024)
    return (lambda: gemm_swiglu(x, gate, up, 1.0),)


@case
def fla_elu_p1() -> Steps:
    """30 configs; libdevice's exp."""
    from fla.modules.activations.ops import elu_p1

    x = normal(4096, 4096)
    return (lambda: elu_p1(x),)


@case
def fla_l2norm() -> Steps:
    """25 configs forward, 25 backward, of a subclass of Triton's tuner."""
    from fla.modules.norm.l2norm import l2norm

    x = normal(4, 4096, 16, 64, grad=True)
    return forward_and_backward(lambda: l2norm(x))


@case
def fla_gated_scan() -> Steps:
    """24 and 8 configs: two kernels of gated linear attention."""
    from fla.ops.gla.chunk import chunk_gla_fwd_intra_gk

    q, k = normal(2, 2048, 8, 128), normal(2, 2048, 8, 128)
    g = torch.nn.functional.logsigmoid(normal(2, 2048, 8, 128, dtype=torch.float32)).view(2, 32, 64, 8, 128)
    g = g.cumsum(2).view(2, 2048, 8, 128)
    return (lambda: chunk_gla_fwd_intra_gk(q, k, g, 0.1),)


@case
def fla_softmax() -> Steps:
    """6 configs forward, 6 backward."""
    from fla.ops.utils.softmax import softmax_bwd, softmax_fwd

    x = normal(8192, 1024, dtype=torch.float32)
    p, dp = torch.softmax(x, -1), torch.randn_like(x)
    return lambda: softmax_fwd(x), lambda: softmax_bwd(p, dp)


@case
def fla_layer_norm() -> Steps:
    """4 configs forward, 3 backward."""
    from fla.modules.norm.layernorm import layer_norm

    x, weight, bias = normal(8192, 2048, grad=True), normal(2048, grad=True), normal(2048, grad=True)
    return forward_and_backward(lambda: layer_norm(x, weight, bias))


@case
def fla_cumsum() -> Steps:
    """6 configs."""
    from fla.ops.utils.cumsum import chunk_local_cumsum_vector

    g = normal(4, 4096, 8, 128, dtype=torch.float32)
    return (lambda: chunk_local_cumsum_vector(g, 64),)


# kinds of the tutorials


def of_suite(name: str, shape: int) -> Steps:
    """A case of the tuning suite under ``triton.autotune``."""
    from benchmarks.suite.cases import CASES as SUITE

    one = SUITE[name]
    sizes = one.shapes[shape]
    call, tuner = one.call(sizes, "cuda"), one.tuned(triton.autotune, one.configs(sizes))
    return (lambda: tuner[call.grid](*call.arguments),)


@case
def matmul_48() -> Steps:
    """48 configs."""
    return of_suite("matmul", 0)


@case
def attention() -> Steps:
    """The suite's attention, causal."""
    return of_suite("attention", 0)


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=4) for block in (1024, 4096)], key=["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n), mask=i < n)


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=4) for block in (1024, 4096)], key=["n"])
@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@case
def two_and_two() -> Steps:
    """2 configs, and 2 of another kernel: what the second costs less is what a process pays once."""
    x, y = normal(1 << 24), normal(1 << 24)
    out, n = torch.empty_like(x), x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    return lambda: add_kernel[grid](x, y, out, n), lambda: scale_kernel[grid](x, out, 2.0, n)


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8, 16)], key=["cols"])
@triton.jit
def softmax_backward_kernel(y_ptr, dy_ptr, dx_ptr, cols, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64) * cols, tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row + i, mask=i < cols, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row + i, mask=i < cols, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row + i, y * (dy - tl.sum(y * dy, 0)), mask=i < cols)


class Softmax(torch.autograd.Function):
    """torch's softmax with this file's backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        (y,), dy = ctx.saved_tensors, grads[0]
        dx, cols = torch.empty_like(y), y.shape[1]
        softmax_backward_kernel[(y.shape[0],)](y, dy.contiguous(), dx, cols, BLOCK=triton.next_power_of_2(cols))
        return dx


@case
def softmax_backward() -> Steps:
    """5 configs, through autograd's thread."""
    y, dy = Softmax.apply(normal(8192, 2048, grad=True)), normal(8192, 2048)
    return (lambda: y.backward(dy),)


@triton.autotune(
    [
        triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
        for rows, cols in ((16, 64), (32, 64), (64, 64), (32, 128), (64, 128))
        for warps in (4, 8)
    ],
    key=["rows", "cols"],
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def column_sums_kernel(x_ptr, sum_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols), other=0.0)
    tl.atomic_add(sum_ptr + c, tl.sum(libdevice.tanh(x.to(tl.float32)), 0), mask=c < cols, sem="relaxed")


@case
def column_sums() -> Steps:
    """10 configs, ``reset_to_zero``, atomics, libdevice's tanh."""
    x, out = normal(8192, 2048), torch.zeros(2048, device="cuda")
    rows, cols = x.shape
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]), triton.cdiv(cols, meta["COLS"]))  # noqa: E731
    return (lambda: column_sums_kernel[grid](x, out, rows, cols),)


def zero_output(nargs: dict[str, Any]) -> None:
    """The hook of configs that add to their output."""
    nargs["c_ptr"].zero_()


@case
def split_matmul_hooks() -> Steps:
    """10 configs, those that split the sum with a hook that zeroes the output."""
    from benchmarks.suite.cases import CASES as SUITE

    one = SUITE["split_matmul"]
    call = one.call(one.shapes[0], "cuda")
    listed = one.configs(one.shapes[0])[:10]
    for config in listed:
        config.pre_hook = zero_output
    tuner = triton.autotune(listed, key=list(one.key))(one.kernel)
    return (lambda: tuner[call.grid](*call.arguments),)


@case
def fla_chunk_states() -> Steps:
    """48 configs of a scan over chunks, under heuristics."""
    from fla.ops.common.chunk_h import chunk_fwd_h

    k, v = normal(4, 2048, 8, 128), normal(4, 2048, 8, 128)
    g = torch.nn.functional.logsigmoid(normal(4, 2048, 8, dtype=torch.float32))
    return (lambda: chunk_fwd_h(k, v, g=g, chunk_size=64),)
