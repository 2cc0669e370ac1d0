"""The machine's operations one by one, on values of the test."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kerntune.errors import InterpreterLimit, KernelTimeout
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.machine import HANDLERS, Machine
from kerntune.gpu.emulator.memory_operations import Descriptor
from kerntune.gpu.emulator.products import product_of_parts
from kerntune.gpu.emulator.races import RunningProgram

POISON = b"\xf1\x7f"
UNDEFINED = int.from_bytes(POISON * 2, "little")


def kind(element: str = "i32", shape: tuple[int, ...] = (), pointee: str = "") -> Any:
    return SimpleNamespace(element=element, shape=shape, pointee=pointee)


def machine(*contents: np.ndarray, types: Any = ()) -> tuple[Machine, FlatMemory]:
    memory = FlatMemory([c.view(np.uint8) for c in contents], POISON, random.Random(1))
    program: Any = SimpleNamespace(types=dict(types), functions={})
    return Machine(program, memory, math.inf, None, 4), memory


def done(name: str, *values: Any, result: Any = None, memory: Any = None, types: Any = (), **attributes: Any) -> Any:
    """What an operation gives for these operands."""
    made = machine(types=enumerate(types))[0] if memory is None else memory
    op: Any = SimpleNamespace(
        name=name, operands=list(range(len(values))), types=[result or kind()], attributes=attributes, results=[99],
        regions=[],
    )  # fmt: skip
    found = HANDLERS[name](made, op, dict(enumerate(values)))
    return [one.tolist() for one in found]


GRID = np.arange(6, dtype=np.int32).reshape(2, 3)


@pytest.mark.parametrize(
    ("name", "values", "result", "attributes", "wanted"),
    [
        ("tt.make_range", (), None, {"start": 2, "end": 5}, [[2, 3, 4]]),
        ("tt.splat", (np.int32(7),), kind(shape=(2,)), {}, [[7, 7]]),
        ("tt.reshape", (GRID,), kind(shape=(3, 2)), {}, [[[0, 1], [2, 3], [4, 5]]]),
        ("tt.expand_dims", (np.arange(2),), None, {"axis": 1}, [[[0], [1]]]),
        ("tt.trans", (GRID,), None, {"order": [1, 0]}, [[[0, 3], [1, 4], [2, 5]]]),
        ("tt.cat", (np.arange(2), np.arange(3)), None, {}, [[0, 1, 0, 1, 2]]),
        ("tt.join", (np.array([1, 2]), np.array([3, 4])), None, {}, [[[1, 3], [2, 4]]]),
        ("tt.split", (np.array([[1, 3], [2, 4]]),), None, {}, [[1, 2], [3, 4]]),
        ("tt.gather", (GRID, np.array([[2, 0], [1, 1]], np.int32)), None, {"axis": 1}, [[[2, 0], [4, 4]]]),
        ("tt.gather", (GRID, np.array([[1, 0, 1]], np.int8)), None, {"axis": 0}, [[[3, 1, 5]]]),
        ("tt.histogram", (np.array([0, 2, 2, 4, -1, 3]),), kind(shape=(4,)), {}, [[2, 0, 2, 2]]),
        ("tt.histogram", (np.array([0, 2, 2]), np.array([True, False, True])), kind(shape=(4,)), {}, [[1, 0, 1, 0]]),
        ("ub.poison", (), kind("i16", (2,)), {}, [[0x7FF1, 0x7FF1]]),
        ("arith.select", (np.array([True, False]), np.array([1, 2]), np.array([3, 4])), None, {}, [[1, 4]]),
        ("arith.cmpi", (np.array([1, 2]), np.array([2, 2])), None, {"predicate": "slt"}, [[True, False]]),
        ("arith.cmpf", (np.array([1.0, np.nan]), np.array([2.0, 2.0])), None, {"predicate": "olt"}, [[True, False]]),
        ("tt.clampf", (np.array([-1.0, 0.5, 9.0]), 0.0, 1.0), None, {"propagateNan": "none"}, [[0.0, 0.5, 1.0]]),
        ("tt.clampf", (np.array([np.inf, 2.0]), 0.0, 1.0), None, {"propagateNan": "all"}, [[1.0, 1.0]]),
    ],
)  # fmt: skip
def test_values_and_shapes(name: str, values: Any, result: Any, attributes: Any, wanted: Any) -> None:
    assert done(name, *values, result=result, **attributes) == wanted


@pytest.mark.parametrize(("propagates", "wanted"), [("all", math.nan), ("none", 0.0)])
def test_a_clamp_passes_nan_on_or_over_it(propagates: str, wanted: float) -> None:
    ((found,),) = done("tt.clampf", np.array([np.nan]), 0.0, 1.0, propagateNan=propagates)
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


@pytest.mark.parametrize(
    ("source", "target", "value", "wanted"),
    [("f32", "i32", np.float32(1.5), 0x3FC00000), ("i32", "f32", np.int32(0x3FC00000), 1.5),
     ("bf16", "i16", np.float32(1.5), 0x3FC0), ("ptr", "i64", np.int64(77), 77), ("i32", "i32", np.int32(5), 5)],
)  # fmt: skip
def test_bits_stay_as_another_type(source: str, target: str, value: Any, wanted: Any) -> None:
    assert done("tt.bitcast", value, result=kind(target), types=[kind(source)]) == [wanted]


@pytest.mark.parametrize(("rounding", "wanted"), [("rtne", 1 + 2.0**-6), ("rtz", 1 + 2.0**-7)])
def test_a_float_is_rounded_to_nearest_or_toward_zero(rounding: str, wanted: float) -> None:
    assert done("tt.fp_to_fp", np.float32(1 + 3 * 2.0**-8), result=kind("bf16"), rounding=rounding) == [wanted]


@pytest.mark.parametrize(
    ("element", "bits"), [("f32", 0x7FFFFFFF), ("f16", 0x7FFF), ("f64", 0x7FF8000000000123)]
)  # fmt: skip
@pytest.mark.parametrize("name", ["arith.addf", "arith.mulf", "arith.divf", "arith.maxnumf", "math.exp", "math.fma"])
def test_what_is_not_a_number_has_a_gpus_bits(name: str, element: str, bits: int) -> None:
    """Whatever an operand's are; in float64 those go on."""
    kinds: dict[str, Any] = {"f32": ("<u4", "<f4"), "f16": ("<u2", "<f2"), "f64": ("<u8", "<f8")}
    whole, number = kinds[element]
    own = {"f32": 0xFFC00123, "f16": 0xFE01, "f64": 0x7FF8000000000123}[element]
    odd = np.array([own, own], whole).view(number)
    count = {"math.exp": 1, "math.fma": 3}.get(name, 2)
    result = kind(element, (2,))
    op: Any = SimpleNamespace(name=name, operands=list(range(count)), types=[result], attributes={}, results=[9])
    (found,) = HANDLERS[name](machine()[0], op, dict.fromkeys(range(count), odd))
    assert found.dtype == number
    assert np.isnan(found).all()
    if element != "f64":
        assert found.view(whole).tolist() == [bits, bits]


