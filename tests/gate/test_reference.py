"""A result held against its reference: tolerances, nesting, arrays of numpy, and the messages about a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kerntune.errors import ReferenceMismatch
from kerntune.gate.api import compare_reference

ONES = torch.ones(4)


def compare(actual: Any, expected: Any) -> None:
    compare_reference(actual, expected, rtol=None, atol=None, case="t.py::test")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param(ONES, np.ones(4), id="float64 of numpy"),
        pytest.param(ONES.bfloat16(), np.ones(4, np.float32), id="no bfloat16 in numpy"),
        pytest.param(torch.arange(4), np.arange(4)[::-1][::-1], id="integers"),
        pytest.param(torch.arange(4).flip(0), np.arange(4)[::-1], id="a view backwards"),
        pytest.param(torch.tensor(2.0), np.float64(2.0), id="a number"),
        pytest.param((ONES, {"y": ONES}), [np.ones(4), {"y": np.ones(4)}], id="nested"),
    ],
)
def test_numpy_s_arrays_are_references_too(actual: Any, expected: Any) -> None:
    compare(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        pytest.param(ONES, np.array([1, 1, 1, 2.0]), "1 / 4", id="another value"),
        pytest.param(ONES, np.ones(5), "shape", id="another shape"),
        pytest.param(ONES, np.ones(4, np.int64), "dtype", id="integers for floats"),
        pytest.param(ONES, ONES.double(), "dtype", id="tensors are compared by type"),
        pytest.param([ONES], [np.ones(4)] * 2, "length", id="one more"),
    ],
)
def test_what_differs_is_named(actual: Any, expected: Any, said: str) -> None:
    with pytest.raises(ReferenceMismatch, match=said):
        compare(actual, expected)


class Elsewhere(torch.Tensor):
    """A tensor of another device than the host."""

    device = torch.device("cuda", 0)  # type: ignore[assignment]


def test_a_reference_may_be_computed_on_another_device() -> None:
    actual = torch.ones(4).as_subclass(Elsewhere)
    compare(actual, ONES)
    compare((actual, {"y": ONES}), [ONES, {"y": actual}])
    with pytest.raises(ReferenceMismatch, match="1 / 4"):
        compare(actual, torch.tensor([1, 1, 1, 2.0]))


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


@pytest.mark.parametrize(
    ("actual", "expected"), [(ONES, [np.ones(4)]), ([ONES], np.ones(4)), ([ONES] * 4, {"x": ONES})]
)
def test_a_container_and_a_tensor_disagree(actual: Any, expected: Any) -> None:
    with pytest.raises(
        ReferenceMismatch, match=r"^t\.py::test: the result disagrees with its reference\. No comparison"
    ):
        compare(actual, expected)
