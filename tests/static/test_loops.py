"""Which instructions are repeated."""

from __future__ import annotations

import pytest

from kerntune.static.disassembly import Jump, inside, loops

STEP = 16


def jumps(*found: tuple[int, int | None, bool]) -> list[Jump]:
    """By instruction's number: its own, that of the target, and whether the next may follow."""
    return [Jump(at * STEP, None if target is None else target * STEP, falls) for at, target, falls in found]


def numbers(found: list[Jump], count: int) -> list[tuple[int, int]]:
    return [(a // STEP, b // STEP) for a, b in loops(found, 0, count * STEP, STEP)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], [], id="straight"),
        pytest.param([(40, 20, True), (60, None, False)], [(20, 41)], id="a loop"),
        pytest.param([(5, 50, True), (49, None, False)], [], id="over an if"),
        pytest.param([(60, 60, False)], [], id="the end of Triton's kernels: a branch to itself"),
        pytest.param([(30, 28, True), (60, None, False)], [], id="a barrier that is waited for"),
        pytest.param([(40, 20, True), (60, 5, True)], [(5, 20), (20, 41), (41, 61)], id="a loop in a loop"),
    ],
)
def test_ranges(found: list[tuple[int, int | None, bool]], expected: list[tuple[int, int]]) -> None:
    assert numbers(jumps(*found), 61) == expected


def test_a_wait_out_of_line_makes_no_loop_of_what_lies_between() -> None:
    """In the loop (10 to 30) a barrier is tested; if it isn't complete, code at the end (70) polls it."""
    found = jumps((12, 70, True), (30, 10, True), (60, None, False), (72, 70, True), (73, 13, False))
    repeated = numbers(found, 74)
    assert inside(20 * STEP, [(a * STEP, b * STEP) for a, b in repeated])
    assert inside(71 * STEP, [(a * STEP, b * STEP) for a, b in repeated])
    assert not inside(40 * STEP, [(a * STEP, b * STEP) for a, b in repeated])


def test_other_kernels_of_the_listing_are_left_alone() -> None:
    assert loops(jumps((140, 120, True), (160, None, False)), 100 * STEP, 161 * STEP, STEP) == [
        (120 * STEP, 141 * STEP)
    ]


@pytest.mark.parametrize(("address", "is_in"), [(0, False), (16, True), (31, True), (32, False), (64, True)])
def test_inside(address: int, is_in: bool) -> None:
    assert inside(address, [(16, 32), (48, 80)]) is is_in
