"""What an access says, and which operations it is read from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER

from kerntune.kernels.access import (
    ADDRESSES,
    ATOMICS,
    LENGTH,
    ON_CHIP,
    PURE_READERS,
    READERS,
    WRITERS,
    Access,
    content_use,
)
from kerntune.kernels.specialize import specialize


@pytest.mark.parametrize(("follows", "beyond", "found"), [(False, (), False), (True, (), True), (False, ("x",), True)])
def test_of_a_kernel_that_cannot_be_analysed_everything_is_assumed(
    follows: bool, beyond: tuple[str, ...], found: bool
) -> None:
    """Each reason once; one that may write beyond its arguments follows addresses."""
    every = frozenset({0, 1})
    assert Access.everything(2, ["b", "a", "b"], follows=follows, beyond=[*beyond, *beyond]) == Access(
        every, every, every, True, ("b", "a"), 2, found, beyond
    )


def test_what_is_read_and_written_is_in_place() -> None:
    some = Access(frozenset({0, 1}), frozenset({1, 2}), frozenset(), False, (), 3)
    assert (some.in_place, some.follows, some.beyond) == (frozenset({1}), False, ())


def test_an_atomic_reads_and_writes_and_a_pure_reader_writes_nothing() -> None:
    assert ATOMICS <= WRITERS
    assert {
        "tt.atomic_rmw",
        "tt.descriptor_reduce",
        "amdg.buffer_atomic_cas",
        "ttng.async_tma_reduce",
    } <= READERS & ATOMICS
    assert PURE_READERS == READERS - WRITERS
    assert not PURE_READERS & WRITERS
    assert {"tt.load", "ttg.async_copy_global_to_local"} <= PURE_READERS
    assert not ON_CHIP & (READERS | WRITERS)


@triton.jit
def gather_kernel(index_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(y_ptr + i, tl.load(x_ptr + at * 2), mask=i < n)


@triton.jit
def until_kernel(lengths_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, tl.load(lengths_ptr), BLOCK):
        total += tl.load(x_ptr + k + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.arange(0, BLOCK), total)


@triton.jit
def masked_kernel(lengths_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < tl.load(lengths_ptr))


@triton.jit
def carried_kernel(next_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """A list whose links are loaded: each place comes out of the round before."""
    at = tl.program_id(0)
    total = 0.0
    for _ in range(n):
        total += tl.load(x_ptr + at)
        at = tl.load(next_ptr + at)
    tl.store(y_ptr + tl.program_id(0), total)


@triton.jit
def branch_kernel(flags_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    if tl.load(flags_ptr) > 0:
        for k in range(n):
            tl.store(y_ptr + k, 1.0)


@triton.jit
def loop_kernel(index_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """A matmul's loop: pointers are carried, and so are loaded values, but not from one to the other."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    at = x_ptr + i
    for _ in range(0, n, BLOCK):
        total += tl.load(at) * tl.load(index_ptr + i)
        at += BLOCK
    tl.store(y_ptr + i, tl.exp(total), mask=i < n)


def ttir(kernel: Any, backend: Any, index: torch.dtype = torch.int32) -> str:
    given = {"x_ptr": torch.empty(64, device="cuda"), "y_ptr": torch.empty(64, device="cuda"), "n": 60, "BLOCK": 64}
    first = kernel.arg_names[0]
    words = {**given, **({} if first in given else {first: torch.empty(64, device="cuda", dtype=index)})}
    with backend.tensors.specializing():
        return COMPILER.compile(specialize(kernel, (), words, backend.targets[0])).ttir


@pytest.mark.parametrize(
    ("kernel", "decided"),
    [
        (gather_kernel, (ADDRESSES,)),
        (until_kernel, (LENGTH,)),
        (masked_kernel, (ADDRESSES,)),
        (carried_kernel, (ADDRESSES,)),
        (branch_kernel, (LENGTH,)),
        (loop_kernel, ()),
    ],
    ids=lambda x: x.fn.__name__ if hasattr(x, "fn") else "",
)
def test_what_loaded_values_decide(backend: Any, kernel: Any, decided: tuple[str, ...]) -> None:
    assert content_use(ttir(kernel, backend)) == decided


def test_no_text() -> None:
    assert content_use("") == ()


@pytest.mark.parametrize(
    ("load", "use", "decided"),
    [
        ("ttg.local_load %buffer", "%p = tt.addptr %x_ptr, %i : !tt.ptr<f32>, i32", (ADDRESSES,)),
        ("ttng.tmem_load %memory", "ttng.async_tma_copy_local_to_global %y_desc[%i] %buffer", (ADDRESSES,)),
        ("amdg.buffer_load %x_ptr[%o]", "%y = amdg.buffer_load %x_ptr[%i]", (ADDRESSES,)),
        ("amdg.buffer_load %x_ptr[%o]", "amdg.buffer_store %v, %y_ptr[%i]", (ADDRESSES,)),
        ("amdg.buffer_load %x_ptr[%o]", "amdg.buffer_store %i, %y_ptr[%o]", ()),
        ("amdg.buffer_load %x_ptr[%o]", "ttng.wait_barrier %bar, %i", ()),
    ],
)
def test_gluons_memory_operations(load: str, use: str, decided: tuple[str, ...]) -> None:
    assert content_use(f"tt.func public @kernel() {{\n%i = {load}\n{use}\ntt.return\n}}") == decided
