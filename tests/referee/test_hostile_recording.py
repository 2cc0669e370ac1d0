"""Each claim of a recording is bounded, recomputed or ignored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.recording import Param, Storage, Zeros
from kerntune.referee import hostile_recording
from kerntune.referee.hostile_recording import check_outlines, check_results, checked, decoded, filled
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import Constant, ExpectedResult, ExpectedSeed, Fill, RecordAnswer, RecordedCall, encoded
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


def test_another_structure_than_the_references_is_refused() -> None:
    """At any seed: a number that the reference returns may differ from seed to seed."""
    call = checked(replace(CALL, outline="{'sum': tensor}"), CASE, TARGET)
    seeds = [ExpectedSeed((), (), (), outline) for outline in ("{'sum': tensor}", "{'total': tensor}")]
    check_outlines(call, seeds[:1])
    with pytest.raises(Refusal, match=r"^it returns \{'sum': tensor\}, the reference \{'total': tensor\}$") as raised:
        check_outlines(call, seeds)
    assert raised.value.reason is Reason.RESULT_COUNT


def test_what_is_claimed_of_reads_sources_and_configs_is_ignored() -> None:
    claimed = launch(reads=(), writes=(0,), source="x" * 64, float_atomics=True)
    assert checked(claimed, CASE, TARGET) == checked(CALL, CASE, TARGET)
    hidden = recording(hidden_pointers=True, choices={"a": "b"})
    assert checked(hidden, CASE, TARGET) == checked(CALL, CASE, TARGET)


def many(count: int) -> RecordedCall:
    return recording(launches=(LAUNCH,) * count)


DEEP: Any = 1
for _ in range(100):
    DEEP = {"x": DEEP}

ANSWERS: dict[str, RecordedCall] = {
    "launches": many(2048 + 1),
    "storages": recording(storages=RECORDING.storages * 2000),
    "views": recording(views=VIEWS * 6000),
    "arguments": launch(params=(*POINTERS, *[Param("n", "i32", value=1)] * 300)),
    "memory": recording(storages=(Storage(hostile_recording.MOST_MEMORY, "float32", Zeros()),) * 3),
    "depth": recording(binaries=(replace(BINARY, options={"x": DEEP}),)),
    "index of a binary": launch(binary=1),
    "index of a view": launch(params=(Param("x", "*fp32", view=9),)),
    "negative size": recording(storages=(Storage(-1, "float32", Zeros()),) * 3),
    "grid": launch(grid=(-1, 1, 1)),
    "artifact": call(artifacts={SHA: TTIR.encode() + b" "}),
    "number of inputs": call(inputs=(0,)),
    "input's index": call(inputs=(0, 7)),
    "result's index": call(results=(-1,)),
    "number of results": call(results=(2,) * 300),
    "fill's storage": call(fills=(Fill(9, "float32", 0.0),)),
    "fill's dtype": call(fills=(Fill(2, "float3", 0.0),)),
    "fill of an input": call(fills=(Fill(0, "float32", 0.0),)),
    "two contents": call(fills=(Fill(2, "float32", 0.0), Fill(2, "float32", 1.0))),
    "constant's size": call(constants=(Constant(2, bytes(5)),)),
    "constant of an input": call(constants=(Constant(1, bytes(2400)),)),
    "unknown storage": call(unknown=(5,)),
    "view outside": view(2, offset_bytes=4),
    "view before": view(2, strides=(-1,)),
    "view too long": view(2, shape=(601,)),
    "view's dtype": view(2, dtype="complex64"),
    "strides": view(2, strides=(1, 1)),
    "target": recording(target=Target.parse("cuda:80")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        checked(ANSWERS[name], CASE, TARGET)
    assert caught.value.reason is Reason.ANSWER


REASONS: dict[str, tuple[RecordedCall, Reason]] = {
    "operators": (call(operators=("aten.mm",)), Reason.OPERATOR),
    "an address": (launch(params=(*POINTERS, Param("n", "i64", value=1 << 47))), Reason.ADDRESSES),
    "nothing runs": (launch(grid=(0, 1, 1)), Reason.NO_LAUNCH),
    "no launch": (recording(launches=()), Reason.NO_LAUNCH),
    "unknown memory": (call(unknown=(2,)), Reason.MEMORY),
    "an input's layout": (view(0, shape=(300,), strides=(2,)), Reason.INPUT_LAYOUT),
    "an input's dtype": (view(0, dtype="int32"), Reason.INPUT_LAYOUT),
    "an input in larger memory": (
        recording(storages=(Storage(4800, "float32", Zeros()), *RECORDING.storages[1:])), Reason.INPUT_LAYOUT,
    ),
    "two inputs in one memory": (call(inputs=(0, 0)), Reason.INPUT_LAYOUT),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_other_refusals_have_their_reasons(name: str) -> None:
    claimed, reason = REASONS[name]
    with pytest.raises(Refusal) as caught:
        checked(claimed, CASE, TARGET)
    assert caught.value.reason is reason


def test_a_large_number_that_was_given_is_no_address() -> None:
    from kerntune.referee.declared_inputs import parse_line

    given = parse_line(f"x: f32[600]; y: f32[600]; seed = {1 << 47}")
    checked(launch(params=(*POINTERS, Param("n", "i64", value=1 << 47))), given, TARGET)


def want(**parts: Any) -> ExpectedResult:
    return replace(EXPECTED, **parts)


RESULTS: dict[str, tuple[RecordedCall, list[ExpectedResult], Reason]] = {
    "count": (CALL, [EXPECTED, EXPECTED], Reason.RESULT_COUNT),
    "none": (call(results=()), [EXPECTED], Reason.RESULT_COUNT),
    "shape": (CALL, [want(shape=(300,))], Reason.RESULT_LAYOUT),
    "dtype": (CALL, [want(dtype="float16")], Reason.RESULT_LAYOUT),
    "strides": (view(2, strides=(0,)), [EXPECTED], Reason.RESULT_LAYOUT),
    "an input": (call(results=(0,)), [EXPECTED], Reason.RESULT_OVERLAP),
    "not the input": (CALL, [want(input=0)], Reason.RESULT_OVERLAP),
    "another input": (call(results=(1,)), [want(input=0)], Reason.RESULT_OVERLAP),
    "the same twice": (call(results=(2, 2)), [EXPECTED, EXPECTED], Reason.RESULT_OVERLAP),
    "unwritten": (launch(params=(*POINTERS[:2], Param("n", "i32", value=600))), [EXPECTED], Reason.RESULT_UNWRITTEN),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_lie_as_the_references_do(name: str) -> None:
    claimed, expected, reason = RESULTS[name]
    found = checked(claimed, CASE, TARGET)
    with pytest.raises(Refusal) as caught:
        check_results(found, CASE, expected)
    assert caught.value.reason is reason


def test_overlapping_results_are_refused() -> None:
    two = recording(views=(*VIEWS, replace(VIEWS[2], shape=(300,)), replace(VIEWS[2], shape=(300,), offset_bytes=1196)))
    found = checked(replace(two, results=(3, 4)), CASE, TARGET)
    half = want(shape=(300,))
    with pytest.raises(Refusal, match="share memory"):
        check_results(found, CASE, [half, half])
    apart = recording(
        views=(*VIEWS, replace(VIEWS[2], shape=(300,)), replace(VIEWS[2], shape=(300,), offset_bytes=1200))
    )
    check_results(checked(replace(apart, results=(3, 4)), CASE, TARGET), CASE, [half, half])


def test_results_in_place_pass_where_the_reference_works_in_place() -> None:
    found = checked(call(results=(0,)), CASE, TARGET)
    check_results(found, CASE, [want(input=0)])


def test_contents_are_the_referees() -> None:
    found = checked(call(constants=(Constant(2, b"c" * 2400),)), CASE, TARGET).contents([b"a" * 2400, b"b" * 2400])
    assert found == (b"a" * 2400, b"b" * 2400, b"c" * 2400)
    assert checked(CALL, CASE, TARGET).contents([bytes(2400)] * 2)[2] is None
    assert filled(Fill(2, "float32", 1.5), 10) == b"\x00\x00\xc0\x3f" * 2 + b"\x00\x00"
    assert filled(Fill(2, "int64", 3.0), 8) == b"\x03" + bytes(7)
    assert filled(Fill(2, "float8_e5m2", 1.0), 2) == b"\x3c\x3c"


@pytest.mark.parametrize(
    "data",
    [b"", b"\x91" * 50_000, b"\xc1", msgspec.msgpack.encode({"call": 5}), msgspec.msgpack.encode({"more": 1}),
     encoded(RecordAnswer(CALL))[:-9]],
)  # fmt: skip
def test_answers_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        decoded(data)
    assert caught.value.reason is Reason.ANSWER


def test_an_answer_survives_the_way() -> None:
    assert decoded(encoded(RecordAnswer(CALL))).call == CALL


def test_whole_numbers_fill_memory_as_they_are() -> None:
    """The largest int64 is no float64."""
    most = 2**63 - 1
    assert filled(Fill(0, "int64", most), 16) == most.to_bytes(8, "little") * 2
    assert filled(Fill(0, "float32", 1), 4) == filled(Fill(0, "float32", 1.0), 4) == b"\0\0\x80\x3f"
