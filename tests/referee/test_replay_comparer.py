"""What a candidate leaves on contents that are drawn: many of them where results are few."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from kerntune.referee import replayed_outputs
from kerntune.referee.declared_inputs import parse_line
from kerntune.referee.hostile_recording import checked, side_of
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.replay_comparer import ReplayComparer, many_contents
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import (
    CallRefused,
    ExpectedResult,
    ExpectedSeed,
    ReplayAnswer,
    ReplayTask,
    UserCallable,
    Variation,
    encoded,
)
from kerntune.referee.timed_contents import in_a_row, places
from tests.referee.recordings import CALL, CASE, TARGET

CHECKED = checked(CALL, CASE, TARGET)
POISON = b"\xf1\x7f" * 4
GIVEN = [np.random.default_rng(i).standard_normal((2, 600)).astype("<f4") for i in range(3)]


def result(*shape: int) -> ExpectedResult:
    return ExpectedResult("float32", shape, (1,) * len(shape), b"")


# replays in the emulator


def replayed(task: ReplayTask) -> list[np.ndarray]:
    answer = replayed_outputs.replayed(task)
    assert answer.refused is None
    return [np.frombuffer(c or b"", "<f4") for c in answer.contents]


def test_a_process_replays_several_contents_one_after_the_other() -> None:
    variation = Variation((0, 1), (4, 4), whole=True)
    side = side_of(CHECKED, [x.tobytes() for x in GIVEN[0]], POISON, binaries=False)
    side = in_a_row(side, CHECKED, [[x.tobytes() for x in one] for one in GIVEN], variation)
    assert [len(c or b"") for c in side.contents] == [7200, 7200, 0]
    found = replayed(ReplayTask(side, (2,), 30.0, variation=variation, rolls=places(CHECKED, variation, 3)))
    assert [list(o) for o in found] == [list(x + y) for x, y in GIVEN]


def test_a_content_may_be_rolled() -> None:
    x, y = GIVEN[0]
    side = side_of(CHECKED, [x.tobytes(), y.tobytes()], POISON, binaries=False)
    (found,) = replayed(ReplayTask(side, (2,), 30.0, variation=Variation((0,), (4,)), rolls=((400,),)))
    assert list(found) == list(np.roll(x, -100) + y)


# how many


@pytest.mark.parametrize(
    ("line", "shapes", "count"),
    [
        ("x: f32[1000]", [(1,)], 255),
        ("x: f32[1000]", [(64,)], 0),
        ("x: f32[1000]", [(63,)], 255),
        ("x: f32[1000]", [(1000,), (3, 7)], 255),
        ("x: f32[1000]", [(0, 4)], 0),
        ("x: f32[8192]; y: f32[8192]", [(1,)], 64),
        ("x: f32[1048577]", [(1,)], 0),
    ],
)
def test_contents_are_many_where_results_are_few_and_inputs_small(line: str, shapes: list[Any], count: int) -> None:
    case, first = parse_line(line), ExpectedSeed((), tuple(result(*shape) for shape in shapes))
    assert many_contents(case, first) == count
    changed = replace(first, results=(), changed=(None, *first.results))
    assert many_contents(case, changed) == count


def test_the_authors_contents_are_few() -> None:
    case = parse_line("x: f32[1000]")
    author = replace(case, tensors=tuple(replace(t, content="author") for t in case.tensors))
    assert [c.made_by_author for c in (case, author, replace(case, given={"n": 1}))] == [False, True, True]
    assert many_contents(author, ExpectedSeed((), (result(1),))) == 0


# answers


class Says:
    """A process that answers one thing."""

    def __init__(self, answer: ReplayAnswer) -> None:
        self.answer = answer

    def ask(self, *args: Any) -> Answered:
        return Answered(encoded(self.answer), SealedEnd(), "")


RIGHT = (bytes(2400),) * 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ReplayAnswer(RIGHT), None),
        (ReplayAnswer((None, *RIGHT[1:])), None),
        (ReplayAnswer(RIGHT[1:]), Reason.ANSWER),
        (ReplayAnswer((bytes(2401), *RIGHT[1:])), Reason.ANSWER),
        (ReplayAnswer(RIGHT, outside=1), Reason.OUTSIDE),
        (ReplayAnswer(refused=CallRefused("fault", "no")), Reason.FAULT),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: ReplayAnswer, reason: Reason | None) -> None:
    comparer = ReplayComparer(Says(answer), UserCallable("r.py", "f", FUNCTION), False, 1.0)  # type: ignore[arg-type]
    given = [x.tobytes() for x in GIVEN[0]]
    if reason is None:
        found = comparer._replayed(CHECKED, given, POISON, 0.0)
        assert found == msgspec.msgpack.decode(encoded(answer), type=ReplayAnswer)
        return
    with pytest.raises(Refusal) as caught:
        comparer._replayed(CHECKED, given, POISON, 0.0)
    assert caught.value.reason is reason


def test_the_emulator_begins_no_execution_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many contents those that are done count."""
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(replayed_outputs, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    variation = Variation((0, 1), (4, 4), whole=True)
    inputs = [[x.tobytes() for x in one] for one in GIVEN]
    side = in_a_row(side_of(CHECKED, inputs[0], POISON, binaries=False), CHECKED, inputs, variation)
    for seconds, done in ((4.0, 1), (12.0, 2), (1000.0, 3)):
        clock = iter(range(0, 1000, 3))
        task = ReplayTask(side, (2,), seconds, variation=variation, rolls=places(CHECKED, variation, 3))
        assert len(replayed(task)) == done


@pytest.mark.parametrize("contents", [(), (b"",)])
def test_a_call_may_leave_nothing_that_is_looked_at(contents: tuple[bytes, ...]) -> None:
    """Its launches reach neither a result nor an input."""
    call = replace(CHECKED, inputs=(None, None), results=())
    assert call.wanted == ()
    comparer = ReplayComparer(Says(ReplayAnswer(contents)), UserCallable("r.py", "f", FUNCTION), False, 1.0)  # type: ignore[arg-type]
    given = [x.tobytes() for x in GIVEN[0]]
    if not contents:
        assert comparer._replayed(call, given, POISON, 0.0).contents == ()
        return
    with pytest.raises(Refusal, match="other sizes"):
        comparer._replayed(call, given, POISON, 0.0)


@pytest.mark.parametrize("parts", [0, 1, 2, 3])
def test_many_contents_may_be_answered_in_part(parts: int) -> None:
    comparer = ReplayComparer(Says(ReplayAnswer(RIGHT * parts)), UserCallable("r.py", "f", FUNCTION), False, 1.0)  # type: ignore[arg-type]
    side = side_of(CHECKED, [x.tobytes() for x in GIVEN[0]], POISON)
    if parts in (1, 2):
        assert len(comparer._answer(side, CHECKED, 0.0, Variation(), ((), ())).contents) == 3 * parts
        return
    with pytest.raises(Refusal, match="other sizes"):
        comparer._answer(side, CHECKED, 0.0, Variation(), ((), ()))


@pytest.mark.parametrize("done", [1, 3])
def test_extreme_contents_that_are_not_all_replayed_in_time_are_refused(done: int) -> None:
    says, inputs = Says(ReplayAnswer(RIGHT * done)), [[x.tobytes() for x in one] for one in GIVEN]
    comparer = ReplayComparer(says, UserCallable("r.py", "f", FUNCTION), True, 1.0)  # type: ignore[arg-type]
    each = [(given, POISON, 0.0) for given in inputs]
    if done == 3:
        assert [one.contents for one in comparer._replayed_in_a_row(CASE, CHECKED, each)] == [RIGHT] * 3
        return
    with pytest.raises(Refusal, match="2 of 3 extreme contents were not replayed") as caught:
        comparer._replayed_in_a_row(CASE, CHECKED, each)
    assert caught.value.reason is Reason.REPLAY_LATE
