"""What a replay in the emulator answers where it fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.msgpack import encode as encoded

from kerntune.base.recording import View
from kerntune.errors import BackendError, InterpreterLimit, KernelFault, KernelTimeout
from kerntune.referee import gpu_replay, replayed_outputs
from kerntune.referee.hostile_recording import checked, side_of
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import CallRefused, ReplayAnswer, ReplayTask
from kerntune.referee.torch_operators import TorchOperator, ViewAt
from tests.referee.recordings import CALL, CASE, LAUNCH, RECORDING, SHA, TARGET, VIEWS

CHECKED = checked(CALL, CASE, TARGET)
SIDE = side_of(CHECKED, [bytes(2400), bytes(2400)], b"12345678", binaries=False)


def task(**parts: Any) -> ReplayTask:
    return msgspec.structs.replace(ReplayTask(SIDE, (2,), 30.0), **parts)


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (KernelFault("a race"), Reason.FAULT, "a race"),
        (KernelTimeout("too long"), Reason.REPLAY_LATE, "too long; --budget gives it more"),
        (InterpreterLimit("can't be"), Reason.EMULATOR, "can't be"), (BackendError("no"), Reason.EMULATOR, "no"),
        (ValueError("odd"), Reason.EMULATOR, "ValueError: odd"),
        (KernelFault("x" * 1001), Reason.FAULT, "x" * 1000),
    ],
)  # fmt: skip
def test_failures_are_answers(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: Reason, text: str) -> None:
    def fail(*words: Any) -> Any:
        raise error

    monkeypatch.setattr(replayed_outputs, "replay_results", fail)
    assert replayed_outputs.replayed(task()) == ReplayAnswer(refused=CallRefused(reason.value, text))


def test_ttir_that_is_no_text_is_a_wrong_answer() -> None:
    side = msgspec.structs.replace(SIDE, artifacts={SHA: b"\xff"})
    found = replayed_outputs.replayed(task(side=side))
    assert found.refused == CallRefused(Reason.ANSWER.value, "a kernel's TTIR is no text")


def test_what_stayed_as_it_was_given_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """And bytes beside all storages are counted over all contents."""
    left = [bytes(2400), b"1" * 2400, b"2" * 2400]
    found = SimpleNamespace(contents=left, outside=3)
    asked: list[Any] = []
    monkeypatch.setattr(replayed_outputs, "replay_results", lambda *words: asked.append(words) or found)
    answer = replayed_outputs.replayed(task(wanted=(2, 0, 1), rolls=((), ())))
    assert answer.contents == (left[2], None, left[1], left[2], None, left[1])
    assert (answer.outside, answer.repeatable, answer.refused) == (6, True, None)
    (recording, ttir, contents, poison, seconds, _), _ = asked
    assert (recording, ttir) == (SIDE.recording, {SHA: CALL.artifacts[SHA].decode()})
    assert (contents, poison) == ([bytes(2400), bytes(2400), None], b"12345678")
    assert 29.0 < seconds <= 30.0


@pytest.mark.parametrize(("numbers", "restored"), [((1, 2, -3), (0,)), ((1, 2, 3), ()), ((0, 0, 2), ())])
def test_what_was_others_between_launches_is_told(numbers: tuple[float, ...], restored: tuple[int, ...]) -> None:
    """Each launch adds a number to the first storage."""
    replace, launches = msgspec.structs.replace, []
    for i in range(3):
        pointers = (replace(p, view=v) for p, v in zip(LAUNCH.params[:3], (0, 1 + i, 0), strict=True))
        launches.append(replace(LAUNCH, params=(*pointers, LAUNCH.params[3])))
    views, storages = (replace(VIEWS[0], storage=i) for i in range(4)), RECORDING.storages[:1] * 4
    of = replace(RECORDING, launches=tuple(launches), views=tuple(views), storages=storages)
    contents = (bytes(2400), *(np.full(600, n, "f4").tobytes() for n in numbers))
    answer = replayed_outputs.replayed(ReplayTask(replace(SIDE, recording=of, contents=contents), (0, 1), 30.0))
    assert answer.restored == restored


def test_a_task_for_the_gpu_is_done_there_and_answers_are_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_replay, "replayed_on_gpu", lambda task: ReplayAnswer(outside=task.wanted[0]))
    assert replayed_outputs.answer(encoded(task(gpu=True, wanted=(7,)))) == ReplayAnswer(outside=7)


@pytest.mark.parametrize(
    ("row", "reason", "told"),
    [
        (TorchOperator(1, "mul_.Tensor", (ViewAt(2), 3.0)), None, 6.0),
        (TorchOperator(0, "add_.Tensor", (ViewAt(1), 1.0)), None, 3.0),
        (
            TorchOperator(1, "index_select.out", (ViewAt(0), 0, ViewAt(3)), {"out": ViewAt(2)}),
            Reason.FAULT,
            "index_select",
        ),
        (TorchOperator(0, "mul.out", (ViewAt(0), "x"), {"out": ViewAt(2)}), Reason.EMULATOR, "torch's mul: "),
    ],
)
def test_operators_run_between_emulated_launches(row: TorchOperator, reason: Reason | None, told: Any) -> None:
    """By torch, on the same memory."""
    recording = msgspec.structs.replace(SIDE.recording, views=(*SIDE.recording.views, View(0, "int64", (300,), (1,))))
    ones = np.ones(600, "f4").tobytes()
    side = msgspec.structs.replace(SIDE, recording=recording, contents=(ones, ones, None), operators=(row,))
    answer = replayed_outputs.replayed(task(side=side, wanted=(2,)))
    if reason is not None:
        assert answer.refused is not None
        assert (answer.refused.reason, told in answer.refused.text) == (reason.value, True)
    else:
        assert np.frombuffer(answer.contents[0] or b"", "f4").tolist() == [told] * 600
