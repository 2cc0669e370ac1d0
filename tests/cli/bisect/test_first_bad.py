"""The search on a line: right for every line, and with few measurements."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.cli.bisect.first_bad import FirstBad, VersionLine


class Story:
    """A line as it truly is: the work of each position (None where it can't be built), and which work is slow."""

    def __init__(self, works: Sequence[int | None], slow: set[int], untold: frozenset[int] = frozenset()) -> None:
        self.works, self.slow, self.untold = works, slow, untold
        self.screened: list[int] = []
        self.measured: list[int] = []

    def screen(self, positions: Sequence[int]) -> Mapping[int, Hashable | None]:
        self.screened += positions
        return {p: self.works[p] for p in positions}

    def measure(self, position: int) -> bool | None:
        self.measured.append(position)
        work = self.works[position]
        assert work is not None
        return None if work in self.untold else work in self.slow

    def search(self) -> FirstBad:
        line = VersionLine(len(self.works) - 1, self.screen, self.measure)
        assert line.verdict(len(self.works) - 1)
        return line.search()


@st.composite
def stories(draw: st.DrawFn) -> tuple[Story, int]:
    """A line with one change for the worse, and where that is. Work changes at some positions only."""
    length = draw(st.integers(2, 200))
    step = draw(st.integers(1, length - 1))
    changes = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    works = [sum(changes[1 : i + 1]) + (1000 if i >= step else 0) for i in range(length)]
    return Story(works, {w for w in works if w >= 1000}), step


@pytest.mark.slow
@given(stories())
def test_the_first_bad_one_is_found(story: tuple[Story, int]) -> None:
    line, step = story
    found = line.search()
    assert (found.good, found.bad) == (step - 1, step)
    assert list(found.measured) == line.measured
    assert len({line.works[p] for p in line.measured}) == len(line.measured)  # equal work is measured once


@pytest.mark.slow
@given(stories(), st.data())
def test_what_cant_be_built_widens_the_answer_and_never_moves_it(story: tuple[Story, int], data: st.DataObject) -> None:
    line, step = story
    inner = st.sets(st.integers(1, len(line.works) - 2)) if len(line.works) > 2 else st.just(set())
    line.works = [None if i in broken else w for broken in [data.draw(inner)] for i, w in enumerate(line.works)]
    found = line.search()
    assert found.good < step <= found.bad
    assert all(line.works[p] is None for p in range(found.good + 1, found.bad))


def test_a_measurement_that_tells_nothing_is_not_asked_for_again() -> None:
    line = Story([0, 1, 2, 3, 4], {3, 4}, untold=frozenset({2}))
    assert line.search() == FirstBad(1, 3, (4, 2, 3, 1))


@pytest.mark.parametrize("step", range(1, 65, 2))
def test_64_commits_of_which_half_change_no_code_take_six_measurements(step: int) -> None:
    works = [(i + 1) // 2 for i in range(65)]
    line = Story(works, {w for w in works if w >= works[step]})
    found = line.search()
    assert found.bad == step
    assert len(line.measured) <= 6


def test_of_a_long_line_few_are_screened() -> None:
    length = 5000
    line = Story([i // 3 for i in range(length)], set(range(700, length)))
    assert line.search().bad == 2100
    assert len(line.screened) < 64 + 2 * math.log2(length)


def test_a_good_one_behind_a_bad_one_moves_nothing() -> None:
    """A slow commit that was undone, and done again: the first of both is asked for."""
    found = Story([0, 1, 0, 1], {1}).search()
    assert (found.good, found.bad) == (0, 1)


def test_a_long_line_of_which_nothing_can_be_built_ends() -> None:
    line = Story([0, *[None] * 80, 1], {1})
    assert line.search() == FirstBad(0, 81, (81,))
    assert line.screened == [0, 81, *sorted(range(1, 81), key=lambda p: abs(p - 40))], "from the middle outwards"
