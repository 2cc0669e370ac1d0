"""Six operations for ``benchmarks/choices.py``: two implementations with tuned Triton kernels each, and torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

import kerntune

EPS = 1e-5

MOST_COLUMNS = 32768
"""Of a row that one block holds."""

MOST_ROWS = 64
"""Of a product that the skinny kernel computes."""


def warps(*counts: int) -> list[Any]:
    """Configs of these numbers of warps alone."""
    return [triton.Config({}, num_warps=n) for n in counts]


def blocks(*sizes: tuple[int, int]) -> list[Any]:
    """Configs of a block size and a number of warps each."""
    return [triton.Config({"BLOCK": size}, num_warps=n) for size, n in sizes]


STEPS = blocks((1024, 4), (2048, 8), (4096, 8))


def whole_row(x: Any) -> int:
    """The block that holds a row. ValueError for one that no block should hold."""
    if x.shape[-1] > MOST_COLUMNS:
        raise ValueError(f"a row of more than {MOST_COLUMNS} numbers is too long for one block")
    return int(triton.next_power_of_2(x.shape[-1]))


# softmax


@kerntune.autotune(warps(4, 8, 16), key=["cols"])
@triton.jit
def softmax_row(x, y, cols, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + i, mask=i < cols, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * cols + i, value / tl.sum(value, 0), mask=i < cols)


@kerntune.autotune(STEPS, key=["cols"])
@triton.jit
def softmax_steps(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    most = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + i, mask=i < cols, other=-1e30).to(tl.float32)
        higher = tl.maximum(most, value)
        total = total * tl.exp(most - higher) + tl.exp(value - higher)
        most = higher
    top = tl.max(most, 0)
    whole = tl.sum(total * tl.exp(most - top), 0)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
        tl.store(y + row * cols + i, tl.exp(value - top) / whole, mask=i < cols)


def softmax_by_rows(x: Any) -> Any:
    block, y = whole_row(x), torch.empty_like(x)
    softmax_row[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
    return y


def softmax_by_steps(x: Any) -> Any:
    y = torch.empty_like(x)
    softmax_steps[(x.shape[0],)](x, y, x.shape[1])
    return y


def torch_softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


# norms


@kerntune.autotune(warps(4, 8, 16), key=["cols"])
@triton.jit
def rms_norm_row(x, w, y, cols, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / cols + eps)
    tl.store(y + row * cols + i, value * scale * tl.load(w + i, mask=i < cols).to(tl.float32), mask=i < cols)


@kerntune.autotune(STEPS, key=["cols"])
@triton.jit
def rms_norm_steps(x, w, y, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
        squares += value * value
    scale = tl.rsqrt(tl.sum(squares, 0) / cols + eps)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
        tl.store(y + row * cols + i, value * scale * tl.load(w + i, mask=i < cols).to(tl.float32), mask=i < cols)


def rms_norm_by_rows(x: Any, w: Any) -> Any:
    block, y = whole_row(x), torch.empty_like(x)
    rms_norm_row[(x.shape[0],)](x, w, y, x.shape[1], EPS, BLOCK=block)
    return y


def rms_norm_by_steps(x: Any, w: Any) -> Any:
    y = torch.empty_like(x)
    rms_norm_steps[(x.shape[0],)](x, w, y, x.shape[1], EPS)
    return y


def torch_rms_norm(x: Any, w: Any) -> Any:
    return F.rms_norm(x, (x.shape[1],), w, EPS)


@kerntune.autotune(warps(4, 8, 16), key=["cols"])
@triton.jit
def layer_norm_row(x, w, b, y, cols, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
    apart = tl.where(i < cols, value - tl.sum(value, 0) / cols, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / cols + eps)
    weight, bias = tl.load(w + i, mask=i < cols).to(tl.float32), tl.load(b + i, mask=i < cols).to(tl.float32)
    tl.store(y + row * cols + i, apart * scale * weight + bias, mask=i < cols)


@kerntune.autotune(STEPS, key=["cols"])
@triton.jit
def layer_norm_steps(x, w, b, y, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total, squares = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    mean = tl.sum(total, 0) / cols
    scale = tl.rsqrt(tl.sum(squares, 0) / cols - mean * mean + eps)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
        weight, bias = tl.load(w + i, mask=i < cols).to(tl.float32), tl.load(b + i, mask=i < cols).to(tl.float32)
        tl.store(y + row * cols + i, (value - mean) * scale * weight + bias, mask=i < cols)


def layer_norm_by_rows(x: Any, w: Any, b: Any) -> Any:
    block, y = whole_row(x), torch.empty_like(x)
    layer_norm_row[(x.shape[0],)](x, w, b, y, x.shape[1], EPS, BLOCK=block)
    return y


def layer_norm_by_steps(x: Any, w: Any, b: Any) -> Any:
    y = torch.empty_like(x)
    layer_norm_steps[(x.shape[0],)](x, w, b, y, x.shape[1], EPS)
    return y


def torch_layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (x.shape[1],), w, b, EPS)


# GELU times a gate


@triton.jit
def gelu(x):
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x / (1.0 + tl.exp(-2.0 * inner))


@kerntune.autotune(blocks((512, 4), (1024, 4), (4096, 8)), key=["n"])
@triton.jit
def gelu_gate_flat(x, gate, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = gelu(tl.load(x + i, mask=i < n).to(tl.float32))
    tl.store(y + i, value * tl.load(gate + i, mask=i < n).to(tl.float32), mask=i < n)


@kerntune.autotune(STEPS, key=["cols"])
@triton.jit
def gelu_gate_steps(x, gate, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = gelu(tl.load(x + row + i, mask=i < cols).to(tl.float32))
        tl.store(y + row + i, value * tl.load(gate + row + i, mask=i < cols).to(tl.float32), mask=i < cols)


def gelu_gate_by_elements(x: Any, gate: Any) -> Any:
    y, n = torch.empty_like(x), x.numel()
    gelu_gate_flat[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, gate, y, n)
    return y


def gelu_gate_by_rows(x: Any, gate: Any) -> Any:
    y = torch.empty_like(x)
    gelu_gate_steps[(x.shape[0],)](x, gate, y, x.shape[1])
    return y


def torch_gelu_gate(x: Any, gate: Any) -> Any:
    return F.gelu(x, approximate="tanh") * gate


# sums of rows


@kerntune.autotune(STEPS, key=["cols"])
@triton.jit
def row_sum_steps(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, cols, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
    tl.store(y + row, tl.sum(total, 0))


@kerntune.autotune(blocks((2048, 4), (4096, 8), (8192, 8)), key=["cols"], reset_to_zero=["y"])
@triton.jit
def row_sum_parts(x, y, cols, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
    tl.atomic_add(y + row, tl.sum(value, 0))


def row_sum_by_steps(x: Any) -> Any:
    y = torch.empty(x.shape[0], device=x.device)
    row_sum_steps[(x.shape[0],)](x, y, x.shape[1])
    return y


def row_sum_by_parts(x: Any) -> Any:
    rows, cols = x.shape
    y = torch.zeros(rows, device=x.device)
    row_sum_parts[lambda meta: (rows, triton.cdiv(cols, meta["BLOCK"]))](x, y, cols)
    return y


def torch_row_sum(x: Any) -> Any:
    return x.sum(-1)


# products


def tiles(*found: tuple[int, int, int, int, int]) -> list[Any]:
    """Configs of tiles: rows, columns, inner step, warps, stages."""
    return [triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=w, num_stages=s) for m, n, k, w, s in found]


@kerntune.autotune(tiles((64, 64, 64, 4, 4), (128, 128, 64, 8, 3), (128, 256, 64, 8, 3)), key=["m", "n", "k"])
@triton.jit
def matmul_tiles(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = tl.program_id(0) // (8 * columns)
    high = min(rows - group * 8, 8)
    inside = tl.program_id(0) % (8 * columns)
    i = (group * 8 + inside % high) * BM + tl.arange(0, BM)
    j = inside // high * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for begin in range(0, k, BK):
        p = begin + tl.arange(0, BK)
        left = tl.load(a + i[:, None] * k + p[None, :], mask=(i[:, None] < m) & (p[None, :] < k), other=0.0)
        right = tl.load(b + p[:, None] * n + j[None, :], mask=(p[:, None] < k) & (j[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@kerntune.autotune(tiles((16, 32, 128, 4, 4), (16, 64, 128, 4, 3), (64, 32, 128, 4, 3)), key=["m", "n", "k"])
@triton.jit
def matmul_skinny(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(1) * BM + tl.arange(0, BM)
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for begin in range(0, k, BK):
        p = begin + tl.arange(0, BK)
        left = tl.load(a + i[:, None] * k + p[None, :], mask=(i[:, None] < m) & (p[None, :] < k), other=0.0)
        right = tl.load(b + p[:, None] * n + j[None, :], mask=(p[:, None] < k) & (j[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


def matmul_by_tiles(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    matmul_tiles[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](a, b, c, m, n, k)
    return c


def matmul_of_few_rows(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    if m > MOST_ROWS:
        raise ValueError(f"more than {MOST_ROWS} rows are for another kernel")
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    matmul_skinny[lambda meta: (triton.cdiv(n, meta["BN"]), triton.cdiv(m, meta["BM"]))](a, b, c, m, n, k)
    return c


def torch_matmul(a: Any, b: Any) -> Any:
    return a @ b


# operations


@dataclass(frozen=True)
class OperationCase:
    """An operation: its implementations, what makes the arguments for a size, and its sizes."""

    name: str
    functions: Sequence[Callable[..., Any]]
    make: Callable[..., tuple[Any, ...]]
    sizes: Sequence[tuple[int, ...]]


ROWS = ((1, 1024), (64, 8192), (512, 1000), (4096, 256), (4096, 4096), (8192, 2048), (16, 65536), (2, 500_000))

PRODUCTS = tuple((m, 4096, 4096) for m in (1, 8, 16, 64, 128, 512, 2048, 4096))


def numbers(*shape: int, dtype: Any = torch.float32) -> Any:
    """Normal random numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=dtype)


