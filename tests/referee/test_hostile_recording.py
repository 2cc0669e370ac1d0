"""Each claim of a recording is bounded, recomputed or ignored."""

from __future__ import annotations

import hashlib
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import binary, booleans, dictionaries, floats, integers, lists, none, recursive, text
from msgspec.msgpack import encode as encoded
from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.recording import Param, Storage, View, Zeros
from kerntune.referee.hostile_recording import (
    TABLES,
    check_outlines,
    check_results,
    checked,
    decoded,
    extent,
    filled,
    given_contents,
    has_more_items,
    same_strides,
    side_of,
)
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.result_numbers import ROUNDOFF
from kerntune.referee.tasks import Constant, ExpectedResult, ExpectedSeed, Fill, RecordAnswer, RecordedCall
from kerntune.referee.torch_operators import TorchOperator, ViewAt
from kerntune.static.disassembly import find_tool
from tests.referee.recordings import (
    BINARY,
    CALL,
    CASE,
    EXPECTED,
    LAUNCH,
    POINTERS,
    RECORDING,
    SHA,
    TARGET,
    TTIR,
    VIEWS,
    call,
    launch,
    recording,
    view,
)


def test_an_honest_call_passes_and_counts_every_storage_as_read_and_written() -> None:
    found = checked(CALL, CASE, TARGET)
    assert found.inputs == (0, 1)
    assert found.results == (VIEWS[2],)
    assert [(x.reads, x.writes) for x in found.recording.launches] == [((0, 1, 2), (0, 1, 2))]
    assert all(s.read and s.written for s in found.recording.storages)
    check_results(found, CASE, [EXPECTED])


def test_what_operators_touch_counts_as_read_and_written_by_the_launch_beside_them() -> None:
    """A result of theirs is written if they take what a launch has a pointer to."""
    views = (*VIEWS, replace(VIEWS[2], storage=3), replace(VIEWS[2], storage=4))
    storages = (*RECORDING.storages, *RECORDING.storages[:2])
    rows = tuple(TorchOperator(1, "copy_.default", (ViewAt(3), ViewAt(source))) for source in (2, 4))
    for row, written in zip(rows, (True, False), strict=True):
        made = replace(recording(views=views, storages=storages), operators=(row,), results=(3,))
        found = checked(made, CASE, TARGET)
        used = {0, 1, 2, *row.storages(made.recording)}
        assert (
            [{*x.reads} for x in found.recording.launches] == [{*x.writes} for x in found.recording.launches] == [used]
        )
        assert found.operators == side_of(found, [b"", b""], b"").operators == (row,)
        if written:
            check_results(found, CASE, [EXPECTED])
        else:
            with pytest.raises(Refusal, match=r"^torch's copy_.default alone computes all results$"):
                check_results(found, CASE, [EXPECTED])


def test_another_structure_than_the_references_is_refused() -> None:
    """At any seed: a number that the reference returns may differ from seed to seed."""
    call = checked(replace(CALL, outline="{'sum': tensor}"), CASE, TARGET)
    seeds = [ExpectedSeed((), (), (), outline) for outline in ("{'sum': tensor}", "{'total': tensor}")]
    check_outlines(call, seeds[:1])
    with pytest.raises(Refusal, match=r"^it returns \{'sum': tensor\}, the reference \{'total': tensor\}$") as raised:
        check_outlines(call, seeds)
    assert raised.value.reason is Reason.RESULT_COUNT


@pytest.mark.parametrize(("operation", "refused"), [
    ("tt.ptr_to_int %x : !tt.ptr<f32> -> i64", True), ("tt.bitcast %x : !tt.ptr<f32> -> !tt.ptr<i32>", False),
    (r'"tt.ptr\5Fto_int"(%x) : (!tt.ptr<f32>) -> i64', True), (r'"\74t.ptr_to_in\54"(%x) : (i1) -> i64', True),
    (r'"tt\2eptr_to_int"(%x) : (!tt.ptr<f32>) -> i64', True),
    (r'tt.elementwise_inline_asm "\22\0A\09 \\41 \7F\C3\5C" {} : i32', False),
])  # fmt: skip
def test_a_kernel_that_takes_an_address_for_a_number_is_refused(operation: str, refused: bool) -> None:
    """It may do something else at one address in a million. Other kinds of pointers to the same memory are none."""
    ttir = TTIR.replace("tt.return", f"%number = {operation}\n    tt.return").encode()
    sha = hashlib.sha256(ttir).hexdigest()
    call = replace(recording(binaries=(replace(BINARY, ttir_sha256=sha),)), artifacts={sha: ttir})
    if not refused:
        assert checked(call, CASE, TARGET).artifacts == {sha: ttir}
        return
    with pytest.raises(Refusal, match=r"^add makes a number of an address, by which") as raised:
        checked(call, CASE, TARGET)
    assert raised.value.reason is Reason.ADDRESSES


