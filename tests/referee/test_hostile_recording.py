"""Each claim of a recording is bounded, recomputed or ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.recording import Param, Storage, View, Zeros
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


def nested(depth: int) -> Any:
    value: Any = 1
    for i in range(depth - 1):
        value = [{"x": value}, (value,), [value]][i % 3]
    return value


NO_ARTIFACTS = {str(i): b"" for i in range(4097)}


@pytest.mark.parametrize(
    ("make", "most", "what"),
    [
        (lambda n: recording(launches=(LAUNCH,) * n), 2048, "launches"),
        (lambda n: recording(storages=(Storage(1, "float32", Zeros()),) * n), 4096, "storages"),
        (lambda n: recording(views=VIEWS[:1] * n), 16_384, "views"),
        (lambda n: launch(params=(Param("n", "i32", value=1),) * n), 256, "arguments of a launch"),
        (lambda n: call(artifacts=dict(list(NO_ARTIFACTS.items())[:n])), 4096, "artifacts"),
        (lambda n: recording(storages=tuple(Storage(x, "", Zeros()) for x in (-9, 600, n - 600))), 2**32,
         "bytes of memory"),
        (lambda n: recording(binaries=(BINARY,) * n), 2048, "binaries"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_every_count_has_a_limit(make: Callable[[int], RecordedCall], most: int, what: str) -> None:
    bounded = {"inputs": (), "results": ()}
    hostile_recording._bounded(replace(make(most), **bounded))
    with pytest.raises(Refusal) as caught:
        hostile_recording._bounded(replace(make(most + 1), **bounded))
    assert (caught.value.reason, str(caught.value)) == (
        Reason.ANSWER, f"its recording has {most + 1} {what}, more than {most}",
    )  # fmt: skip


def test_options_are_nested_64_times_at_most() -> None:
    hostile_recording._bounded(recording(binaries=(replace(BINARY, options={"x": nested(63)}),)))
    with pytest.raises(Refusal, match=r"^its recording is nested too deeply$"):
        hostile_recording._bounded(recording(binaries=(replace(BINARY, options={"x": nested(64)}),)))


ANSWERS: list[tuple[RecordedCall, str]] = [
    (launch(binary=1), "its recording can't be: launches[0].binary is 1, and there are 1 to choose from"),
    (launch(params=(Param("x", "*fp32", view=9),)),
     "its recording can't be: launches[0].params[0].view is 9, and there are 3 to choose from"),
    (recording(storages=(Storage(-1, "float32", Zeros()),) * 3),
     "its recording can't be: storages[0].nbytes is -1, which can't be"),
    (launch(grid=(-1, 1, 1)), "its recording can't be: launches[0].grid[0] is -1, which can't be"),
    (call(artifacts={SHA: TTIR.encode() + b" "}), "an artifact isn't what its checksum says"),
    (call(inputs=(0,)), "its recording has 1 inputs, 2 were given"),
    (call(inputs=(0, 3)), "its recording has no such view"),
    (call(results=(-1,)), "its recording has no such view"),
    (call(results=(2,) * 257), "it returns 257 tensors"),
    (call(fills=(Fill(3, "float32", 0.0),)), "its recording has no such storage"),
    (call(fills=(Fill(2, "float3", 0.0),)), "memory is filled as float3, which isn't known here"),
    (call(fills=(Fill(0, "float32", 0.0),)), "its recording gives a storage two contents"),
    (call(fills=(Fill(2, "float32", 0.0), Fill(2, "float32", 1.0))), "its recording gives a storage two contents"),
    (call(constants=(Constant(2, bytes(5)),)), "a constant has another size than its memory"),
    (call(constants=(Constant(1, bytes(2400)),)), "its recording gives a storage two contents"),
    (call(constants=(Constant(-1, bytes(2400)),)), "its recording has no such storage"),
    (call(unknown=(3,)), "its recording has no such storage"),
    (view(2, offset_bytes=4), "a view reaches outside of its memory"),
    (view(2, strides=(-1,)), "a view reaches outside of its memory"),
    (view(2, shape=(601,)), "a view reaches outside of its memory"),
    (view(2, dtype="complex64"), "memory is viewed as complex64, which isn't known here"),
    (view(2, strides=(1, 1)), "its recording can't be: views[2].strides are 2, and there are 1 sizes"),
    (recording(target=Target.parse("cuda:80")), "it was recorded for cuda:80, not for cuda:90"),
]  # fmt: skip


@pytest.mark.parametrize(("claimed", "told"), ANSWERS, ids=[told for _, told in ANSWERS])
def test_what_cannot_be_is_refused(claimed: RecordedCall, told: str) -> None:
    with pytest.raises(Refusal) as caught:
        checked(claimed, CASE, TARGET)
    assert (caught.value.reason, str(caught.value)) == (Reason.ANSWER, told)


def test_256_results_are_read_and_a_view_of_nothing_reaches_nowhere() -> None:
    assert len(checked(call(results=(2,) * 256), CASE, TARGET).results) == 256
    checked(view(2, shape=(0, 3), strides=(-9, 9), offset_bytes=9999), CASE, TARGET)


REASONS: list[tuple[RecordedCall, Reason, str]] = [
    (call(operators=(*"abcdefgh", "aten.mm")), Reason.OPERATOR,
     "torch's a, b, c, d, e, f, g, h run beside the kernels and can't be replayed"),
    (launch(params=(*POINTERS, Param("n", "i64", value=1 << 47))), Reason.ADDRESSES,
     "add.n is a number that may be an address"),
    (launch(params=(*POINTERS, Param("n", "i64", value=-(1 << 47)))), Reason.ADDRESSES,
     "add.n is a number that may be an address"),
    (launch(grid=(0, 1, 1)), Reason.NO_LAUNCH, "no launch has any block"),
    (recording(launches=()), Reason.NO_LAUNCH, "no launch has any block"),
    (call(unknown=(2,)), Reason.MEMORY,
     "kernels use memory that was made before the call, by what isn't known: 2,400 bytes"),
    (view(0, shape=(300,), strides=(2,)), Reason.INPUT_LAYOUT, "input x lies there as float32[300] with strides [2]"),
    (view(0, dtype="int32"), Reason.INPUT_LAYOUT, "input x lies there as int32[600] with strides [1]"),
    (view(1, shape=(1,) * 9, strides=(7,) * 9), Reason.INPUT_LAYOUT,
     f"input y lies there as float32{[1] * 8} with strides {[7] * 8}"),
    (recording(storages=(Storage(4800, "float32", Zeros()), *RECORDING.storages[1:])), Reason.INPUT_LAYOUT,
     "input x lies there as float32[600] with strides [1]"),
    (call(inputs=(0, 0)), Reason.INPUT_LAYOUT, "input y shares its memory with another input"),
]  # fmt: skip


@pytest.mark.parametrize(("claimed", "reason", "told"), REASONS, ids=[told for _, _, told in REASONS])
def test_other_refusals_have_their_reasons(claimed: RecordedCall, reason: Reason, told: str) -> None:
    with pytest.raises(Refusal) as caught:
        checked(claimed, CASE, TARGET)
    assert (caught.value.reason, str(caught.value)) == (reason, told)


def test_memory_that_is_not_known_is_told_by_its_sizes_if_a_launch_uses_it() -> None:
    """Of four storages at most; inputs that no launch reaches needn't be found."""
    checked(replace(launch(params=POINTERS[:2]), unknown=(2,)), CASE, TARGET)
    storages, views = (
        (Storage(1200, "float32", Zeros()),) * 6,
        tuple(View(i, "float32", (300,), (1,)) for i in range(6)),
    )
    many = recording(
        storages=storages, views=views,
        launches=(replace(LAUNCH, params=tuple(Param("x", "*fp32", view=i) for i in range(6))),),
    )  # fmt: skip
    with pytest.raises(Refusal, match=r"isn't known: 1,200 bytes(, 1,200 bytes){3}$"):
        checked(replace(many, unknown=tuple(range(6)), inputs=(None, None)), CASE, TARGET)


