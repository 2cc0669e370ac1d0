"""Launches that a capture can't see: of compiled kernels that have no Python source to bind arguments by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kerntune.kernels import compat


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The names of kernels whose launches a capture leaves alone meanwhile, in order, each once; they launch as ever.

    To be entered before the capture, which hands on to this what it can't record (``kernels.relaunch``).
    """
    seen: list[str] = []
    kind = compat.compiled_kernel()
    original = kind.__getitem__

    def getitem(kernel: Any, grid: Any) -> Any:
        name = str(kernel.name)
        if name not in seen:
            seen.append(name)
        return original(kernel, grid)

    kind.__getitem__ = getitem
    try:
        yield seen
    finally:
        kind.__getitem__ = original


def unseen_text(names: list[str]) -> str:
    """Why a call that launches such kernels is INCOMPLETE, and what to do."""
    return (
        f"it launches {', '.join(names)}, compiled without a Python source (from IR), which can't be recorded, so "
        "nothing was checked; launch kernel[grid](...) of a @triton.jit function in this test"
    )
