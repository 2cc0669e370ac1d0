"""What an access says, and which operations it is read from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER

from kerntune.kernels.access import ATOMICS, ON_CHIP, PURE_READERS, READERS, WRITERS, Access
from kerntune.kernels.compat.versions import triton_series
from kerntune.kernels.specialize import specialize
from kerntune.kernels.writes import ADDRESSES, LENGTH, access_of, content_use


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


def module(body: str, after: str = "") -> str:
    """A kernel in which ``%l`` and ``%m`` are loaded, the other values given."""
    return f"""module {{
  tt.func public @k(%p: !tt.ptr<i32>, %q: !tt.ptr<i1>, %d: !tt.tensordesc<{DESCRIBED}>,
      %i: i32, %j: i32, %s: i32, %c: i1, %t: tensor<8xf32>) {{
    %l = tt.load %p : !tt.ptr<i32>
    %m = tt.load %q : !tt.ptr<i1>
    %f = tt.splat %l : i32 -> tensor<8xi32>
    %x = arith.sitofp %f : tensor<8xi32> to tensor<8xf32>
    {body}
    tt.return
  }}
  {after}
}}"""


DESCRIBED = "8xf32" if triton_series() not in ("3.6", "3.7") else "tensor<8xf32>"

USE = "%y{n} = tt.addptr %p, {value} : !tt.ptr<i32>, i32"


def used(body: str, *values: str) -> list[str]:
    """Which of some values of a kernel depend on what is loaded."""
    texts = {value: body.replace("USE", USE.format(n=0, value=value)) for value in values}
    assert "USE" in body
    assert not any(access_of(module(text)).unknown for text in texts.values()), "each can be parsed"
    return [value for value, text in texts.items() if content_use(module(text))]


FOR = """%r:2 = scf.for %k = %i to %j step %s iter_args(%a = {}, %b = {}) -> (i32, i32) : i32 {{
  INSIDE
  scf.yield {}, {} : i32, i32
}}
AFTER"""
WHILE = """%r:2 = scf.while (%a = {}, %b = {}) : (i32, i32) -> (i32, i32) {{
  INSIDE
  scf.condition(%c) {}, {} : i32, i32
}} do {{
^bb0(%e: i32, %g: i32):
  DO
  scf.yield %i, %j : i32, i32
}}
AFTER"""
IF = """%r:2 = scf.if %c -> (i32, i32) {{
  scf.yield {}, {} : i32, i32
}} else {{
  scf.yield {}, {} : i32, i32
}}
AFTER"""


@pytest.mark.parametrize(
    ("text", "given", "where", "names"),
    [
        (FOR, ("%i", "%j", "%i", "%l"), "INSIDE", ["%b"]),
        (FOR, ("%i", "%j", "%i", "%l"), "AFTER", ["%r#1"]),
        (FOR, ("%i", "%j", "%l", "%j"), "INSIDE", ["%a"]),
        (FOR, ("%i", "%l", "%i", "%j"), "INSIDE", ["%b"]),
        (FOR, ("%l", "%j", "%b", "%a"), "INSIDE", ["%a", "%b"]),
        (FOR, ("%l", "%j", "%b", "%a"), "AFTER", ["%r#0", "%r#1"]),
        (WHILE, ("%l", "%j", "%i", "%j"), "INSIDE", ["%a"]),
        (WHILE, ("%l", "%j", "%i", "%j"), "AFTER", []),
        (WHILE, ("%i", "%j", "%l", "%j"), "AFTER", ["%r#0"]),
        (WHILE, ("%i", "%j", "%i", "%l"), "DO", ["%g"]),
        (IF, ("%l", "%j", "%i", "%j"), "AFTER", ["%r#0"]),
        (IF, ("%i", "%j", "%i", "%l"), "AFTER", ["%r#1"]),
    ],
)
def test_where_loaded_values_go(text: str, given: tuple[str, ...], where: str, names: list[str]) -> None:
    """Place by place through loops and branches, round after round."""
    body = text.format(*given).replace(where, "USE")
    for other in ("INSIDE", "AFTER", "DO"):
        body = body.replace(other, "")
    candidates = {"INSIDE": ["%a", "%b"], "AFTER": ["%r#0", "%r#1"], "DO": ["%e", "%g"]}[where]
    assert used(body, *candidates) == names


@pytest.mark.parametrize(
    ("line", "decided"),
    [
        ("%y = tt.addptr %p, %l : !tt.ptr<i32>, i32", (ADDRESSES,)),
        ("%y = tt.descriptor_load %d[%l] : !tt.tensordesc<{}> -> tensor<8xf32>", (ADDRESSES,)),
        ("%y = tt.descriptor_load %d[%i] : !tt.tensordesc<{}> -> tensor<8xf32>", ()),
        ("tt.descriptor_store %d[%l], %t : !tt.tensordesc<{}>, tensor<8xf32>", (ADDRESSES,)),
        ("tt.descriptor_store %d[%i], %x : !tt.tensordesc<{}>, tensor<8xf32>", ()),
        ("%y = tt.load %p, %m, %i : !tt.ptr<i32>", (ADDRESSES,)),
        ("%y = tt.load %p, %c, %l : !tt.ptr<i32>", ()),
        ("tt.store %p, %l, %c : !tt.ptr<i32>", ()),
        ("tt.store %p, %i, %m : !tt.ptr<i32>", (ADDRESSES,)),
        ("scf.for %k = %i to %l step %s : i32 {{\n}}", (LENGTH,)),
        ("%y = scf.for %k = %i to %j step %s iter_args(%a = %l) -> (i32) : i32 {{\nscf.yield %a : i32\n}}", ()),
        ("scf.for %k = %i to %l step %s : i32 {{\n%y = tt.addptr %p, %k : !tt.ptr<i32>, i32\n}}", (LENGTH,)),
        ("scf.if %m {{\n}}", (LENGTH,)),
        ("%y = scf.while (%a = %i) : (i32) -> i32 {{\nscf.condition(%m) %a : i32\n}} do {{\n"
         "^bb0(%e: i32):\nscf.yield %e : i32\n}}", (LENGTH,)),
        ("%y = arith.addi %l, %i : i32", ()),
        ("%y = arith.addi %l, %i : i32\n%z = tt.addptr %p, %y : !tt.ptr<i32>, i32", (ADDRESSES,)),
        ("%y = tt.call @g(%l) : (i32) -> i32\n%z = tt.addptr %p, %y : !tt.ptr<i32>, i32", (ADDRESSES,)),
        ("%w = tt.call @g(%l) : (i32) -> i32\n%y = tt.call @g(%i) : (i32) -> i32\n"
         "%z = tt.addptr %p, %y : !tt.ptr<i32>, i32", ()),
    ],
)  # fmt: skip
def test_which_operands_decide(line: str, decided: tuple[str, ...]) -> None:
    callee = "tt.func private @g(%n: i32) -> i32 {\n %o = arith.addi %n, %n : i32\n tt.return %o : i32\n }"
    text = module(line.format(DESCRIBED), callee)
    assert not access_of(text).unknown, "it can be parsed"
    assert content_use(text) == decided
