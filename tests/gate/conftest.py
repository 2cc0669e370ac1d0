"""A project in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.project import Project
from kerntune.compiling.compiler import Compiler
from kerntune.compiling.farm import Farm
from kerntune.gate import session


class KeptFarm(Farm):
    """Stays open when a session ends: the next one's processes needn't start, which takes 0.3 s each."""

    def close(self) -> None:
        """Not yet."""


@pytest.fixture(scope="session")
def farm() -> Iterator[Farm]:
    """One for all sessions; each session's own compiler finds what it compiled in memory or in Triton's cache."""
    kept = KeptFarm()
    yield kept
    Farm.close(kept)


@pytest.fixture
def project(tmp_path: Path, farm: Farm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setattr(session, "Compiler", lambda: Compiler(farm))
    made = Project(tmp_path)
    with made.opened:
        yield made