def cubin_reading(register: str, arch: str, tmp_path: Path) -> bytes:
    """Of a kernel that stores a special register."""
    wide = register in ("clock64", "globaltimer")
    text = f""".version 8.4
.target {arch}
.address_size 64
.visible .entry k(.param .u64 p) {{
  .reg .b64 %a; .reg .b32 %r; .reg .b64 %w;
  ld.param.u64 %a, [p];
  mov.{"u64 %w" if wide else "u32 %r"}, %{register};
  st.global.{"u64 [%a], %w" if wide else "u32 [%a], %r"};
  ret;
}}"""
    (tmp_path / "k.ptx").write_text(text)
    command = [str(find_tool("ptxas")), f"-arch={arch}", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    subprocess.run(command, check=True)
    return (tmp_path / "k.cubin").read_bytes()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("register", "read"), [
    ("smid", "SR_VIRTUALSMID"), ("warpid", "SR_VIRTID"), ("clock", "SR_CLOCKLO"),
    ("clock_hi", "SR_CLOCKHI"), ("clock64", "SR_CLOCKLO"), ("globaltimer", "SR_GLOBALTIMERLO"), ("pm0", "SR_PM0"),
    ("globaltimer_hi", "SR_GLOBALTIMERHI"), ("laneid", ""), ("tid.x", ""), ("ctaid.y", ""), ("lanemask_lt", ""),
    ("dynamic_smem_size", ""),
])  # fmt: skip
def test_a_kernel_that_reads_where_or_when_it_runs_is_refused(
    register: str, read: str, arch: str, tmp_path: Path
) -> None:
    """On an idle GPU it may work on every other multiprocessor, and be right. What counts is the binary."""
    cubin = cubin_reading(register, arch, tmp_path)
    sha = hashlib.sha256(cubin).hexdigest()
    call = replace(recording(binaries=(replace(BINARY, sha256=sha),)), artifacts={**CALL.artifacts, sha: cubin})
    if not read:
        assert sha in checked(call, CASE, TARGET).artifacts
        return
    with pytest.raises(Refusal, match=f"^add reads {read}, by which it may") as raised:
        checked(call, CASE, TARGET)
    assert raised.value.reason is Reason.HARDWARE


def test_a_binary_that_can_not_be_read_is_refused() -> None:
    cubin = b"\x7fELF and no more"
    sha = hashlib.sha256(cubin).hexdigest()
    call = replace(recording(binaries=(replace(BINARY, sha256=sha),)), artifacts={**CALL.artifacts, sha: cubin})
    with pytest.raises(Refusal, match=r"^a binary is damaged: ") as raised:
        checked(call, CASE, TARGET)
    assert raised.value.reason is Reason.ANSWER


def test_what_is_claimed_of_reads_sources_and_configs_is_ignored() -> None:
    claimed = launch(reads=(), writes=(0,), source="x" * 64, float_atomics=True)
    assert checked(claimed, CASE, TARGET) == checked(CALL, CASE, TARGET)
    hidden = recording(hidden_pointers=True, choices={"a": "b"})
    assert checked(hidden, CASE, TARGET) == checked(CALL, CASE, TARGET)


def many(count: int) -> RecordedCall:
    return recording(launches=(LAUNCH,) * count)


def pointers(count: int, numbers: int = 0) -> RecordedCall:
    """One launch with so many pointers, to memory of its own each, and numbers."""
    params = (*(Param(f"p{i}", "*i8", view=i) for i in range(count)), *[Param("n", "i32", value=1)] * numbers)
    views = (*VIEWS, *(View(i, "int8", (i,), (1,)) for i in range(3, count)))
    storages = (*RECORDING.storages, *(Storage(i, "int8", Zeros()) for i in range(3, count)))
    return recording(launches=(replace(LAUNCH, params=params),), views=views, storages=storages)


def nested(depth: int) -> RecordedCall:
    """A recording whose options are nested so deeply, in dictionaries, lists and tuples."""
    inner: Any = 1
    for i in range(depth - 1):
        inner = ({"x": inner}, [0, inner], (inner, 0))[i % 3]
    return recording(binaries=(replace(BINARY, options={"x": inner}),))


