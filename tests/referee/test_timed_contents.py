"""Contents of timed executions: which of their results are known, and by which distance each is reached."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from kerntune.referee import timed_contents
from kerntune.referee.case_inputs import UserCallable
from kerntune.referee.hostile_recording import checked
from kerntune.referee.layouts import FUNCTION
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import ExpectedSeed, Variation
from kerntune.referee.timed_contents import RightCandidate, TimedContents, drawn_rolls, places, variation_of
from tests.referee.recordings import CALL, CASE, TARGET

CHECKED = checked(CALL, CASE, TARGET)
SEEDS = 4
GIVEN = [tuple(bytes([16 * seed + i + 1]) * 1200 + bytes(1200) for i in range(2)) for seed in range(SEEDS)]
PATTERNS = [bytes([seed]) * 8 for seed in range(SEEDS)]


def right(content: str = "normal") -> RightCandidate:
    """A candidate that was right at each seed; the inputs' numbers are drawn, or made by the author's code."""
    case = replace(CASE, tensors=tuple(replace(t, content=content) for t in CASE.tensors))
    refused, source = Refusal(Reason.ADDRESSES, "x"), UserCallable("a.py", "f", FUNCTION)
    expected = tuple(ExpectedSeed(given, ()) for given in GIVEN)
    return RightCandidate(case, CHECKED, source, refused, expected, (), True, PATTERNS, 0.0)


def varied(**tensor: Any) -> Variation:
    """Of the case whose first input is another one."""
    first, second = CASE.tensors
    return variation_of(replace(CASE, tensors=(replace(first, **tensor), second)), CHECKED)


@pytest.mark.parametrize(
    ("tensor", "variation"),
    [
        ({}, Variation((0, 1), (4, 4))), ({"dtype": "float16"}, Variation((0, 1), (2, 4))),
        ({"content": "uniform"}, Variation((0, 1), (4, 4))), ({"content": "integers"}, Variation((0, 1), (4, 4))),
        ({"content": "zeros"}, Variation((1,), (4,))), ({"content": "fixed"}, Variation((1,), (4,))),
        ({"shape": (64,)}, Variation((0, 1), (4, 4))), ({"shape": (63,)}, Variation((1,), (4,))),
        ({"shape": (8, 8)}, Variation((0, 1), (4, 4))),
        ({"content": "author"}, Variation((0, 1), (4, 4), whole=True)),
        ({"content": "author", "shape": (1,)}, Variation((0, 1), (4, 4), whole=True)),
        ({"content": "author", "shape": (0,)}, Variation((1,), (4,))),
    ],
)  # fmt: skip
def test_numbers_that_are_drawn_are_rolled_and_the_authors_are_given_as_a_whole(tensor: Any, variation: Any) -> None:
    assert varied(**tensor) == variation


def test_an_input_that_no_launch_reaches_is_not_rolled() -> None:
    assert variation_of(CASE, replace(CHECKED, inputs=(None, 1))) == Variation((1,), (4,))
    assert variation_of(CASE, CHECKED, least=601) == Variation()
    assert variation_of(CASE, CHECKED, least=600) == Variation((0, 1), (4, 4))


def test_drawn_distances_are_of_elements_and_none_is_nothing() -> None:
    variation = Variation((0, 1), (4, 8))
    for seed in range(50):
        first, second = drawn_rolls(variation, CHECKED, random.Random(seed))
        assert first % 4 == second % 8 == 0
        assert 0 < first < 2400
        assert 0 < second < 2400


def test_rolled_contents_come_back_by_the_known_distance() -> None:
    contents = TimedContents(right(), random.Random(3))
    assert contents.variation == Variation((0, 1), (4, 4))
    assert len({distance for seed in range(SEEDS) for distance in contents.known(seed)}) == SEEDS
    for seed in range(SEEDS):
        ((distances, leads_to),) = contents.known(seed).items()
        assert leads_to == seed
        side = contents.side(seed)
        assert side.poison == PATTERNS[seed]
        for content, distance, given in zip(side.contents, distances, GIVEN[seed], strict=False):
            assert content is not None
            assert content != given
            assert content[distance:] + content[:distance] == given
        assert side.contents[2] is None


def test_contents_of_the_authors_code_lie_in_a_row_and_the_last_seeds_is_never_beside_its_own() -> None:
    """All but one: to that the next seed's process leads."""
    contents = TimedContents(right("author"), random.Random(3))
    assert contents.known(2) == {(0, 0): 2, (2400, 2400): 1, (4800, 4800): 0}
    assert contents.known(0) == {(0, 0): 0, (2400, 2400): 3, (4800, 4800): 2}
    side = contents.side(2)
    assert side.contents[:2] == tuple(b"".join(GIVEN[seed][i] for seed in (2, 1, 0)) for i in range(2))
    assert (side.contents[2], side.poison) == (None, PATTERNS[2])


@pytest.mark.parametrize(("room", "count"), [(4800 * 3, 3), (4800 * 3 - 1, 2), (1, 2), (4800 * 99, 3)])
def test_as_many_contents_lie_in_a_row_as_there_is_room_for_and_two_at_least(
    monkeypatch: pytest.MonkeyPatch, room: int, count: int
) -> None:
    monkeypatch.setattr(timed_contents, "WHOLE_BYTES", room)
    assert len(TimedContents(right("author"), random.Random(3)).known(0)) == count


def test_places_in_a_row() -> None:
    assert places(CHECKED, Variation((0, 2), (4, 4)), 3) == ((0, 0), (2400, 2400), (4800, 4800))
    assert places(CHECKED, Variation((), ()), 2) == ((), ())
