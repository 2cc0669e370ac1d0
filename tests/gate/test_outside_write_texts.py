"""What is said of writes outside of tensors, and what becomes a baseline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from samples import launch, recording

from kerntune.base.case_result import OutsideWrite
from kerntune.base.policy import Update
from kerntune.base.recording import Param
from kerntune.errors import MeasurementError
from kerntune.gate import device_faults as module
from kerntune.gate.device_faults import NOT_LOOKED, OutsideWrites, has_fixed, look_for, outside_text
from kerntune.timing.worker.requests import ChangedGuard


def written(certain: bool) -> OutsideWrite:
    return OutsideWrite("k", 0, "x", 4096, 4099, 4, 4096, certain)


def test_only_a_certain_write_decides() -> None:
    found = OutsideWrites((written(True), written(False)), "the device is full")
    assert found.failures == (outside_text(written(True)),)
    first, second = found.warnings
    assert first.startswith(f"{outside_text(written(False))}; that decides nothing, for the call may have changed ")
    assert second == "not looked for writes outside of tensors: the device is full"
    assert OutsideWrites().failures == OutsideWrites().warnings == ()


@pytest.mark.parametrize(
    ("certain", "update", "may"),
    [
        ((), Update.NONE, True),
        ((False,), Update.ALL, True),
        ((False,), Update.NEW, False),
        ((True,), Update.ALL, False),
        ((False, True), Update.ALL, False),
    ],
)
def test_what_writes_outside_becomes_no_baseline(certain: tuple[bool, ...], update: Update, may: bool) -> None:
    assert OutsideWrites(tuple(map(written, certain))).may_be_baseline(update) is may


@pytest.mark.parametrize(
    ("grid", "candidates", "fixed"),
    [((1, 1, 1), None, True), ((1, 1, 1), 1, True), ((1, 1, 1), 2, False), ((1, 0, 1), None, False)],
)
def test_what_is_no_candidate_hasnt_been_launched_between_guard_zones(
    grid: tuple[int, int, int], candidates: int | None, fixed: bool
) -> None:
    site = None if candidates is None else SimpleNamespace(candidates=[None] * candidates)
    other = SimpleNamespace(grid=(1, 1, 1), site=SimpleNamespace(candidates=[1, 2]))
    capture: Any = SimpleNamespace(launches=[other, SimpleNamespace(grid=grid, site=site)])
    assert has_fixed(capture) is fixed


class Elsewhere:
    """First launches in another process, which answers as it is told."""

    def __init__(self, *told: Any) -> None:
        self.told, self.closed, self.cannot_run, self.answer = told, 0, False, list[Any]()

    def cannot(self, recording: Any) -> bool:
        return self.cannot_run

    def whole_call(self, recording: Any, artifacts: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("cannot", "answer", "found"),
    [
        (True, [], NOT_LOOKED),
        (False, [], OutsideWrites()),
        (False, MeasurementError("no room"), OutsideWrites(why_not="no room")),
        (
            False,
            [ChangedGuard(1, 1, 4096, 4099, 4)],
            OutsideWrites((OutsideWrite("mul", 1, "y", 4096, 4099, 4, 4096),)),
        ),
    ],
    ids=["it can't run there", "nothing", "no answer", "a write"],
)
def test_a_look_ends_its_process_whatever_comes_of_it(
    monkeypatch: pytest.MonkeyPatch, cannot: bool, answer: Any, found: OutsideWrites
) -> None:
    made: list[Elsewhere] = []

    def first_launches(*told: Any) -> Elsewhere:
        made.append(Elsewhere(*told))
        made[-1].cannot_run, made[-1].answer = cannot, answer
        return made[-1]

    given: list[str] = []
    memory = SimpleNamespace(give_back=lambda: given.append("back"))
    monkeypatch.setattr(module, "FirstLaunches", first_launches)
    monkeypatch.setattr(module, "Memory", lambda gpu, storages, sources: memory)
    isolation: Any = SimpleNamespace(gpu="a GPU")
    launches = (launch(grid=(0, 1, 1), kernel="empty"), launch(kernel="add"), launch(kernel="mul", reads=(1,)))
    recorded: Any = SimpleNamespace(recording=recording(launches=launches), sources=(), artifacts={})
    assert look_for(isolation, recorded) == found
    assert [(one.told, one.closed) for one in made] == [((isolation, "add", memory), 1)]
    assert given == ["back"]


@pytest.mark.parametrize(
    ("kind", "before", "certain"),
    [("*fp32", (0,), True), ("*bf16", (0,), True), ("*i32", (0,), False), ("*i32", (), True), ("*i64", (0,), False)],
)
def test_a_launch_that_reads_what_an_earlier_one_wrote_as_integers_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, kind: str, before: tuple[int, ...], certain: bool
) -> None:
    params = (Param("x", kind, view=0), Param("y", "*fp32", view=1))
    earlier, mine = launch(reads=(), writes=before), launch(params=params, reads=(0,), writes=(1,))
    found = module._write(recording(launches=(earlier, mine)), ChangedGuard(1, 1, 4096, 4099, 4))
    assert found.certain is certain