def memory(count: int) -> RecordedCall:
    """A storage more, so that all have so many bytes together."""
    return recording(storages=(*RECORDING.storages, Storage(count - 7200, "int8", Zeros())))


OF_4_GIB = 4_294_967_296
TWO = "its recording gives a storage two contents"
OUTSIDE = "a view reaches outside of its memory"

ANSWERS: dict[str, tuple[RecordedCall, str]] = {
    "launches": (many(2_049), "its recording has 2049 launches, more than 2048"),
    "storages": (recording(storages=RECORDING.storages * 2_000), "its recording has 6000 storages, more than 4096"),
    "views": (recording(views=VIEWS * 6_000), "its recording has 18000 views, more than 16384"),
    "arguments": (pointers(3, 254), "its recording has 257 arguments of a launch, more than 256"),
    "artifacts": (
        call(artifacts={str(i): b"" for i in range(4_097)}), "its recording has 4097 artifacts, more than 4096",
    ),
    "binaries": (recording(binaries=(BINARY,) * 2_049), "its recording has 2049 binaries, more than 2048"),
    "memory": (memory(OF_4_GIB + 1), "its recording has 4294967297 bytes of memory, more than 4294967296"),
    "a negative size takes nothing off": (
        recording(storages=(Storage(OF_4_GIB + 1, "int8", Zeros()), *[Storage(-5, "int8", Zeros())] * 2)),
        "its recording has 4294967297 bytes of memory, more than 4294967296",
    ),
    "depth": (nested(64), "its recording is nested too deeply"),
    "index of a binary": (
        launch(binary=1), "its recording can't be: launches[0].binary is 1, and there are 1 to choose from",
    ),
    "index of a view": (
        launch(params=(Param("x", "*fp32", view=9),)),
        "its recording can't be: launches[0].params[0].view is 9, and there are 3 to choose from",
    ),
    "strides": (
        view(2, strides=(1, 1)), "its recording can't be: views[2].strides are 2, and there are 1 sizes",
    ),
    "artifact": (call(artifacts={SHA: TTIR.encode() + b" "}), "an artifact isn't what its checksum says"),
    "number of inputs": (call(inputs=(0,)), "its recording has 1 inputs, 2 were given"),
    "input's index": (call(inputs=(0, 3)), "its recording has no such view"),
    "input's index below 0": (call(inputs=(0, -1)), "its recording has no such view"),
    "result's index": (call(results=(-1,)), "its recording has no such view"),
    "number of results": (call(results=(2,) * 257), "it returns 257 tensors"),
    "fill's storage": (call(fills=(Fill(3, "float32", 0.0),)), "its recording has no such storage"),
    "fill's storage below 0": (call(fills=(Fill(-1, "float32", 0.0),)), "its recording has no such storage"),
    "constant's storage": (call(constants=(Constant(3, b""),)), "its recording has no such storage"),
    "unknown storage": (call(unknown=(3,)), "its recording has no such storage"),
    "fill's dtype": (
        call(fills=(Fill(2, 41 * "y", 0.0),)), f"memory is filled as {40 * 'y'}, which isn't known here",
    ),
    "two contents": (call(fills=(Fill(2, "float32", 0.0), Fill(2, "float32", 1.0))), TWO),
    "a fill and a constant": (call(fills=(Fill(2, "float32", 0.0),), constants=(Constant(2, bytes(2400)),)), TWO),
    "constant of an input": (call(constants=(Constant(1, bytes(2400)),)), TWO),
    "a short constant": (call(constants=(Constant(2, bytes(2399)),)), "a constant has another size than its memory"),
    "a long constant": (call(constants=(Constant(2, bytes(2401)),)), "a constant has another size than its memory"),
    "view outside": (view(2, offset_bytes=4), OUTSIDE),
    "view one byte outside": (view(2, dtype="int8", shape=(2_401,)), OUTSIDE),
    "view one byte before": (view(2, dtype="int8", shape=(2,), strides=(-1,)), OUTSIDE),
    "view's dtype": (view(2, dtype=41 * "x"), f"memory is viewed as {40 * 'x'}, which isn't known here"),
    "target": (recording(target=Target.parse("cuda:80")), "it was recorded for cuda:80, not for cuda:90"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_cannot_be_is_refused(name: str) -> None:
    claimed, told = ANSWERS[name]
    with pytest.raises(Refusal) as caught:
        checked(claimed, CASE, TARGET)
    assert (caught.value.reason, str(caught.value)) == (Reason.ANSWER, told)


LARGEST: dict[str, RecordedCall] = {
    "launches": many(2_048),
    "storages": recording(storages=(*RECORDING.storages, *[Storage(1, "int8", Zeros())] * 4_093)),
    "views": recording(views=(*VIEWS, *[VIEWS[0]] * 16_381)),
    "arguments": pointers(3, 253),
    "artifacts": call(artifacts={hashlib.sha256(b"%d" % i).hexdigest(): b"%d" % i for i in range(4_096)}),
    "binaries": recording(binaries=(BINARY,) * 2_048),
    "memory": memory(OF_4_GIB),
    "depth": nested(63),
    "results": call(results=(2,) * 256),
    "first and last indices": call(fills=(Fill(2, "float32", 0.0),), results=(0, 2), unknown=()),
    "a view of the last byte": view(2, dtype="int8", shape=(2_400,)),
    "a view of the last byte backwards": view(2, dtype="int8", shape=(2_400,), strides=(-1,), offset_bytes=2_399),
    "an empty view": view(2, shape=(0,), offset_bytes=9_999),
}


@pytest.mark.parametrize("name", LARGEST)
def test_what_just_may_be_is_not_refused(name: str) -> None:
    checked(LARGEST[name], CASE, TARGET)


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "ends"),
    [
        ((600,), (1,), 0, (0, 2400)),
        ((2, 3), (3, 1), 8, (8, 32)),
        ((3,), (-1,), 8, (0, 12)),
        ((2,), (-1,), 4, (0, 8)),
        ((2, 5), (-7, 2), 28, (0, 64)),
        ((9, 2), (0, 1), 0, (0, 8)),
        ((), (), 4, (4, 8)),
    ],
)
def test_the_bytes_that_a_view_reaches(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, ends: tuple[int, int]
) -> None:
    assert extent(View(0, "float32", shape, strides, offset)) == ends


