"""Kernels whose functions have several blocks: a ``return`` inside of a branch becomes ``cf.cond_br``."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from kerntune.errors import InterpreterLimit, KernelTimeout
from kerntune.gpu.emulator import ttir_program
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.machine import Machine
from kerntune.gpu.emulator.ttir_program import TtirProgram, parse_ttir
from tests.kernels.test_writes import _ttir as ttir_of

PROGRAMS = 6


def launched(program: TtirProgram, out: np.ndarray, *more: Any, seconds: float = 20.0) -> list[float]:
    """What ``out`` has after a launch of six programs in any order, with races looked for."""
    arrays = [out, *(one for one in more if isinstance(one, np.ndarray))]
    memory = FlatMemory([one.view(np.uint8) for one in arrays], b"12345678", random.Random(1))
    arguments = [memory.address(i) for i in range(len(arrays))] + [n for n in more if not isinstance(n, np.ndarray)]
    machine = Machine(program, memory, time.monotonic() + seconds, random.Random(2), 4)
    machine.launch(arguments, (PROGRAMS, 1, 1), [True] * len(arrays))
    return list(memory.content(0)[: out.nbytes].view(out.dtype).tolist())


@triton.jit
def first_returns(out, x, n):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    if program == 0:
        tl.store(out, -1.0)
        return
    tl.store(out + program, tl.load(x + program) * n)


@triton.jit
def nested_returns(out, x, n):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    if program > 1:
        if program == n:
            return
        if program == n + 1:
            tl.store(out + program, -2.0)
            return
    tl.store(out + program, tl.load(x + program))


@triton.jit
def else_returns(out, x, n):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    value = tl.load(x + program)
    if value > n:
        value += 1.0
    else:
        tl.store(out + program, -3.0)
        return
    tl.store(out + program, value)


@triton.jit
def takes_either_side(out, x, n):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    if program < n:
        if program == 1:
            return
        value, places = tl.load(x + program), tl.arange(0, 2)
    else:
        value, places = 5.0, tl.arange(0, 2) * 0 + 1
    tl.store(out + program, value + tl.sum(places))


@triton.jit
def loops_around(out, x, n):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    if program >= n:
        return
    total = 0.0
    for i in range(program + 1):
        total += tl.load(x + i)
    tl.store(out + program, total)


@triton.jit(noinline=True)
def _doubled_if_large(value, n):  # type: ignore[no-untyped-def]
    if value < n:
        return value
    return value * 2.0


@triton.jit
def calls_what_returns(out, x, n):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out + program, _doubled_if_large(_doubled_if_large(tl.load(x + program), n), n))


X = np.array([1, 2, 3, 4, 5, 6], "<f4")


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        (first_returns, [-1, 6, 9, 12, 15, 18]),
        (nested_returns, [1, 2, 3, 0, -2, 6]),
        (else_returns, [-3, -3, -3, 5, 6, 7]),
        (takes_either_side, [2, 0, 4, 7, 7, 7]),
        (loops_around, [1, 3, 6, 0, 0, 0]),
        (calls_what_returns, [1, 2, 12, 16, 20, 24]),
    ],
)
def test_a_return_inside_of_a_branch_ends_one_program(kernel: Any, wanted: list[float]) -> None:
    signature = (("out", "*fp32"), ("x", "*fp32"), ("n", "i32"))
    text = ttir_of(kernel, signature, (), "cuda:90")
    assert "cf.cond_br" in text
    assert launched(parse_ttir(text), np.zeros(PROGRAMS, "<f4"), X, 3) == wanted


def blocks(body: str) -> str:
    """A kernel of these blocks; ``%program`` is the program's number, and ``%c`` whether it is below ``%n``."""
    return f"""
module {{
  tt.func public @k(%out: !tt.ptr<i32>, %n: i32) attributes {{noinline = false}} {{
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %seven = arith.constant 7 : i32
    %program = tt.get_program_id x : i32
    %place = tt.addptr %out, %program : !tt.ptr<i32>, i32
    %c = arith.cmpi slt, %program, %n : i32
{body}
  }}
}}
"""


STORED = (
    "  ^end(%a: i32, %b: i32):\n    %r = arith.subi %a, %b : i32\n    tt.store %place, %r : !tt.ptr<i32>\n    tt.return"
)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("    cf.cond_br %c, ^end(%seven, %one : i32, i32), ^end(%program, %zero : i32, i32)", [6, 6, 2, 3, 4, 5]),
        ("    cf.cond_br %c, ^mid, ^end(%one, %seven : i32, i32)\n  ^mid:\n    cf.br ^end(%n, %program : i32, i32)",
         [2, 1, -6, -6, -6, -6]),
        ("    cf.br ^head(%zero, %one, %program : i32, i32, i32)\n  ^head(%x: i32, %y: i32, %i: i32):\n"
         "    %j = arith.subi %i, %one : i32\n    %more = arith.cmpi sge, %j, %zero : i32\n"
         "    cf.cond_br %more, ^head(%y, %x, %j : i32, i32, i32), ^end(%x, %y : i32, i32)",
         [-1, 1, -1, 1, -1, 1]),
        ("    tt.return\n  ^unreached:\n    cf.br ^end(%one, %one : i32, i32)", [9] * 6),
    ],
    ids=["both_sides", "one_side", "loop", "unreached"],
)  # fmt: skip
def test_a_block_takes_the_values_of_the_branch_that_leads_to_it(body: str, wanted: list[int]) -> None:
    assert launched(parse_ttir(blocks(f"{body}\n{STORED}")), np.full(PROGRAMS, 9, "<i4"), 2) == wanted


