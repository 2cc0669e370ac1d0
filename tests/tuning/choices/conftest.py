"""A scripted GPU for choices: implementations are Python functions over real tensors of the host that take its time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import agreement
from kerntune.tuning.choices import deciding


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, and nothing said or chosen before."""
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(agreement, "_chosen", {})
    monkeypatch.setattr(deciding, "_said", set())
    return tmp_path


@pytest.fixture
def spend(this_gpu: FakeBackend) -> Callable[[float], None]:
    """Have the scripted GPU be busy for so many nanoseconds."""

    def work(ns: float) -> None:
        gpu: Any = this_gpu.gpu
        gpu._clock += ns

    return work
