"""Holds a result against its reference: that of the captured run, and of further runs with the winners."""

from __future__ import annotations

from typing import Any

from kerntune.capture import Capture
from kerntune.errors import ReferenceMismatch
from kerntune.gate.call import Call
from kerntune.gate.case_identity import leaves
from kerntune.gpu.base import Backend


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
    except (AssertionError, TypeError) as exc:  # the latter of a tensor beside a list, say
        raise ReferenceMismatch(f"{case}: the result disagrees with its reference. {exc}") from None


def compare_call(call: Call, value: Any, expected: Any) -> None:
    """:func:`compare_reference` of a call's result, within the call's tolerances."""
    compare_reference(value, expected, rtol=call.rtol, atol=call.atol, case=str(call.case))


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


class Rerun:
    """Further runs of a captured call, which was given a reference and returned ``value``.

    Each starts from what the call's tensors held before their first launch; afterwards these, what the call was given
    and what it returned, and their gradients, hold again what the captured run has left.
    """

    def __init__(self, backend: Backend, capture: Capture, call: Call, value: Any) -> None:
        self._backend, self._capture, self._call, self._value = backend, capture, call, value

    def mismatch(self) -> str | None:
        """How the result with the configs that are settled now disagrees with the reference; None if it agrees. A call
        that fails (a backward pass has freed its graph, say) disagrees."""
        call, plan = self._call, self._capture.plan
        assert call.reference is not None
        with plan.preserving(self._tensors()):
            plan.rewind()
            with self._capture.pinned():
                try:
                    value = call.fn(*call.args, **call.kwargs)
                except Exception as exc:
                    return f"the call fails: {exc}"
            try:
                compare_call(call, value, call.reference())
            except ReferenceMismatch as exc:
                return str(exc).partition(": ")[2]
        return None

    def _tensors(self) -> list[Any]:
        call, plan = self._call, self._capture.plan
        given = leaves(self._backend, (call.fn, call.args, call.kwargs, self._value))
        grads = [g for t in given if (g := getattr(t, "grad", None)) is not None]
        by_storage = {
            self._backend.tensors.storage_address(t): t
            for t in (*plan.tensors(), *given, *grads)
            if self._backend.tensors.is_tensor(t)
        }
        return list(by_storage.values())