@pytest.mark.parametrize("branch", ["cf.br ^head", "cf.cond_br %c, ^head, ^end"])
def test_blocks_that_lead_to_each_other_forever_are_ended(branch: str) -> None:
    program = parse_ttir(blocks(f"    cf.br ^head\n  ^head:\n    {branch}\n  ^end:\n    tt.return"))
    with pytest.raises(KernelTimeout, match=r"^it has not ended within the time for emulating it$"):
        launched(program, np.zeros(PROGRAMS, "<i4"), PROGRAMS, seconds=0.3)


TWO_SIDES = blocks(f"""
    cf.cond_br %c, ^mid(%zero : i32), ^end(%one, %seven : i32, i32)
  ^mid(%m: i32):
    cf.br ^end(%m, %n : i32, i32)
{STORED}""")


@pytest.mark.parametrize(
    ("said", "instead", "why"),
    [
        ("^bb1(%c0_i32 : i32), ^bb2(", "^bb2(%c0_i32 : i32), ^bb1(", "another cf.cond_br"),
        ("^bb1(%c0_i32 : i32), ^bb2(", "^bb2(%c0_i32 : i32), ^bb2(", "another cf.cond_br"),
        ("^bb1(%c0_i32 : i32), ", "", "another cf.cond_br"),
        ("^bb2(%c1_i32, %c7_i32 : i32, i32)", "^bb2(%c1_i32 : i32)", "another cf.cond_br"),
        ("^bb2(%c1_i32, %c7_i32 : i32, i32)", "^bb3(%c1_i32, %c7_i32 : i32, i32)", "another cf.cond_br"),
        ("^bb2(%c1_i32, %c7_i32 : i32, i32)", "^bb0", "another cf.cond_br"),
        ("^bb2(%c1_i32, %c7_i32 : i32, i32)", "^bb2(%c1_i32, %c7_i32 : i32, i32) {a = 1}", "another cf.cond_br"),
        ("cf.br ^bb2", "cf.cond_br %2, ^bb2", "another cf.br"),
        ("cf.br ^bb2(%3, %arg1 : i32, i32)", "cf.br ^bb1(%3 : i32)", "another cf.br"),
        ("cf.br ^bb2(%3, %arg1 : i32, i32)", "cf.switch", "another number of branches"),
        ("tt.return", "cf.br ^bb1", "another number of branches"),
        ("^bb1(%3: i32):", "^bb2(%3: i32):", "other blocks"),
        ("^bb1(%3: i32):", "^bb01(%3: i32):", "other blocks"),
        ("^bb1(%3: i32):", "", "other blocks"),
        ("tt.return", "^bb3:", "other blocks"),
    ],
)  # fmt: skip
def test_a_text_that_says_another_way_than_mlir_is_refused(
    said: str, instead: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherText:
        def __init__(self, module: Any) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            return getattr(self._module, name)

        def str_nodebug(self) -> str:
            text = str(self._module.str_nodebug())
            assert text.count(said) == 1
            return text.replace(said, instead)

    parse = ttir_program.parse_module
    parse_ttir.cache_clear()
    assert launched(parse_ttir(TWO_SIDES), np.zeros(PROGRAMS, "<i4"), 2) == [-2, -2, -6, -6, -6, -6]
    monkeypatch.setattr(ttir_program, "parse_module", lambda *given: OtherText(parse(*given)))
    parse_ttir.cache_clear()
    with pytest.raises(InterpreterLimit, match=rf"^its TTIR can't be read: the text has {why}$"):
        parse_ttir(TWO_SIDES)


def test_other_branches_are_refused_by_name() -> None:
    switch = TWO_SIDES.replace(
        "cf.br ^end(%m, %n : i32, i32)", "cf.switch %n : i32, [ default: ^end(%m, %n : i32, i32) ]"
    )
    with pytest.raises(InterpreterLimit, match=r"^cf\.switch can't be emulated$"):
        launched(parse_ttir(switch), np.zeros(PROGRAMS, "<i4"), 2)
    inner = "scf.execute_region {\ncf.cond_br %c, ^x, ^y\n^x:\nscf.yield\n^y:\nscf.yield\n}\ntt.return"
    with pytest.raises(InterpreterLimit, match=r"^it has several blocks in one region$"):
        parse_ttir(blocks(inner))
