"""The emulator on hand-written TTIR: each kind of operation, memory, and what it refuses."""

from __future__ import annotations

import hashlib
import random
import struct
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np
import pytest

from kerntune.base.device import Target
from kerntune.base.recording import Binary, Launch, Param, Recording, Storage, TensorMap, View, Zeros
from kerntune.errors import InterpreterLimit, KernelFault, KernelTimeout
from kerntune.gpu.emulator import replay_results, ttir_program
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.machine import Machine
from kerntune.gpu.emulator.replayed_results import ReplayedResults
from kerntune.gpu.emulator.ttir_program import ValueType, parse_ttir, value_type
from kerntune.kernels.compat.versions import triton_series

TYPES = {
    "f32": ("float32", 4), "bf16": ("bfloat16", 2), "i32": ("int32", 4), "i64": ("int64", 8), "i8": ("int8", 1),
    "i1": ("bool", 1),
}  # fmt: skip
N = 8


def run(
    body: str, given: list[tuple[str, bytes]], grid: tuple[int, int, int] = (1, 1, 1), seconds: float = 20.0,
    scalars: tuple[tuple[str, float], ...] = (), launches: int = 1, pdl: bool = False,
    used_before: frozenset[int] = frozenset(), **options: object,
) -> ReplayedResults:  # fmt: skip
    """Run a kernel of arguments ``%a0``, ``%a1``... of these elements and bytes; ``scalars`` follow. Operators
    have used some before the first launch. ``options`` are what it is compiled with."""
    names = [f"%a{i}: !tt.ptr<{e}>" for i, (e, _) in enumerate(given)]
    names += [f"%s{i}: {e}" for i, (e, _) in enumerate(scalars)]
    head = f"tt.func public @k({', '.join(names)}) attributes {{noinline = false}}"
    text = f"module {{\n {head} {{\n{body}\n tt.return\n }}\n}}"
    sha = hashlib.sha256(text.encode()).hexdigest()
    binary = Binary("cubin", "sm_90", "k", "0" * 64, sha, "", "", "", "", options, {}, 4, pdl=pdl)
    params = [Param(f"a{i}", f"*{e}", view=i) for i, (e, _) in enumerate(given)]
    params += [Param(f"s{i}", e, value=v) for i, (e, v) in enumerate(scalars)]
    recording = Recording(
        Target.parse("cuda:90"),
        (Launch("k", "", 0, grid, tuple(params)),) * launches,
        (binary,),
        tuple(Storage(len(data), TYPES[e][0], Zeros()) for e, data in given),
        tuple(View(i, TYPES[e][0], (len(d) // TYPES[e][1],), (1,)) for i, (e, d) in enumerate(given)),
    )
    return replay_results(
        recording,
        {sha: text},
        [d for _, d in given],
        b"\xff\x7f",
        seconds,
        lambda done, _: used_before if done == 0 else frozenset(),
    )


def vector(element: str, name: str, source: str, n: int = N) -> str:
    """Load ``n`` elements from a pointer argument."""
    return f"""
    %{name}r = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>
    %{name}s = tt.splat {source} : !tt.ptr<{element}> -> tensor<{n}x!tt.ptr<{element}>>
    %{name}p = tt.addptr %{name}s, %{name}r : tensor<{n}x!tt.ptr<{element}>>, tensor<{n}xi32>
    %{name} = tt.load %{name}p : tensor<{n}x!tt.ptr<{element}>>"""


def stored(element: str, value: str, target: str, n: int = N) -> str:
    """Store ``n`` elements to a pointer argument."""
    return f"""
    %zr = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>
    %zs = tt.splat {target} : !tt.ptr<{element}> -> tensor<{n}x!tt.ptr<{element}>>
    %zp = tt.addptr %zs, %zr : tensor<{n}x!tt.ptr<{element}>>, tensor<{n}xi32>
    tt.store %zp, {value} : tensor<{n}x!tt.ptr<{element}>>"""


def binary(
    element: str, op: str, a: np.ndarray, b: np.ndarray, out: str | None = None, kind: str = "<f4"
) -> np.ndarray:
    """One operation of two vectors."""
    out = out or element
    typed = f"tensor<{N}x{element}>"
    body = vector(element, "x", "%a0") + vector(element, "y", "%a1")
    body += f"\n    %z = {op} %x, %y : {typed}" + stored(out, "%z", "%a2")
    done = run(body, [(element, a.tobytes()), (element, b.tobytes()), (out, bytes(N * TYPES[out][1]))])
    return np.frombuffer(done.contents[2], kind)


A = np.array([7, -7, 100, -(1 << 31), (1 << 31) - 1, 0, 5, -1], "<i4")
B = np.array([2, 2, -3, -1, 1, 4, 3, 31], "<i4")
U, V = A.view("<u4"), B.view("<u4")


ANY = f"%m = arith.constant dense<true> : tensor<{N}xi1>\n%z ="
ATOMIC = f"(tensor<{N}x!tt.ptr<i32>>, tensor<{N}xi32>, tensor<{N}xi1>) -> tensor<{N}xi32>"
PRODUCT = f"""
    %one = arith.constant dense<1.0> : tensor<1x1xf32>
    %c = arith.constant dense<0.0> : tensor<{N}x1xf32>
    %m = tt.reshape %x : tensor<{N}xf32> -> tensor<{N}x1xf32>
    %d = tt.dot %m, %one, %c, inputPrecision = tf32 : tensor<{N}x1xf32> * tensor<1x1xf32> -> tensor<{N}x1xf32>
    %z = tt.reshape %d : tensor<{N}x1xf32> -> tensor<{N}xf32>"""
MASKED = f"""
    %n = arith.constant dense<3> : tensor<{N}xi32>
    %m = arith.cmpi slt, %xr, %n : tensor<{N}xi32>
    %z = tt.load %yp, %m, %x : tensor<{N}x!tt.ptr<i32>>"""
F, G = (1 + 2.0 ** -np.arange(8, 16)).astype("<f4"), np.array([1, 2, np.nan, 4, 5, 6, 7, 1 + 2.0**-15], "<f4")


@pytest.mark.parametrize(
    ("lines", "a", "b", "out", "place", "want"),
    [
        (f"%z = arith.addf %x, %y : tensor<{N}xf32>", F, G, "f32", 2, F + G),
        (f"%z = arith.cmpi ult, %x, %y : tensor<{N}xi32>", A, B, "i1", 2, U < V),
        (f"%z = arith.cmpf ule, %x, %y : tensor<{N}xf32>", F, G, "i1", 2, ~(F > G)),
        (f"%z = arith.truncf %x : tensor<{N}xf32> to tensor<{N}xbf16>", F, G, "bf16", 2, np.full(N, 0x3F80, "<u2")),
        (PRODUCT, F, G, "f32", 2, [*F[:3], 1 + 2.0**-10, *[1.0] * 4]),
        (f"{ANY} tt.atomic_rmw add, acq_rel, gpu, %yp, %x, %m : {ATOMIC}", A, B, "i32", 1, (U + V).view("<i4")),
        (f"{ANY} tt.atomic_rmw umax, relaxed, gpu, %yp, %x, %m : {ATOMIC}", A, B, "i32", 1, np.maximum(U, V)),
        (MASKED, A, B, "i32", 2, [*B[:3], *A[3:]]),
    ],
    ids=["addf", "cmpi", "cmpf", "truncf", "tf32", "add", "umax", "mask"],
)  # fmt: skip
def test_what_the_text_says_is_done(lines: str, a: np.ndarray, b: np.ndarray, out: str, place: int, want: Any) -> None:
    element = "f32" if a.dtype == "<f4" else "i32"
    body = vector(element, "x", "%a0") + vector(element, "y", "%a1") + f"\n    {lines}" + stored(out, "%z", "%a2")
    done = run(body, [(element, a.tobytes()), (element, b.tobytes()), (out, bytes(N * TYPES[out][1]))])
    want = np.asarray(want)
    kind = {"f32": "<f4", "i1": "u1", "bf16": "<u2", "i32": want.dtype}[out]
    np.testing.assert_array_equal(np.frombuffer(done.contents[place], kind), want)


@pytest.mark.parametrize(
    ("options", "wanted"), [({}, 2), ({"enable_fp_fusion": True}, 2), ({"enable_fp_fusion": False}, 1)]
)
def test_a_product_is_rounded_with_a_sum_unless_the_compiler_is_told_not_to(options: Any, wanted: int) -> None:
    x, y = np.full(N, 1 + 2.0**-23, "<f4"), np.full(N, -1 - 2.0**-22, "<f4")
    lines = f"%p = arith.mulf %x, %x : tensor<{N}xf32>\n%z = arith.addf %p, %y : tensor<{N}xf32>"
    body = vector("f32", "x", "%a0") + vector("f32", "y", "%a1") + lines + stored("f32", "%z", "%a2")
    given = [("f32", x.tobytes()), ("f32", y.tobytes()), ("f32", bytes(32))]
    found = {run(body, given, launches=2, **options).contents[2] for _ in range(40)}
    assert len(found) == wanted


@pytest.mark.parametrize("op", ["shli", "shrsi", "shrui"])
def test_a_shift_by_all_bits_gives_poison(op: str) -> None:
    by = np.array([31, 32, 33, -1, 0, 0, 0, 0], "<i4")
    found = binary("i32", f"arith.{op}", A, by, kind="<i4")
    assert [int(x) == 0x7FFF7FFF for x in found] == [False, True, True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("launches", "pdl", "stores", "used", "race"),
    [
        (1, True, True, set(), False), (2, False, True, set(), False), (2, True, True, set(), True),
        (2, True, False, set(), False), (1, True, False, {0}, True), (1, True, False, {1}, False),
        (1, False, True, {0}, False),
    ],
)  # fmt: skip
def test_a_launch_that_may_begin_early_must_wait_for_what_it_uses(
    launches: int, pdl: bool, stores: bool, used: set[int], race: bool
) -> None:
    """Launches before it, and operators of torch's."""
    body = "%v = tt.load %a0 : !tt.ptr<i32>\n" + "tt.store %a0, %v : !tt.ptr<i32>" * stores
    given = [("i32", bytes(4))]
    if race:
        with pytest.raises(KernelFault, match=r"a race: it may begin before another launch has ended \(launch_pdl\)"):
            run(body, given, launches=launches, pdl=pdl, used_before=frozenset(used))
    else:
        assert run(body, given, launches=launches, pdl=pdl, used_before=frozenset(used)).contents == (bytes(4),)


def test_a_launch_that_waits_by_assembly_is_not_emulated() -> None:
    body = (
        '%w = tt.elementwise_inline_asm "griddepcontrol.wait; // dummy $0" {constraints = "=r", '
        "packed_element = 1 : i32, pure = false} -> i32\n"
        "%v = tt.load %a0 : !tt.ptr<i32>\ntt.store %a0, %v : !tt.ptr<i32>"
    )
    with pytest.raises(InterpreterLimit, match=r"kernel .*: it waits for other launches by assembly \(launch_pdl\)"):
        run(body, [("i32", bytes(4))], launches=2, pdl=True)


def test_no_address_becomes_a_number_however_that_is_written() -> None:
    body = '%n = "tt.ptr\\5Fto_int"(%a0) : (!tt.ptr<i64>) -> i64\ntt.store %a0, %n : !tt.ptr<i64>'
    with pytest.raises(InterpreterLimit, match=r"tt\.ptr_to_int can't be emulated$"):
        run(body, [("i64", bytes(8))])


def test_one_bfloat16_is_stored() -> None:
    body = """
    %x = tt.load %a0 : !tt.ptr<f32>
    %y = arith.truncf %x : f32 to bf16
    tt.store %a1, %y : !tt.ptr<bf16>"""
    done = run(body, [("f32", struct.pack("<f", 1.23)), ("bf16", bytes(2))])
    assert done.contents[1] == struct.pack("<H", 0x3F9D)


def test_arithmetic_in_bfloat16_rounds_each_result() -> None:
    one, small = 0x3F80, 0x3B80  # 1 and 2**-8, half of a unit of 1's last place: to even
    a, b = np.full(N, one, "<u2"), np.full(N, small, "<u2")
    assert set(binary("bf16", "arith.addf", a, b, kind="<u2")) == {one}


REDUCE = """
    %r = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%p: f32, %q: f32):
      %s = arith.addf %p, %q : f32
      tt.reduce.return %s : f32
    }) : (tensor<8xf32>) -> f32
    tt.store %a1, %r : !tt.ptr<f32>"""


def test_reductions_and_scans() -> None:
    x = np.arange(1, 9, dtype="<f4")
    done = run(vector("f32", "x", "%a0") + REDUCE, [("f32", x.tobytes()), ("f32", bytes(4))])
    assert struct.unpack("<f", done.contents[1]) == (36.0,)
    for reverse, want in (("false", np.cumsum(x)), ("true", np.cumsum(x[::-1])[::-1])):
        scan = REDUCE.replace("tt.reduce", "tt.scan").replace("axis = 0 : i32", f"axis = 0 : i32, reverse = {reverse}")
        scan = scan.replace("-> f32", "-> tensor<8xf32>").partition("    tt.store")[0] + stored("f32", "%r", "%a1")
        done = run(vector("f32", "x", "%a0") + scan, [("f32", x.tobytes()), ("f32", bytes(32))])
        np.testing.assert_array_equal(np.frombuffer(done.contents[1], "<f4"), want)


LOOP = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %z = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %r = scf.for %i = %c0 to %s0 step %c1 iter_args(%acc = %z) -> (f32) : i32 {
      %n = arith.addf %acc, %one : f32
      scf.yield %n : f32
    }
    %big = arith.cmpf ogt, %r, %one : f32
    %v = scf.if %big -> (f32) {
      scf.yield %r : f32
    } else {
      %m = arith.negf %one : f32
      scf.yield %m : f32
    }
    tt.store %a0, %v : !tt.ptr<f32>"""


@pytest.mark.parametrize(("count", "want"), [(5, 5.0), (0, -1.0), (-3, -1.0)])
def test_loops_and_branches(count: int, want: float) -> None:
    done = run(LOOP, [("f32", bytes(4))], scalars=(("i32", count),))
    assert struct.unpack("<f", done.contents[0]) == (want,)


def test_writes_beside_a_storage_are_counted() -> None:
    body = """
    %c = arith.constant 2 : i32
    %one = arith.constant 1.0 : f32
    %p = tt.addptr %a0, %c : !tt.ptr<f32>, i32
    tt.store %p, %one : !tt.ptr<f32>"""
    assert run(body, [("f32", bytes(8))]).outside > 0
    assert run(body, [("f32", bytes(12))]).outside == 0


def test_addresses_without_memory_are_faults() -> None:
    body = """
    %c = arith.constant 1073741824 : i32
    %p = tt.addptr %a0, %c : !tt.ptr<f32>, i32
    %v = tt.load %p : !tt.ptr<f32>
    tt.store %a0, %v : !tt.ptr<f32>"""
    with pytest.raises(KernelFault, match="kernel k: memory at"):
        run(body, [("f32", bytes(8))])
    with pytest.raises(KernelFault):
        run("    %z = arith.constant 0 : i64\n    %p = tt.int_to_ptr %z : i64 -> !tt.ptr<f32>\n"
            "    %v = tt.load %p : !tt.ptr<f32>\n    tt.store %a0, %v : !tt.ptr<f32>", [("f32", bytes(8))])  # fmt: skip


def test_what_cannot_be_emulated_is_named() -> None:
    options = '{constraints = "=r", packed_element = 1 : i32, pure = true}'
    asm = f'    %r = tt.elementwise_inline_asm "mov.u32 $0, 1;" {options} -> i32'
    for body, told in ((asm, "elementwise_inline_asm"), ("    not ttir", "can't be read")):
        with pytest.raises(InterpreterLimit, match=told):
            run(body, [("f32", bytes(4))])
    endless = LOOP.replace("step %c1", "step %c0")
    with pytest.raises(InterpreterLimit, match="step"):
        run(endless, [("f32", bytes(4))], scalars=(("i32", 5),))


def test_time_is_bounded() -> None:
    with pytest.raises(KernelTimeout, match="kernel k"):
        run(LOOP, [("f32", bytes(4))], scalars=(("i32", (1 << 31) - 1),), seconds=0.2)
    with pytest.raises(KernelTimeout):
        run(LOOP, [("f32", bytes(4))], scalars=(("i32", 3),), grid=(1 << 20, 1 << 10, 1), seconds=0.2)


def test_types() -> None:
    assert value_type("tensor<4x8x!tt.ptr<f16>>") == ValueType((4, 8), "ptr", "f16")
    assert value_type("!tt.ptr<i32>") == ValueType((), "ptr", "i32")
    assert value_type("tensor<2xbf16>") == ValueType((2,), "bf16")
    assert value_type("i1") == ValueType((), "i1")


def test_programs_run_in_an_order_that_is_drawn() -> None:
    """A program that takes what the one before has left, without waiting, is found so."""
    body = """
    %one = arith.constant 1 : i32
    %yes = arith.constant true
    %p = tt.get_program_id x : i32
    %ticket = tt.atomic_rmw add, relaxed, gpu, %a0, %one, %yes : (!tt.ptr<i32>, i32, i1) -> i32
    %at = tt.addptr %a1, %p : !tt.ptr<i32>, i32
    tt.store %at, %ticket : !tt.ptr<i32>
    """
    given = [("i32", bytes(4)), ("i32", bytes(64))]
    runs = [run(body, given, grid=(16, 1, 1)) for _ in range(2)]
    one, other = (np.frombuffer(done.contents[1], "<i4").tolist() for done in runs)
    assert sorted(one) == sorted(other) == list(range(16))
    assert one != list(range(16))
    assert one != other, "nothing that a kernel could read tells the order"


def test_a_text_that_looks_like_a_constant_is_none() -> None:
    body = """
    %p = tt.get_program_id x : i32
    tt.print " = arith.constant 7 : i32" {hex = false, isSigned = array<i32: 1>} : %p : i32
    %five = arith.constant 5 : i32
    tt.store %a0, %five : !tt.ptr<i32>
    """
    assert np.frombuffer(run(body, [("i32", bytes(4))]).contents[0], "<i4").tolist() == [5]


@pytest.mark.parametrize(("padding", "outside"), [("", 0.0), ("{padding = 2 : i32}", np.nan)])
def test_what_a_descriptor_gives_outside_of_its_tensor(padding: str, outside: float) -> None:
    block = "8xf32" if triton_series() not in ("3.6", "3.7") else "tensor<8xf32>"
    body = f"""
    %five = arith.constant 5 : i32
    %two = arith.constant 2 : i32
    %one = arith.constant 1 : i64
    %d = tt.make_tensor_descriptor %a0, [%five], [%one] {padding} : <f32>, <{block}>
    %v = tt.descriptor_load %d[%two] : !tt.tensordesc<{block}> -> tensor<8xf32>"""
    done = run(body + stored("f32", "%v", "%a1"), [("f32", np.arange(8, dtype="<f4").tobytes()), ("f32", bytes(32))])
    np.testing.assert_array_equal(np.frombuffer(done.contents[1], "<f4"), [2, 3, 4, *[outside] * 5])


@pytest.mark.parametrize(("how", "wanted"), [("add", [2, 1, 3, 5, 7, 5]), ("xor", [2, 1, 3, 1, 7, 5]), ("max", None)])
def test_a_descriptor_updates_what_lies_in_its_tensor(how: str, wanted: list[int] | None) -> None:
    block = "4xi32" if triton_series() not in ("3.6", "3.7") else "tensor<4xi32>"
    body = f"""
    %five = arith.constant 5 : i32
    %two = arith.constant 2 : i32
    %one = arith.constant 1 : i64
    %d = tt.make_tensor_descriptor %a0, [%five], [%one] : <i32>, <{block}>
    %v = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<4xi32>
    tt.descriptor_reduce {how}, %d[%two], %v : !tt.tensordesc<{block}>, tensor<4xi32>
    """
    given = [("i32", np.array([2, 1, 3, 4 if how == "add" else 0, 5, 5], "<i4").tobytes())]
    if wanted is None:
        with pytest.raises(InterpreterLimit, match=r"a descriptor updates by m.., which can't be emulated"):
            run(body, given)
        return
    assert np.frombuffer(run(body, given).contents[0], "<i4").tolist() == wanted


def test_a_text_that_does_not_fit_the_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttir_program, "operation_lines", lambda text: defaultdict(list))
    with pytest.raises(InterpreterLimit, match=r"another number of tt\.(make_range|load)"):
        run(vector("i32", "v", "%a0"), [("i32", bytes(32))])


WAITING = """
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %last = arith.constant LAST : i32
    %step = arith.constant STEP : i32
    %yes = arith.constant true
    %p = tt.get_program_id x : i32
    %n = arith.addi %p, %step : i32
    %begins = arith.cmpi eq, %p, %last : i32
    %v = scf.if %begins -> (i32) {
      scf.yield %zero : i32
    } else {
      %f = tt.addptr %a0, %n : !tt.ptr<i32>, i32
      scf.while : () -> () {
        %got = tt.atomic_rmw add, acquire, gpu, %f, %zero, %yes : (!tt.ptr<i32>, i32, i1) -> i32
        %goes = arith.cmpi eq, %got, %zero : i32
        scf.condition(%goes)
      } do {
        scf.yield
      }
      %b = tt.addptr %a1, %n : !tt.ptr<i32>, i32
      %before = tt.load %b : !tt.ptr<i32>
      scf.yield %before : i32
    }
    %sum = arith.addi %v, %one : i32
    %t = tt.addptr %a1, %p : !tt.ptr<i32>, i32
    tt.store %t, %sum : !tt.ptr<i32>
    %g = tt.addptr %a0, %p : !tt.ptr<i32>, i32
    %old = tt.atomic_rmw exch, release, gpu, %g, %one, %yes : (!tt.ptr<i32>, i32, i1) -> i32"""


@pytest.mark.parametrize(("last", "step"), [(0, -1), (39, 1)], ids=["for the one before", "for the next one"])
def test_programs_that_wait_go_on_when_the_others_have_come(last: int, step: int) -> None:
    body = WAITING.replace("LAST", str(last)).replace("STEP", str(step))
    done = run(body, [("i32", bytes(160)), ("i32", bytes(160))], grid=(40, 1, 1))
    found = np.frombuffer(done.contents[1], "<i4").tolist()
    assert found == (list(range(1, 41)) if step < 0 else list(range(40, 0, -1)))


@pytest.mark.parametrize(
    ("old", "new"),
    [("exch, release", "exch, relaxed"), ("add, acquire", "add, relaxed"),
     ("exch, release, gpu", "exch, release, cta"),
     ("add, acquire, gpu", "add, acquire, cta")],
)  # fmt: skip
def test_programs_that_wait_without_order_race(old: str, new: str) -> None:
    body = WAITING.replace("LAST", "0").replace("STEP", "-1")
    assert old in body
    with pytest.raises(KernelFault, match="a race: program"):
        run(body.replace(old, new), [("i32", bytes(64)), ("i32", bytes(64))], grid=(16, 1, 1))


def test_a_program_that_waits_in_vain_ends_at_the_limit() -> None:
    body = (
        WAITING.replace("LAST", "0")
        .replace("STEP", "-1")
        .replace("exch, release, gpu, %g, %one", "exch, release, gpu, %g, %zero")
    )
    with pytest.raises(KernelTimeout, match="kernel k"):
        run(body, [("i32", bytes(16)), ("i32", bytes(16))], grid=(4, 1, 1), seconds=0.3)


def test_a_volatile_flag_that_is_stored_is_a_race() -> None:
    got = "%got = tt.atomic_rmw add, acquire, gpu, %f, %zero, %yes : (!tt.ptr<i32>, i32, i1) -> i32"
    sets = "%old = tt.atomic_rmw exch, release, gpu, %g, %one, %yes : (!tt.ptr<i32>, i32, i1) -> i32"
    body = WAITING.replace("LAST", "0").replace("STEP", "-1")
    assert got in body
    assert sets in body
    body = body.replace(got, "%got = tt.load %f {isVolatile = true} : !tt.ptr<i32>")
    given = [("i32", bytes(64)), ("i32", bytes(64))]
    run(body, given, grid=(16, 1, 1))
    with pytest.raises(KernelFault, match="a race: program"):
        run(body.replace(sets, "tt.store %g, %one : !tt.ptr<i32>"), given, grid=(16, 1, 1))


EXCHANGED = (
    vector("i32", "x", "%a0")
    + stored("i32", "%x", "%a1")
    + """
    BETWEEN
    %c7 = arith.constant dense<7> : tensor<8xi32>
    %back = arith.subi %c7, %xr : tensor<8xi32>
    %bp = tt.addptr %zs, %back : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    %y = tt.load %bp : tensor<8x!tt.ptr<i32>>
    %op = tt.splat %a2 : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
    %oq = tt.addptr %op, %xr : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    tt.store %oq, %y : tensor<8x!tt.ptr<i32>>"""
)
REDUCED = REDUCE.partition("    tt.store")[0].replace("f32", "i32").replace("addf", "addi")
SCANNED = '%sc = "tt.scan"(%x) <{axis = 0 : i32, reverse = false}> ({\n ^bb0(%p: i32, %q: i32):\n %s = arith.addi %p, %q : i32\n tt.scan.return %s : i32\n }) : (tensor<8xi32>) -> tensor<8xi32>'  # noqa: E501


def barrier() -> str:
    """What ``tl.debug_barrier`` becomes: another operation under earlier Tritons."""
    try:
        run("    ttg.barrier all", [("i32", bytes(4))])
    except InterpreterLimit:
        return "gpu.barrier"
    return "ttg.barrier all"


@pytest.mark.parametrize(
    "between",
    ["BARRIER", REDUCED, SCANNED,
     "%da = arith.constant dense<1.0> : tensor<16x16xf32>\n"
     "%dd = tt.dot %da, %da, %da : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>",
     "%h = tt.histogram %x : tensor<8xi32> -> tensor<8xi32>",
     "%ga = tt.gather %x[%x] {axis = 0 : i32} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>"],
    ids=["barrier", "reduction", "scan", "dot", "histogram", "gather"],
)  # fmt: skip
def test_threads_exchange_numbers_behind_a_barrier(between: str) -> None:
    given = [("i32", np.arange(8, dtype="<i4").tobytes()), ("i32", bytes(32)), ("i32", bytes(32))]
    between = between.replace("BARRIER", barrier())
    done = run(EXCHANGED.replace("BETWEEN", between), given)
    np.testing.assert_array_equal(np.frombuffer(done.contents[2], "<i4"), range(7, -1, -1))
    with pytest.raises(KernelFault, match=r"kernel k: a race: a program reads byte 28 of the memory of a1, .* no barr"):
        run(EXCHANGED.replace("BETWEEN", ""), given)


def test_descriptors_go_another_way_than_stores() -> None:
    """What a descriptor stores can be loaded; what is stored needs a fence before a descriptor loads it."""
    block = "8xi32" if triton_series() not in ("3.6", "3.7") else "tensor<8xi32>"
    made = f"""
    %eight = arith.constant 8 : i32
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i64
    %c7 = arith.constant dense<7> : tensor<8xi32>
    %back = arith.subi %c7, %xr : tensor<8xi32>
    %ws = tt.splat %a1 : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
    %d = tt.make_tensor_descriptor %a1, [%eight], [%one] : <i32>, <{block}>"""
    by_store = """
    %wp = tt.addptr %ws, %xr : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    tt.store %wp, %x : tensor<8x!tt.ptr<i32>>"""
    by_descriptor = f"\n    tt.descriptor_store %d[%zero], %x : !tt.tensordesc<{block}>, tensor<8xi32>"
    loaded = """
    %bp = tt.addptr %ws, %back : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    %y = tt.load %bp : tensor<8x!tt.ptr<i32>>"""
    described = f"\n    %y = tt.descriptor_load %d[%zero] : !tt.tensordesc<{block}> -> tensor<8xi32>"
    given = [("i32", np.arange(8, dtype="<i4").tobytes()), ("i32", bytes(32)), ("i32", bytes(32))]
    begin, end = vector("i32", "x", "%a0") + made, stored("i32", "%y", "%a2")
    for middle, wanted in ((by_descriptor + loaded, range(7, -1, -1)), (by_descriptor + described, range(8))):
        np.testing.assert_array_equal(np.frombuffer(run(begin + middle + end, given).contents[2], "<i4"), wanted)
    with pytest.raises(KernelFault, match="a descriptor needs a fence after stores"):
        run(f"{begin}{by_store}\n    {barrier()}{described}{end}", given)


CALLED = """
module {
  tt.func private @twice(%x: f32) -> f32 attributes {noinline = true} {
    %y = arith.addf %x, %x : f32
    tt.return %y : f32
  }
  tt.func public @k(%a0: !tt.ptr<f32>, %s0: f32) attributes {noinline = false} {
    %z = tt.call @twice(%s0) : (f32) -> f32
    %w = tt.call @twice(%z) : (f32) -> f32
    tt.store %a0, %w : !tt.ptr<f32>
    tt.return
  }
}
"""


def machine_of(text: str) -> tuple[Machine, FlatMemory]:
    found = FlatMemory([np.zeros(8, np.uint8)], b"12345678", random.Random(1))
    return Machine(parse_ttir(text), found, float("inf"), None, 4), found


def test_a_function_that_is_not_inlined_gives_its_result() -> None:
    machine, found = machine_of(CALLED)
    machine.launch([found.address(0), 1.5], (1, 1, 1))
    assert found.content(0).view("<f4").tolist() == [6.0, 0.0]
    with pytest.raises(InterpreterLimit, match=r"^its TTIR takes 2 arguments, the launch has 1$"):
        machine.launch([found.address(0)], (1, 1, 1))


@pytest.mark.parametrize(("depth", "ends"), [(63, True), (64, True), (65, False)])
def test_calls_within_calls_have_a_depth(depth: int, ends: bool) -> None:
    """The last of them is the ``depth``-th."""
    functions = "".join(
        f"""
  tt.func private @f{i}(%x: f32) -> f32 attributes {{noinline = true}} {{
    %y = {f"tt.call @f{i + 1}(%x) : (f32) -> f32" if i < depth else "arith.negf %x : f32"}
    tt.return %y : f32
  }}"""
        for i in range(1, depth + 1)
    )
    text = CALLED[: CALLED.index("  tt.func private")] + functions + CALLED[CALLED.index("\n  tt.func public") :]
    machine, found = machine_of(text.replace("@twice", "@f1"))
    if ends:
        machine.launch([found.address(0), 1.5], (1, 1, 1))
        assert found.content(0).view("<f4").tolist() == [1.5, 0.0]
    else:
        with pytest.raises(InterpreterLimit, match=r"^it calls f65, which can't be emulated$"):
            machine.launch([found.address(0), 1.5], (1, 1, 1))


def refused(text: str) -> str:
    parse_ttir.cache_clear()
    with pytest.raises(InterpreterLimit) as caught:
        parse_ttir(text)
    return str(caught.value)


def test_what_is_no_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused("module {}") == "its TTIR has no kernel"
    assert refused("no module").startswith("its TTIR can't be read: ")
    monkeypatch.setattr(ttir_program, "MOST_OPERATIONS", 8)
    assert refused(CALLED) == "its TTIR has 9 operations"
    monkeypatch.setattr(ttir_program, "MOST_OPERATIONS", 9)
    parse_ttir(CALLED)
    monkeypatch.setattr(ttir_program, "MOST_TEXT", 1999)
    assert refused("x" * 2000) == "its TTIR has 2,000 characters, more than 1,999"


@pytest.mark.parametrize(
    ("nan", "offset", "strides"), [(False, 0, (4, 1)), (True, 16, (4, 1)), (False, 4, (4, 1)), (False, 0, (3, 1))]
)
def test_a_descriptor_of_the_host_is_what_the_recording_says(nan: bool, offset: int, strides: tuple[int, int]) -> None:
    block = "2x4xf32" if triton_series() not in ("3.6", "3.7") else "tensor<2x4xf32>"
    text = f"""module {{
  tt.func public @k(%d: !tt.tensordesc<{block}>, %a: i32, %b: i32, %c: i64, %e: i64, %o: !tt.ptr<f32>) {{
    %two = arith.constant 2 : i32
    %zero = arith.constant 0 : i32
    %v = tt.descriptor_load %d[%zero, %two] : !tt.tensordesc<{block}> -> tensor<2x4xf32>
    tt.descriptor_store %d[%two, %zero], %v : !tt.tensordesc<{block}>, tensor<2x4xf32>
    tt.return
  }}
}}"""
    spec = TensorMap(0, 4, 7, (2, 4), (4, 4), strides, nan_padding=nan)
    sizes = [Param(x, "i32", value=4) for x in "ab"] + [Param(x, "i64", value=4) for x in "ce"]
    params = (Param("d", "nvTmaDesc", view=0, tensor_map=spec), *sizes, Param("o", "*fp32", view=1))
    recording = Recording(
        Target.parse("cuda:90"), (Launch("k", "", 0, (1, 1, 1), params),),
        (Binary("cubin", "sm_90", "k", "0" * 64, "1" * 64, "", "", "", "", {}, {}, 4),),
        (Storage(80, "float32", Zeros()),),
        (View(0, "float32", (4, 4), (4, 1), offset), View(0, "float32", (2,), (1,))),
    )  # fmt: skip
    given = np.arange(20, dtype="<f4")
    if offset % 16 or strides != (4, 1):
        with pytest.raises(KernelFault, match="base and strides must be multiples of 16 bytes"):
            replay_results(recording, {"1" * 64: text}, [given.tobytes()], b"12345678", 9.0)
        return
    done = replay_results(recording, {"1" * 64: text}, [given.tobytes()], b"12345678", 9.0)
    found, first = np.frombuffer(done.contents[0], "<f4"), offset // 4
    outside = np.nan if nan else 0.0
    kept = given[first : first + 8].reshape(2, 4)
    moved = [*kept[0, 2:], outside, outside, *kept[1, 2:], outside, outside]
    np.testing.assert_array_equal(found[first : 16 + first], [*kept.flat, *moved])


def test_what_a_launch_takes_that_the_recording_does_not_have_is_refused() -> None:
    spec = TensorMap(0, 4, 7, (8,), (8,), (1,))
    base = Recording(
        Target.parse("cuda:90"), (Launch("k", "", 0, (1, 1, 1), (Param("a", "*fp32", view=0),)),),
        (Binary("cubin", "sm_90", "k", "0" * 64, "1" * 64, "", "", "", "", {}, {}, 4),),
        (Storage(8, "float32", Zeros()),), (View(0, "float32", (2,), (1,)),),
    )  # fmt: skip

    def replayed(text: dict[str, str], *params: Param, grid: tuple[int, int, int] = (1, 1, 1)) -> ReplayedResults:
        made = msgspec.structs.replace(base, launches=(Launch("k", "", 0, grid, params),))
        return replay_results(made, text, [None], b"12345678", 9.0)

    pointer, number = Param("a", "*fp32", view=0), Param("s", "fp32", value=2.0)
    binary = base.binaries[0]
    for warps, blocks in ((4, 132 * 16), (1, 132 * 32), (32, 132 * 2)):
        base = msgspec.structs.replace(
            base, binaries=(msgspec.structs.replace(binary, cooperative=True, num_warps=warps),)
        )
        assert replayed({"1" * 64: CALLED}, pointer, number, grid=(blocks, 1, 1)).outside == 0
        with pytest.raises(KernelFault, match=f"^kernel k: a cooperative launch has more than the {blocks} programs"):
            replayed({"1" * 64: CALLED}, pointer, number, grid=(blocks // 2, 2, 2))
    base = msgspec.structs.replace(base, binaries=(binary,))
    with pytest.raises(InterpreterLimit, match=r"^kernel k: its TTIR is missing$"):
        replayed({}, pointer, number)
    with pytest.raises(InterpreterLimit, match=r"descriptor that the host makes, which can't be emulated$"):
        replayed({"1" * 64: CALLED}, Param("d", "nvTmaDesc", tensor_map=spec), number)
    done = replayed({"1" * 64: CALLED}, pointer, number)
    assert done.contents == (np.array([8.0], "<f4").tobytes() + b"5678",)
    assert done.outside == 0
    assert replayed({}, pointer, grid=(1, 0, 1)).contents == (b"12345678",), "nothing runs"
    assert replayed({"1" * 64: CALLED}, pointer, Param("s", "fp32")).contents == (bytes(4) + b"5678",)
