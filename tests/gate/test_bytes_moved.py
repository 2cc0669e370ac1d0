"""Bytes of 20 kernels, as the memory plan gives them, against hand-derived ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import captured

from kerntune.base.roofline import bytes_moved, matmul_dtype
from kerntune.capture.recorder import record
from kerntune.gpu.scripted import FakeBackend

M, N, K = 64, 256, 128


@triton.jit
def unary(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def in_place(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 0, mask=i < n)


@triton.jit
def binary(x, z, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + tl.load(z + i, mask=i < n), mask=i < n)


@triton.jit
def ternary(a, b, c, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(y + i, tl.where(tl.load(a + i, mask=m), tl.load(b + i, mask=m), tl.load(c + i, mask=m)), mask=m)


@triton.jit
def split(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v, mask=i < n)
    tl.store(z + i, v, mask=i < n)


@triton.jit
def bias(x, b, y, sx, COLUMNS: tl.constexpr):
    j = tl.arange(0, COLUMNS)
    row = tl.program_id(0)
    tl.store(y + row * COLUMNS + j, tl.load(x + row * sx + j) + tl.load(b + j))


@triton.jit
def row_sum(x, y, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y + row, tl.sum(tl.load(x + row * COLUMNS + tl.arange(0, COLUMNS)), 0))


@triton.jit
def norm(x, w, b, y, mean, rstd, COLUMNS: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, COLUMNS)
    v = tl.load(x + row * COLUMNS + j)
    m = tl.sum(v, 0) / COLUMNS
    r = 1 / tl.sqrt(tl.sum((v - m) * (v - m), 0) / COLUMNS + 1e-5)
    tl.store(y + row * COLUMNS + j, (v - m) * r * tl.load(w + j) + tl.load(b + j))
    tl.store(mean + row, m)
    tl.store(rstd + row, r)


@triton.jit
def product(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x, y = tl.load(a + i[:, None] * BK + k[None, :]), tl.load(b + k[:, None] * BN + j[None, :])
    tl.store(c + i[:, None] * BN + j[None, :], tl.dot(x, y).to(c.dtype.element_ty))


@triton.jit
def count(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def gather(table, index, y, COLUMNS: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, COLUMNS)
    tl.store(y + row * COLUMNS + j, tl.load(table + tl.load(index + row) * COLUMNS + j))


@triton.jit
def optional(x, b, y, n, HAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if HAS:
        v += tl.load(b + i, mask=i < n)
    tl.store(y + i, v, mask=i < n)


def new(*shape: int, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=dtype)


@dataclass(frozen=True)
class Case:
    """A call, and its bytes as a person counts them: ``reads`` and ``writes``."""

    name: str
    call: Callable[[], Any]
    reads: int
    writes: int


def flat(kernel: Any, make: Callable[[], tuple[Any, ...]], n: int = N, **more: Any) -> Callable[[], Any]:
    return lambda: kernel[(triton.cdiv(n, 128),)](*make(), n, BLOCK=128, **more)


def rows(kernel: Any, make: Callable[[], tuple[Any, ...]], m: int = M) -> Callable[[], Any]:
    return lambda: kernel[(m,)](*make(), COLUMNS=N)


def twice() -> None:
    x, y = new(N), new(N)
    unary[(2,)](x, y, N, BLOCK=128)
    in_place[(2,)](y, N, BLOCK=128)


def shared() -> None:
    """Both halves of one allocation: what is read, and what is written."""
    both = new(2, N)
    unary[(2,)](both[0], both[1], N, BLOCK=128)


def same() -> None:
    """One tensor given twice is read once."""
    x = new(N)
    binary[(2,)](x, x, new(N), N, BLOCK=128)


HALF, BYTE, LONG = torch.float16, torch.int8, torch.int64
CASES = [
    Case("copy", flat(unary, lambda: (new(N), new(N))), 4 * N, 4 * N),
    Case("copy of a tail", flat(unary, lambda: (new(1000), new(1000)), 1000), 4000, 4000),
    Case("conversion to half", flat(unary, lambda: (new(N), new(N, dtype=HALF))), 4 * N, 2 * N),
    Case("quantization", flat(unary, lambda: (new(N, dtype=HALF), new(N, dtype=BYTE))), 2 * N, N),
    Case("bfloat16 from float8", flat(unary, lambda: (new(N, dtype=torch.float8_e5m2), new(N, dtype=torch.bfloat16))),
         N, 2 * N),
    Case("in place", flat(in_place, lambda: (new(N),)), 4 * N, 4 * N),
    Case("fill", flat(fill, lambda: (new(N),)), 0, 4 * N),
    Case("sum of two", flat(binary, lambda: (new(N), new(N), new(N))), 8 * N, 4 * N),
    Case("one tensor twice", same, 4 * N, 4 * N),
    Case("choice by a mask", flat(ternary, lambda: (new(N, dtype=torch.bool), new(N), new(N), new(N))), 9 * N, 4 * N),
    Case("two outputs", flat(split, lambda: (new(N), new(N), new(N))), 4 * N, 8 * N),
    Case("bias", rows(bias, lambda: (new(M, N), new(N), new(M, N), N)), 4 * (M * N + N), 4 * M * N),
    Case("broadcast row", rows(bias, lambda: (new(1, N).expand(M, N), new(N), new(M, N), 0)), 4 * 2 * N, 4 * M * N),
    Case("row sums", rows(row_sum, lambda: (new(M, N), new(M))), 4 * M * N, 4 * M),
    Case("layer norm", rows(norm, lambda: (new(M, N), new(N), new(N), new(M, N), new(M), new(M))),
         4 * (M * N + 2 * N), 4 * (M * N + 2 * M)),
    Case("matrix product", lambda: product[(1,)](new(64, 128, dtype=HALF), new(128, 256, dtype=HALF),
         new(64, 256, dtype=HALF), BM=64, BN=256, BK=128), 2 * (M * K + K * N), 2 * M * N),
    Case("histogram", flat(count, lambda: (new(N, dtype=torch.int32), new(16, dtype=torch.int32))), 4 * N + 64, 64),
    Case("gather of a whole table", rows(gather, lambda: (new(M, N), new(M, dtype=LONG), new(M, N))),
         4 * M * N + 8 * M, 4 * M * N),
    Case("a tensor that is not used", flat(optional, lambda: (new(N), None, new(N)), HAS=False), 4 * N, 4 * N),
    Case("two launches", twice, 8 * N, 8 * N),
    Case("halves of one allocation", shared, 4 * N, 4 * N),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bytes_are_those_that_a_person_counts(backend: FakeBackend, case: Case) -> None:
    recorded = record(captured(backend, case.call))
    assert not recorded.failures
    assert bytes_moved(recorded.recording, recorded.accesses) == case.reads + case.writes


def test_there_are_twenty() -> None:
    assert len(CASES) >= 20


def test_the_dtype_of_a_product_is_that_of_its_operands(backend: FakeBackend) -> None:
    by_name = {c.name: c for c in CASES}
    found = {n: record(captured(backend, by_name[n].call)) for n in ("matrix product", "histogram")}
    assert matmul_dtype(found["matrix product"].recording) == "float16"
    assert matmul_dtype(found["histogram"].recording) == ""
