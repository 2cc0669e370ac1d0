"""Inductor's caches while the gate captures a call on a GPU: a folder of the gate's own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
TRITON = "TRITON_CACHE_DIR"
"""Inductor sets it for the process, to a folder in its own, when it makes its first kernel."""


@contextlib.contextmanager
def gates_own_caches(folder: Path, triton: str) -> Iterator[None]:
    """Inductor reads and writes ``folder`` meanwhile, and compiles into ``triton``, Triton's cache of this process,
    where kerntune finds the same binaries.

    So what a test generates doesn't depend on what other programs of the user have left, the choices among configs last
    from run to run, and the user's cache has nothing that was compiled with CUDA graphs off. Where ``folder`` can't be
    written, Inductor's own is left to it.
    """
    before = {name: os.environ.get(name) for name in (INDUCTOR, TRITON)}
    os.environ.update({TRITON: triton, **({INDUCTOR: str(folder)} if _can_be_written(folder) else {})})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _can_be_written(folder: Path) -> bool:
    """Whether files can be made in a folder, which need not be there yet."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK)