def test_a_sign_is_turned_of_what_is_not_a_number_too() -> None:
    odd = np.array([0x7FC00123], "<u4").view("<f4")
    op: Any = SimpleNamespace(name="arith.negf", operands=[0], types=[kind("f32", (1,))], attributes={}, results=[9])
    (found,) = HANDLERS["arith.negf"](machine()[0], op, {0: odd})
    assert found.view("<u4").tolist() == [0xFFC00123]


@pytest.mark.parametrize("word", ["num", "imum"])
def test_zero_is_above_minus_zero(word: str) -> None:
    a, b = np.array([0.0, -0.0, -0.0, 1.0, -2.0], "f4"), np.array([-0.0, 0.0, -0.0, -0.0, 0.0], "f4")
    for name, wanted in (("max", [False, False, True, False, False]), ("min", [True, True, True, True, True])):
        op: Any = SimpleNamespace(
            name=f"arith.{name}{word}f", operands=[0, 1], types=[kind("f32", (5,))], attributes={}, results=[9]
        )
        (found,) = HANDLERS[op.name](machine()[0], op, {0: a, 1: b})
        assert np.signbit(found).tolist() == wanted


def test_a_quotient_of_float32_is_a_gpus_where_errors_are_drawn() -> None:
    chance = np.random.default_rng(1)
    a, b = (chance.uniform(1, 2, 1000).astype(np.float32) for _ in range(2))
    made = machine()[0]
    for name, drawn, same in (
        ("arith.divf", True, False),
        ("tt.precise_divf", True, True),
        ("arith.divf", False, True),
    ):
        made._chance = random.Random(1) if drawn else None
        found = done(name, a, b, result=kind("f32", (1000,)), memory=made)
        assert (found == [(a / b).tolist()]) is same
    wide = [x.astype(np.float64) for x in (a, b)]
    made._chance = random.Random(1)
    assert done("arith.divf", *wide, result=kind("f64", (1000,)), memory=made) == [(wide[0] / wide[1]).tolist()]