@pytest.mark.parametrize(
    ("inputs", "dtype", "names", "told"),
    [
        ((0, 7), "float32", ["scale"], "scale"), ((0, None), "float32", [*"abcde"], "a, b, c, d, ..."),
        ((0, 7), "int64", ["scale"], ""), ((0, 1), "float32", ["scale"], ""), ((7, 1), "float32", ["scale"], ""),
    ],
)  # fmt: skip
def test_a_model_s_numbers_that_no_launch_reads_are_told(
    inputs: tuple[int | None, ...], dtype: str, names: list[str], told: str
) -> None:
    """Whole numbers are as its constructor gives them. An input that is no parameter may be left aside."""
    x, y = CASE.tensors
    case = replace(CASE, tensors=(x, replace(y, dtype=dtype)), parameters=dict.fromkeys(names, 1))
    found = replace(checked(call(inputs=(0, 1)), CASE, TARGET), inputs=inputs)
    shown = f"; no launch reads {told}: here they have other numbers than a constructor gives"
    assert found.told_of_weights(case) == (shown if told else "")
    assert found.ignored(case) == [i for i in (0, 1) if inputs[i] in (None, 7) and case.tensors[i].dtype == "float32"]


@pytest.mark.parametrize(
    ("ends", "dtype", "off", "told"),
    [
        ("tf32 : tensor<32x16xf32> * tensor<16x32xf32> -> tensor<32x32xf32>", "float32", 5e-4, True),
        ("tf32 : tensor<32x16xf32> * tensor<16x32xf32> -> tensor<32x32xf32>", "float32", 0.01, False),
        ("tf32 : tensor<32x16xf32> * tensor<16x32xf32> -> tensor<32x32xf32>", "float16", 5e-4, False),
        ("tf32 : tensor<32x16xf16> * tensor<16x32xf16> -> tensor<32x32xf32>", "float32", 5e-4, False),
        ("tf32x3 : tensor<32x16xf32> * tensor<16x32xf32> -> tensor<32x32xf32>", "float32", 5e-4, False),
        ("ieee : tensor<32x16xf32> * tensor<16x32xf32> -> tensor<32x32xf32>", "float32", 5e-4, False),
    ],
)  # fmt: skip
def test_products_that_round_to_tf32_are_told_where_a_result_is_a_little_off(
    ends: str, dtype: str, off: float, told: bool
) -> None:
    text = f"%d = tt.dot %a, %b, %c, inputPrecision = {ends}"
    found = replace(checked(CALL, CASE, TARGET), artifacts={SHA: text.encode()})
    hint = "; its products round float32 to tf32: input_precision='ieee' doesn't"
    assert found.told_of_products(dtype, off) == (hint if told else "")


