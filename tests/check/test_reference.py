"""What a result may be held against: tensors of any device, arrays of numpy, and nests of them."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from kerntune.check import compare_reference
from kerntune.errors import ReferenceMismatch

ONES = torch.ones(3)


def held(actual: Any, expected: Any) -> None:
    compare_reference(actual, expected, rtol=None, atol=None, case="tests/test_x.py::test_x")


@pytest.mark.parametrize("expected", [ONES, ONES.numpy(), numpy.ones((3,), numpy.float32)])
def test_references_may_be_of_numpy(expected: Any) -> None:
    held(ONES, expected)
    held((ONES, {"y": ONES}), [expected, {"y": expected}])
    with pytest.raises(ReferenceMismatch, match=r"test_x: .* disagrees .*(?s:not close)"):
        held(2 * ONES, expected)


@pytest.mark.parametrize("expected", [torch.ones(3, dtype=torch.float64), numpy.ones(3), numpy.ones((3, 1), "f")])
def test_other_dtypes_and_shapes_disagree(expected: Any) -> None:
    with pytest.raises(ReferenceMismatch, match=r"dtype|shape"):
        held(ONES, expected)