@pytest.mark.parametrize("name", ["arith.addf", "arith.maxnumf"])
def test_arithmetic_on_8_bit_floats_is_refused_as_it_is_by_the_compiler(name: str) -> None:
    with pytest.raises(InterpreterLimit, match=r"^arithmetic on f8E5M2 values: convert them to a wider type first$"):
        done(name, np.float32(1), np.float32(2), result=kind("f8E5M2"))


@pytest.mark.parametrize(("pointee", "wanted"), [("f32", 1012), ("f16", 1006), ("!tt.ptr<f32>", 1024), ("i8", 1003)])
def test_pointers_move_by_elements(pointee: str, wanted: int) -> None:
    assert done("tt.addptr", np.int64(1000), np.int32(3), result=kind("ptr", (), pointee)) == [wanted]


def test_where_a_program_is() -> None:
    made, _ = machine()
    made._running, made._grid = RunningProgram(0, (3, 4, 5)), (6, 7, 8)
    for axis in range(3):
        assert done("tt.get_program_id", memory=made, axis=axis) == [3 + axis]
        assert done("tt.get_num_programs", memory=made, axis=axis) == [6 + axis]


@pytest.mark.parametrize(
    ("elements", "precision", "wanted"),
    [(("i8", "i8", "i32"), "", 3 * 5 + 1), (("f16", "f16", "f32"), "", 16.0), (("f64", "f64", "f64"), "ieee", 16.0)],
)
def test_products_have_their_sums_added(elements: tuple[str, str, str], precision: str, wanted: float) -> None:
    dtypes = {"i8": np.int8, "i32": np.int32, "f16": np.float16, "f32": np.float32, "f64": np.float64}
    a, b, c = (np.array([[n]], dtypes[e]) for n, e in zip((3, 5, 1), elements, strict=True))
    types = [kind(e) for e in elements]
    assert done("tt.dot", a, b, c, result=types[2], types=types, inputPrecision=precision) == [[[wanted]]]


@pytest.mark.parametrize(
    ("precision", "error"),
    [("ieee", 0.0), ("tf32", 2.0**-11), ("tf32x3", 0.0), ("bf16x3", 2.0**-15), ("bf16x6", 2.0**-23)],
)
def test_products_of_float32_have_the_precision_that_is_asked_for(precision: str, error: float) -> None:
    x = np.float32(1 + 2.0**-11 + 2.0**-13 + 2.0**-17)
    a, one, zero = (np.array([[n]], np.float32) for n in (x, 1, 0))
    types = [kind("f32")] * 3
    (((found,),),) = done("tt.dot", a, one, zero, result=kind("f32"), types=types, inputPrecision=precision)
    assert abs(found - float(x)) <= error
    assert (found == float(x)) == (precision != "tf32"), "two parts hold 16 bits"


def test_a_product_of_parts_has_the_products_of_both_sides() -> None:
    a, b = (np.array([[1 + 2.0**-9 + 2.0**-17]], np.float32) for _ in range(2))
    exact = float(a[0, 0]) ** 2
    errors = [abs(float(product_of_parts(a, b, how)[0, 0]) - exact) for how in ("bf16x3", "bf16x6")]
    assert 2.0**-20 < errors[0] < 2.0**-15
    assert errors[1] < 2.0**-22


# memory


def test_a_load_takes_what_the_mask_lets_and_the_other_elsewhere() -> None:
    made, memory = machine(np.arange(4, dtype=np.int32))
    at = memory.address(0) + 4 * np.arange(4)
    mask = np.array([True, False, True, False])
    result = kind("i32", (4,))
    assert done("tt.load", at, memory=made, result=result) == [[0, 1, 2, 3]]
    assert done("tt.load", at, mask, memory=made, result=result) == [[0, UNDEFINED, 2, UNDEFINED]]
    assert done("tt.load", at, mask, np.int32(9), memory=made, result=result) == [[0, 9, 2, 9]]
    assert done("tt.load", at * 0, mask & False, np.int32(9), memory=made, result=result) == [[9] * 4]


