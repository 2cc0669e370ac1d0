"""Failed first launches: which are open, which are remembered, and who is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from kerntune.tuning.admission import FirstLaunchFault, FirstLaunchFaults


def fault(number: int, hung: bool = False, contents: tuple[str, ...] = ()) -> FirstLaunchFault:
    work: Any = (f"code {number}", (number, 1, 1), contents)
    compiled: Any = None
    return FirstLaunchFault("it faulted", compiled, work, f"code {number}", [number, number + 100], hung)


def faults(*given: FirstLaunchFault) -> FirstLaunchFaults:
    found = FirstLaunchFaults("k")
    for one in given:
        found.add(one)
    return found


def test_a_fault_is_found_by_its_work_before_and_after_it_is_settled() -> None:
    one, two = fault(1), fault(2, contents=("mine",))
    found = faults(one)
    assert found.settle() == [one]
    found.add(two)
    assert (found.like(one.work), found.like(two.work), found.like(fault(3).work)) == (one, two, None)
    assert found.like(fault(2).work) is None, "on other contents"
    assert found.has(fault(2).work[:2])
    assert found.has(one.work[:2])
    assert not found.has(fault(3).work[:2])
    assert found.indices() == [2, 102, 1, 101]
    assert found.settle() == [two]
    assert found.settle() == []


def test_those_that_hung_are_taken_to_be_launched_once_more() -> None:
    found = faults(fault(1), fault(2, hung=True), fault(3, hung=True))
    assert found.hangs == 2
    assert [one.work[0] for one in found.take_hung()] == ["code 2", "code 3"]
    assert found.hangs == 0
    assert found.indices() == [1, 101]


@pytest.mark.parametrize(
    ("open_", "incumbent", "good", "blamed"),
    [
        (0, None, 0, False),
        (0, 1, 0, False),
        (1, None, 0, True),
        (1, None, 1, False),
        (2, None, 1, True),
        (1, 0, 9, True),
        (1, 5, 9, False),
    ],
)
def test_the_call_is_to_blame_for_most_and_for_the_incumbent(
    open_: int, incumbent: int | None, good: int, blamed: bool
) -> None:
    assert faults(*map(fault, range(open_))).blame_call(incumbent, good) is blamed


def test_settled_ones_blame_nobody() -> None:
    found = faults(fault(0), fault(1))
    found.settle()
    assert not found.blame_call(0, 0)


@pytest.mark.parametrize(("count", "hung", "doubt"), [(11, 0, False), (12, 0, True), (2, 2, False), (3, 3, True)])
def test_doubt_comes_with_many_faults_and_none_that_is_good(count: int, hung: int, doubt: bool) -> None:
    found = faults(*(fault(i, hung=i < hung) for i in range(count)))
    assert found.in_doubt(0) is doubt
    assert not found.in_doubt(1)
    assert not found.without_hope(1, 1)
    assert found.without_hope(0, 1) is doubt


def test_a_fault_is_no_hang_and_is_found_again_unless_it_is_said() -> None:
    found = FirstLaunchFault("it faulted", None, ("c", (1, 1, 1), ()), "c", [0])  # type: ignore[arg-type]
    assert (found.hung, found.passing) == (False, False)
    assert faults(found).hangs == 0
