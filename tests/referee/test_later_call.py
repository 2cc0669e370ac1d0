"""A later call behind the first: what it may do, and what lies in its memory."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from kerntune.base.recording import Storage, View, Zeros
from kerntune.referee.hostile_recording import CheckedCall, checked
from kerntune.referee.later_call import behind, check_later_results, with_later
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import ExpectedSeed, Fill, RecordedCall
from kerntune.referee.torch_operators import TorchOperator, ViewAt
from tests.referee.recordings import (
    BINARY,
    CALL,
    CASE,
    EXPECTED,
    LAUNCH,
    RECORDING,
    SHA,
    TARGET,
    TTIR,
    VIEWS,
    recording,
    twice,
)


def later(again: RecordedCall | None, call: RecordedCall = CALL) -> CheckedCall:
    return with_later(checked(call, CASE, TARGET), again, CASE, TARGET)


def test_a_later_call_has_the_artifacts_of_the_first_and_its_own() -> None:
    found = later(twice()).again
    assert found is not None
    assert (found.artifacts, found.inputs) == (CALL.artifacts, (3, 4))
    found = later(twice(artifacts=CALL.artifacts), CALL).again
    assert found is not None


ADD = TorchOperator(0, "add.out", (ViewAt(3), ViewAt(4)), {"out": ViewAt(5)})
EXCHANGED = tuple(TorchOperator(1, "copy_.default", (ViewAt(i + 3), ViewAt(i))) for i in range(2))


@pytest.mark.parametrize(
    ("again", "reason", "told"),
    [
        (twice(results=(2,)), Reason.RESULT_OVERLAP, "result 0 of a later call is memory that the first has returned"),
        (twice(unreplayed=("aten.rand",)), Reason.OPERATOR, "in a later call: torch's aten.rand computes"),
        (twice(results=(99,)), Reason.ANSWER, "in a later call: its recording has no such view"),
        (None, Reason.ANSWER, "it was recorded once"),
        (
            replace(twice(), recording=replace(twice().recording, launches=twice().recording.launches[1:] * 4)),
            Reason.LATER_CALL, "2 later calls have 3 launches, the first one, which is timed, 1",
        ),
        (twice(operators=(ADD,) * 7), Reason.LATER_CALL, "2 later calls have 7 operators, the first one"),
        (
            twice(fills=tuple(Fill(i, "float32", 0) for i in (2, 5)), operators=(ADD,) * 5),
            Reason.LATER_CALL, "2 later calls have 7",
        ),
        (
            replace(twice(), recording=replace(twice().recording, launches=(LAUNCH, LAUNCH))),
            Reason.LATER_CALL, "a later call uses an input or a result of the first",
        ),
        (
            twice(operators=(replace(ADD, before=1, args=(ViewAt(3), ViewAt(2))),)),
            Reason.LATER_CALL, "a later call uses an input or a result of the first",
        ),
        (
            twice(operators=(TorchOperator(1, "copy_.default", (ViewAt(2),)),)),
            Reason.LATER_CALL, "a later call uses an input or a result of the first",
        ),
    ],
)  # fmt: skip
def test_a_later_call_may_be_refused(again: RecordedCall | None, reason: Reason, told: str) -> None:
    with pytest.raises(Refusal, match=f"^{told}") as raised:
        later(again)
    assert raised.value.reason is reason


def _second(**parts: Any) -> RecordedCall:
    both = twice()
    first, second = both.recording.launches
    return replace(both, recording=replace(both.recording, launches=(first, replace(second, **parts))))


def test_a_later_call_launches_what_the_first_does() -> None:
    """The first one's kernels, with its options and its grid; seeds may be others, and multiples of 16."""
    told = "^later calls launch add otherwise than the first, which is timed: with other constants"
    with pytest.raises(Refusal, match=told) as raised:
        later(_second(grid=(4, 1, 1)))
    assert raised.value.reason is Reason.LATER_CALL
    warped = _second(binary=1)
    binaries = (BINARY, replace(BINARY, num_warps=8))
    with pytest.raises(Refusal, match=told):
        later(replace(warped, recording=replace(warped.recording, binaries=binaries)))
    for before, after, same in (
        ("%n: i32)", "%n: i32 {tt.divisibility = 16 : i32})", True),
        ("256 : i32\n    %pid", "128 : i32\n    %pid", False),
    ):
        text = TTIR.replace(before, after).encode()
        sha = hashlib.sha256(text).hexdigest()
        binaries = (BINARY, replace(BINARY, ttir_sha256=sha))
        again = replace(warped, recording=replace(warped.recording, binaries=binaries), artifacts={sha: text})
        with contextlib.nullcontext() if same else pytest.raises(Refusal, match=told):
            later(again)


def test_a_later_call_may_use_the_first_call_s_own_numbers_of_a_model() -> None:
    """A model keeps its own, which other numbers are copied to."""
    again = twice()
    params = again.recording.launches[1].params
    launches = (LAUNCH, replace(again.recording.launches[1], params=(LAUNCH.params[0], *params[1:])))
    shared = replace(again, recording=replace(again.recording, launches=launches))
    with pytest.raises(Refusal, match="a later call uses an input or a result of the first"):
        later(shared)
    case = replace(CASE, parameters={"w": 0})
    assert with_later(checked(CALL, case, TARGET), shared, case, TARGET).again is not None


def test_memory_of_later_calls_is_as_much_as_the_firsts() -> None:
    both = twice()
    large = (*both.recording.storages, Storage(3 * sum(s.nbytes for s in RECORDING.storages), "float32", Zeros()))
    with pytest.raises(Refusal, match=r"2 later calls have .* bytes of memory"):
        later(replace(both, recording=replace(both.recording, storages=large)))


def test_what_the_recorder_exchanges_between_calls_counts_as_none_of_theirs() -> None:
    assert later(twice(operators=(*EXCHANGED, *(replace(ADD, before=1),) * 4))).again is not None


def test_both_calls_may_return_an_input_or_nothing() -> None:
    """The reference is asked whether a result is an input."""
    assert later(twice(results=(0,)), replace(CALL, results=(0,))).again is not None
    empty = (*RECORDING.storages, Storage(0, "float32", Zeros()))
    views = (*VIEWS, View(3, "float32", (0,), (1,)))
    first = replace(recording(storages=empty, views=views), results=(3,))
    both = twice(results=(6,))
    more = replace(
        both.recording,
        storages=(*both.recording.storages, empty[-1]),
        views=(*both.recording.views, replace(views[-1], storage=6)),
    )
    assert later(replace(both, recording=more), first).again is not None


def test_a_later_call_returns_what_the_reference_does() -> None:
    seeds = [ExpectedSeed((), (EXPECTED,))]
    check_later_results(checked(CALL, CASE, TARGET), CASE, [])
    check_later_results(later(twice()), CASE, seeds)
    for parts, reason in (({"outline": "None"}, Reason.RESULT_COUNT), ({"results": ()}, Reason.RESULT_COUNT)):
        with pytest.raises(Refusal, match=r"^in a later call: ") as raised:
            check_later_results(later(twice(**parts)), CASE, seeds)
        assert raised.value.reason is reason


def test_inputs_of_the_first_call_hold_what_it_was_given() -> None:
    call, (x, y) = later(twice()), (bytes(s.nbytes) for s in RECORDING.storages[:2])
    found = behind(call, (x, y))
    assert [(c.storage, c.data) for c in found.constants] == [(0, x), (1, y)]
    assert behind(call, (x, y[:-1])).constants == found.constants[:1]
    assert (found.inputs, SHA in found.artifacts or TTIR in found.artifacts.values()) == ((3, 4), True)
