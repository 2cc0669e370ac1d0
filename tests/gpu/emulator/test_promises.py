"""What a kernel promises to the compiler, and orders and errors that no GPU promises to it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kerntune.errors import InterpreterLimit, KernelFault
from kerntune.gpu.emulator.approximations import BOUNDS, FACTORS, approximated
from kerntune.gpu.emulator.elements import extern
from kerntune.gpu.emulator.promises import HintedAccess
from kerntune.gpu.emulator.ttir_program import parse_ttir
from kerntune.kernels.compat.versions import triton_series
from tests.gpu.emulator.test_emulator import run, stored, vector
from tests.gpu.emulator.test_machine import done, kind, machine

ELEMENTS = np.arange(8)

START = 1 << 40
YES = np.ones(8, np.bool_)
PAIRS, FOURS = (HintedAccess(0, width, 4, "its hints") for width in (2, 4))


def at(*elements: int) -> np.ndarray:
    """Addresses of 4-byte elements."""
    return START + 4 * np.array(elements)


@pytest.mark.parametrize(
    ("access", "places", "wanted"),
    [
        (FOURS, at(0, 1, 2, 3, 8, 9, 10, 11), at(0, 1, 2, 3, 8, 9, 10, 11)),
        (FOURS, at(4, 5, 6, 7, 0, 1, 2, 0), at(4, 5, 6, 7, 0, 1, 2, 3)),
        (FOURS, at(0, 3, 2, 1, 4, 4, 4, 4), at(0, 1, 2, 3, 4, 5, 6, 7)),
        (PAIRS, at(0, 0, 2, 3, 0, 1, 6, 5), at(0, 1, 2, 3, 0, 1, 6, 7)),
    ],
)
def test_neighbours_are_accessed_from_the_first_of_each_group(access: Any, places: Any, wanted: Any) -> None:
    """What differs between groups has no effect: each has an address of its own."""
    found, mask = access.places(places, YES)
    assert found.tolist() == wanted.tolist()
    assert mask.all()


def test_a_group_has_the_mask_of_its_first() -> None:
    some = np.array([True, False, True, True, False, True, False, False])
    _, mask = PAIRS.places(START + 4 * ELEMENTS, some)
    assert mask.tolist() == [True, True, True, True, False, False, False, False]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_group_lies_along_one_axis(axis: int) -> None:
    access = HintedAccess(axis, 2, 4, "its hints")
    places = np.moveaxis(START + 4 * (8 * ELEMENTS[:, None] + ELEMENTS[None, :] // 2 * 2), 1, axis)
    found, _ = access.places(places, np.ones(places.shape, np.bool_))
    assert (found == np.moveaxis(START + 4 * (8 * ELEMENTS[:, None] + ELEMENTS[None, :]), 1, axis)).all()


def test_the_first_of_a_group_is_aligned_for_all() -> None:
    odd = at(0, 1, 2, 3, 5, 6, 7, 8)
    with pytest.raises(
        KernelFault, match=r"^2 elements .* at 0x10000000014, .* no multiple of 8, because of its hints"
    ):
        PAIRS.places(odd, YES)
    found, _ = PAIRS.places(odd, ELEMENTS < 4)
    assert found[:4].tolist() == odd[:4].tolist(), "what a load leaves out may lie anywhere"


def test_a_write_elsewhere_is_told_with_the_hints() -> None:
    with FOURS.accessed(at(*ELEMENTS), YES, writes=True) as (found, _):
        assert found.tolist() == at(*ELEMENTS).tolist()
    told = r"^elements are written elsewhere than the kernel says: 4 are accessed at once because of its hints$"
    for places, mask in ((at(0, 1, 2, 2, 4, 5, 6, 7), YES), (at(*ELEMENTS), ELEMENTS < 7)):
        with pytest.raises(KernelFault, match=told), FOURS.accessed(places, mask, writes=True):
            pass
    with FOURS.accessed(at(0, 1, 2, 0, 4, 5, 6, 0), ELEMENTS % 4 < 3, writes=False) as (found, mask):
        assert (found.tolist(), mask.all()) == (at(*ELEMENTS).tolist(), True)
    with (
        pytest.raises(KernelFault, match=r"^a race: 4 are accessed"),
        FOURS.accessed(at(*ELEMENTS), ELEMENTS < 7, writes=False),
    ):
        raise KernelFault("a race")
    with pytest.raises(KernelFault, match=r"^a race$"), FOURS.accessed(at(*ELEMENTS), ELEMENTS < 4, writes=False):
        raise KernelFault("a race")


# in TTIR

ALIGNED = """
    %zero = arith.constant 0 : i32
    %base = tt.addptr %a0, %zero {tt.divisibility = dense<16> : tensor<1xi32>} : !tt.ptr<i32>, i32
    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %p = tt.splat %base : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
