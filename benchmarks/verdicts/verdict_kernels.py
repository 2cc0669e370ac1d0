"""The kernels of the verdict benchmarks: their base form, and edits that make a twin and a slowed form of them.

A twin has other constants, so other machine code of the same length. Two forms can be made slower: one does extra
dependent work at the start of each program, as many steps as the argument ``spin`` says; the other runs with more
programs, which do the first ones' work once more. The other forms take the argument and ignore it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.harness import module_of

LOW = tl.constexpr(-3.0e38)
FILL = tl.constexpr(3.0)
SCALE = tl.constexpr(0.375)

TWIN = [
    ("LOW = tl.constexpr(-3.0e38)", "LOW = tl.constexpr(-2.0e38)"),
    ("FILL = tl.constexpr(3.0)", "FILL = tl.constexpr(5.0)"),
    ("SCALE = tl.constexpr(0.375)", "SCALE = tl.constexpr(0.625)"),
]
"""Immediates for immediates: the same instructions with other numbers in them."""

SLOWED = [
    (
        "    return tl.program_id(0)\n",
        "    state = tl.program_id(0) * 2\n"
        "    for _ in range(spin):\n"
        "        state = state * 1664525 + 2\n"
        "    return tl.program_id(0) + tl.where(state == 1, 1, 0)\n",
    )
]
"""Each step waits for the one before, and the program's number for the last. An even number times an odd one plus two
is even, so nothing is ever added; the compiler can't know."""

AGAIN = [("    return tl.program_id(0)\n", "    return tl.program_id(0) % spin\n")]
"""``spin`` is the number of programs that there is work for. For kernels that are bound by memory: where many programs
share a multiprocessor, steps that wait are hidden behind the others' loads."""

EDITS: dict[str, list[tuple[str, str]]] = {"base": [], "twin": TWIN, "steps": SLOWED, "programs": AGAIN}

by_hand = triton.jit(do_not_specialize=["spin"])


@triton.jit
def begin(spin):
    """The program's number."""
    return tl.program_id(0)


@by_hand
def add_kernel(x_ptr, y_ptr, out_ptr, n, spin, BLOCK: tl.constexpr):
    offsets = begin(spin) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=FILL)
    y = tl.load(y_ptr + offsets, mask=inside, other=FILL)
    tl.store(out_ptr + offsets, x + y * SCALE, mask=inside)


@by_hand
def softmax_kernel(x_ptr, out_ptr, cols, spin, BLOCK: tl.constexpr):
    row = begin(spin)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * cols + columns, mask=inside, other=LOW)
    exponentials = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + columns, exponentials / tl.sum(exponentials, axis=0), mask=inside)


@by_hand
def layer_norm_backward_kernel(
    grad_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr, rows, cols, spin, BLOCK: tl.constexpr
):
    program = begin(spin)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    weight = tl.load(weight_ptr + columns, mask=inside, other=FILL).to(tl.float32)
    d_weight = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        grad = tl.load(grad_ptr + row * cols + columns, mask=inside, other=FILL).to(tl.float32)
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=FILL).to(tl.float32)
        rstd = tl.load(rstd_ptr + row) * SCALE
        normal = (x - tl.load(mean_ptr + row)) * rstd
        scaled = grad * weight
        along = tl.sum(scaled * normal, axis=0) / cols
        dx = (scaled - normal * along - tl.sum(scaled, axis=0) / cols) * rstd
        tl.store(dx_ptr + row * cols + columns, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        d_weight += grad * normal
    tl.store(partial_ptr + program * cols + columns, d_weight, mask=inside)


@triton.jit
def column_sum_kernel(partial_ptr, out_ptr, rows, cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    columns = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLS), tl.float32)
    for start in range(0, rows, BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)
        inside = (row[:, None] < rows) & (columns[None, :] < cols)
        total += tl.load(partial_ptr + row[:, None] * cols + columns[None, :], mask=inside, other=0.0)
    out = tl.sum(total, axis=0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + columns, out, mask=columns < cols)


@by_hand
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, vocabulary, spin, BLOCK: tl.constexpr):
    row = begin(spin).to(tl.int64)
    logits_ptr += row * vocabulary
    target = tl.load(target_ptr + row)
    target_logit = tl.load(logits_ptr + target).to(tl.float32)
    largest = -float("inf")
    total = 0.0
    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + columns, mask=columns < vocabulary, other=LOW).to(tl.float32)
        larger = tl.maximum(largest, tl.max(logits, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(logits - larger), axis=0)
        largest = larger
    log_total = largest + tl.log(total)
    tl.store(loss_ptr + row, (log_total - target_logit) * SCALE)
    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < vocabulary
        logits = tl.load(logits_ptr + columns, mask=inside, other=LOW).to(tl.float32)
        gradient = tl.exp(logits - log_total) - tl.where(columns == target, 1.0, 0.0)
        tl.store(logits_ptr + columns, gradient.to(logits_ptr.dtype.element_ty), mask=inside)


@by_hand
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, spin,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    program = begin(spin)
    first = program // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = program % (GROUP * tiles_n)
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % m)[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * n + (cols % n)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * n
    c_ptrs = c_ptr + rows[:, None] * n + cols[None, :]
    out = (total * SCALE).to(c_ptr.dtype.element_ty)
    tl.store(c_ptrs, out, mask=(rows[:, None] < m) & (cols[None, :] < n))


@by_hand
def split_k_kernel(
    a_ptr, b_ptr, out_ptr, n, k, spin,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, BLOCK_M)
    cols = begin(spin) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(tl.program_id(1) * BLOCK_K, k, SPLIT_K * BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * n + cols[None, :])
        total = tl.dot(a, b, total)
    tl.atomic_add(out_ptr + rows[:, None] * n + cols[None, :], total * SCALE, sem="relaxed")


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=inside, other=FILL)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * tl.load(up_ptr + offsets, mask=inside), mask=inside)


