"""Who of several implementations is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import MeasurementError
from kerntune.tuning.choices.deciding import Deciding
from kerntune.tuning.verification import Verify

NAMES = "abcd"
DOUBT = (
    "choice mm: as many implementations disagree with a as agree with it, so its result was taken for the right one; "
    "give reference="
)


def deciding(mode: Verify) -> Any:
    """Outcomes are numbers, of which unlike ones differ."""
    made = Deciding.__new__(Deciding)
    made.choice = "mm"
    made.implementations = [SimpleNamespace(name=name) for name in NAMES]  # type: ignore[misc]
    made.verification = SimpleNamespace(mode=mode)  # type: ignore[assignment]
    made.left_out, made.notes, made.errors = {}, [], {}
    made._differs = lambda a, b: None if a == b else f"{b} not {a}"  # type: ignore[assignment, return-value]
    return made


@pytest.mark.parametrize(
    ("mode", "outcomes", "right", "left_out", "notes"),
    [
        (Verify.OFF, {0: 1, 1: 2}, [0, 1], {}, []),
        (Verify.ALL, {0: 1, 1: 1, 2: 1}, [0, 1, 2], {}, []),
        (Verify.ALL, {0: 1, 1: 2, 2: 2}, [1, 2], {0: "1 not 2: another result than 2 of 3 implementations"}, []),
        (Verify.ALL, {0: 1, 1: 2}, [0], {1: "2 not 1: another result than a"}, [DOUBT]),
        (Verify.ALL, {None: 2, 0: 1, 1: 2, 2: 1}, [1], {0: "1 not 2: another result than the reference",
                                                        2: "1 not 2: another result than the reference"}, []),
        (Verify.BITWISE, {0: 1, 1: 2, 2: 2}, [0], {1: "2 not 1: another result than a",
                                                   2: "2 not 1: another result than a"}, []),
        (Verify.BITWISE, {None: 2, 0: 1, 1: 2}, [1], {0: "1 not 2: another result than the reference"}, []),
    ],
)  # fmt: skip
def test_the_reference_decides_else_most_do(mode: Verify, outcomes: Any, right: Any, left_out: Any, notes: Any) -> None:
    one = deciding(mode)
    assert (one._agreeing(outcomes), one.left_out, one.notes) == (right, left_out, notes)


def test_if_all_are_wrong_every_difference_is_told() -> None:
    with pytest.raises(MeasurementError) as told:
        deciding(Verify.ALL)._agreeing({None: 3, 0: 1, 1: 2})
    assert str(told.value) == (
        "choice mm: no implementation leaves what reference= does\n"
        "  a: 1 not 3: another result than the reference\n  b: 2 not 3: another result than the reference"
    )