"""
LOADED = """
    %q = tt.addptr %p, %h : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    %x = tt.load %q : tensor<8x!tt.ptr<i32>>
"""
FROM_I = """
    %s = tt.splat %i : i32 -> tensor<8xi32>
    %h = arith.addi %r, %s : tensor<8xi32>
"""
HINTED = f"""{ALIGNED}
    %c = arith.constant dense<3> : tensor<8xi32>
    %h = arith.addi %r, %c {{tt.contiguity = dense<8> : tensor<1xi32>, tt.divisibility = dense<DIV> : tensor<1xi32>}} : tensor<8xi32>
{LOADED}"""  # noqa: E501
POINTER = """
    %p = tt.splat %a0 : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
    %r = tt.make_range {end = 8 : i32, start = START : i32} : tensor<8xi32>
    %q = tt.addptr %p, %r {tt.divisibility = dense<16> : tensor<1xi32>} : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
    %x = tt.load %q : tensor<8x!tt.ptr<i32>>
""".replace("end = 8", "end = END")
REDUCED = f"""{ALIGNED}
    %i = "tt.reduce"(%r) <{{axis = 0 : i32}}> ({{
    ^bb0(%k: i32, %l: i32):
      %m = arith.maxsi %k, %l : i32
      tt.reduce.return %m : i32
    }}) {{tt.divisibility = dense<DIV> : tensor<1xi32>}} : (tensor<8xi32>) -> i32
{FROM_I}{LOADED}"""
BRANCHED = f"""{ALIGNED}
    %yes = arith.constant true
    %one = arith.constant 5 : i32
    %i = scf.if %yes -> (i32) {{
      scf.yield %one : i32
    }} else {{
      scf.yield %one : i32
    }} {{tt.divisibility = dense<4> : tensor<1xi32>}}
"""
ASSUMED = """
    %n = arith.constant NUMBER : i32
    %five = arith.constant 5 : i32
    %so = arith.cmpi eq, %n, %five : i32
    llvm.intr.assume %so : i1
    %x = tt.splat %n : i32 -> tensor<8xi32>