# what a case calls: ``(spin, *tensors)``


def add(spin, x, y):
    out, n = torch.empty_like(x), x.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, spin, BLOCK=1024)
    return out


def softmax(spin, x):
    out, (rows, cols) = torch.empty_like(x), x.shape
    softmax_kernel[(rows,)](x, out, cols, spin, BLOCK=triton.next_power_of_2(cols))
    return out


def layer_norm_backward(spin, grad, x, weight, mean, rstd):
    (rows, cols), programs = x.shape, 512
    dx, partial = torch.empty_like(x), torch.empty(programs, cols, device=x.device)
    layer_norm_backward_kernel[(programs,)](
        grad, x, weight, mean, rstd, dx, partial, rows, cols, spin, BLOCK=triton.next_power_of_2(cols), num_warps=8
    )
    d_weight = torch.empty(cols, device=x.device, dtype=weight.dtype)
    column_sum_kernel[(triton.cdiv(cols, 32),)](partial, d_weight, programs, cols, BLOCK_ROWS=64, BLOCK_COLS=32)
    return dx, d_weight


def cross_entropy(spin, logits, target):
    rows, vocabulary = logits.shape
    loss = torch.empty(rows, device=logits.device)
    cross_entropy_kernel[(rows,)](logits, target, loss, vocabulary, spin, BLOCK=4096, num_warps=8)
    return loss


def matmul(spin, a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    block_m, block_n = 128, 256 if m > 4096 else 128
    matmul_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a, b, c, m, n, k, spin, block_m, block_n, 64, 8, num_warps=8, num_stages=3
    )
    return c


def split_k(spin, a, b):
    k, n = b.shape
    out = torch.zeros(a.shape[0], n, device=a.device)
    split_k_kernel[(triton.cdiv(n, 64), 8)](a, b, out, n, k, spin, a.shape[0], 64, 128, 8, num_stages=4)
    return out


def three_kernels(spin, gate, up, residual):
    """A gated activation, a softmax over its rows, and a scaled residual: two temporaries between them."""
    inner, n = torch.empty_like(gate), gate.numel()
    swiglu_kernel[(triton.cdiv(n, 1024),)](gate, up, inner, n, BLOCK=1024)
    return add(0, residual, softmax(spin, inner))


@dataclass(frozen=True)
class Case:
    """One call: the name of what it calls, and the tensors it gets. ``plant`` is the form that is made slower, if any,
    and ``spin`` what that form is captured with: any number of steps, or the number of programs."""

    name: str
    op: str
    inputs: Callable[[Callable[..., Any]], tuple[Any, ...]]
    plant: str = "steps"
    spin: int = 64


def _half(*shape: int) -> dict[str, Any]:
    return {"size": shape, "dtype": torch.float16}


CASES = (
    Case("add_2us", "add", lambda make: (make(65_536), make(65_536)), plant=""),
    Case("softmax_small", "softmax", lambda make: (make(1024, 4096),)),
    Case("split_k_atomics", "split_k", lambda make: (make(**_half(16, 14_336)), make(**_half(14_336, 4096)))),
    Case("three_kernels", "three_kernels", lambda make: tuple(make(2048, 2048) for _ in range(3))),
    Case(
        "layer_norm_backward",
        "layer_norm_backward",
        lambda make: (
            make(**_half(4096, 4096)), make(**_half(4096, 4096)), make(**_half(4096)), make(4096), make(4096).abs(),
        ),
    ),
    Case("matmul_1024", "matmul", lambda make: (make(**_half(1024, 4096)), make(**_half(4096, 4096)))),
    Case("softmax_large", "softmax", lambda make: (make(65_536, 1024),), plant="programs", spin=65_536),
    Case(
        "cross_entropy_in_place",
        "cross_entropy",
        lambda make: (make(size=(2048, 32_000), dtype=torch.bfloat16), make(2048).abs().mul(100).to(torch.int64)),
    ),
    Case("matmul_6144", "matmul", lambda make: (make(**_half(6144, 4096)), make(**_half(4096, 4096)))),
    Case("matmul_power_limited", "matmul", lambda make: (make(**_half(8192, 8192)), make(**_half(8192, 8192)))),
)  # fmt: skip


def variant_module(variant: str, folder: Path) -> ModuleType:
    """This file with a variant's edits, written to ``folder`` and imported: kernels of its own."""
    text = Path(__file__).read_text()
    head, mark, body = text.partition("by_hand = ")
    for old, new in EDITS[variant]:
        place = head if "constexpr" in old else body
        if old not in place:
            raise SystemExit(f"{Path(__file__).name} has no {old!r} to edit")
        head, body = (head.replace(old, new, 1), body) if place is head else (head, body.replace(old, new, 1))
    return module_of(head + mark + body, f"verdict_kernels_{variant}", folder)
