"""Ends and failures."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from kerntune.errors import CaptureError
from kerntune.gpu.fake_cuda import StandInEnd, static_reason

OPERATOR = torch.ops.aten.nonzero.default
ENDS = [
    (StandInEnd("needs the moon"), "needs the moon"),
    (DataDependentOutputException(OPERATOR), "needs the value of a stand-in (aten.nonzero.default)"),
    (DynamicOutputShapeException(OPERATOR), "needs a shape that depends on the values of a stand-in"),
    (AssertionError("Torch not compiled with CUDA enabled"), "needs a GPU: Torch not compiled with CUDA enabled"),
]


def raised(error: BaseException, cause: BaseException | None = None, quiet: bool = False) -> BaseException:
    try:
        try:
            raise error
        except type(error) as inner:
            if cause is not None:
                raise RuntimeError("wrapped") from cause
            if quiet:
                raise ValueError("something else") from None
            raise KeyError("while handling") from inner
    except Exception as outer:
        return outer


@pytest.mark.parametrize(("error", "reason"), ENDS)
def test_reason_of_an_end(error: BaseException, reason: str) -> None:
    assert (static_reason(error) or "").startswith(reason)
    assert static_reason(raised(error)) == static_reason(error)
    assert static_reason(raised(ValueError(), cause=error)) == static_reason(error)


@pytest.mark.parametrize("error", [AssertionError("not close"), RuntimeError("size mismatch"), ValueError(), None])
def test_failures_have_no_reason(error: BaseException | None) -> None:
    assert static_reason(error) is None


def test_a_suppressed_end_does_not_excuse_what_follows() -> None:
    assert static_reason(raised(StandInEnd("x"), quiet=True)) is None


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert static_reason(first) is None


def test_an_end_is_a_capture_error() -> None:
    assert issubclass(StandInEnd, CaptureError)
