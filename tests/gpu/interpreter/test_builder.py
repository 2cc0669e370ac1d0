"""The memory of an interpreted launch, and what the builder computes, one operation at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from kerntune.errors import InterpreterLimit, KernelFault
from kerntune.gpu.interpreter.builder import Builder, LaunchMemory


class Pair(NamedTuple):
    first: Any
    second: Any


def test_arguments_move_with_all_that_share_their_memory() -> None:
    memory, x = LaunchMemory("k"), torch.arange(6, dtype=torch.int32)
    given = {"x": x[1:], "pair": Pair(x.view(2, 3).t(), 5), "tuple": (x, "text"), "n": 7}
    moved = memory.moved(given)
    y, pair = moved["x"], moved["pair"]
    assert (y.tolist(), moved["n"]) == ([1, 2, 3, 4, 5], 7)
    room = 1 << 20
    assert (y.storage_offset() * 4, y.untyped_storage().nbytes()) == (room + 4, 2 * room + 24)
    assert (type(pair), pair.second, type(moved["tuple"]), moved["tuple"][1]) == (Pair, 5, tuple, "text")
    assert (pair.first.tolist(), pair.first.stride()) == ([[0, 3], [1, 4], [2, 5]], (1, 3))
    assert {t.untyped_storage()._cdata for t in (pair.first, moved["tuple"][0])} == {y.untyped_storage()._cdata}
    y[0] = 9
    assert (pair.first[1, 0].item(), x.tolist()) == (9, [0, 1, 2, 3, 4, 5])
    memory.write_back()
    assert x.tolist() == [0, 9, 2, 3, 4, 5]


def checked(memory: LaunchMemory, addresses: Any, size: int = 4, mask: Any = None) -> str:
    """What is wrong; empty if nothing is."""
    at = np.asarray(addresses, np.uint64)
    try:
        memory.check(at, None if mask is None else np.asarray(mask), size, "reads", (1, 0, 2))
    except KernelFault as exc:
        return str(exc)
    return ""


def test_an_access_lies_within_one_storage() -> None:
    memory = LaunchMemory("k")
    x = memory.moved({"x": torch.zeros(4, dtype=torch.int32)})["x"].data_ptr()
    assert checked(memory, [x, x + 12]) == checked(memory, [x + 8], 8) == checked(memory, []) == ""
    told = "kernel k reads {} elements of 4 bytes outside of its tensors in program (1, 0, 2): {}"
    end = "; a mask is missing or wrong, or an offset is"
    for addresses, count, places in (
        ([x + 13], 1, f"{x + 13:#x}"),
        ([x - 1], 1, "1 bytes before a tensor"),
        ([x + 16], 1, "0 bytes after the end of a tensor"),
        ([x, x + 20, x - 8], 2, "4 bytes after the end of a tensor, 8 bytes before a tensor"),
        ([x + 16] * 3, 3, ", ".join(["0 bytes after the end of a tensor"] * 3)),
        ([x + 16] * 4, 4, ", ".join(["0 bytes after the end of a tensor"] * 3) + ", ..."),
    ):
        assert checked(memory, addresses) == told.format(count, places) + end
    assert checked(memory, [x + 16, x], mask=[False, True]) == ""
    assert checked(memory, x + 16, mask=[False, False]) == ""
    assert "reads 2 elements" in checked(memory, x + 16, mask=[True, True])


def test_a_place_is_told_by_the_nearest_tensor() -> None:
    memory = LaunchMemory("k")
    moved = memory.moved({"x": torch.zeros(4), "y": torch.zeros(8)})
    low, high = sorted([(moved["x"].data_ptr(), 16), (moved["y"].data_ptr(), 32)])
    assert memory._place(low[0] + low[1] + 8) == "8 bytes after the end of a tensor"
    assert memory._place(high[0] - 8) == "8 bytes before a tensor"
    assert memory._place(high[0] + high[1] + 3) == "3 bytes after the end of a tensor"
    assert LaunchMemory("k")._place(255) == "0xff"
    assert "reads 1 elements" in checked(LaunchMemory("k"), [5])


def handle(values: Any, dtype: Any = tl.float32, kind: Any = np.float32) -> Any:
    return TensorHandle(np.array(values, kind), dtype)


@pytest.mark.parametrize(
    ("does", "expected"),
    [
        (lambda b: b.create_minnumf(handle([1, np.nan, 3]), handle([2, 2, np.nan])), [1, 2, 3]),
        (lambda b: b.create_maxnumf(handle([1, np.nan, 3]), handle([2, 2, np.nan])), [2, 2, 3]),
        (lambda b: b.create_rsqrt(handle([4.0, 0.25])), [0.5, 2.0]),
        (lambda b: b.create_fma(handle([2.0]), handle([3.0]), handle([4.0])), [10.0]),
        (lambda b: b.create_dot(handle([[1, 2], [3, 4]]), handle([[1, 0], [0, 2]]), handle([[1, 1], [1, 1]])),
         [[2, 5], [4, 9]]),
        (lambda b: b.binary_op(*[handle(v, tl.int1, bool) for v in ([True, True], [True, False])], np.add),
         [False, True]),
        (lambda b: b.binary_op(*[handle(v, tl.int1, bool) for v in ([True, True], [True, False])], np.equal),
         [True, False]),
        (lambda b: b.cast_impl(handle([2.75, -2.75]), tl.int32), [2, -2]),
        (lambda b: b.get_bf16(1.0), [0x3F80]),
        (lambda b: b.create_fp_to_fp(handle([1 + 3 / 256]), tl.bfloat16, None), [0x3F82]),
        (lambda b: b.create_fp_to_fp(handle([1 + 3 / 256]), tl.bfloat16, "RTZ"), [0x3F81]),
        (lambda b: b.create_fma(*[b.get_bf16(v) for v in (2.0, 3.0, 4.0)]), [0x4120]),
        (lambda b: b.unary_op(b.get_bf16(-2.0), np.abs), [0x4000]),
        (lambda b: b.binary_op(b.get_bf16(1.0), b.get_bf16(2.0), np.add), [0x4040]),
        (lambda b: b.binary_op(b.get_bf16(1.0), b.get_bf16(2.0), np.less), [True]),
    ],
)  # fmt: skip
def test_what_the_builder_computes(does: Callable[[Builder], Any], expected: Any) -> None:
    """bfloat16 is its bits."""
    assert does(Builder()).data.tolist() == expected


def test_what_no_cpu_does_is_said() -> None:
    builder = Builder()
    with pytest.raises(InterpreterLimit, match="inline assembly"):
        builder.create_inline_asm()
    with pytest.raises(InterpreterLimit, match="this Triton's interpreter has no warp_magic"):
        builder.create_warp_magic()
    with pytest.raises(AttributeError):
        _ = builder.nothing
    eight = TensorHandle(np.zeros(1, np.uint8), tl.float8e5)
    with pytest.raises(InterpreterLimit, match="arithmetic on fp8e5 values: convert them to a wider type first"):
        builder.binary_op(eight, eight, np.add)


def test_accesses_are_checked_until_a_pointer_is_made_of_a_number() -> None:
    builder, asked = Builder(), list[Any]()
    builder.memory, builder.grid_idx = LaunchMemory("k"), (1, 0, 2)
    builder.memory.check = lambda *given: asked.append(given[2:])  # type: ignore[method-assign]
    for kind in (tl.float32, tl.int1, tl.float64):
        builder._check(TensorHandle(np.zeros(1, np.uint64), tl.pointer_type(kind)), None, "reads")
    assert asked == [(size, "reads", (1, 0, 2)) for size in (4, 1, 8)]
    builder.create_int_to_ptr(handle([1], tl.int64, np.int64), tl.pointer_type(tl.float32))
    assert builder.memory is None
    builder._check(TensorHandle(np.zeros(1, np.uint64), tl.pointer_type(tl.float32)), None, "reads")
    assert len(asked) == 3