def test_a_store_writes_what_the_mask_lets() -> None:
    made, memory = machine(np.zeros(4, np.int32), types={1: kind("i32", (4,))})
    at = memory.address(0) + 4 * np.arange(4)
    assert done("tt.store", at, np.int32(7), np.array([True, False, True, False]), memory=made) == []
    assert memory.content(0).view(np.int32).tolist() == [7, 0, 7, 0]
    done("tt.store", at * 0, np.int32(7), np.zeros(4, bool), memory=made)
    assert memory.damage() == 0


@pytest.mark.parametrize(
    ("places", "mask", "old", "left"),
    [
        ([0, 1, 2], None, [10, 20, 30], [11, 22, 33, 40]),
        ([0, 1, 2], [True, False, True], [10, UNDEFINED, 30], [11, 20, 33, 40]),
        ([1, 1, 1], None, [20, 21, 23], [10, 26, 30, 40]),
        ([1, 1, 2], [True, False, True], [20, UNDEFINED, 30], [10, 21, 33, 40]),
    ],
)
def test_an_atomic_gives_what_was_there(places: Any, mask: Any, old: list[int], left: list[int]) -> None:
    """Of several to one place, each sees those before it; a masked lane's result is undefined."""
    made, memory = machine(np.array([10, 20, 30, 40], np.int32))
    at, more = memory.address(0) + 4 * np.array(places), () if mask is None else (np.array(mask),)
    value, result = np.array([1, 2, 3], np.int32), kind("i32", (3,))
    assert done("tt.atomic_rmw", at, value, *more, memory=made, result=result, atomic_rmw_op="add") == [old]
    assert memory.content(0).view(np.int32).tolist() == left


@pytest.mark.parametrize("name", ["tt.atomic_rmw", "tt.atomic_cas"])
def test_which_element_of_one_atomic_comes_first_is_drawn(name: str) -> None:
    """No GPU says it: a ticket isn't the element's number."""
    orders = set()
    for seed in range(9):
        made, memory = machine(np.array([0], np.int32))
        made._chance = random.Random(seed)
        at, lanes = memory.address(0) + np.zeros(8, np.int64), np.arange(8, dtype=np.int32)
        values = (np.ones(8, np.int32),) if name == "tt.atomic_rmw" else (np.zeros(8, np.int32), lanes + 1)
        (found,) = done(name, at, *values, memory=made, result=kind("i32", (8,)), atomic_rmw_op="add")
        orders.add(tuple(found))
        left = memory.content(0).view(np.int32).item()
        assert (sorted(found), left) == (list(range(8)), 8) if name == "tt.atomic_rmw" else found.count(0) == 1
    assert len(orders) > 5


@pytest.mark.parametrize(
    ("name", "values", "changed"),
    [
        ("tt.atomic_rmw", (np.array([0, 2, 3], np.int32), np.array([True, True, False])), [1]),
        ("tt.atomic_cas", (np.array([10, 21, 30], np.int32), np.array([10, 2, 3], np.int32)), [2]),
    ],
)
def test_programs_that_wait_are_told_what_an_atomic_has_changed(name: str, values: Any, changed: list[int]) -> None:
    """Not what it has left as it was: two programs that wait by atomics would wake each other forever."""
    made, memory = machine(np.array([10, 20, 30], np.int32))
    told: list[int] = []
    made._order = SimpleNamespace(changed=told.extend)  # type: ignore[assignment]
    at = memory.address(0) + 4 * np.arange(3)
    done(name, at, *values, memory=made, result=kind("i32", (3,)), atomic_rmw_op="add")
    assert told == at[changed].tolist()


def test_atomics_that_only_load_or_store() -> None:
    made, memory = machine(np.array([10, 20, 30], np.int32))
    at, mask = memory.address(0) + 4 * np.arange(3), np.array([True, False, True])
    loaded = done("tt.atomic_load", at, mask, memory=made, result=kind("i32", (3,)))
    assert loaded == [[10, memory.undefined("i32"), 30]]
    made._program.types[1] = kind("i32", (3,))  # type: ignore[index]
    told: list[int] = []
    made._order = SimpleNamespace(changed=told.extend)  # type: ignore[assignment]
    new = np.array([10, 2, 3], np.int32)
    assert done("tt.atomic_store", at, new, mask, memory=made) == []
    assert memory.content(0).view(np.int32).tolist() == [10, 20, 3]
    assert told == [at[2]]


