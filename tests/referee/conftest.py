"""What tests of timed executions need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerntune.referee import sealing


@pytest.fixture
def turn_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a sealed process gets to take turns with others."""
    descriptor = os.open(tmp_path / "turn", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(sealing, "turn_file", descriptor)
    yield
    os.close(descriptor)
