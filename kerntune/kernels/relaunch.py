"""Launches of kernels that are compiled already: wrappers with a cache of their own call ``compiled[grid](*args)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerntune.base.config import COMPILE_FIELDS


def as_launch(compiled: Any, grid: Any) -> Callable[..., Any] | None:
    """A function that launches a ``CompiledKernel`` through its ``JITFunction``, with arguments bound and specialized
    again.

    Called as ``compiled[grid]`` is: all parameters by position, constants among them. None for a kernel without Python
    source (compiled from IR): its arguments can't be bound.
    """
    jit = getattr(getattr(compiled, "src", None), "fn", None)
    if jit is None or not hasattr(jit, "params"):
        return None
    metadata = compiled.metadata
    words = {name: getattr(metadata, name, None) for name in COMPILE_FIELDS}
    given = {name: value for name, value in words.items() if value is not None}

    def launch(*args: Any, stream: Any = None) -> None:
        jit.run(*args, grid=tuple(grid), warmup=False, **given)

    return launch