def normed(rows: int, cols: int, parameters: int) -> tuple[Any, ...]:
    """Arguments of a norm in bfloat16."""
    return numbers(rows, cols, dtype=torch.bfloat16), *[numbers(cols, dtype=torch.bfloat16) for _ in range(parameters)]


CASES = (
    OperationCase(
        "matmul",
        (matmul_by_tiles, matmul_of_few_rows, torch_matmul),
        lambda m, n, k: (numbers(m, k, dtype=torch.float16), numbers(k, n, dtype=torch.float16)),
        PRODUCTS,
    ),
    OperationCase("softmax", (softmax_by_rows, softmax_by_steps, torch_softmax), lambda r, c: (numbers(r, c),), ROWS),
    OperationCase(
        "rms_norm", (rms_norm_by_rows, rms_norm_by_steps, torch_rms_norm), lambda r, c: normed(r, c, 1), ROWS
    ),
    OperationCase(
        "layer_norm", (layer_norm_by_rows, layer_norm_by_steps, torch_layer_norm), lambda r, c: normed(r, c, 2), ROWS
    ),
    OperationCase(
        "gelu_gate",
        (gelu_gate_by_elements, gelu_gate_by_rows, torch_gelu_gate),
        lambda r, c: (numbers(r, c, dtype=torch.bfloat16), numbers(r, c, dtype=torch.bfloat16)),
        ROWS,
    ),
    OperationCase("row_sum", (row_sum_by_steps, row_sum_by_parts, torch_row_sum), lambda r, c: (numbers(r, c),), ROWS),
)
"""The operations."""
