"""Caches of two machines with one store, and no winners of wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerntune.tuning.cache import winners
from kerntune.tuning.cache.shared_store import SharedWinnerCache

from .stores import machine


@pytest.fixture
def here(tmp_path: Path) -> SharedWinnerCache:
    return machine(tmp_path, "here")


@pytest.fixture
def there(tmp_path: Path) -> SharedWinnerCache:
    return machine(tmp_path, "there")


@pytest.fixture(autouse=True)
def no_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test registers its own folders."""
    monkeypatch.setattr(winners, "_folders", [])
    monkeypatch.setattr(winners, "_read", {})
    monkeypatch.delenv("KERNTUNE_WINNERS", raising=False)
