"""Holds a result against its reference."""

from __future__ import annotations

from typing import Any

from kerntune.errors import ReferenceMismatch


def compare_reference(actual: Any, expected: Any, *, rtol: float | None, atol: float | None, case: str) -> None:
    """:class:`ReferenceMismatch` with where and by how much, unless ``actual`` is ``expected`` within tolerance.

    Tensors, or nested tuples, lists and dicts of them, ``expected`` on any device; for a tensor a numpy array of its
    shape will do, in any floating type if the tensor's is one. ``rtol`` and ``atol`` are those of
    ``torch.testing.assert_close``, both or neither given, with its defaults by dtype.
    """
    import torch

    if (rtol is None) != (atol is None):
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        actual, expected = _plain(actual), _plain(expected)
        torch.testing.assert_close(actual, _beside(expected, actual), rtol=rtol, atol=atol, check_device=False)
    except AssertionError as exc:
        raise ReferenceMismatch(f"{case}: the result disagrees with its reference. {exc}") from None


def _plain(value: Any) -> Any:
    """A list for a tuple, and no gradients: torch compares types strictly, users don't mean that."""
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value.detach() if hasattr(value, "detach") else value


def _beside(expected: Any, actual: Any) -> Any:
    """Numpy's arrays and numbers as tensors where the result has them: on its device, and of its type if both are
    floating-point ones, since numpy computes in float64 and has no bfloat16."""
    import numpy as np
    import torch

    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [_beside(e, a) for e, a in zip(expected, actual, strict=True)]
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {k: _beside(v, actual.get(k)) for k, v in expected.items()}
    if not isinstance(expected, (np.ndarray, np.generic)) or not isinstance(actual, torch.Tensor):
        return expected
    tensor = torch.from_numpy(np.array(expected, order="C")).to(actual.device)
    return tensor.to(actual.dtype) if tensor.is_floating_point() and actual.is_floating_point() else tensor
