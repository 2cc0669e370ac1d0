"""In which order programs begin and go on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kerntune.errors import KernelFault
from kerntune.gpu.emulator import program_order
from kerntune.gpu.emulator.program_order import ProgramOrder
from kerntune.gpu.emulator.races import RunningProgram


def steps() -> Iterator[None]:
    yield


def waits(order: ProgramOrder, number: int, *addresses: int) -> None:
    program = RunningProgram(number, (number, 0, 0))
    program.awaited.append((addresses, b""))
    order.wait(program, iter(steps()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("chance", "count", "shuffled"), [(None, 9, False), (random.Random(1), 9, True)])
def test_the_order_of_programs_is_drawn(chance: Any, count: int, shuffled: bool) -> None:
    order = list(ProgramOrder(chance, 4).numbers(count))
    assert sorted(order) == list(range(count))
    assert (order != list(range(count))) == shuffled
    numbers = ProgramOrder(chance, 4).numbers((1 << 22) + 1)
    assert [next(numbers) for _ in range(3)] == [0, 1, 2]


def test_the_lowest_begin_when_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_order, "MOST_WAITING", 3)
    order = ProgramOrder(random.Random(2), 4)
    begun = []
    for number in order.numbers(20):
        begun.append(number)
        if len(begun) <= 5:
            waits(order, number, 100)
    assert sorted(begun) == list(range(20))
    assert begun[:3] != [0, 1, 2]
    rest = [n for n in range(20) if n not in begun[:3]]
    assert begun[3:] == rest, "all the others, in ascending order, for those that wait still do"


def test_one_that_waits_goes_on_when_what_it_read_has_changed() -> None:
    order = ProgramOrder(None, 4)
    waits(order, 3, 100, 104)
    waits(order, 4, 104)
    waits(order, 5, 108)
    order.changed([96, 112])
    assert not list(order.ready(last=False))
    order.changed([104])
    assert [program.number for program, _ in order.ready(last=False)] == [3, 4]
    order.changed([104, 100])
    assert not list(order.ready(last=False))
    assert [program.number for program, _ in order.ready(last=True)] == [5]


def test_more_than_a_gpu_holds_cannot_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those they wait for would never begin."""
    monkeypatch.setattr(program_order, "PROCESSORS", 3)
    order = ProgramOrder(None, warps=64)
    for number in range(3):
        waits(order, number, 100)
    with pytest.raises(KernelFault, match=r"^more than 3 programs wait for others, which no GPU holds at once$"):
        waits(order, 3, 100)


@pytest.mark.parametrize(("warps", "blocks"), [(1, 32), (2, 32), (4, 16), (32, 2), (64, 1)])
def test_a_processor_holds_so_many_warps(warps: int, blocks: int) -> None:
    order, held = ProgramOrder(None, warps), 132 * blocks
    for number in range(held):
        waits(order, number, 100)
    with pytest.raises(KernelFault, match=f"^more than {held} programs wait"):
        waits(order, held, 100)


def test_in_the_end_all_that_wait_are_tried_in_turn() -> None:
    order = ProgramOrder(None, 4)
    for number in (2, 0, 1):
        waits(order, number, 100)
    tried = []
    for program, _ in order.ready(last=True):
        tried.append(program.number)
        if len(tried) < 7:
            waits(order, program.number, 100)
    assert tried == [2, 0, 1, 2, 0, 1, 2, 0, 1]
