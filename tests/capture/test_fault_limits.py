"""How many first launches may fail before the call is to blame."""

from __future__ import annotations

import itertools

import pytest

from kerntune.capture.launch import in_doubt, is_hopeless, spread


@pytest.mark.parametrize(
    ("faults", "hangs", "doubt"), [(0, 0, False), (11, 2, False), (12, 0, True), (11, 3, True), (3, 3, True)]
)
def test_twelve_faults_or_three_hangs_are_a_doubt(faults: int, hangs: int, doubt: bool) -> None:
    assert in_doubt(faults, hangs) is doubt


@pytest.mark.parametrize(
    ("faults", "hangs", "candidates", "hopeless"),
    [
        (11, 0, 11, False),
        (12, 0, 24, False),
        (12, 0, 23, True),
        (35, 0, 1000, False),
        (36, 0, 1000, True),
        (7, 7, 1000, False),
        (8, 8, 1000, True),
        (3, 3, 6, False),
        (3, 3, 5, True),
        (2, 2, 2, False),
    ],
)
def test_most_of_all_or_24_and_5_more_leave_no_hope(faults: int, hangs: int, candidates: int, hopeless: bool) -> None:
    assert is_hopeless(faults, hangs, candidates) is hopeless


def test_the_first_ones_lie_all_over_the_list() -> None:
    assert spread(range(8)) == sorted(range(8), key=lambda i: (i + 1) * (5**0.5 - 1) / 2 % 1)
    assert spread([]) == []
    for count in (4, 8, 16):
        first = sorted(spread(range(64))[:count])
        assert max(b - a for a, b in itertools.pairwise(first)) <= 2 * 64 // count