def test_a_large_number_that_was_given_is_no_address() -> None:
    from kerntune.referee.declared_inputs import parse_line

    given = parse_line(f"x: f32[600]; y: f32[600]; seed = {1 << 47}")
    checked(launch(params=(*POINTERS, Param("n", "i64", value=1 << 47))), given, TARGET)


def want(**parts: Any) -> ExpectedResult:
    return replace(EXPECTED, **parts)


RESULTS: list[tuple[RecordedCall, list[ExpectedResult], Reason | None, str]] = [
    (CALL, [EXPECTED, EXPECTED], Reason.RESULT_COUNT, "it returns 1 tensors, the reference 2"),
    (call(results=()), [EXPECTED], Reason.RESULT_COUNT, "it returns 0 tensors, the reference 1"),
    (CALL, [want(shape=(300,))], Reason.RESULT_LAYOUT,
     "result 0 is float32[600] with strides [1], the reference's float32[300] with strides [1]"),
    (CALL, [want(dtype="float16")], Reason.RESULT_LAYOUT,
     "result 0 is float32[600] with strides [1], the reference's float16[600] with strides [1]"),
    (view(2, strides=(0,)), [EXPECTED], Reason.RESULT_LAYOUT,
     "result 0 is float32[600] with strides [0], the reference's float32[600] with strides [1]"),
    (call(results=(0,)), [EXPECTED], Reason.RESULT_OVERLAP, "result 0 is memory of an input, the reference's isn't"),
    (CALL, [want(input=0)], Reason.RESULT_OVERLAP, "result 0 is not the memory of input x, the reference's is"),
    (CALL, [want(input=1)], Reason.RESULT_OVERLAP, "result 0 is not the memory of input y, the reference's is"),
    (call(results=(1,)), [want(input=0)], Reason.RESULT_OVERLAP,
     "result 0 is memory of an input, the reference's isn't"),
    (call(results=(2, 2)), [EXPECTED, EXPECTED], Reason.RESULT_OVERLAP, "two results are the same memory"),
    (call(results=(0, 0)), [want(input=0), want()], Reason.RESULT_OVERLAP,
     "result 1 is memory of an input, the reference's isn't"),
    (launch(params=(*POINTERS[:2], Param("n", "i32", value=600))), [EXPECTED], Reason.RESULT_UNWRITTEN,
     "no recorded launch has a pointer to result 0"),
    (recording(launches=(LAUNCH, replace(LAUNCH, params=POINTERS[:2])), views=VIEWS), [EXPECTED], None, ""),
    (recording(launches=(replace(LAUNCH, grid=(3, 0, 1)), replace(LAUNCH, params=POINTERS[:2]))), [EXPECTED],
     Reason.RESULT_UNWRITTEN, "no recorded launch has a pointer to result 0"),
    (call(results=(0, 0)), [want(input=0)] * 2, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("claimed", "expected", "reason", "told"), RESULTS, ids=[row[3] or "right" for row in RESULTS])
def test_results_lie_as_the_references_do(
    claimed: RecordedCall, expected: list[ExpectedResult], reason: Reason | None, told: str
) -> None:
    found = checked(claimed, CASE, TARGET)
    if reason is None:
        check_results(found, CASE, expected)
        return
    with pytest.raises(Refusal) as caught:
        check_results(found, CASE, expected)
    assert (caught.value.reason, str(caught.value)) == (reason, told)


@pytest.mark.parametrize(
    ("shape", "strides", "same"), [((2, 3), (3, 1), True), ((1, 3), (9, 1), True), ((2, 3), (3, 2), False),
                                   ((2, 1), (4, 1), False), ((0, 3), (7, 7), True)],
)  # fmt: skip
def test_strides_count_along_more_than_one_element(shape: Any, strides: Any, same: bool) -> None:
    has = View(0, "float32", shape, strides)
    assert hostile_recording.same_strides(has, want(shape=shape, strides=(3, 1))) is same


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "reach"),
    [((600,), (1,), 0, (0, 2400)), ((2, 3), (3, 1), 8, (8, 32)), ((2, 3), (-3, 1), 12, (0, 24)),
     ((2, 3), (3, -1), 8, (0, 24)), ((5, 1), (0, 99), 4, (4, 8)), ((), (), 4, (4, 8))],
)  # fmt: skip
def test_a_view_reaches_from_its_first_byte_to_its_last(shape: Any, strides: Any, offset: int, reach: Any) -> None:
    assert hostile_recording.extent(View(0, "float32", shape, strides, offset)) == reach


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
    empty = recording(views=(*VIEWS, replace(VIEWS[2], shape=(0,), offset_bytes=4)))
    check_results(checked(replace(empty, results=(2, 3)), CASE, TARGET), CASE, [EXPECTED, want(shape=(0,))])


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
