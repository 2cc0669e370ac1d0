"""Runs a call once more with its winners: their result has to agree with the call's reference, too."""

from __future__ import annotations

from typing import Any

from kerntune.capture import Capture
from kerntune.errors import ReferenceMismatch
from kerntune.gate.call import Call
from kerntune.gate.fingerprint import leaves
from kerntune.gate.reference import compare_reference
from kerntune.gpu.base import Backend


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
                compare_reference(value, call.reference(), rtol=call.rtol, atol=call.atol, case=str(call.case))
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
