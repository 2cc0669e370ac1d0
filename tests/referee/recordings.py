"""A recording of one launch as a candidate's process would send it, ``o = x + y`` over 600 numbers; and a call of which
one result alone is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.recording import Binary, Launch, Param, Recording, Storage, View, Zeros
from kerntune.referee.declared_inputs import dense_strides, parse_line
from kerntune.referee.errors_together import ShapeComparison, together_of
from kerntune.referee.tasks import ExpectedResult, ExpectedSeed, RecordedCall

TARGET = Target.parse("cuda:90")
CASE = parse_line("x: f32[600]; y: f32[600]")

TTIR = """
module {
  tt.func public @add(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %o: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c256 = arith.constant 256 : i32
    %pid = tt.get_program_id x : i32
    %first = arith.muli %pid, %c256 : i32
    %range = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
    %base = tt.splat %first : i32 -> tensor<256xi32>
    %at = arith.addi %base, %range : tensor<256xi32>
    %ns = tt.splat %n : i32 -> tensor<256xi32>
    %inside = arith.cmpi slt, %at, %ns : tensor<256xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
    %xp = tt.addptr %xs, %at : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    %xv = tt.load %xp, %inside : tensor<256x!tt.ptr<f32>>
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
    %yp = tt.addptr %ys, %at : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    %yv = tt.load %yp, %inside : tensor<256x!tt.ptr<f32>>
    %sum = arith.addf %xv, %yv : tensor<256xf32>
    %os = tt.splat %o : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>>
    %op = tt.addptr %os, %at : tensor<256x!tt.ptr<f32>>, tensor<256xi32>
    tt.store %op, %sum, %inside : tensor<256x!tt.ptr<f32>>
    tt.return
  }
}
"""
SHA = hashlib.sha256(TTIR.encode()).hexdigest()

BINARY = Binary(
    kind="cubin", arch="sm_90a", symbol="add", sha256="0" * 64, ttir_sha256=SHA, code="", text="", triton="3.9.0",
    assembler="", options={}, constexprs={}, num_warps=4,
)  # fmt: skip
POINTERS = tuple(Param(name, "*fp32", view=i) for i, name in enumerate("xyo"))
LAUNCH = Launch("add", "", 0, (3, 1, 1), (*POINTERS, Param("n", "i32", value=600)))
VIEWS = tuple(View(i, "float32", (600,), (1,)) for i in range(3))
RECORDING = Recording(TARGET, (LAUNCH,), (BINARY,), (Storage(2400, "float32", Zeros()),) * 3, VIEWS)
CALL = RecordedCall(RECORDING, {SHA: TTIR.encode()}, (0, 1), (2,))
EXPECTED = ExpectedResult("float32", (600,), (1,), bytes(2400))


def call(**parts: Any) -> RecordedCall:
    """The call with other fields."""
    return replace(CALL, **parts)


def recording(**parts: Any) -> RecordedCall:
    """The call with another recording."""
    return call(recording=replace(RECORDING, **parts))


def launch(**parts: Any) -> RecordedCall:
    """The call with another launch."""
    return recording(launches=(replace(LAUNCH, **parts),))


def view(index: int, **parts: Any) -> RecordedCall:
    """The call with another view."""
    return recording(views=tuple(replace(v, **parts) if i == index else v for i, v in enumerate(VIEWS)))


def twice(**parts: Any) -> RecordedCall:
    """The call and another one on storages of its own."""
    views = (*VIEWS, *(replace(v, storage=3 + i) for i, v in enumerate(VIEWS)))
    second = replace(LAUNCH, params=tuple(replace(p, view=i + 3) if i < 3 else p for i, p in enumerate(LAUNCH.params)))
    both = recording(launches=(LAUNCH, second), views=views, storages=RECORDING.storages * 2)
    return replace(both, **{"inputs": (3, 4), "results": (5,), "artifacts": {}, **parts})


def one_result(line: str, dtype: str, *shape: int, seeds: Sequence[ExpectedSeed] = ()) -> ShapeComparison:
    """What replays of a call are compared by that returns one dense result, and that launches reach nothing else of."""
    case = parse_line(line)
    call: Any = SimpleNamespace(
        wanted=(0,), results=(View(0, dtype, shape, dense_strides(shape)),), inputs=(None,) * len(case.tensors),
        contents=lambda given: (None,), again=None, fills=(), operators=(), artifacts={},
        recording=SimpleNamespace(storages=(), binaries=()), ignored=lambda case: [],
    )  # fmt: skip
    return ShapeComparison(case, call, together_of(case, seeds) if seeds else {})
