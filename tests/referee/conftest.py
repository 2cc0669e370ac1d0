"""What imports of users' files change is put back, and what timed executions need."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerntune.referee import sealing


@pytest.fixture(autouse=True)
def finders_as_they_were() -> Iterator[None]:
    """Python's finders, and what they know of folders."""
    finders, hooks, known = [*sys.meta_path], [*sys.path_hooks], {*sys.path_importer_cache}
    yield
    sys.meta_path[:], sys.path_hooks[:] = finders, hooks
    for path in {*sys.path_importer_cache} - known:
        del sys.path_importer_cache[path]


@pytest.fixture
def turn_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a sealed process gets to take turns with others."""
    descriptor = os.open(tmp_path / "turn", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(sealing, "turn_file", descriptor)
    yield
    os.close(descriptor)