def test_a_poll_waits_until_all_places_hold_what_is_expected() -> None:
    made, memory = machine(np.array([1, 2], np.int32), types={1: kind("i32", (2,))})
    at, expected = memory.address(0) + 4 * np.arange(2), np.array([1, 5], np.int32)
    op: Any = SimpleNamespace(operands=[0, 1], types=[kind("i1", (2,))])
    steps = made.poll(op, {0: at, 1: expected})
    next(steps)
    assert [places for places, _ in made._running.awaited] == [tuple(at.tolist())]
    memory.store(at[1:], expected[1:], "i32")
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value[0].tolist() == [True, True]
    assert made._running.loops == 0
    late: Any = SimpleNamespace(operands=[0, 1, 2], types=[kind("i1", (2,))])
    with pytest.raises(StopIteration) as end:
        next(made.poll(late, {0: at, 1: np.array([1, 6], np.int32), 2: np.int64(100)}))
    assert end.value.value[0].tolist() == [True, False]


def test_a_poll_in_vain_ends_at_the_deadline() -> None:
    made, memory = machine(np.array([1], np.int32), types={1: kind("i32")})
    op: Any = SimpleNamespace(operands=[0, 1], types=[kind("i1")])
    steps = made.poll(op, {0: np.int64(memory.address(0)), 1: np.int32(2)})
    next(steps)
    made._deadline = -1.0
    with pytest.raises(KernelTimeout):
        next(steps)


def scaled(kinds: tuple[str, str], a: Any, b: Any, scales: Any, packed: tuple[bool, bool] = (True, True)) -> Any:
    """``a @ b`` with scales, as lists."""
    sides = tuple((k, s is not None, p) for k, s, p in zip(kinds, scales, packed, strict=True))
    given = [np.array(s, np.uint8).view(np.int8) for s in scales if s is not None]
    zero = np.zeros((1, 1), np.float32)
    (found,) = done("tt.dot_scaled", a, b, zero, *given, result=kind("f32"), sides=sides)
    return found


def test_products_have_scales_along_k() -> None:
    a, b = np.array([[1, 2, 3, 4]], np.float32), np.ones((4, 1), np.float32)
    assert scaled(("e4m3", "bf16"), a, b, ([[128, 126]], None)) == [[1 * 2 + 2 * 2 + 3 / 2 + 4 / 2]]
    assert scaled(("e4m3", "e5m2"), a, b, ([[127, 127]], [[127, 130]])) == [[1 + 2 + 3 * 8 + 4 * 8]]
    with np.errstate(over="ignore"):
        assert math.isnan(scaled(("e4m3", "e5m2"), a, b, (None, [[255, 127]]))[0][0])


def test_two_numbers_of_four_bits_lie_in_a_byte() -> None:
    a, b = np.array([[0x21, 0xF7]], np.uint8).view(np.int8), np.array([[1], [10], [100], [1000]], np.float32)
    assert scaled(("e2m1", "bf16"), a, b, (None, None)) == [[0.5 + 10 + 600 - 6000]]
    row = np.array([[1, 10]], np.float32)
    assert scaled(("bf16", "e2m1"), row, a.T[:1], (None, None)) == [[0.5 + 10]]
    assert scaled(("bf16", "e2m1"), row[:, :1], a[:, :1], (None, None), (True, False)) == [[0.5, 1.0]]


def test_fast_functions_are_exact_where_nothing_is_drawn() -> None:
    x, result, symbol = np.linspace(1, 9, 8, dtype=np.float32), kind("f32", (8,)), "__nv_fast_expf"
    exact = [np.exp(x).tolist()]
    assert done("tt.extern_elementwise", x, result=result, symbol=symbol) == exact
    drawing, _ = machine()
    drawing._chance = random.Random(1)
    assert done("tt.extern_elementwise", x, result=result, symbol=symbol, memory=drawing) != exact


def test_compare_and_swap_writes_where_the_value_is_what_was_expected() -> None:
    made, memory = machine(np.array([10, 20], np.int32))
    at = memory.address(0) + 4 * np.arange(2)
    expected, new = np.array([10, 21], np.int32), np.array([1, 2], np.int32)
    assert done("tt.atomic_cas", at, expected, new, memory=made, result=kind("i32", (2,))) == [[10, 20]]
    assert memory.content(0).view(np.int32).tolist() == [1, 20]


