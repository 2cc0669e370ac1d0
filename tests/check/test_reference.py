"""A result held against its reference: tolerances, nesting, and what is said of a difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerntune.check.reference import compare_reference
from kerntune.errors import ReferenceMismatch


def agrees(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> bool:
    try:
        compare_reference(actual, expected, rtol=rtol, atol=atol, case="t::0")
    except ReferenceMismatch:
        return False
    return True


@pytest.mark.parametrize(
    ("rtol", "atol", "off", "expected"),
    [
        (0.1, None, 0.05, True),  # torch's default for float32 is 1.3e-6
        (0.1, None, 0.2, False),
        (None, 0.1, 0.05, True),
        (None, 0.1, 0.2, False),
        (None, None, 0.05, False),
        (None, None, 1e-6, True),
        (0.0, None, 1e-6, False),
        (None, 0.0, 1e-6, False),
    ],
)
def test_a_lone_tolerance_counts_and_the_other_is_none(
    rtol: float | None, atol: float | None, off: float, expected: bool
) -> None:
    assert agrees(torch.tensor([1.0 + off]), torch.tensor([1.0]), rtol, atol) is expected


def test_a_relative_tolerance_alone_allows_nothing_at_zero() -> None:
    assert not agrees(torch.tensor([1e-9]), torch.tensor([0.0]), rtol=0.5)
    assert agrees(torch.tensor([1e-9]), torch.tensor([0.0]))


def test_an_absolute_tolerance_alone_does_not_grow_with_the_numbers() -> None:
    assert not agrees(torch.tensor([1e6 + 1.0]), torch.tensor([1e6]), atol=0.5)
    assert agrees(torch.tensor([1e6 + 1.0]), torch.tensor([1e6]))


def test_tuples_lists_and_dicts_are_compared_by_what_they_hold() -> None:
    x = torch.ones(2)
    assert agrees((x, [x]), [x, (x,)])
    assert agrees({"a": (x,)}, {"a": [x]})
    assert not agrees({"a": (x,)}, {"a": [x + 1]})
    assert agrees(torch.ones(2, requires_grad=True), x)


def test_a_difference_names_the_case_and_how_much() -> None:
    with pytest.raises(ReferenceMismatch, match=r"t::0: the result disagrees with its reference\. (.|\n)*1 / 2"):
        compare_reference(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]), rtol=None, atol=None, case="t::0")
