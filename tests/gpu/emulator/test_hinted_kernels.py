"""Kernels with hints that don't hold everywhere: only where a thread accesses several neighbours at once it matters."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from kerntune.errors import KernelFault
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.machine import Machine
from kerntune.gpu.emulator.promises import hint_effects
from kerntune.gpu.emulator.ttir_program import TtirProgram, parse_ttir
from tests.kernels.test_writes import _ttir as ttir_of

TYPES = {"f": "*fp32", "h": "*fp16", "i": "i32"}


@cache
def program_of(kernel: Any, types: str, aligned: tuple[int, ...], **constants: int) -> TtirProgram:
    """The arguments ``aligned`` are multiples of 16."""
    known = {p: TYPES[one] for p, one in zip(kernel.arg_names, types, strict=False)}
    numbers = {(kernel.arg_names.index(p),): n for p, n in constants.items()}
    text = ttir_of(
        kernel, tuple((known | dict.fromkeys(constants, "constexpr")).items()), tuple(numbers.items()), "cuda:90"
    )
    return replace(parse_ttir(text), divisible=dict.fromkeys(aligned, 16))


def launched(program: TtirProgram, grid: tuple[int, int], out: np.ndarray, *more: Any) -> np.ndarray:
    """What ``out`` has after a launch, with races looked for."""
    arrays = [out, *(one for one in more if isinstance(one, np.ndarray))]
    memory = FlatMemory([one.reshape(-1).view(np.uint8) for one in arrays], b"12345678", random.Random(1))
    arguments = [memory.address(i) for i in range(len(arrays))] + [n for n in more if not isinstance(n, np.ndarray)]
    machine = Machine(program, memory, math.inf, random.Random(2), 4)
    machine.launch(arguments, (*grid, 1), [True] + [False] * (len(arrays) - 1))
    return memory.content(0)[: out.nbytes].view(out.dtype).reshape(out.shape)


@triton.jit
def product(c, a, b, m, n, k, WRAPS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """As the products of triton.ops and of FlagGems are written."""
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    rows, columns = i % m if WRAPS else tl.where(i < m, i, 0), j % n if WRAPS else tl.where(j < n, j, 0)
    rows = tl.max_contiguous(tl.multiple_of(rows, M), M)
    columns = tl.max_contiguous(tl.multiple_of(columns, N), N)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        inner = first + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0.0)
        y = tl.load(b + inner[:, None] * n + columns[None, :], mask=inner[:, None] < k, other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * n + j[None, :], acc.to(tl.float16), mask=(i[:, None] < m) & (j[None, :] < n))


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(37, 45, 40), (37, 48, 32), (1, 3, 16)])
def test_a_product_of_odd_sizes_is_right(m: int, n: int, k: int, wraps: bool) -> None:
    random_state = np.random.default_rng(1)
    a, b = (random_state.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    aligned = (0, 1, 2, *(p for p, number in ((3, m), (4, n), (5, k)) if number % 16 == 0))
    program = program_of(product, "hhhiii", aligned, WRAPS=wraps, M=16, N=32, K=16)
    assert bool(hint_effects(program).accesses) == (n % 16 == 0 and not wraps), (
        "of other rows each element is loaded alone"
    )
    grid = (-(-m // 16), -(-n // 32))
    found = launched(program, grid, np.zeros((m, n), np.float16), a, b, m, n, k)
    assert (found == a @ b).all()


@triton.jit
def wrapped(out, x, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + tl.max_contiguous(tl.multiple_of(at % m, B), B)), mask=at < n)


X = np.arange(40, dtype=np.float32)


def test_a_hint_that_is_false_between_groups_does_no_harm() -> None:
    program = program_of(wrapped, "ffii", (0, 1), B=16)
    found = launched(program, (2, 1), np.zeros(32, np.float32), X, 32, 20)
    assert found.tolist() == (np.arange(32) % 20).tolist()


def test_a_hint_that_is_false_inside_of_a_group_changes_what_is_loaded() -> None:
    program = program_of(wrapped, "ffii", (0, 1), B=16)
    found = launched(program, (1, 1), np.zeros(16, np.float32), X, 16, 14)
    assert found.tolist() == list(range(16)), "14 and 15 should be 0 and 1"
    with pytest.raises(
        KernelFault, match=r"^4 elements .* of 16, because of its hints \(tl.max_contiguous 16, tl.multi"
    ):
        launched(program, (2, 1), np.zeros(32, np.float32), X, 32, 14)


@triton.jit
def masked(out, x, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    some = tl.max_constancy(at < n, 4)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=some)


def test_a_mask_that_is_said_to_be_constant_is_that_of_the_first() -> None:
    program, ones = program_of(masked, "ffi", (0, 1), B=16), np.ones(16, np.float32)
    assert launched(program, (1, 1), ones, X, 12).tolist() == [*range(12), 1, 1, 1, 1]
    assert launched(program, (1, 1), ones, X, 13).tolist() == [*range(13), 0, 0, 0], "the last three aren't masked"


@triton.jit
def thrice(out, x, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(x + tl.max_constancy(at // 3, 4), mask=at < n), mask=at < n)


def test_numbers_that_are_said_to_be_equal_are_computed_once() -> None:
    program = program_of(thrice, "ffi", (0, 1), B=16)
    found = launched(program, (1, 1), np.zeros(16, np.float32), X, 16)
    assert found.tolist() == [i // 4 * 4 // 3 for i in range(16)]


@triton.jit
def summed(out, x, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.atomic_add(out + tl.max_contiguous(tl.multiple_of(at % n, 2), 2), tl.load(x + at))


def test_sums_of_atomics_are_of_neighbours() -> None:
    program = program_of(summed, "ffi", (0, 1), B=4)
    assert launched(program, (1, 1), np.zeros(4, np.float32), X, 2).tolist() == [2, 4, 0, 0]
    with pytest.raises(KernelFault, match=r"^elements are written elsewhere .*: 2 are accessed at once"):
        launched(program, (1, 1), np.zeros(4, np.float32), X, 3)


@triton.jit
def rounded_down(x, n):  # type: ignore[no-untyped-def]
    return tl.multiple_of(x // n, 4)


@triton.jit
def in_loops(out, x, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at, first = tl.arange(0, B), 0
    while first < n:
        for _ in range(1):
            tl.store(out + first + at, tl.load(x + rounded_down(first, m) + at))
        first += B


def test_hints_in_loops_and_functions_are_found() -> None:
    program = program_of(in_loops, "ffii", (0, 1), B=8)
    (access,) = hint_effects(program).accesses.values()
    assert (access.axis, access.width, access.size, access.hints) == (0, 4, 4, "its hints (tl.multiple_of 4)")
    found = launched(program, (1, 1), np.zeros(24, np.float32), X, 24, 2)
    assert found.tolist() == [*range(8), *range(4, 12), *range(8, 16)]
    with pytest.raises(KernelFault, match="because of its hints"):
        launched(program, (1, 1), np.zeros(24, np.float32), X, 24, 3)