def test_a_descriptor_gives_and_takes_what_lies_in_its_tensor() -> None:
    made, memory = machine(np.arange(12, dtype=np.int32))
    block = kind("desc", (2, 2), "i32")
    descriptor = Descriptor(memory.address(0), [3, 4], [4, 1], block)
    at = (np.int32(2), np.int32(1))
    assert done("tt.descriptor_load", descriptor, *at, memory=made, result=kind("i32", (2, 2))) == [[[9, 10], [0, 0]]]
    value = np.array([[70, 71], [72, 73]], np.int32)
    assert done("tt.descriptor_store", descriptor, value, *at, memory=made) == []
    assert memory.content(0).view(np.int32).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 70, 71, 11]
    away = (np.int32(-2), np.int32(0))
    assert done("tt.descriptor_load", descriptor, *away, memory=made, result=kind("i32", (4,))) == [[0] * 4]
    assert memory.damage() == 0


def test_rows_of_a_descriptor_lie_anywhere() -> None:
    made, memory = machine(np.arange(12, dtype=np.int32))
    descriptor = Descriptor(memory.address(0), [3, 4], [4, 1], kind("desc", (1, 2), "i32"))
    rows, result = np.array([2, 0, 3, -1], np.int32), kind("i32", (4, 2))
    found = done("tt.descriptor_gather", descriptor, rows, np.int32(3), memory=made, result=result)
    assert found == [[[11, 0], [3, 0], [0, 0], [0, 0]]]
    value = np.array([[70, 71], [72, 73], [74, 75], [76, 77]], np.int32)
    done("tt.descriptor_scatter", descriptor, rows, np.int32(2), value, memory=made)
    assert memory.content(0).view(np.int32).tolist() == [0, 1, 72, 73, 4, 5, 6, 7, 8, 9, 70, 71]
    assert memory.damage() == 0


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(1 + 2.0**-11, 1.0), (1 + 3 * 2.0**-11, 1 + 2.0**-9), (math.inf, math.inf), (2.0 - 2.0**-20, 2.0)],
)
def test_a_descriptor_may_round_what_it_reads(number: float, wanted: float) -> None:
    made, memory = machine(np.array([number], np.float32))
    block = kind("desc", (1,), "f32")
    for tf32, expected in ((True, wanted), (False, np.float32(number))):
        descriptor = Descriptor(memory.address(0), [1], [1], block, tf32=tf32)
        found = done("tt.descriptor_load", descriptor, np.int32(0), memory=made, result=kind("f32", (1,)))
        assert found == [[expected]]


@pytest.mark.parametrize(("padding", "nan"), [(2, True), (1, False)])
def test_a_descriptor_is_made_of_sizes_and_strides(padding: int, nan: bool) -> None:
    made, _ = machine()
    op: Any = SimpleNamespace(
        operands=[0, 1, 2, 3, 4], types=[kind("desc", (2, 2), "f32")], attributes={"padding": padding}
    )
    values: Any = dict(enumerate([np.int64(64), np.int32(3), np.int32(4), np.int64(4), np.int64(1)]))
    assert made.make_descriptor(op, values) == (Descriptor(64, [3, 4], [4, 1], op.types[0], nan),)


# programs


@pytest.mark.parametrize(
    ("element", "value", "wanted"),
    [("ptr", (1 << 64) - 8, -8), ("i64", -1, -1), ("i32", (1 << 32) + 5, 5), ("i1", 1, True),
     ("f16", 1 + 2.0**-12, 1.0), ("bf16", 1 + 2.0**-9, 1.0)],
)  # fmt: skip
def test_arguments_are_numbers_of_their_type(element: str, value: Any, wanted: Any) -> None:
    made, _ = machine(types={1: kind(element)})
    assert made._argument(1, value).tolist() == wanted


def test_a_descriptor_that_the_host_makes_is_refused() -> None:
    for one in (kind("desc"), kind("f32", (2,))):
        made, _ = machine(types={1: one})
        with pytest.raises(InterpreterLimit, match=r"^it takes a tensor descriptor that the host makes$"):
            made._argument(1, 0)


def test_a_launch_with_other_arguments_is_refused() -> None:
    made, _ = machine()
    made._program = SimpleNamespace(kernel=SimpleNamespace(arguments=[1, 2]))  # type: ignore[assignment]
    with pytest.raises(InterpreterLimit, match=r"^its TTIR takes 2 arguments, the launch has 1$"):
        made.launch([0], (1, 1, 1))
