"""What is said of writes outside of tensors, and what becomes a baseline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.case_result import OutsideWrite
from kerntune.base.policy import Update
from kerntune.gate.outside_writes import OutsideWrites, has_fixed, outside_text


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
