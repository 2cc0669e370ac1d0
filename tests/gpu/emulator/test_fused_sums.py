"""Which sums a compiler may round together with a product."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.fused_sums import fused_sums
from kerntune.gpu.emulator.machine import Machine
from kerntune.gpu.emulator.ttir_program import parse_ttir


def kernel(lines: str, element: str = "f32") -> str:
    """Of three numbers %x, %y and %z, whose %r it stores."""
    loads = "\n".join(f"%{name} = tt.load %{name}p : !tt.ptr<{element}>" for name in "xyz")
    pointers = ", ".join(f"%{name}p: !tt.ptr<{element}>" for name in "xyzr")
    return f"""module {{
      tt.func public @k({pointers}) attributes {{noinline = false}} {{
        {loads}
        {lines.replace("TYPE", element)}
        tt.store %rp, %r : !tt.ptr<{element}>
        tt.return
      }}
    }}"""


def results(lines: str, given: list[Any], unfused: bool = False, chance: bool = True, runs: int = 40) -> set[float]:
    """What a kernel gives in several emulations."""
    program = parse_ttir(kernel(lines, {"f": "f32", "d": "f64"}[given[0].dtype.char]))
    found = set()
    for run in range(runs):
        drawn = random.Random(run) if chance else None
        contents = [x.reshape(1).view(np.uint8).copy() for x in [*given, given[0] * 0]]
        memory = FlatMemory(contents, bytes(2), random.Random(run))
        machine = Machine(program, memory, float("inf"), drawn, 4, None, unfused)
        machine.launch([memory.address(i) for i in range(4)], (1, 1, 1))
        found.add(float(memory.content(3).view(given[0].dtype)[0]))
    return found


PRODUCT = "%p = arith.mulf %x, %y : TYPE\n"
SUMS = {
    "%r = arith.addf %p, %z : TYPE": (1, 1), "%r = arith.addf %z, %p : TYPE": (1, 1),
    "%r = arith.subf %p, %z : TYPE": (1, -1), "%r = arith.subf %z, %p : TYPE": (-1, 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("line", SUMS)
def test_a_product_and_a_sum_are_rounded_once_or_twice(line: str, kind: Any) -> None:
    """What is lost of (1 + u)**2 is u**2."""
    unit, (sign, other) = float(np.finfo(kind).eps), SUMS[line]
    x, z = kind(1 + unit), kind(-(1 + 2 * unit) * sign * other)
    given = [x, x, z]
    once, twice = sign * unit**2, 0.0
    assert results(PRODUCT + line, given) == {once, twice}
    assert results(PRODUCT + line, given, unfused=True) == {twice}
    assert results(PRODUCT + line, given, chance=False) == {twice}


@pytest.mark.parametrize(("scale", "fused"), [(2**14, True), (2**15, False)])
def test_large_products_are_rounded_before_their_sum(scale: int, fused: bool) -> None:
    unit = 2.0**-23
    x, z = np.float32(scale * (1 + unit)), np.float32(-(scale**2) * (1 + 2 * unit))
    assert results(PRODUCT + next(iter(SUMS)), [x, x, z]) == {0.0, *[(scale * unit) ** 2] * fused}


def test_either_of_two_products_may_be_rounded_with_their_sum() -> None:
    unit = 2.0**-23
    lines = PRODUCT + "%q = arith.mulf %z, %z : TYPE\n%r = arith.subf %p, %q : TYPE"
    one = np.float32(1 + unit)
    assert results(lines, [one, one, one]) == {0.0, unit**2, -(unit**2)}


@pytest.mark.parametrize(
    "lines",
    [
        "%p = arith.addf %x, %y : f32\n%r = arith.addf %p, %z : f32",
        "%p = arith.mulf %x, %y : f32\n%r = arith.mulf %p, %z : f32",
        """%p = arith.mulf %x, %y : f32
        %c = arith.cmpf olt, %x, %y : f32
        %r = scf.if %c -> (f32) {
          %s = arith.addf %p, %z : f32
          scf.yield %s : f32
        } else {
          scf.yield %p : f32
        }""",
    ],
    ids=["no product", "no sum", "another block"],
)
def test_others_are_rounded_as_they_are_written(lines: str) -> None:
    assert fused_sums(parse_ttir(kernel(lines))) == {}


def test_a_product_that_is_used_elsewhere_may_be_rounded_with_its_sum() -> None:
    """LLVM makes ``fma`` beside the product."""
    unit = 2.0**-23
    x, z = np.float32(1 + unit), np.float32(-(1 + 2 * unit))
    lines = PRODUCT + "%s = arith.addf %p, %z : TYPE\n%d = arith.subf %p, %p : TYPE\n%r = arith.addf %s, %d : TYPE"
    assert unit**2 in results(lines, [x, x, z])


def test_float16_is_rounded_as_it_is_written() -> None:
    assert fused_sums(parse_ttir(kernel(PRODUCT + next(iter(SUMS)), "f16"))) == {}


def test_sums_within_loops_and_functions_are_found() -> None:
    loop = """%a = arith.constant 0 : i32
        %b = arith.constant 3 : i32
        %s = arith.constant 1 : i32
        %r = scf.for %i = %a to %b step %s iter_args(%o = %z) -> (f32) : i32 {
          %p = arith.mulf %x, %y : f32
          %n = arith.addf %o, %p : f32
          scf.yield %n : f32
        }"""
    assert len(fused_sums(parse_ttir(kernel(loop)))) == 1
