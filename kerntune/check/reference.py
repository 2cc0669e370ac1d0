"""Holds a result against its reference."""

from __future__ import annotations

from typing import Any

from kerntune.errors import ReferenceMismatch


def compare_reference(actual: Any, expected: Any, *, rtol: float | None, atol: float | None, case: str) -> None:
    """:class:`ReferenceMismatch` with where and by how much, unless ``actual`` is ``expected`` within tolerance.

    Tensors, or nested tuples, lists and dicts of them, ``expected`` on any device or of numpy; ``rtol`` and
    ``atol`` are those of ``torch.testing.assert_close``, both or neither given, with its defaults by dtype.
    """
    import torch

    if (rtol is None) != (atol is None):
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        torch.testing.assert_close(_plain(actual), _plain(expected), rtol=rtol, atol=atol, check_device=False)
    except AssertionError as exc:
        raise ReferenceMismatch(f"{case}: the result disagrees with its reference. {exc}") from None


def _plain(value: Any) -> Any:
    """A list for a tuple, a tensor for an array of numpy: torch compares types strictly, users don't mean that."""
    import numpy
    import torch

    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, numpy.ndarray):
        return torch.as_tensor(value)
    return value.detach() if hasattr(value, "detach") else value
