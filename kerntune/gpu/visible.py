"""Which GPUs the driver shows to this process: it reads the environment once, and never again."""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""By index, by UUID (``GPU-...``) or of a MIG instance (``MIG-...``)."""

_as_begun: dict[str, str | None] = {}


def remember() -> None:
    """Keep what the driver has read. Called by the code that starts it; later calls change nothing."""
    for name in VARIABLES:
        _as_begun.setdefault(name, os.environ.get(name))


def as_begun(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a new process numbers the GPUs as this one does, although code has changed the variables
    since: a test's ``monkeypatch.setenv``, a conftest that is too late."""
    kept = {name: os.environ.get(name) for name in VARIABLES} | _as_begun
    return {k: v for k, v in environ.items() if k not in VARIABLES} | {k: v for k, v in kept.items() if v is not None}
