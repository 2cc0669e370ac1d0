"""Launches that a capture can't see: of kernels that the caller compiled by hand, ``kernel.warmup(...)[grid](...)``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kerntune import compat


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The names of kernels that are launched like that meanwhile, in order, each once. They launch as they would."""
    from kerntune.backend.standin.launches import Unlaunched  # loads Triton, which commands that only look don't need

    seen: list[str] = []
    with contextlib.ExitStack() as stack:
        for kind in (compat.compiled_kernel(), Unlaunched):
            stack.enter_context(_watching(kind, seen))
        yield seen


@contextlib.contextmanager
def _watching(kind: Any, seen: list[str]) -> Iterator[None]:
    original = kind.__getitem__

    def getitem(kernel: Any, grid: Any) -> Any:
        name = str(kernel.name)
        if name not in seen:
            seen.append(name)
        return original(kernel, grid)

    kind.__getitem__ = getitem
    try:
        yield
    finally:
        kind.__getitem__ = original


def unseen_text(names: list[str]) -> str:
    """Why a call that launches such kernels is INCOMPLETE, and what to do."""
    return (
        f"it launches {', '.join(names)} as compiled by hand (kernel.warmup(...)[grid](...)), which can't be recorded, "
        "so nothing was checked; launch kernel[grid](...) in this test"
    )
