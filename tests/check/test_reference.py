"""A result beside what a test's ``reference=`` gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kerntune.check import compare_reference
from kerntune.errors import ReferenceMismatch

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