INPUT = "input x lies there as "
REASONS: dict[str, tuple[RecordedCall, Reason, str]] = {
    "operators": (
        call(unreplayed=(81 * "m", *"abcdefgh")), Reason.OPERATOR,
        f"torch's {80 * 'm'}, a, b, c, d, e, f, g, ... computes beside the kernels, and can't be replayed; of both "
        "sides, judge functions that return what the kernels leave",
    ),
    "a row that isn't in the list": (
        call(operators=(TorchOperator(0, "set_.default", (ViewAt(0),)),)), Reason.ANSWER,
        "torch's set_.default isn't replayed",
    ),
    "an address": (
        launch(params=(*POINTERS, Param("n", "i64", value=1 << 32))), Reason.ADDRESSES,
        "add.n is a number that may be an address",
    ),
    "a negative address": (
        launch(kernel=81 * "k", params=(*POINTERS, Param(81 * "n", "i64", value=-(1 << 32)))), Reason.ADDRESSES,
        f"{80 * 'k'}.{80 * 'n'} is a number that may be an address",
    ),
    "nothing runs": (launch(grid=(1, 1, 0)), Reason.NO_LAUNCH, "no launch has any block"),
    "no launch": (recording(launches=()), Reason.NO_LAUNCH, "no launch has any block"),
    "unknown memory": (
        replace(pointers(8), unknown=(2, 7, 6, 5, 4, 3)), Reason.MEMORY,
        "kernels use memory that was made before the call, by what isn't known: 2,400 bytes, 3 bytes, 4 bytes, 5 bytes"
        "; a kernel that is launched outside of the call isn't recorded",
    ),
    "an input's shape": (
        view(0, shape=(300,), strides=(2,)), Reason.INPUT_LAYOUT, INPUT + "float32[300] with strides [2]",
    ),
    "an input's strides": (view(0, strides=(0,)), Reason.INPUT_LAYOUT, INPUT + "float32[600] with strides [0]"),
    "an input's begin": (
        recording(
            storages=(Storage(2404, "float32", Zeros()), *RECORDING.storages[1:]),
            views=(replace(VIEWS[0], offset_bytes=4), *VIEWS[1:]),
        ), Reason.INPUT_LAYOUT, INPUT + "float32[600] with strides [1]",
    ),
    "an input's dtype": (view(0, dtype="int32"), Reason.INPUT_LAYOUT, INPUT + "int32[600] with strides [1]"),
    "an input of many dimensions": (
        view(0, shape=(1,) * 9, strides=(1,) * 9), Reason.INPUT_LAYOUT,
        INPUT + "float32[1, 1, 1, 1, 1, 1, 1, 1] with strides [1, 1, 1, 1, 1, 1, 1, 1]",
    ),
    "an input in larger memory": (
        recording(storages=(Storage(2404, "float32", Zeros()), *RECORDING.storages[1:])), Reason.INPUT_LAYOUT,
        INPUT + "float32[600] with strides [1]",
    ),
    "two inputs in one memory": (
        call(inputs=(0, 0)), Reason.INPUT_LAYOUT, "input y shares its memory with another input",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_other_refusals_have_their_reasons(name: str) -> None:
    claimed, reason, told = REASONS[name]
    with pytest.raises(Refusal) as caught:
        checked(claimed, CASE, TARGET)
    assert (caught.value.reason, str(caught.value)) == (reason, told)


@pytest.mark.parametrize("value", [(1 << 32) - 1, 1 - (1 << 32), 1e20, True])
def test_smaller_numbers_are_no_addresses(value: float) -> None:
    checked(launch(params=(*POINTERS, Param("n", "i64", value=value))), CASE, TARGET)


def test_inputs_that_no_launch_reaches_have_no_memory() -> None:
    found = checked(call(inputs=(None, 1)), CASE, TARGET)
    assert (found.inputs, found.wanted) == ((None, 1), (2, 1))
    assert found.contents([b"x", bytes(2400)]) == (None, bytes(2400), None)
    with pytest.raises(ValueError, match="shorter"):
        found.contents([b"x"])


def test_a_large_number_that_was_given_is_no_address() -> None:
    from kerntune.referee.declared_inputs import parse_line

    given = parse_line(f"x: f32[600]; y: f32[600]; seed = {1 << 47}")
    checked(launch(params=(*POINTERS, Param("n", "i64", value=1 << 47))), given, TARGET)


def want(**parts: Any) -> ExpectedResult:
    return replace(EXPECTED, **parts)


HALF, REST = (replace(VIEWS[2], shape=(300,), offset_bytes=n) for n in (0, 1200))


def returned(*views: View, inputs: tuple[int | None, ...] = (0, 1)) -> RecordedCall:
    """The call that returns these views."""
    results = tuple(range(3, 3 + len(views)))
    return replace(recording(views=(*VIEWS, *views)), results=results, inputs=inputs)


def wanted(*views: View, **parts: Any) -> list[ExpectedResult]:
    """What the reference gives if it returns these."""
    return [want(shape=v.shape, strides=v.strides, **parts) for v in views]


NOT_RUN = replace(LAUNCH, grid=(3, 0, 1))
OVERLAP, LAYOUT = Reason.RESULT_OVERLAP, Reason.RESULT_LAYOUT
LIES = "result 0 is float32[600] with strides [1], the reference's "
RESULTS: dict[str, tuple[RecordedCall, list[ExpectedResult], Reason, str]] = {
    "nothing": (
        returned(replace(VIEWS[0], shape=(0,))), [want(shape=(0,))], OVERLAP,
        "result 0 is memory of input x, the reference's isn't; if that is meant, the reference must do so, too: "
        "return x.copy_(...)",
    ),
    "count": (CALL, [EXPECTED, EXPECTED], Reason.RESULT_COUNT, "it returns 1 tensors, the reference 2"),
    "none": (call(results=()), [EXPECTED], Reason.RESULT_COUNT, "it returns 0 tensors, the reference 1"),
    "shape": (CALL, [want(shape=(300,))], LAYOUT, f"{LIES}float32[300] with strides [1]"),
    "dtype": (CALL, [want(dtype="float16")], LAYOUT, f"{LIES}float16[600] with strides [1]"),
    "strides": (
        view(2, strides=(0,)), [EXPECTED], LAYOUT,
        "result 0 is float32[600] with strides [0], the reference's float32[600] with strides [1]; if that doesn't "
        "matter, let both return .contiguous()",
    ),
    "a reference's strides": (
        CALL, [want(strides=(2,))], LAYOUT,
        f"{LIES}float32[600] with strides [2]; if that doesn't matter, let the reference return .contiguous()",
    ),
    "an input": (
        call(results=(0,)), [EXPECTED], OVERLAP,
        "result 0 is memory of input x, the reference's isn't; if that is meant, the reference must do so, too: "
        "return x.copy_(...)",
    ),
    "not the input": (
        call(results=(2, 2)), [want(input=1)] * 2, OVERLAP,
        "result 0 is not the memory of input y, the reference's is; if that is meant, the reference must be called "
        "with y.clone()",
    ),
    "another input": (
        call(results=(1,)), [want(input=0)], OVERLAP,
        "result 0 is memory of input y, the reference's isn't; if that is meant, the reference must do so, too: "
        "return y.copy_(...)",
    ),
    "the same twice": (call(results=(2, 2)), [EXPECTED] * 2, OVERLAP, "two results are the same memory"),
    "the last and the first": (
        replace(returned(HALF, REST), results=(3, 4, 3)), wanted(HALF, REST, HALF), OVERLAP,
        "two results are the same memory",
    ),
    "a part of the other": (returned(VIEWS[2], REST), wanted(VIEWS[2], REST), OVERLAP, "two results share memory"),
    "one element": (
        returned(HALF, replace(REST, offset_bytes=1196)), wanted(HALF, REST), OVERLAP, "two results share memory",
    ),
    "one element, the other way round": (
        returned(replace(REST, offset_bytes=1196), HALF), wanted(HALF, REST), OVERLAP, "two results share memory",
    ),
    "a single element": (
        returned(replace(HALF, shape=(1,)), HALF), wanted(replace(HALF, shape=(1,)), HALF), OVERLAP,
        "two results share memory",
    ),
    "unwritten": (
        launch(params=(*POINTERS[:2], Param("n", "i32", value=600))), [EXPECTED], Reason.RESULT_UNWRITTEN,
        f"no recorded launch has a pointer to result 0; {TABLES}",
    ),
    "written by a launch without blocks": (
        recording(launches=(replace(LAUNCH, params=POINTERS[:2]), NOT_RUN)), [EXPECTED], Reason.RESULT_UNWRITTEN,
        f"no recorded launch has a pointer to result 0; {TABLES}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results_lie_as_the_references_do(name: str) -> None:
    claimed, expected, reason, told = RESULTS[name]
    found = checked(claimed, CASE, TARGET)
    with pytest.raises(Refusal) as caught:
        check_results(found, CASE, expected)
    assert (caught.value.reason, str(caught.value)) == (reason, told)


EMPTY = replace(HALF, shape=(0,), offset_bytes=600)
NOTHING = replace(VIEWS[0], shape=(0,))
ALLOWED: dict[str, tuple[RecordedCall, list[ExpectedResult]]] = {
    "beside each other": (returned(HALF, REST), wanted(HALF, REST)),
    "beside each other, the last one first": (returned(REST, HALF), wanted(REST, HALF)),
    "nothing within the other": (returned(HALF, EMPTY), wanted(HALF, EMPTY)),
    "the other within nothing": (returned(EMPTY, HALF), wanted(EMPTY, HALF)),
    "nothing twice, beside another": (returned(HALF, EMPTY, EMPTY), wanted(HALF, EMPTY, EMPTY)),
    "nothing of an input": (returned(HALF, NOTHING), wanted(HALF, NOTHING)),
    "one input twice": (call(results=(0, 0)), [want(input=0)] * 2),
    "both inputs": (call(results=(1, 0)), [want(input=1), want(input=0)]),
    "other strides of one element": (
        returned(replace(VIEWS[2], shape=(1, 600), strides=(7, 1))), [want(shape=(1, 600), strides=(600, 1))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_results_that_lie_as_the_references_do_pass(name: str) -> None:
    claimed, expected = ALLOWED[name]
    check_results(checked(claimed, CASE, TARGET), CASE, expected)


@pytest.mark.parametrize(
    ("shape", "strides", "others", "same"),
    [((1, 4), (9, 1), (4, 1), True), ((1, 4), (4, 2), (4, 1), False), ((2, 4), (9, 1), (4, 1), False),
     ((0, 4), (9, 2), (4, 1), True), ((4, 2), (1, 4), (1, 3), False), ((), (), (), True)],
)  # fmt: skip
def test_strides_matter_where_there_is_more_than_one_element(
    shape: tuple[int, ...], strides: tuple[int, ...], others: tuple[int, ...], same: bool
) -> None:
    assert same_strides(View(0, "float32", shape, strides), want(shape=shape, strides=others)) is same


def test_results_in_place_pass_where_the_reference_works_in_place() -> None:
    found = checked(call(results=(0,)), CASE, TARGET)
    check_results(found, CASE, [want(input=0)])


def test_contents_are_the_referees() -> None:
    found = checked(call(constants=(Constant(2, b"c" * 2400),)), CASE, TARGET).contents([b"a" * 2400, b"b" * 2400])
    assert found == (b"a" * 2400, b"b" * 2400, b"c" * 2400)
    assert checked(CALL, CASE, TARGET).contents([bytes(2400)] * 2)[2] is None


def test_a_side_to_replay_has_the_artifacts_that_it_runs(tmp_path: Path) -> None:
    """Binaries, or TTIR; first contents are those that were given, then fills."""
    binary, other = cubin_reading("tid.x", "sm_90a", tmp_path), b"not of a launch"
    shas = [hashlib.sha256(data).hexdigest() for data in (binary, other)]
    claimed = replace(
        recording(binaries=(replace(BINARY, sha256=shas[0]),)), fills=(Fill(2, "float32", 1.5),),
        artifacts={SHA: TTIR.encode(), shas[0]: binary, shas[1]: other},
    )  # fmt: skip
    found = checked(claimed, CASE, TARGET)
    given = [b"a" * 2400, b"b" * 2400]
    side = side_of(found, given, b"poison")
    assert (side.artifacts, side.poison) == ({shas[0]: binary}, b"poison")
    assert side_of(found, given, b"", binaries=False).artifacts == {SHA: TTIR.encode()}
    assert side.contents == (*given, None)
    assert given_contents(side) == [*given, b"\x00\x00\xc0\x3f" * 600]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", *ROUNDOFF])
def test_a_fill_s_bytes_are_torchs(dtype: str) -> None:
    """Rounded to the nearest, of two to the even one."""
    floats = (0.0, 1.0, 0.1, -0.1, 1.0625, 1.1875, -1.1875, 1.125, 3.14159)
    for value in (0, 1, 3, 100, *(floats if dtype in ROUNDOFF else (0.0, 1.0))):
        tensor = torch.full((3,), value, dtype=getattr(torch, dtype)).view(torch.uint8)
        assert filled(Fill(2, dtype, value), len(tensor)) == bytes(tensor.numpy().tobytes()), value


def test_memory_that_is_no_whole_number_of_elements_is_filled_to_its_end() -> None:
    assert filled(Fill(2, "float32", 1.5), 10) == b"\x00\x00\xc0\x3f" * 2 + b"\x00\x00"
    assert filled(Fill(2, "float16", 1e6), 2) == filled(Fill(2, "float16", math.inf), 2) == b"\x00\x7c"


def test_whole_numbers_fill_memory_as_they_are() -> None:
    """The largest int64 is no float64."""
    most = 2**63 - 1
    assert filled(Fill(0, "int64", most), 16) == most.to_bytes(8, "little") * 2


READ = "its answer can't be read"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", f"{READ} (Input data was truncated)"),
        (b"\x91" * 39_000, f"{READ} (Expected `object`, got `array`)"),
        (b"\xc1", f"{READ} (MessagePack data is malformed: invalid opcode '\\xc1' (byte 0))"),
        (encoded({"call": 5}), f"{READ} (Expected `object | null`, got `int` - at `$.call`)"),
        (encoded({"more": 1}), f"{READ} (Object contains unknown field `more`)"),
        (encoded({"y" * 300: 1}), f"{READ} (Object contains unknown field `{'y' * 169})"),
        (
            encoded(RecordAnswer(launch(grid=(-1, 1, 1)))),
            f"{READ} (Expected `int` >= 0 - at `$.call.recording.launches[0].grid[0]`)",
        ),
        (encoded(RecordAnswer(CALL))[:-9], f"{READ} (Input data was truncated)"),
    ],
)
def test_answers_that_are_none_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(Refusal) as caught:
        decoded(data)
    assert (caught.value.reason, str(caught.value)) == (Reason.ANSWER, told)


@pytest.mark.slow
@given(
    recursive(
        none() | booleans() | integers(-(1 << 63), (1 << 64) - 1) | floats() | text() | binary(),
        lambda inner: lists(inner) | dictionaries(text(), inner),
        max_leaves=60,
    )
)
def test_values_are_counted_before_any_is_made(value: Any) -> None:
    """Keys and containers are values, too."""

    def count(one: Any) -> int:
        inside = [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
        return 1 + sum(map(count, inside))

    data, total = encoded(value), count(value)
    assert (has_more_items(data, total), has_more_items(data, total - 1)) == (False, True)


@pytest.mark.parametrize(
    ("more", "count"),
    [(b"\xd4\x01x", 1), (b"\xd8\x01" + b"x" * 16, 1), (b"\xc7\x03\x01xyz", 1), (b"\xc8\x00\x01\x01x", 1),
     (b"\xc9\x00\x00\x00\x01\x01x", 1), (b"\xc6\xff\xff\xff\xff", 1), (b"\xc1\xc0", 2)],
)  # fmt: skip
def test_values_of_a_kind_that_no_message_has_are_counted_as_well(more: bytes, count: int) -> None:
    """Extensions, and what ends too early."""
    assert (has_more_items(more, count), has_more_items(more, count - 1)) == (False, True)


NUMBERS = dict(zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True))
EXTENSIONS = {0xD4 + i: 1 + 2**i for i in range(5)}
COUNTS = dict(zip((0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xD9, 0xDA, 0xDB), (1, 2, 4) * 3, strict=True))
SEQUENCES = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def test_each_kind_of_value_is_passed_over_by_its_length() -> None:
    """MessagePack's specification: a first byte, then as many bytes or so long a count; three values follow."""
    nils = b"\xc0" * 3
    plain = {0x05: 0, 0x85: 0, 0x95: 0, 0xA0: 0, 0xA7: 7, 0xBF: 31, 0xC0: 0, 0xC2: 0, 0xC3: 0, 0xE5: 0}
    for first, size in {**plain, **NUMBERS, **EXTENSIONS, **SEQUENCES}.items():
        data = bytes([first]) + b"\xc0" * size + nils
        assert (has_more_items(data, 4), has_more_items(data, 3)) == (False, True), hex(first)
    for first, size in COUNTS.items():
        kind = b"\xc0" if first in (0xC7, 0xC8, 0xC9) else b""
        data = bytes([first]) + (9).to_bytes(size, "big") + kind + b"\xc0" * 9 + nils
        assert (has_more_items(data, 4), has_more_items(data, 3)) == (False, True), hex(first)


def test_an_answer_of_many_values_is_not_read() -> None:
    with pytest.raises(Refusal, match="more than 1,500,000 values"):
        decoded(b"\x91" * 3_000_000)
    with pytest.raises(Refusal, match="more than 40,000 values"):
        decoded(b"\x91" * 40_001)


def test_a_launch_has_the_name_of_what_is_loaded() -> None:
    claimed = launch(kernel="flash_attention")
    assert [x.kernel for x in checked(claimed, CASE, TARGET).recording.launches] == ["add"]


def test_an_answer_survives_the_way() -> None:
    assert decoded(encoded(RecordAnswer(CALL))).call == CALL
