"""The time-out follows what was seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerntune.compiling.farm import FLOOR_SECONDS, SLOWEST_TIMES, Deadline


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


def test_nothing_is_ended_before_half_a_minute_or_ten_times_the_slowest():
    deadline = Deadline()
    assert (deadline.seconds, str(deadline)) == (30.0, "30 s")
    deadline.saw(3.0)
    assert (deadline.seconds, str(deadline)) == (30.0, "30 s")
    deadline.saw(4.0)
    deadline.saw(1.0)
    assert (deadline.seconds, str(deadline)) == (40.0, "40 s, 10 times the slowest so far")
    assert Deadline(floor=1.0, factor=2.0).seconds == 1.0
