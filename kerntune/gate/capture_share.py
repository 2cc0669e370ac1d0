"""The side of the device's lock that a capture holds: beside others where there is memory for it, else alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kerntune.gate.case_identity import leaves
from kerntune.gpu.base import Backend, Gpu

CALL_FACTOR = 2
"""Bytes that a captured call may need for each byte of its tensors: its results, and copies of what it overwrites."""


def call_bytes(backend: Backend, tree: Any) -> int:
    """Bytes of the storages of the tensors in a call's arguments, each once."""
    found = {
        backend.tensors.storage_address(t): int(t.untyped_storage().nbytes())
        for t in leaves(backend, tree)
        if backend.tensors.is_tensor(t)
    }
    return sum(found.values())


class CaptureShare:
    """Held while a call is captured. The GPU is the call's only once it launches: :meth:`move` lets go of the one that
    was expected first, since who holds one and waits for another can be waited for by its holder."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> CaptureShare:
        return self

    def move(self, gpu: Gpu) -> None:
        """Share this GPU from now on; :class:`~kerntune.errors.MeasurementError` if others measure there for too
        long."""
        self._stack.close()
        fits = gpu.free_bytes() >= CALL_FACTOR * self._nbytes
        self._stack.enter_context(gpu.lock_shared() if fits else gpu.lock())

    @contextlib.contextmanager
    def given_up(self, gpu: Gpu) -> Iterator[None]:
        """Let go of this GPU meanwhile, once what the call has enqueued is done; then share it again. An interrupt
        isn't held up by those that measure there: nothing more of the call runs."""
        gpu.synchronize()
        self._stack.close()
        try:
            yield
        except Exception:  # the call may catch it, and go on
            self.move(gpu)
            raise
        self.move(gpu)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
