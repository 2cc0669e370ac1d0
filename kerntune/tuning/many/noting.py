"""``KERNTUNE_SHAPES=FILE``: the calls that a run would tune are noted in a file, and nothing is tuned."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerntune.base.config import Config
from kerntune.errors import KerntuneError
from kerntune.tuning.many.describing import describe
from kerntune.tuning.many.shapes_file import ShapesFile

SHAPES = "KERNTUNE_SHAPES"
"""The file. Every process of a run may have the same."""

_LOCK = threading.Lock()


def noting() -> bool:
    """Whether this process notes calls."""
    return bool(os.environ.get(SHAPES))


def note(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any], configs: Sequence[Config] = ()) -> None:
    """Note a call. What can't be described or written is a warning: the run goes on as without."""
    path = os.environ.get(SHAPES)
    if not path:
        return
    try:
        job = describe(tuner, args, kwargs, configs)
        with _LOCK:
            _file(os.path.abspath(path)).add(job)
        if job.unknown:
            _warn(f"{job} is noted, but can't be tuned from {path}: {job.unknown}")
    except KerntuneError as exc:
        _warn(str(exc))


@lru_cache(maxsize=8)
def _file(path: str) -> ShapesFile:
    return ShapesFile(Path(path))


@lru_cache(maxsize=1024)
def _warn(text: str) -> None:
    """Once a process."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)
