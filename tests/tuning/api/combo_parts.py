"""Parts of combos for tests: of one axis, of two, looped and persistent reductions."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import kerntune
from kerntune import ComboPart


@triton.jit
def scale(block, x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def other_scale(block, x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) / factor, mask=i < n)


@triton.jit
def increment(block, x_ptr, n, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def transpose(x_block, y_block, x_ptr, y_ptr, w, h, BX: tl.constexpr, BY: tl.constexpr):
    i = x_block * BX + tl.arange(0, BX)[:, None]
    j = y_block * BY + tl.arange(0, BY)[None, :]
    inside = (i < w) & (j < h)
    tl.store(y_ptr + i * h + j, tl.load(x_ptr + j * w + i, mask=inside), mask=inside)


@triton.jit
def sums(block, x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = block * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, STEP), tl.float32)
    for start in range(0, cols, STEP):
        col = start + tl.arange(0, STEP)[None, :]
        total += tl.load(x_ptr + row * cols + col, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(y_ptr + row, tl.sum(total, 1)[:, None], mask=row < rows)


@triton.jit
def softmax(block, x_ptr, y_ptr, rows, cols, COLS: tl.constexpr):
    col = tl.arange(0, COLS)
    x = tl.load(x_ptr + block * cols + col, mask=col < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + block * cols + col, e / tl.sum(e, 0), mask=col < cols)


SCALE = ComboPart(scale, {"x": "n"}, {"x": "BLOCK"})
TRANSPOSE = ComboPart(transpose, {"x": "w", "y": "h"}, {"x": "BX", "y": "BY"})
SUMS = ComboPart(sums, {"x": "rows", "r0": "cols"}, {"x": "ROWS", "r0": "STEP"}, kind="reduction")
SOFTMAX = ComboPart(softmax, {"x": "rows", "r0": "cols"}, {"r0": "COLS"}, kind="persistent_reduction")
PARTS = (SCALE, TRANSPOSE, SUMS, SOFTMAX)


def four(device: str = "cuda", n: int = 1000) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """Arguments of all four parts, and functions of what each should have written."""
    x, p, r = torch.randn(n, device=device), torch.randn(30, 50, device=device), torch.randn(5, 300, device=device)
    y, q, s, t = (torch.full(shape, 7.0, device=device) for shape in ((n,), (50, 30), (5,), (5, 300)))
    given = [(x, y, n, 2.0), (p, q, 50, 30), (r, s, 5, 300), (r, t, 5, 300)]
    return given, [lambda: y - 2 * x, lambda: q - p.T, lambda: s - r.sum(1), lambda: t - r.softmax(1)]


def worst(errors: list[Any]) -> float:
    return max(float(error().abs().max()) for error in errors)


def scaled(device: str, sizes: Any) -> tuple[list[Any], list[Any], list[int]]:
    """Lists of tensors of these sizes, for :func:`scale`."""
    xs = [torch.randn(n, device=device) for n in sizes]
    return xs, [torch.full_like(x, 7.0) for x in xs], list(sizes)


def each(**words: Any) -> Any:
    """``scale`` over lists."""
    return kerntune.foreach(sizes={"x": "n"}, blocks={"x": "BLOCK"}, **words)(scale)


def all_interpreted() -> None:
    """Every way of launching, in Triton's interpreter: what it writes is right."""
    for order, n, parts in (("sequential", 1000, (0, 1, 2, 3)), ("round robin", 90, (0, 2, 3))):
        given, errors = four("cpu", n)  # in turns the first config has blocks of one element here
        kernel = kerntune.combo([PARTS[i] for i in parts], order=order)
        kernel(*(given[i] for i in parts))
        assert worst([errors[i] for i in parts]) < 1e-4, order
        kernel._apart([value for i in parts for value in given[i]])
        assert worst([errors[i] for i in parts]) < 1e-4, order
    xs, ys, ns = scaled("cpu", (1, 100, 1025, 2100))
    kernel = each()
    kernel(xs, ys, ns, 3.0)
    assert all(torch.equal(y, 3 * x) for x, y in zip(xs, ys, strict=True))
    kernel._one_by_one(len(xs), [True, True, True, False], (xs, ys, ns, -1.0))
    assert all(torch.equal(y, -x) for x, y in zip(xs, ys, strict=True))