"""
ASSERTED = ASSUMED.replace("llvm.intr.assume %so : i1", 'tt.assert %so, "so" : i1')


@pytest.mark.parametrize(
    ("body", "kept", "broken", "told"),
    [
        (
            HINTED,
            {"DIV": "3"},
            {"DIV": "2"},
            r"k: 2 elements .* multiple of 8, .* \(tl.max_contiguous 8, tl.multiple_of 2",
        ),
        (
            POINTER,
            {"START": "4", "END": "12"},
            {"START": "1", "END": "9"},
            r"no multiple of 16, .*\(tl.multiple_of 16\)",
        ),
        (REDUCED, {"DIV": "7"}, {"DIV": "2"}, r"is no multiple of 8, because of its hints \(.*tl.multiple_of 2"),
        (ASSUMED, {"NUMBER": "5"}, {"NUMBER": "6"}, r"what it tells the compiler isn't so \(tl.assume\)"),
        (ASSERTED, {"NUMBER": "5"}, {"NUMBER": "6"}, r"an assertion of its own fails \(tl.device_assert\)"),
    ],
    ids=["tensor", "pointer", "reduction", "assume", "assert"],
)
def test_a_promise_that_is_not_kept_is_a_fault(body: str, kept: Any, broken: Any, told: str) -> None:
    given = [("i32", np.arange(16, dtype="<i4").tobytes()), ("i32", bytes(32))]

    def replaced(by: dict[str, str]) -> str:
        text = body
        for old, new in by.items():
            text = text.replace(old, new)
        return text + stored("i32", "%x", "%a1")

    run(replaced(kept), given)
    with pytest.raises(KernelFault, match=told):
        run(replaced(broken), given)


def test_a_hint_has_no_effect_but_on_accesses() -> None:
    """Nor has one on a branch's result, which Triton doesn't read."""
    given = [("i32", np.arange(16, dtype="<i4").tobytes()), ("i32", bytes(32))]
    number = BRANCHED + "%x = tt.splat %i : i32 -> tensor<8xi32>"
    place = BRANCHED + FROM_I + LOADED
    for body, wanted in ((number, [5] * 8), (place, list(range(5, 13)))):
        found = run(body + stored("i32", "%x", "%a1"), given).contents[1]
        assert np.frombuffer(found, "<i4").tolist() == wanted


def test_a_hint_that_cannot_be_read_is_refused() -> None:
    body = "%c = arith.constant {tt.divisibility = 16 : i32} 3 : i32\n tt.store %a0, %c : !tt.ptr<i32>"
    with pytest.raises(InterpreterLimit, match="a divisibility that can't be read"):
        run(body, [("i32", bytes(4))])


ARGUMENTS = """module {
  tt.func public @k(%x: !tt.ptr<i32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 8 : i32}, %y: i32) {
    tt.store %x, %n : !tt.ptr<i32>
    tt.return
  }
}"""


@pytest.mark.parametrize(
    ("moved", "number", "told"),
    [(0, 16, ""), (16, 8, ""), (4, 16, "its argument 0 is declared to be a multiple of 16"), (0, 12, "its argument 1")],
)
def test_arguments_are_what_they_are_declared_to_be(moved: int, number: int, told: str) -> None:
    program = parse_ttir(ARGUMENTS)
    assert dict(program.divisible) == {0: 16, 1: 8}
    assert (program.written, program.unit) == ({0}, 4)
    made, memory = machine(np.zeros(64, np.uint8))
    made._program = program
    arguments = [memory.address(0) + moved, number, 3]
    if not told:
        made.launch(arguments, (1, 1, 1))
        return
    with pytest.raises(KernelFault, match=f"^{told}"):
        made.launch(arguments, (1, 1, 1))


@pytest.mark.parametrize(("base", "stride", "fits"), [(0, 4, True), (16, 8, True), (8, 4, False), (0, 5, False)])
def test_descriptors_are_aligned(base: int, stride: int, fits: bool) -> None:
    block = "4x4xf32" if triton_series() not in ("3.6", "3.7") else "tensor<4x4xf32>"
    body = f"""
    %four = arith.constant 4 : i32
    %o = arith.constant {base // 4} : i32
    %s = arith.constant {stride} : i64
    %one = arith.constant 1 : i64
    %p = tt.addptr %a0, %o : !tt.ptr<f32>, i32
    %d = tt.make_tensor_descriptor %p, [%four, %four], [%s, %one] : <f32>, <{block}>"""
    if fits:
        run(body, [("f32", bytes(256))])
        return
    with pytest.raises(KernelFault, match="a descriptor's base and strides must be multiples of 16 bytes"):
        run(body, [("f32", bytes(256))])


# orders

R = np.arange(8, dtype=np.int32)
SECOND = """
    %r = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%p: i32, %q: i32):
      tt.reduce.return %q : i32
    }) : (tensor<8xi32>) -> i32
    tt.store %a1, %r : !tt.ptr<i32>"""
FORMATTED = """
    %m = tt.reshape %x allow_reorder : tensor<8xi32> -> tensor<2x4xi32>
    %r = tt.reshape %m : tensor<2x4xi32> -> tensor<8xi32>"""
JOINED = """
    %r = tt.cat %x, %x : tensor<8xi32> -> tensor<16xi32>"""


@pytest.mark.parametrize(
    ("body", "count"),
    [(SECOND, 1), (FORMATTED + stored("i32", "%r", "%a1"), 8), (JOINED + stored("i32", "%r", "%a1", 16), 16)],
    ids=["reduction", "reshape", "cat"],
)
def test_an_order_that_no_gpu_promises_is_drawn(body: str, count: int) -> None:
    given = [("i32", np.arange(8, dtype="<i4").tobytes()), ("i32", bytes(4 * count))]
    found = {run(vector("i32", "x", "%a0") + body, given).contents[1] for _ in range(40)}
    assert len(found) >= 6
    if count > 1:
        elements = sorted([*range(8)] * (count // 8))
        assert all(sorted(np.frombuffer(one, "<i4")) == elements for one in found)


def test_an_order_is_the_same_each_time() -> None:
    """A compiled kernel has one: a sum that two programs make has the same bits."""
    made, _ = machine()
    made._chance = random.Random(3)
    orders = [made._any_order(key, 16) for key in ("a", "a", "b")]
    assert orders[0] is orders[1]
    assert sorted(orders[0]) == list(range(16))  # type: ignore[arg-type]
    assert list(orders[0]) != list(orders[2])  # type: ignore[arg-type]


@pytest.mark.parametrize(("shape", "moved"), [((4, 2), True), ((8, 1), False), ((1, 8), False)])
def test_a_reshape_moves_nothing_where_it_adds_an_axis(shape: tuple[int, ...], moved: bool) -> None:
    made, _ = machine()
    made._chance = random.Random(3)
    (found,) = done("tt.reshape", R, memory=made, result=kind(shape=shape), any_order=True)
    assert (np.ravel(found).tolist() != R.tolist()) == moved
    (same,) = done("tt.reshape", R, memory=made, result=kind(shape=shape), any_order=False)
    assert np.ravel(same).tolist() == R.tolist()


# errors of hardware


@pytest.mark.parametrize(("elements", "terms"), [(("f16", "f16"), 16), (("f8E5M2", "f8E5M2"), 32)])
def test_a_float16_accumulator_rounds_with_each_instruction(elements: tuple[str, str], terms: int) -> None:
    """A quarter of a unit of 1024's last place is lost each time; within one instruction it is not."""
    small = np.full((1, 64), 0.25, np.float32)
    a, b = (x.astype(np.float16) if elements[0] == "f16" else x for x in (small, np.ones((64, 1), np.float32)))
    start = np.array([[1024.0]], np.float16)
    types = [kind(e) for e in (*elements, "f16")]
    (((found,),),) = done("tt.dot", a, b, start, result=kind("f16"), types=types, inputPrecision="")
    assert found == 1024 + 0.25 * 64
    (((lost,),),) = done("tt.dot", a / 16, b, start, result=kind("f16"), types=types, inputPrecision="")
    assert lost == 1024, f"{terms} terms are {terms / 64}, half of a unit at most"


