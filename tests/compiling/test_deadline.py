"""The time-out follows what was seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.deadline import FLOOR_SECONDS, SLOWEST_TIMES, Deadline


@given(st.lists(st.floats(0, 1e4)))
def test_it_is_ten_times_the_slowest_and_never_under_the_floor(seen):
    deadline = Deadline()
    for seconds in seen:
        deadline.saw(seconds)
    assert deadline.seconds == max(FLOOR_SECONDS, SLOWEST_TIMES * max(seen, default=0.0))


def test_it_says_where_its_length_comes_from():
    deadline = Deadline(floor=2)
    assert str(deadline) == "2 s"
    deadline.saw(1.5)
    assert str(deadline) == "15 s, 10 times the slowest so far"
