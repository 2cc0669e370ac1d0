"""Storage that is changed in place has its first content before every timed execution, under each timer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fake_runs import N, block, by_block, increment_kernel, program_of, recorded, script

from kerntune.gpu.program import Program
from kerntune.gpu.scripted import FakeBackend
from kerntune.gpu.scripted_work import FakeWork
from kerntune.timing.timers import EventSlot, GraphSlot
from kerntune.tuning.race import Estimates, Trial, executions


def looked_at(program: Program) -> None:
    Estimates().take(Trial(0, program.recording, program, [0]))


def slots(make: Callable[[Program], EventSlot | GraphSlot]) -> Callable[[Program], None]:
    def take(program: Program) -> None:
        slot = make(program)
        for _ in range(3):
            slot.enqueue()()

    return take


@pytest.mark.parametrize(
    "timed",
    [
        looked_at,
        lambda program: executions(program, 5),
        slots(lambda program: EventSlot(program, 4)),
        slots(lambda program: GraphSlot(program, 2, 2)),
        slots(lambda program: GraphSlot(program, 2, 8)),
    ],
    ids=["first look", "executions", "events", "graph", "graph of several rounds"],
)
def test_every_timed_execution_begins_with_the_first_content(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, timed: Callable[[Program], None]
) -> None:
    script(backend, block(64, 1000.0), noise=0.0)
    x = torch.randn(N, device="cuda")
    program = program_of(backend, recorded(backend, lambda: increment_kernel[by_block](x, N, BLOCK=64)))
    assert program.in_place == [0]
    first, leave, seen = program.memory.sources[0].pristine.content.key, FakeWork.leave, list[bool]()

    def watched(work: FakeWork) -> None:
        seen.extend(buffer.content.key == first and len(marks) == 1 for buffer, marks in work.left.items())
        leave(work)

    monkeypatch.setattr(FakeWork, "leave", watched)
    timed(program)
    assert len(seen) >= 5
    assert all(seen)
