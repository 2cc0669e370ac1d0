"""What an access says, and which operations it is read from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER

from kerntune.kernels import access
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
        return COMPILER.compile(specialize(kernel, (), words, backend.spec.target)).ttir


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


FOR = ["%r:2 = scf.for %k = %low to %n step %s iter_args(%a = {}, %b = {}) -> (i32, i32) : i32 {{",
       "scf.yield {}, {} : i32",
       "}}"]  # fmt: skip
WHILE = ["%r:2 = scf.while (%a = {}, %b = {}) : (i32, i32) -> (i32, i32) {{", "scf.condition(%c) {}, {} : i32",
         "}} do {{",
         "scf.yield %u, %v", "}}"]  # fmt: skip
TWO_REGIONS = [
    "%r:2 = scf.while (%a = %u, %b = %v) : (i32, i32) -> (i32, i32) {{", "scf.condition(%c) {}, {} : i32, i32",
    "}} do {{", "^bb0(%d: i32, %e: i32):", "scf.yield %u, %v : i32, i32", "}}",
    '%s = "tt.reduce"(%t) ({{', "^bb0(%f: i32, %g: i32):", "tt.reduce.return %f : i32", "}})",
]  # fmt: skip
IF = [
    "%r:2 = scf.if %c -> (i32, i32) {{",
    "scf.yield {}, {} : i32, i32",
    "}} else {{",
    "scf.yield {}, {} : i32, i32",
    "}}",
]


def loaded(lines: list[str], *values: str) -> set[str]:
    """Which names of these lines depend on ``%l``, which is loaded, beside itself."""
    text = "\n".join(["%l = tt.load %x : !tt.ptr<i32>", *lines]).format(*values)
    flow = access._Flow([line.strip() for line in text.splitlines()])
    flow.used()
    return flow.loaded - {"%l"}


@pytest.mark.parametrize(
    ("lines", "values", "names"),
    [
        (FOR, ("%u", "%v", "%u", "%l"), {"%b", "%r#1"}),
        (FOR, ("%u", "%v", "%l", "%v"), {"%a", "%r#0"}),
        (FOR, ("%u", "%l", "%u", "%v"), {"%b"}),
        (FOR, ("%l", "%v", "%b", "%a"), {"%a", "%b", "%r#0", "%r#1"}),
        (WHILE, ("%l", "%v", "%u", "%v"), {"%a"}),
        (WHILE, ("%u", "%v", "%l", "%v"), {"%a", "%r#0"}),
        (WHILE, ("%u", "%v", "%u", "%l"), {"%b", "%r#1"}),
        (TWO_REGIONS, ("%l", "%v"), {"%a", "%r#0", "%d"}),
        (TWO_REGIONS, ("%u", "%l"), {"%b", "%r#1", "%e"}),
        (TWO_REGIONS[:3] + TWO_REGIONS[6:9], ("%l", "%v"), {"%a", "%r#0"}),
        (IF, ("%l", "%v", "%u", "%v"), {"%r#0"}),
        (IF, ("%u", "%v", "%u", "%l"), {"%r#1"}),
        (["%r = scf.if %l -> i32 {{", "scf.yield %u : i32", "}}"], (), set()),
        (["%r = scf.if %c -> i32 {{", "scf.yield %l : i32", "}}"], (), {"%r"}),
        (["%r = scf.if %c -> i32 {{", "scf.if %d {{", "}}", "scf.yield %l : i32", "}}", "scf.yield %l"], (), {"%r"}),
        (["scf.for %k = %low to %l step %s : i32 {{", "%y = arith.addi %k, %u : i32", "}}"], (), set()),
        (["%r:3 = tt.split %l : i32", "%q = arith.addi %r#2, %u : i32"], (), {"%r#0", "%r#1", "%r#2", "%q"}),
        (["%r = arith.addi %u, %v : i32", "tt.store %p, %l : !tt.ptr<i32>"], (), set()),
    ],
)
def test_where_loaded_values_go(lines: list[str], values: tuple[str, ...], names: set[str]) -> None:
    """Place by place through loops and branches, round after round."""
    assert loaded(lines, *values) == names


@pytest.mark.parametrize(
    ("line", "decided"),
    [
        ("%q = tt.addptr %p, %l : !tt.ptr<f32>, i32", (ADDRESSES,)),
        ("%q = tt.addptr %l, %i : !tt.ptr<f32>, i32", ()),
        ("%q = tt.descriptor_load %d[%i, %l] : !tt.tensordesc<f32>", (ADDRESSES,)),
        ("%q = tt.descriptor_load %l[%i, %i] : !tt.tensordesc<f32>", ()),
        ("%q = tt.load %p, %l, %o : !tt.ptr<f32>", (ADDRESSES,)),
        ("%q = tt.load %p, %m, %l : !tt.ptr<f32>", ()),
        ("tt.store %p, %l, %m : !tt.ptr<f32>", ()),
        ("tt.store %p, %v, %l : !tt.ptr<f32>", (ADDRESSES,)),
        ("%q = amdg.buffer_load %l[%i] : f32", ()),
        ("amdg.buffer_store %v, %p[%i], %l : f32", (ADDRESSES,)),
        ("amdg.buffer_store %v, %l[%i] : f32", ()),
        ("%q = amdg.buffer_load_to_local %p[%l] into %s : f32", (ADDRESSES,)),
        ("scf.for %k = %n to %l step %s : i32 {", (LENGTH,)),
        ("%q = scf.for %k = %n to %m step %s iter_args(%a = %l) -> (i32) : i32 {", ()),
        ("scf.if %l {", (LENGTH,)),
        ("scf.condition(%l) %v : i32", (LENGTH,)),
        ("scf.condition(%c) %l : i32", ()),
        ("cf.cond_br %l, ^bb1, ^bb2(%i : i32)", (LENGTH,)),
        ("cf.cond_br %c, ^bb1, ^bb2(%l : i32)", ()),
    ],
)
def test_which_operands_decide(line: str, decided: tuple[str, ...]) -> None:
    assert content_use(f"tt.func @k() {{\n%l = tt.load %x : !tt.ptr<i32>\n{line}\n}}") == decided
    assert content_use(f"tt.func @k() {{\n{line}\n}}\ntt.func @f() {{\n%l = tt.load %x : !tt.ptr<i32>\n}}") == ()