X = {
    "sinf": np.linspace(-300, 300, 4001), "cosf": np.linspace(-300, 300, 4001), "tanf": np.linspace(-1.5, 1.5, 4001),
    "expf": np.linspace(-80, 80, 4001), "exp10f": np.linspace(-30, 30, 4001), "logf": np.linspace(0.01, 9, 4001),
    "log2f": np.linspace(0.01, 9, 4001), "log10f": np.linspace(0.01, 9, 4001), "powf": np.linspace(0.1, 9, 4001),
    "fdividef": np.linspace(0.1, 9, 4001),
}  # fmt: skip
EXACT = {
    "fdividef": lambda x, y: x / y, "powf": np.power,
    **{name: lambda x, by=by: np.exp2((np.float32(x) * by).astype(np.float64)) for name, by in FACTORS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_fast_functions_are_as_far_off_as_they_may_be(name: str) -> None:
    values = [X[name].astype(np.float32)] + [np.full(4001, 3.0, np.float32)] * (name in ("powf", "fdividef"))
    exact: Any = EXACT.get(name) or getattr(np, name.removesuffix("f"))
    found = approximated(name, exact, *values)
    wide = [v.astype(np.float64) for v in values]
    share = (found - exact(*wide)) / BOUNDS[name](exact(*wide), *wide)
    assert 0.98 < np.abs(share).max() < 1.000001
    assert abs(share.mean()) < 0.05
    assert (approximated(name, exact, *values) == found).all(), "the same for the same argument"
    assert (extern(f"__nv_fast_{name}")(*values) == found).all()
    assert (extern(f"__nv_{name}")(*values) != found).any()


def test_what_is_known_of_the_errors() -> None:
    """CUDA C++ Programming Guide and PTX ISA, at single arguments."""
    at = {
        ("sinf", 3.0): 2**-21.41, ("cosf", 0.0): 2**-21.19, ("sinf", 100 * np.pi): 2**-14.7, ("logf", 1.5): 2**-21.41,
        ("log2f", 0.75): 2**-22, ("log10f", 1.0): 2**-24, ("expf", 0.0): 2 * 2**-23, ("expf", 10.0): 2 * 2**-9,
    }  # fmt: skip
    for (name, x), wanted in at.items():
        exact = getattr(np, name.removesuffix("f"))(np.float64(x))
        assert float(BOUNDS[name](np.asarray(exact), np.asarray(x))) == pytest.approx(wanted, rel=0.01), name
    power = float(BOUNDS["powf"](np.asarray(8.0), np.asarray(2.0), np.asarray(3.0)))
    assert power == pytest.approx(8 * 3 * np.log(2) * 2**-22 + 2 * 2**-20, rel=0.01), "of exp2(3 * log2(2))"


@pytest.mark.parametrize(
    ("name", "x", "wanted"), [("expf", np.inf, np.inf), ("logf", 0.0, -np.inf), ("sinf", np.inf, np.nan)]
)
def test_no_error_makes_another_kind_of_number(name: str, x: float, wanted: float) -> None:
    with np.errstate(all="ignore"):
        found = extern(f"__nv_fast_{name}")(np.array([x], np.float32))
    np.testing.assert_array_equal(found, [wanted])


def test_a_divisor_that_is_too_large_gives_zero() -> None:
    found = extern("__nv_fast_fdividef")(np.array([2.0**100], np.float32), np.array([2.0**127], np.float32))
    assert found.tolist() == [0.0]


def test_a_fast_function_without_a_bound_is_refused() -> None:
    with pytest.raises(InterpreterLimit, match="the kernel calls __nv_fast_erff, whose error isn't known"):
        extern("__nv_fast_erff")
